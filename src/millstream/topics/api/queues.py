"""Queues over HTTP: claim, ack, nack and extend, and jobs pushed as server-sent events."""

import itertools
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import msgspec

from millstream.errors import BadRequest, MillstreamError
from millstream.http.request import Caller, Request
from millstream.http.response import Answer, Response, StreamedResponse, json_response
from millstream.queues.queue import Answered, Queue
from millstream.queues.settings import LONGEST_MS, is_queue
from millstream.queues.stored_jobs import Job
from millstream.store.log.log import Durability
from millstream.topics import bodies
from millstream.topics.context import Topics
from millstream.topics.directory import check_name, topic_of
from millstream.topics.errors import BatchTooLarge, NotAQueue
from millstream.topics.page.json_text import shown
from millstream.topics.page.performance import Stopwatch
from millstream.topics.page.rendering import headers_object, text
from millstream.topics.sse import RETRY, SHUTTING_DOWN, check_accept, heartbeat, why_barred

MOST_JOBS = 1000
LONGEST_NODE = 128
HEARTBEAT_SECONDS = 15.0

_TOKEN = re.compile(r"lease_([0-9a-fA-F]{1,16})")
_connections = itertools.count(1)
_encode = msgspec.json.encode


class ClaimBody(msgspec.Struct):
    """``POST /v0/topics/{topic}/claim``."""

    node: str
    max: int | None = None
    lease_ms: int | None = None


class AckBody(msgspec.Struct):
    """``POST /v0/topics/{topic}/ack``."""

    node: str
    seqs: list[int]
    lease_ids: list[str] | None = None


class NackBody(AckBody):
    """``POST /v0/topics/{topic}/nack``."""

    delay_ms: int | None = None


class ExtendBody(AckBody, kw_only=True):
    """``POST /v0/topics/{topic}/extend``."""

    lease_ms: int


async def claim(request: Request, topics: Topics) -> Response:
    """Lease jobs to a node until their deadline."""
    watch = Stopwatch(topics.clock)
    check_name(topic_of(request), request.caller)
    if not request.body:
        raise BadRequest("the body must name a node, the worker that claims")
    body: ClaimBody = bodies.json_body(request, ClaimBody)
    wanted = bodies.unsigned(body.max, "max", 1, bodies.U32)
    lease_ms = bodies.unsigned(body.lease_ms, "lease_ms", 0)
    queue = _queue(request, topics)
    _check_node(body.node)
    await topics.routers.catch_up(queue.stream)
    topics.priorities.touch(queue.stream)
    jobs, ready = await queue.claim_and_count(
        body.node, _clamp_jobs(wanted), None if body.lease_ms is None else lease_ms
    )
    own = queue.stream.name.encode()
    answer = b'{"topic":%b,"claimed":[%b],"count":%d,"ready":%d,"performance":%b}' % (
        _encode(queue.stream.name),
        b",".join([b"{%b}" % _fields(job, own) for job in jobs]),
        len(jobs),
        ready,
        _encode(watch.performance()),
    )
    return Response(200, answer)


async def ack(request: Request, topics: Topics) -> Response:
    """Delete finished jobs for good."""
    watch = Stopwatch(topics.clock)
    body: AckBody = _worker_body(request, AckBody)
    tokens = _tokens(body)
    queue = _queue(request, topics)
    began = watch.elapsed_ms()
    answered = await queue.ack(body.node, body.seqs, tokens)
    took, more = max(round(watch.elapsed_ms() - began, 3), 0.001), {}
    if answered.count and queue.stream.log.durability is Durability.FSYNC:
        more = {"fsync_ms": took}
    return _answer(queue, "acked", answered, watch.performance(**more))


async def nack(request: Request, topics: Topics) -> Response:
    """Give jobs back, at once or after a delay."""
    watch = Stopwatch(topics.clock)
    body: NackBody = _worker_body(request, NackBody)
    delay_ms = bodies.unsigned(body.delay_ms, "delay_ms", 0)
    tokens = _tokens(body)
    queue = _queue(request, topics)
    answered = await queue.nack(body.node, body.seqs, tokens, min(delay_ms, LONGEST_MS))
    return _answer(queue, "nacked", answered, watch.performance())


async def extend(request: Request, topics: Topics) -> Response:
    """Let leases run from now on for as long as the worker says."""
    watch = Stopwatch(topics.clock)
    body: ExtendBody = _worker_body(request, ExtendBody)
    lease_ms = bodies.unsigned(body.lease_ms, "lease_ms", 0)
    tokens = _tokens(body)
    queue = _queue(request, topics)
    answered, deadline = await queue.extend(body.node, body.seqs, tokens, lease_ms)
    skipped = set(answered.skipped)
    return json_response(
        {
            "topic": queue.stream.name,
            "extended": answered.count,
            "skipped": answered.skipped,
            "deadlines": {str(seq): deadline for seq in body.seqs if seq not in skipped},
            "performance": watch.performance(),
        }
    )


async def work(request: Request, topics: Topics) -> Answer:
    """Push jobs to a worker, never more at a time than it asks for."""
    check_name(topic_of(request), request.caller)
    check_accept(request)
    node = request.query.get("node", "")
    _check_node(node)
    wanted = bodies.query_number(request, "max", bodies.U32)
    lease_ms = bodies.query_number(request, "lease_ms")
    queue = _queue(request, topics)
    leave = topics.live.take(request.caller.key)
    topics.priorities.touch(queue.stream)
    most = _clamp_jobs(1 if wanted is None else wanted)
    return StreamedResponse(WorkStream(topics, queue, node, most, lease_ms, request.caller, leave))


