"""The WebSocket of the topics API: many topics read and written over one connection."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from millstream.http.request import Caller, Request
from millstream.http.response import Answer, Response, Upgraded, error_body
from millstream.http.upgrade import offers_deflate, switch_headers, websocket_problem
from millstream.topics.context import Topics
from millstream.topics.watch.incoming_messages import IncomingMessages
from millstream.topics.watch.socket_messages import (
    NULL,
    refusal,
)
from millstream.topics.watch.socket_requests import SocketRequests
from millstream.topics.watch.subscriptions import Subscriptions
from millstream.wire import websocket
from millstream.wire.websocket import FrameError, Status

if TYPE_CHECKING:
    from millstream.http.connection import Door

log = logging.getLogger(__name__)

FAILED = "the server failed; its log says why"
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
        self._stop_signal = topics.stop_signal
        self._caller = caller
        self._incoming = IncomingMessages(door.limits.body_bytes, compressed)
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused = False
        self._closing = False
        self._pumping: asyncio.Handle | None = None
        self._heard_at = 0.0
        self._subscriptions = Subscriptions(topics, self._wake, compressed)
        self._requests = SocketRequests(topics, caller, self._subscriptions)
        self._undo = (topics.stop_signal.on_wake(self._look_around), leave)  # when it is gone
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
        self._subscriptions.clear()
        self._incoming.clear()
        for undo in self._undo:
            undo()
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
        self.deadline = self._door.now() + self._door.limits.stall_seconds

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
                reply = await self._requests.carry_out(self._incoming.pop())
                self._send(reply)
                self._subscriptions.release()
                self._read_on()
        except Exception:  # nobody would answer what comes after it
            log.exception("socket failed")
            self._end(Status.INTERNAL, FAILED)
        finally:
            self._task = None
        if self._stop_signal.is_set or self._caller.revoked:
            self._look_around()
        elif self._incoming:  # read while the last one was being finished
            self._read_on()

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
        until = self._door.now() + TURN_SECONDS
        for _ in range(TURN):
            if self._closing or self.stalled or self._transport is None:
                return
            frames = self._subscriptions.next()
            if frames is None:
                return
            if not frames:
                break
            self._transport.write(frames)
            if self._door.now() >= until:
                break
        self._wake()

    def _look_around(self) -> None:
        """End where the server stops or the caller may no longer listen."""
        if self._closing or self._task is not None:
            return  # what is under way is answered first
        if self._caller.revoked:
            self._send(refusal(NULL, "unauthorized", "the credential was revoked"))
            self._end(Status.POLICY, "the credential was revoked")
        elif self._stop_signal.is_set or self._door.stopping.is_set():
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
