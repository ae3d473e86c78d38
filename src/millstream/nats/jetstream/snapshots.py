"""``$JS.API.STREAM.SNAPSHOT`` and ``RESTORE``: a stream goes out in chunks, or comes back in.

Each chunk that goes out names a subject to acknowledge it on; no more than a window is under way.
Each chunk that comes in is a request, and an empty one ends them. Nothing of a restored stream is
visible before all of it is in: it is written under a mark that the next start removes it by.
"""

import asyncio
import secrets
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.errors import ColdUnavailable, MillstreamError, NotHere
from millstream.kernel._batch import Batch
from millstream.nats.jetstream import account_limits, archive, request_shapes, shapes
from millstream.nats.jetstream.archive import Archive
from millstream.nats.jetstream.errors import (
    ApiError,
    as_error,
    bad_request,
    is_empty,
    name_mismatch,
    read_as,
)
from millstream.nats.jetstream.s2_frames import BadArchive, Decoder, encode
from millstream.streams.config.config import PathInStreamName, StreamConfig
from millstream.streams.config.extras import take_extras
from millstream.streams.config.times import rfc3339
from millstream.streams.reading.cold_reads import arrival
from millstream.streams.sourcing.adoption import Adoption
from millstream.streams.sourcing.incoming import Incoming
from millstream.streams.stream import Stream, settle
from millstream.subjects.subject import has_wildcard, is_pattern
from millstream.wire.headers import encode_headers

if TYPE_CHECKING:
    from millstream.nats.jetstream.endpoint import JetStream

CHUNK_BYTES, WINDOW_BYTES = 128 * 1024, 8 * 1024 * 1024
PATIENCE = 5.0  # for an answer to a chunk, or for the next chunk
INTEREST_PATIENCE = 2.0
LOOK_AGAIN = 0.01
MOST_BYTES = 1024 * 1024 * 1024  # of a restored stream: it is taken in whole, in memory
ROWS_AT_ONCE = 4096

Answer = dict[str, Any]


class _Snapshot(msgspec.Struct, frozen=True):
    deliver_subject: str = ""
    no_consumers: bool = False
    chunk_size: int = 0
    window_size: int = 0
    jsck: bool = False


class _Restore(msgspec.Struct, frozen=True):
    config: dict[str, Any] = {}
    state: dict[str, Any] = {}


class _Failed(Exception):
    """Why a snapshot ended early, and the status that says so."""

    def __init__(self, why: str, status: str) -> None:
        super().__init__(why)
        self.status = status


# -- going out ---------------------------------------------------------------------------------


async def snapshot(js: "JetStream", body: bytes, name: str) -> Answer:
    """Send a stream to the subject that the request names; the answer comes before it."""
    if is_empty(body):
        raise bad_request()
    stream = js.catalog.get(name, js.account)
    asked = read_as(body, request_shapes.SNAPSHOT, _Snapshot, strict=js.terms.is_strict)
    if not is_pattern(asked.deliver_subject) or has_wildcard(asked.deliver_subject):
        raise ApiError(400, 10015, "deliver subject not valid")
    js.check_deliver(asked.deliver_subject, "")
    state = shapes.stream_state(stream, js.consumers.by_name(stream).listed)
    js.advisories.tell(
        f"STREAM.SNAPSHOT_CREATE.{name}", "snapshot_create", stream=name, state=state
    )
    js.spawn(_Sender(js, stream, state, asked).run())
    return {"config": shapes.stream_config(stream, full=False), "state": state}


