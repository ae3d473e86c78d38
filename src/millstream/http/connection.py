"""HttpConnection: the asyncio protocol of one HTTP/1.1 client; requests are answered in order."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from millstream.eager_task import begin
from millstream.http.parser import Refusal, RequestParser
from millstream.http.peer import peer_of
from millstream.http.response import (
    Answer,
    Response,
    StreamedResponse,
    Upgraded,
    chunk,
    encode_head,
    error_body,
)
from millstream.http.socket_writer import SocketWriter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from millstream.http.limits import Limits
    from millstream.http.request import Request
    from millstream.http.turns import Turns

log = logging.getLogger(__name__)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # what a client of HTTP/2 opens with
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ONE_WRITE = 64 * 1024  # head and body up to this size leave in one send


class Connection(Protocol):
    """What the door asks of a client's connection, whatever version it speaks."""

    deadline: float | None

    @property
    def stalled(self) -> bool:
        """Return whether an answer waits for the client to read."""
        ...

    def expire(self) -> None:
        """Act on the deadline."""
        ...

    def finish(self) -> None:
        """Close once what is under way has its answer."""
        ...

    def abort(self) -> None:
        """Drop the connection at once."""
        ...


class Door(Protocol):
    """What a connection asks of the door that accepted it."""

    limits: Limits
    stopping: asyncio.Event
    turns: Turns

    def now(self) -> float:
        """Return the clock's monotonic seconds."""
        ...

    def date(self) -> bytes:
        """Return the Date header's value."""
        ...

    def admit(self, connection: Connection) -> bool:
        """Count a connection in; False when there is no room for it."""
        ...

    def forget(self, connection: Connection) -> None:
        """Count a connection out."""
        ...


