"""The WebSocket of the topics API: many topics read and written over one connection."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from millstream.errors import BadRequest, Forbidden, MillstreamError, Unauthorized
from millstream.http.request import Caller, Request
from millstream.http.response import Answer, Response, Upgraded, error_body
from millstream.http.upgrade import offers_deflate, switch_headers, websocket_problem
from millstream.topics import bodies
from millstream.topics.authorize import check_scope
from millstream.topics.context import Topics
from millstream.topics.directory import check_name
from millstream.topics.page.current_state import current_state
from millstream.topics.page.page import MOST_BYTES, MOST_RECORDS, Query
from millstream.topics.page.performance import Stopwatch
from millstream.topics.watch.incoming_messages import IncomingMessages
from millstream.topics.watch.socket_messages import (
    NULL,
    BadMessage,
    Message,
    PingRequest,
    Publish,
    Subscribe,
    Unsubscribe,
    answer,
    read_message,
    refusal,
)
from millstream.topics.watch.subscriptions import Subscriptions
from millstream.topics.writing import carry_out
from millstream.wire import websocket
from millstream.wire.websocket import FrameError, Status

if TYPE_CHECKING:
    from millstream.http.connection import Door

log = logging.getLogger(__name__)

FAILED = "the server failed; its log says why"
MOST_TOPICS = 256
PING_SECONDS = 20.0
SILENCE_SECONDS = 45.0  # a client that says nothing for so long, pings included, is gone
TURN = 16  # looks at topics before other connections have their turn
TURN_SECONDS = 0.002  # after which others have theirs, however few that were


async def open_socket(request: Request, topics: Topics) -> Answer:
    """Turn the connection into a WebSocket."""
    problem = websocket_problem(request)
    if problem is not None:
        body = error_body("invalid_request", problem.message)
        return Response(problem.status, body, headers=((b"Sec-WebSocket-Version", b"13"),))
    leave = topics.live.take(request.caller.key)
    compressed = offers_deflate(request)
    return Upgraded(
        switch_headers(request, compressed),
        lambda door: Socket(door, topics, request.caller, compressed, leave),
        leave,
    )


class Socket(asyncio.Protocol):
    """One client: messages are carried out one after another, records are sent as there is room.

    ``deadline`` is the moment at which the door's sweep calls ``expire``.
    """

    def __init__(
        self,
        door: "Door",
        topics: Topics,
        caller: Caller,
        compressed: bool,
        leave: Callable[[], None],
    ) -> None:
        self._door = door
        self._topics = topics
        self._caller = caller
        self._leave = leave
        self._incoming = IncomingMessages(door.limits.body_bytes, compressed)
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused = False
        self._closing = False
        self._pumping: asyncio.Handle | None = None
        self._heard_at = self._stalled_at = 0.0
        self._subscriptions = Subscriptions(topics, self._wake, compressed)
        self._undo_stop = topics.stop_signal.on_wake(self._look_around)
        self.deadline: float | None = None

    @property
    def stalled(self) -> bool:
        """Return whether records wait for the client to read."""
        return not self._writable.is_set()

    # -- the connection ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to listen."""
        self._transport = cast("asyncio.Transport", transport)
        self._heard_at = self._door.now()
        self.deadline = self._heard_at + PING_SECONDS
        if not self._door.admit(self):
            self._end(Status.GOING_AWAY, "no room for more connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """Give everything back."""
        self._closing, self._transport, self.deadline = True, None, None
        self._writable.set()
        self._undo_stop()
        self._subscriptions.clear()
        self._incoming.clear()
        self._leave()
        self._door.forget(self)

    def data_received(self, data: bytes) -> None:
        """Take frames."""
        if self._closing:
            return
        self._heard_at = self._door.now()
        self._incoming.feed(data)
        self._read_on()

    def eof_received(self) -> bool:
        """Close as well."""
        return False

    def pause_writing(self) -> None:
        """Send no records until the client has read some."""
        self._writable.clear()
        self._stalled_at = self._door.now()
        self.deadline = self._stalled_at + self._door.limits.stall_seconds

    def resume_writing(self) -> None:
        """Send on."""
        self._writable.set()
        self.deadline = self._door.now() + PING_SECONDS
        self._answer_ping()
        self._wake()

    def expire(self) -> None:
        """Drop a client that reads nothing or is gone; ask one that is merely silent."""
        now = self._door.now()
        silent_for = now - self._heard_at
        gone = self._closing or self.stalled or silent_for >= SILENCE_SECONDS
        if gone or self._transport is None:
            self.abort()
            return
        if silent_for >= PING_SECONDS:
            self._transport.write(websocket.ping())
        self.deadline = now + PING_SECONDS
        self._subscriptions.look_everywhere()

    def finish(self) -> None:
        """Say goodbye, once what is under way is answered."""
        self._look_around()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # -- what the client says ----------------------------------------------------------------

    def _read_on(self) -> None:
        """Read messages while there is room for them; the socket itself waits otherwise."""
        incoming = self._incoming
        try:
            if not self._closing:
                incoming.read()
        except FrameError as error:
            self._end(error.status, str(error))
            return
        self._answer_ping()
        if incoming.closed_with is not None:
            self._end(incoming.closed_with, "")
        if incoming and self._task is None and not self._closing:
            self._task = asyncio.get_running_loop().create_task(self._work())
        self._brake(incoming.is_full)

    def _answer_ping(self) -> None:
        """Answer the latest ping, which answers those before it; one is kept, never a queue."""
        pong = self._incoming.pong
        if pong is not None and not (self.stalled or self._closing) and self._transport is not None:
            self._incoming.pong = None
            self._transport.write(pong)

    def _brake(self, on: bool) -> None:
        if self._transport is None or self._closing or on == self._paused:
            return
        self._paused = on
        if on:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    async def _work(self) -> None:
        """Carry out what waits, one message after another."""
        try:
            while self._incoming and not self._closing:
                await self._writable.wait()
                reply = await self._carry_out(self._incoming.pop())
                self._send(reply)
                self._subscriptions.release()
                self._read_on()
        except Exception:  # nobody would answer what comes after it
            log.exception("socket failed")
            self._end(Status.INTERNAL, FAILED)
        finally:
            self._task = None
        if self._topics.stop_signal.is_set or self._caller.revoked:
            self._look_around()
        elif self._incoming:  # read while the last one was being finished
            self._read_on()

    async def _carry_out(self, text: bytes | None) -> bytes:
        request_id = NULL
        try:
            if text is None:
                raise BadMessage("unsupported_message", "messages are JSON in text frames")
            message = read_message(text)
            request_id = message.request_id
            return await self._obey(message)
        except BadMessage as error:
            return refusal(error.request_id, error.word, error.message)
        except MillstreamError as error:
            return refusal(request_id, error.code, error.message)

    async def _obey(self, message: Message) -> bytes:
        match message:
            case Publish():
                return await self._publish(message)
            case Subscribe():
                return self._subscribe(message)
            case Unsubscribe():
                return self._unsubscribe(message)
            case PingRequest():
                return answer("pong", message.request_id)

    async def _publish(self, message: Publish) -> bytes:
        watch = Stopwatch(self._topics.clock)
        await self._topics.turns.turn(message.topic)
        caller = self._asking_for("write", message.topic)
        if message.config is not None and "admin" not in caller.scopes:
            raise Forbidden("publishing with a config needs the admin scope")
        body = bodies.WriteBody(
            records=message.records,
            node=message.node,
            idempotency_key=message.idempotency_key,
            create=message.create,
            config=message.config,
            disable_backpressure=message.disable_backpressure,
        )
        self._subscriptions.held = message.topic  # its ack goes before its records
        done = await carry_out(body, message.topic, caller, self._topics, watch, shares=True)
        seqs = None if message.return_seqs is False else done.seqs()
        return answer("ack", message.request_id, seqs=seqs, **done.shown())

    def _subscribe(self, message: Subscribe) -> bytes:
        wishes = dict(message.topics or {})
        if message.topic is not None:
            own = bodies.WatchTopic(message.from_seq, message.tail)
            wishes.setdefault(message.topic, own)
        if not wishes:
            raise BadRequest("name a topic to subscribe to")
        query = _query(message)
        starts = {
            name: bodies.unsigned(wish.from_seq if wish else None, "from_seq", 0)
            for name, wish in wishes.items()
        }
        callers = {name: self._asking_for("read", name) for name in wishes}
        new = sum(name not in self._subscriptions for name in wishes)
        if len(self._subscriptions) + new > MOST_TOPICS:
            raise BadRequest(f"a socket subscribes to at most {MOST_TOPICS} topics")
        made, shown = [], {}
        for name, wish in wishes.items():
            if message.lenient and self._topics.directory.find_or_none(name, callers[name]) is None:
                continue
            stream = self._topics.directory.find(name, callers[name])
            state = current_state(stream, self._topics.clock.time_ns())
            start = state.last_seq if wish is not None and wish.tail else starts[name]
            shown[name] = {
                "from_seq": start,
                "head_seq": state.last_seq,
                "earliest_seq": state.first_seq,
            }
            made.append((stream, start, query, callers[name]))
        for subscription in made:
            self._subscriptions.add(*subscription)
        return answer("subscribed", message.request_id, topics=shown)

    def _unsubscribe(self, message: Unsubscribe) -> bytes:
        names = list(message.topics or ())
        if message.topic is not None and message.topic not in names:
            names.append(message.topic)
        if not names:
            raise BadRequest("name a topic to unsubscribe from")
        ended = [name for name in names if self._subscriptions.remove(name)]
        return answer("unsubscribed", message.request_id, topics=ended)

    def _asking_for(self, scope: str, topic: str) -> Caller:
        """Return the caller as judged for an operation; raises where it may not."""
        if self._caller.revoked:
            raise Unauthorized("the credential was revoked")
        caller = self._caller.asking_for(scope, topic)
        check_scope(caller, scope)
        check_name(topic, caller)
        return caller

    # -- what the client is sent -------------------------------------------------------------

    def _wake(self) -> None:
        """Look for records on the loop's next turn, however often this is called before."""
        if self._pumping is None and not self._closing:
            self._pumping = asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Send records; a client who could be sent no more is not left waiting for them."""
        self._pumping = None
        try:
            self._send_records()
        except Exception:
            log.exception("socket failed")
            self._end(Status.INTERNAL, FAILED)

    def _send_records(self) -> None:
        """Send records while the client takes them and others have their turn."""
        until = self._topics.clock.monotonic() + TURN_SECONDS
        for _ in range(TURN):
            if self._closing or self.stalled or self._transport is None:
                return
            frames = self._subscriptions.next()
            if frames is None:
                return
            if not frames:
                break
            self._transport.write(frames)
            if self._topics.clock.monotonic() >= until:
                break
        self._wake()

    def _look_around(self) -> None:
        """End where the server stops or the caller may no longer listen."""
        if self._closing or self._task is not None:
            return  # what is under way is answered first
        if self._caller.revoked:
            self._send(refusal(NULL, "unauthorized", "the credential was revoked"))
            self._end(Status.POLICY, "the credential was revoked")
        elif self._topics.stop_signal.is_set or self._door.stopping.is_set():
            self._send(refusal(NULL, "server_shutting_down", "the server is stopping"))
            self._end(Status.GOING_AWAY, "the server is stopping")
        for name in self._subscriptions.barred():
            self._subscriptions.remove(name)
            self._send(refusal(NULL, "forbidden", f"{name} takes other subjects now"))

    def _send(self, text: bytes) -> None:
        if self._transport is not None and not self._closing:
            self._transport.write(websocket.encode(text, text=True))

    def _end(self, status: int, text: str) -> None:
        """Say why, and close so that the client can still read it."""
        if self._closing or self._transport is None:
            return
        self._transport.write(websocket.close(status, text))
        self._brake(False)
        self._closing = True
        self._subscriptions.clear()
        self.deadline = self._door.now() + self._door.limits.linger_seconds
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()


def _query(message: Subscribe) -> Query:
    limit = bodies.unsigned(message.limit, "limit", 0, bodies.U32)
    budget = bodies.unsigned(message.max_batch_bytes, "max_batch_bytes", 0)
    return Query(
        limit=min(limit or MOST_RECORDS, MOST_RECORDS),
        max_bytes=min(budget or 1024 * 1024, MOST_BYTES),
        without_nodes=bodies.nodes(message.node),
        include_tags=bool(message.include_tags),
        include_meta=message.include_meta is not False,
        include_data=message.include_data is not False,
        filter=bodies.read_filter(message.filter),
    )