class _Sender:
    """Sends one snapshot; a sink for the acknowledgements of its chunks."""

    def __init__(self, js: "JetStream", stream: Stream, state: Answer, asked: _Snapshot) -> None:
        self._js = js
        self._stream = stream
        self._state = state
        self._asked = asked
        self._subject = asked.deliver_subject.encode()
        self._acks = f"$JS.SNAPSHOT.ACK.{stream.name}.{secrets.token_hex(11)}"
        self._chunk = min(max(1024, asked.chunk_size or CHUNK_BYTES), 1024 * 1024)
        window = min(max(1024, asked.window_size or WINDOW_BYTES), 32 * 1024 * 1024)
        self._slots = max(window, self._chunk) // self._chunk
        self._woken = asyncio.Event()
        self._is_awaited = False

    def deliver(self, batch: Batch) -> None:
        """Let as many more chunks go as were acknowledged."""
        self._slots += len(batch)
        self._woken.set()

    async def run(self) -> None:
        """Send everything, then say how it ended."""
        start, failure = self._js.now_ns(), ""
        handle = self._js.interest.add_sink(f"{self._acks}.>".encode(), self)
        unwatch = self._js.interest.watch(self._subject, b"", self._interest_changed)
        try:
            ended = await self._send_all()
        except _Failed as failed:
            ended, failure = failed.status, str(failed)
        finally:
            unwatch()
            self._js.interest.remove_sink(handle)
        headers = encode_headers((), ended.encode()) if ended else b""
        self._js.hub.publish(self._js.interest, self._subject, b"", headers, b"")
        self._js.hub.flush()
        about = {"start": rfc3339(start), "end": rfc3339(self._js.now_ns())}
        if failure:
            about["error"] = failure
        name = self._stream.name
        subject = f"STREAM.SNAPSHOT_COMPLETE.{name}"
        self._js.advisories.tell(subject, "snapshot_complete", stream=name, **about)

    def _interest_changed(self, awaited: bool) -> None:
        self._is_awaited = awaited
        self._woken.set()

    async def _send_all(self) -> str:
        """Send the archive once somebody subscribes to this very subject, or patience ends.

        A client may name an inbox that its wildcard covers, and subscribe to it after the answer.
        """
        await self._until(lambda: self._is_awaited, INTEREST_PATIENCE)
        sent = 0
        for chunk in _regrouped(self._encoded(), self._chunk):
            if isinstance(chunk, NotHere):
                await self._wait_for(chunk)
                continue
            await self._may_send(len(chunk))
            reply = b""
            if len(chunk) == self._chunk:
                sent += 1
                self._slots -= 1
                reply = f"{self._acks}.{len(chunk)}.{sent}".encode()
            self._js.hub.publish(self._js.interest, self._subject, reply, b"", chunk)
            self._js.hub.flush()
        return "204" if sent else ""

    async def _wait_for(self, missing: NotHere) -> None:
        try:
            await arrival(missing)
        except ColdUnavailable as error:
            raise _Failed(error.message, "503 Cold History Unavailable") from error

    def _encoded(self) -> Iterator[bytes | NotHere]:
        consumers = []
        if not self._asked.no_consumers:
            found = self._js.consumers.of(self._stream)
            kept = [c for c in found if c.config.is_persisted or c.config.durable_name]
            consumers = [c.state.kept(c.config) for c in kept]
        for piece in archive.pieces(self._stream, self._state, consumers):
            yield piece if isinstance(piece, NotHere) else encode(piece)

    def _is_heard(self) -> bool:
        return self._js.interest.has_interest(self._subject)

    async def _may_send(self, size: int) -> None:
        if not self._is_heard():
            raise _Failed("no interest", "408 No Interest")
        if not await self._until(lambda: self._slots > 0 and self._has_room(size), PATIENCE):
            raise _Failed("no flow response", "408 No Flow Response")

    def _has_room(self, size: int) -> bool:
        return self._js.hub.room(self._js.interest, self._subject) > 2 * size

    async def _until(self, holds: Any, patience: float) -> bool:
        """Wait until something holds; False when it does not in time."""
        waited = 0.0
        while not holds():
            if waited >= patience or self._stream.is_closed:
                return False
            self._woken.clear()
            timer = self._js.parts.timers.after(LOOK_AGAIN, self._woken.set)
            await self._woken.wait()
            timer.cancel()
            waited += LOOK_AGAIN
        return True


def _regrouped(pieces: Iterator[bytes | NotHere], size: int) -> Iterator[bytes | NotHere]:
    """Yield the same bytes in chunks of one size, the last one shorter."""
    rest = b""
    for piece in pieces:
        if isinstance(piece, NotHere):
            yield piece
            continue
        rest += piece
        while len(rest) >= size:
            yield rest[:size]
            rest = rest[size:]
    if rest:
        yield rest


# -- coming in ---------------------------------------------------------------------------------


async def restore(js: "JetStream", body: bytes, name: str) -> Answer:
    """Make ready to take a stream in; the answer names the subject for its chunks."""
    if is_empty(body):
        raise bad_request()
    asked = read_as(body, request_shapes.RESTORE, _Restore, strict=js.terms.is_strict)
    wire = {**asked.config, "name": asked.config.get("name") or name}
    if wire["name"] != name:
        raise name_mismatch()
    if "/" in name or "\\" in name:
        raise PathInStreamName()
    config = StreamConfig.from_request(wire).as_sealed()
    account_limits.check_stream(js, config)
    _check_free(js, name)
    receiver = _Receiver(js, config)
    js.advisories.tell(f"STREAM.RESTORE_CREATE.{name}", "restore_create", stream=name)
    return {"deliver_subject": receiver.subject}


def _check_free(js: "JetStream", name: str) -> None:
    if js.catalog.find(name, js.account) is not None:
        raise ApiError(400, 10130, "stream name already in use, cannot restore")


