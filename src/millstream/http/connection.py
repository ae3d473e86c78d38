"""HttpConnection: the asyncio protocol of one HTTP/1.1 client; requests are answered in order."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from millstream.eager_task import begin
from millstream.http.answer_writer import AnswerWriter
from millstream.http.client_deadline import ClientDeadline
from millstream.http.parser import Refusal, RequestParser
from millstream.http.response import (
    Answer,
    Response,
    StreamedResponse,
    Upgraded,
    encode_head,
    error_body,
)
from millstream.http.sockets import keep_little, peer_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from millstream.http.limits import Limits
    from millstream.http.request import Request
    from millstream.http.turns import Turns
    from millstream.http.unread import UnreadBudget

log = logging.getLogger(__name__)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # what a client of HTTP/2 opens with
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(Protocol):
    """What the door asks of a client's connection, whatever version it speaks."""

    @property
    def deadline(self) -> float | None:
        """Return the moment at which ``expire`` is to be called, None for never."""
        ...

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
    unread: UnreadBudget

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
        self._parser = RequestParser(door.limits)
        self._transport: asyncio.Transport | None = None
        self._due = ClientDeadline(door)
        self.answers = AnswerWriter(door, self._due)
        self._peer = ""
        self._task: asyncio.Task[None] | None = None
        self._busy = False  # a request is being answered
        self._closing = False  # nothing that arrives now is read
        self._paused = False
        self._half_closed = False
        self._read_at = 0.0  # when what came last was read
        self._sniffed: bytes | None = b""  # None once these are known not to be HTTP/2

    @property
    def deadline(self) -> float | None:
        """Return by when the client owes something."""
        return self._due.at

    @property
    def stalled(self) -> bool:
        """Return whether an answer waits for the client to read."""
        return self.answers.is_stalled

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock of the first head."""
        self._transport = self.answers.transport = cast("asyncio.Transport", transport)
        keep_little(self._transport)
        self._peer = peer_of(self._transport)
        self._due.expect_head()
        if not self._door.admit(self):
            self._refuse(Refusal(503, "too_many_connections", "no room for more connections"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what nobody will read."""
        self._closing = True
        self._transport = None
        self._due.at = None
        self.answers.leave()
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
        elif self._parser.buffered > self._door.limits.read_ahead_bytes:
            self._pause()

    def _switch(self, data: bytes) -> None:
        """Hand the connection over once its first bytes are HTTP/2's preface."""
        if len(data) < len(PREFACE) or self._transport is None:
            return
        self._closing, self._due.at = True, None
        self._door.forget(self)
        # Imported here: only clients that speak HTTP/2 pay for its tables.
        from millstream.http.http2.connection import Http2Connection

        heir = Http2Connection(self._door, self._app)
        self._transport.set_protocol(heir)
        heir.connection_made(self._transport)
        heir.data_received(data)

    def eof_received(self) -> bool:
        """Answer what was asked before the client closed its half, then close."""
        self._half_closed = True
        if self.answers.is_streaming and self._task is not None:
            self._task.cancel()
        return self._busy and not self.answers.is_streaming

    def pause_writing(self) -> None:
        """Let answers wait until the client reads again."""
        self.answers.stall()

    def resume_writing(self) -> None:
        """Let answers go on."""
        self.answers.go_on()

    def expire(self) -> None:
        """Act on the deadline: tell a late sender, drop everyone else."""
        self._due.at = None
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
        self._due.clear()
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
        begins = self._parser.in_body and not was_in_body
        self._due.expect_rest(self._parser, begins)
        if begins and self._parser.expects_continue and self._transport is not None:
            self._transport.write(CONTINUE)
        self._resume()

    def _refuse(self, refusal: Refusal) -> None:
        body = error_body(refusal.code, refusal.message)
        self.answers.send(Response(refusal.status, body), keep_alive=False)
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
        self._due.linger()
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
                self._due.expect_next(self._parser)
                self._resume()

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

    async def _answer(self, request: Request) -> bool:
        """Write one answer; returns whether the connection goes on."""
        request.peer = self._peer
        request.most_body = self._door.limits.body_bytes
        if self.answers.unread.is_full:
            await self.answers.unread.room()
        request.room = self.answers.unread
        answer = await self._app(request)
        self.answers.unread.owned_by(request.caller.key)
        keep = request.keep_alive and not self._door.stopping.is_set()
        if isinstance(answer, StreamedResponse):
            return await self.answers.stream(request, answer, keep)
        if isinstance(answer, Upgraded):
            return self._leave(answer)
        keep = keep and not answer.close
        self.answers.send(answer, keep, head_only=request.method == "HEAD")
        if self.answers.is_stalled:
            await self.answers.drain()
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
        self._closing, self._due.at = True, None
        self._door.forget(self)
        self._resume()
        heir = answer.heir(self._door)
        transport.set_protocol(heir)
        heir.connection_made(transport)
        self._transport = self.answers.transport = None
        return True

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