class HttpConnection(asyncio.Protocol):
    """Reads requests, runs the application for one at a time, writes answers.

    ``deadline`` is the moment at which the door's sweep calls ``expire``; None while the client
    owes nothing. A client that leaves cancels the handler of its request.
    """

    def __init__(self, door: Door, app: Callable[[Request], Awaitable[Answer]]) -> None:
        self._door = door
        self._app = app
        self._limits = door.limits
        self._parser = RequestParser(door.limits)
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._task: asyncio.Task[None] | None = None
        self._busy = False  # a request is being answered
        self._streaming = False
        self._closing = False  # nothing that arrives now is read
        self._paused = False
        self._half_closed = False
        self._room: asyncio.Future[None] | None = None  # waited for by an answer that stalled
        self.stalled = False  # an answer waits for the client to read
        self._on_behind: Callable[[], None] | None = None  # or gone; called once
        self._writer: SocketWriter | None = None  # of pieces that are pushed
        self._body_since = 0.0
        self._read_at = 0.0  # when what came last was read
        self._was_in_head = False
        self._sniffed: bytes | None = b""  # None once these are known not to be HTTP/2
        self.deadline: float | None = None

    @property
    def busy(self) -> bool:
        """Return whether a request is being answered."""
        return self._busy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock of the first head."""
        self._transport = cast("asyncio.Transport", transport)
        self._peer = peer_of(self._transport)
        self.deadline = self._door.now() + self._limits.head_seconds
        if not self._door.admit(self):
            self._refuse(Refusal(503, "too_many_connections", "no room for more connections"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what nobody will read."""
        self._closing = True
        self._transport = None
        self.deadline = None
        self._tell_behind()
        self.resume_writing()
        if self._task is not None:
            self._task.cancel()
        self._door.forget(self)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; start on a request unless one is being answered."""
        if self._closing:
            return
        if self._sniffed is not None:
            self._sniffed += data
            if PREFACE.startswith(self._sniffed[: len(PREFACE)]):
                self._switch(self._sniffed)
                return
            data, self._sniffed = self._sniffed, None
        if not self._busy:
            self._read_at = self._door.now()
            request = self._parser.whole(data)
            if request is not None:
                self._take(request)
                return
        self._parser.feed(data)
        if not self._busy:
            self._advance()
        elif self._parser.buffered > self._limits.read_ahead_bytes:
            self._pause()

    def _switch(self, data: bytes) -> None:
        """Hand the connection over once its first bytes are HTTP/2's preface."""
        if len(data) < len(PREFACE) or self._transport is None:
            return
        self._closing, self.deadline = True, None
        self._door.forget(self)
        # Imported here: only clients that speak HTTP/2 pay for its tables.
        from millstream.http.http2 import Http2Connection

        heir = Http2Connection(self._door, self._app)
        self._transport.set_protocol(heir)
        heir.connection_made(self._transport)
        heir.data_received(data)

    def eof_received(self) -> bool:
        """Answer what was asked before the client closed its half, then close."""
        self._half_closed = True
        if self._streaming and self._task is not None:
            self._task.cancel()
        return self._busy and not self._streaming

    def pause_writing(self) -> None:
        """Let answers wait until the client reads again."""
        self.stalled = True
        self._tell_behind()

    def resume_writing(self) -> None:
        """Let answers go on."""
        self.stalled = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def expire(self) -> None:
        """Act on the deadline: tell a late sender, drop everyone else."""
        self.deadline = None
        if self._closing or self._busy or self._transport is None:
            self.abort()
        elif self._parser.in_body or self._parser.in_head:
            late = "body" if self._parser.in_body else "header block"
            self._refuse(Refusal(408, "request_timeout", f"the {late} did not arrive in time"))
        else:
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def finish(self) -> None:
        """Close once the request under way, if any, has its answer."""
        if not self._busy and self._transport is not None:
            self._transport.close()

    def _advance(self) -> None:
        """Start on the next whole request, or wait for the rest of it."""
        was_in_body = self._parser.in_body
        event = self._parser.next()
        if event is None:
            self._await_rest(was_in_body)
        elif isinstance(event, Refusal):
            self._refuse(event)
        else:
            self._take(event)

    def _take(self, request: Request) -> None:
        self.deadline = None
        self._was_in_head = False
        self._busy = True
        self._door.turns.take(request, partial(self._begin, request), self._read_at, self)

    def _begin(self, request: Request) -> None:
        """Serve until that has to wait for something, and only then by a task."""
        if self._transport is None:  # the client left while others had their turn
            self._busy = False
            return
        task = begin(self._serve(request), asyncio.get_running_loop().create_task)
        if task is not None:
            self._task = task

    def _await_rest(self, was_in_body: bool) -> None:
        now, parser = self._door.now(), self._parser
        if parser.in_body:
            if not was_in_body:
                self._body_since = now
                self._was_in_head = False
                if parser.expects_continue and self._transport is not None:
                    self._transport.write(CONTINUE)
            allowed = parser.body_received / self._limits.body_bytes_per_second
            self.deadline = self._body_since + self._limits.body_grace_seconds + allowed
        elif parser.in_head and not self._was_in_head:
            # Each further byte of a slow head leaves the deadline where it is.
            self._was_in_head = True
            self.deadline = min(self.deadline or now, now) + self._limits.head_seconds
        self._resume()

    def _refuse(self, refusal: Refusal) -> None:
        body = error_body(refusal.code, refusal.message)
        self._send(Response(refusal.status, body), keep_alive=False)
        self._linger()

    def _linger(self) -> None:
        """Close so that the client can still read its answer: a reset would destroy it."""
        self._closing = True
        if self._transport is None:
            return
        self._resume()
        if self._half_closed:
            self._transport.close()
            return
        self.deadline = self._door.now() + self._limits.linger_seconds
        if self._transport.can_write_eof():
            with suppress(OSError):  # asyncio's own loop says so of a client that has gone
                self._transport.write_eof()

    async def _serve(self, request: Request) -> None:
        """Answer a request; one that waits behind it has its own turn."""
        waiting: Request | None = None
        try:
            keep = await self._answer(request)
            if not keep or self._door.stopping.is_set():
                self._linger()
            else:
                waiting = self._next_waiting()
        except asyncio.CancelledError:
            self.abort()
        except Exception:  # half an answer is there, and no more would come
            log.exception("answer not finished method=%s path=%r", request.method, request.path)
            self.abort()
        finally:
            self._busy, self._task = waiting is not None, None
        if waiting is not None:
            self._door.turns.wait(waiting, partial(self._begin, waiting))
        elif not self._closing and self._transport is not None:
            if self._half_closed:
                self._transport.close()
            else:
                self._await_next()

    def _next_waiting(self) -> Request | None:
        if not self._parser.buffered:
            return None
        was_in_body = self._parser.in_body
        event = self._parser.next()
        if isinstance(event, Refusal):
            self._refuse(event)
            return None
        if event is None and self._parser.in_body and not was_in_body:
            self._await_rest(was_in_body)
        return event

    def _await_next(self) -> None:
        if not self._parser.in_body:
            limits = self._limits
            late = limits.head_seconds if self._parser.in_head else limits.idle_seconds
            self._was_in_head = self._parser.in_head
            self.deadline = self._door.now() + late
        self._resume()

    async def _answer(self, request: Request) -> bool:
        """Write one answer; returns whether the connection goes on."""
        request.peer = self._peer
        request.most_body = self._limits.body_bytes
        answer = await self._app(request)
        keep = request.keep_alive and not self._door.stopping.is_set()
        if isinstance(answer, StreamedResponse):
            return await self._stream(request, answer, keep)
        if isinstance(answer, Upgraded):
            return self._leave(answer)
        keep = keep and not answer.close
        self._send(answer, keep, head_only=request.method == "HEAD")
        if self.stalled:
            await self._drain()
        return keep

    def _leave(self, answer: Upgraded) -> bool:
        """Hand the connection over to another protocol; returns whether it goes on as HTTP."""
        transport = self._transport
        if transport is None or self._parser.buffered or self._half_closed:
            answer.refuse()
            early = "nothing may follow the request before its answer"
            self._refuse(Refusal(400, "websocket_refused", early))
            return False
        transport.write(encode_head(101, b"", answer.headers, None, self._door.date(), True))
        self._closing, self.deadline = True, None
        self._door.forget(self)
        self._resume()
        heir = answer.heir(self._door)
        transport.set_protocol(heir)
        heir.connection_made(transport)
        self._transport = None
        return True

    def _send(self, answer: Response, keep_alive: bool, head_only: bool = False) -> None:
        if self._transport is None:
            return
        length = None if answer.status in (204, 304) else len(answer.body)
        head = encode_head(
            answer.status,
            answer.content_type if length is not None else b"",
            answer.headers,
            length,
            self._door.date(),
            keep_alive,
        )
        if head_only or length is None:
            self._transport.write(head)
        elif len(answer.body) <= ONE_WRITE:
            self._transport.write(head + answer.body)
        else:
            self._transport.writelines((head, answer.body))

    async def _stream(self, request: Request, answer: StreamedResponse, keep: bool) -> bool:
        chunked = request.version == "1.1"
        keep = keep and chunked
        try:
            self._streaming = True
            self._write(
                encode_head(
                    answer.status,
                    answer.content_type,
                    answer.headers,
                    None,
                    self._door.date(),
                    keep,
                    chunked,
                )
            )
            if request.method == "HEAD":
                return keep
            if chunked and answer.attach is not None:
                answer.attach(self)
            async for piece in answer.chunks:
                if piece:
                    self._write(chunk(piece) if chunked else piece)
                    await self._drain()
            if chunked:
                self._write(b"0\r\n\r\n")
            return keep
        finally:
            self._streaming = False
            closer = getattr(answer.chunks, "aclose", None)
            if closer is not None:
                await closer()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def push(self, piece: bytes) -> bool:
        """Send a framed piece of the stream under way, unless the client is behind with it."""
        if self._transport is None or self.stalled:
            return False
        self._writer_to(self._transport).send(piece)
        return True

    def writer(self, on_behind: Callable[[], None]) -> SocketWriter | None:
        """Return what sends pieces without asking, until the client is behind or gone."""
        if self._transport is None or self.stalled:
            return None
        self._on_behind = on_behind
        return self._writer_to(self._transport)

    def _writer_to(self, transport: asyncio.Transport) -> SocketWriter:
        if self._writer is None:
            self._writer = SocketWriter(transport)
        return self._writer

    def _tell_behind(self) -> None:
        on_behind, self._on_behind = self._on_behind, None
        if on_behind is not None:
            on_behind()

    async def _drain(self) -> None:
        """Wait for room; the sweep drops a client that leaves its answer unread."""
        if self.stalled:
            self.deadline = self._door.now() + self._limits.stall_seconds
            self._room = asyncio.get_running_loop().create_future()
            await self._room
            self._room = self.deadline = None

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