class _Receiver:
    """Takes the chunks of one stream; a sink for them."""

    def __init__(self, js: "JetStream", config: StreamConfig) -> None:
        self.subject = f"$JS.SNAPSHOT.RESTORE.{config.name}.{secrets.token_hex(11)}"
        self._js = js
        self._config = config
        self._decoder = Decoder()
        self._content = bytearray()
        self._bytes = 0
        self._start = js.now_ns()
        self._handle: int | None = js.interest.add_sink(self.subject.encode(), self)
        self._stalled = js.parts.timers.after(PATIENCE, self._close)

    def deliver(self, batch: Batch) -> None:
        """Take chunks in order; the empty one is the last."""
        for at in range(len(batch)):
            _, reply, _, payload, _ = batch.message(at)
            if self._handle is None:
                return
            if not reply:
                self._close()  # nobody to tell how it goes
            elif payload:
                self._take(reply, payload)
            else:
                self._close()
                self._js.spawn(self._finish(reply))

    def _take(self, reply: bytes, chunk: bytes) -> None:
        self._stalled.cancel()
        self._stalled = self._js.parts.timers.after(PATIENCE, self._close)
        try:
            self._bytes += len(chunk)
            for content in self._decoder.feed(chunk):
                self._content += content
                if len(self._content) > MOST_BYTES:
                    raise BadArchive(f"the stream is larger than {MOST_BYTES} bytes")
        except MillstreamError as error:
            self._close()
            self._answer(reply, _failure(error))
            return
        self._js.hub.publish(self._js.interest, reply, b"", b"", b"")

    def _close(self) -> None:
        self._stalled.cancel()
        if self._handle is not None:
            self._js.interest.remove_sink(self._handle)
            self._handle = None

    async def _finish(self, reply: bytes) -> None:
        try:
            if not self._decoder.is_complete:
                raise BadArchive("the snapshot ends in the middle of a chunk")
            found = await asyncio.to_thread(Archive, bytes(self._content))
            stream = await _take_in(self._js, self._config, found)
            count = self._js.consumers.by_name(stream).listed
            answer = shapes.stream_info(stream, count, self._js.now_ns())
        except MillstreamError as error:
            answer = _failure(error)
        name, end = self._config.name, self._js.now_ns()
        about = {"start": rfc3339(self._start), "end": rfc3339(end), "bytes": self._bytes}
        subject = f"STREAM.RESTORE_COMPLETE.{name}"
        self._js.advisories.tell(subject, "restore_complete", stream=name, **about)
        self._answer(reply, answer)

    def _answer(self, reply: bytes, answer: Answer) -> None:
        shown = {"type": "io.nats.jetstream.api.v1.stream_create_response", **answer}
        self._js.hub.publish(self._js.interest, reply, b"", b"", msgspec.json.encode(shown))
        self._js.hub.flush()


def _failure(error: MillstreamError) -> Answer:
    if error.err_code in (10130, 10065, 10047, 10028):
        return {"error": as_error(error)}
    failed = {"code": 500, "err_code": 10062, "description": f"restore failed: {error.message}"}
    return {"error": failed}


async def _take_in(js: "JetStream", config: StreamConfig, found: Archive) -> Stream:
    """Write a stream down as it was; whole, or nothing of it stays."""
    if found.name not in ("", config.name):
        raise BadArchive("stream names do not match")
    _check_free(js, config.name)
    created = found.created_ns or js.now_ns()
    stream = await js.catalog.begin_restore(config, js.account, created)
    try:
        rows = found.rows()
        while await _append_some(stream, rows):
            pass
        await _skip_to(stream, found.last_seq + 1)
        await js.catalog.end_restore(stream, config)
    except BaseException:
        await js.catalog.delete(config.name, js.account)
        raise
    for kept in found.consumers:
        await js.consumers.bring_back(stream, kept)
    return stream


async def _skip_to(stream: Stream, seq: int) -> None:
    """Let what was deleted at the end of the stream stay deleted."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stream.log.skip_to(seq, partial(settle, done))
    await done


async def _append_some(stream: Stream, rows: Iterator[archive.ArchiveRow]) -> bool:
    """Append the next records under their sequences and times; False when none are left."""
    coming, size = Incoming(seqs=[]), 0
    assert coming.seqs is not None
    for row in rows:
        coming.demand(row.headers)
        coming.seqs.append(row.seq)
        coming.times_ns.append(row.ts_ns)
        headers, tag, node, meta = take_extras(row.headers)
        coming.batch.add(row.subject, b"", headers, row.payload, tag, node, meta)
        size += len(row.payload) + len(row.headers)
        if len(coming.seqs) >= ROWS_AT_ONCE or size >= archive.PIECE_BYTES:
            break
    if not coming.seqs:
        return False
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    Adoption(stream).take_in(coming, partial(settle, done))
    await done
    return True