class WorkStream(AsyncIterator[bytes]):
    """One worker's connection; what it has not finished when it ends goes back at once."""

    def __init__(
        self,
        topics: Topics,
        queue: Queue,
        node: str,
        most: int,
        lease_ms: int | None,
        caller: Caller,
        leave: Callable[[], None],
    ) -> None:
        self._topics = topics
        self._leave = leave
        self._caller = caller
        self._queue = queue
        self._node = node
        self._most = most
        self._lease_ms = lease_ms
        self._connection = next(_connections)
        self._chunks = self._generate()
        self._open = True

    async def __anext__(self) -> bytes:
        """Return the next piece of the stream."""
        return await anext(self._chunks)

    async def aclose(self) -> None:
        """Release the leases and the slot; harmless when done twice."""
        if self._open:
            self._open = False
            self._leave()
            self._queue.release(self._connection)
        await self._chunks.aclose()

    async def _generate(self) -> AsyncGenerator[bytes, None]:
        clock, queue = self._topics.clock, self._queue
        yield RETRY
        sent_at = clock.monotonic()
        while not (ended := self._why_ended()):
            try:
                jobs = await self._refill()
            except MillstreamError as error:
                yield _error_event(error.http_status, error.message, queue)
                return
            if jobs:
                yield b"".join([_job_event(job, queue) for job in jobs])
                sent_at = clock.monotonic()
                continue
            left = sent_at + HEARTBEAT_SECONDS - clock.monotonic()
            if left <= 0:
                yield heartbeat(self._topics.now_ms())
                sent_at = clock.monotonic()
            else:
                await queue.waiting.wait(self._connection, self._room() > 0, left)
        yield ended

    def _why_ended(self) -> bytes:
        """Return the last event of the stream, empty while it goes on."""
        if self._topics.stop_signal.is_set:
            return b"event: error\ndata: %b\n\n" % SHUTTING_DOWN
        barred = why_barred(self._caller, (self._queue.stream.name,))
        if barred:
            return b"event: error\ndata: %b\n\n" % barred
        if self._queue.closed:
            return _error_event(409, "the queue is gone", self._queue)
        return b""

    async def _refill(self) -> list[Job]:
        ready = self._queue.counters().ready  # this also ends leases that ran out
        if not ready or self._room() <= 0:
            return []
        return await self._queue.claim(self._node, self._room(), self._lease_ms, self._connection)

    def _room(self) -> int:
        return self._most - self._queue.leases.held_by(self._connection)


def _job_event(job: Job, queue: Queue) -> bytes:
    seq, topic = job.granted.seq, _encode(queue.stream.name)
    fields = _fields(job, queue.stream.name.encode())
    return b'id: %d\nevent: job\ndata: {"topic":%b,%b}\n\n' % (seq, topic, fields)


def _error_event(status: int, why: str, queue: Queue) -> bytes:
    data = _encode({"code": status, "error": why, "topic": queue.stream.name})
    return b"event: error\ndata: %b\n\n" % data


def _fields(job: Job, own_subject: bytes) -> bytes:
    """Return a job's members as JSON; what it does not have is left out, never null."""
    granted, record = job.granted, job.record
    parts = [
        b'"$seq":%d,"lease_id":"lease_%x","deadline":%d,"$ts":%d'
        % (granted.seq, granted.lease_id, granted.deadline_ms, record.ts_ns // 1_000_000)
    ]
    if record.tag:
        parts.append(b'"$tag":' + text(record.tag))
    if record.subject != own_subject:
        parts.append(b'"$subject":' + text(record.subject))
    parts.append(b'"deliveries":%d,"data":%b' % (granted.deliveries, shown(record.payload)))
    if record.meta:
        parts.append(b'"meta":' + shown(record.meta))
    elif record.headers:
        parts.append(b'"meta":' + headers_object(record.headers))
    return b",".join(parts)


def _answer(queue: Queue, word: str, answered: Answered, performance: dict[str, float]) -> Response:
    counters = queue.counters()
    return json_response(
        {
            "topic": queue.stream.name,
            word: answered.count,
            "skipped": answered.skipped,
            "ready": counters.ready,
            "in_flight": counters.in_flight,
            "performance": performance,
        }
    )


def _queue(request: Request, topics: Topics) -> Queue:
    stream = topics.directory.find(topic_of(request), request.caller)
    if not is_queue(stream.config):
        raise NotAQueue(stream.name)
    return topics.queues.of(stream)


def _worker_body(request: Request, kind: Any) -> Any:
    check_name(topic_of(request), request.caller)
    body = bodies.json_body(request, kind)
    for seq in body.seqs:
        bodies.unsigned(seq, "each of seqs", 0)
    return body


def _tokens(body: AckBody) -> list[int | None]:
    """Check what a worker says about its leases; returns a lease id, or None, for each job."""
    tokens = [_token(text) for text in body.lease_ids or ()]
    _check_node(body.node)
    if len(body.seqs) > MOST_JOBS:
        raise BatchTooLarge(
            f"a call names at most {MOST_JOBS} jobs", {"seqs": len(body.seqs), "max": MOST_JOBS}
        )
    if tokens and len(tokens) != len(body.seqs):
        raise BadRequest("lease_ids must have one entry for each of seqs")
    return tokens or [None] * len(body.seqs)


def _token(lease_id: str) -> int | None:
    if not lease_id:
        return None
    match = _TOKEN.fullmatch(lease_id)
    if match is None:
        raise BadRequest(f"{lease_id!r} is not a lease id; claim returns ids such as lease_1f")
    return int(match[1], 16)


def _check_node(node: str) -> None:
    if not 1 <= len(node.encode()) <= LONGEST_NODE:
        raise BadRequest(f"node names the worker in 1 to {LONGEST_NODE} bytes")


def _clamp_jobs(wanted: int) -> int:
    return min(max(wanted, 1), MOST_JOBS)
