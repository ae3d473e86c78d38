"""AnswerWriter: writes answers to an HTTP/1.1 client, and waits while the client does not read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millstream.http.response import Response, StreamedResponse, chunk, encode_head
from millstream.http.socket_writer import SocketWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.http.client_deadline import ClientDeadline
    from millstream.http.connection import Door
    from millstream.http.request import Request

ONE_WRITE = 64 * 1024  # head and body up to this size leave in one send


class AnswerWriter:
    """Whole answers, streams in chunks, and pieces that others push into a stream."""

    def __init__(self, door: Door, due: ClientDeadline) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_stalled = False  # an answer waits for the client to read
        self.is_streaming = False
        self._door = door
        self._due = due
        self.unread = door.unread.share(self)
        self._room: asyncio.Future[None] | None = None  # waited for by an answer that stalled
        self._on_behind: Callable[[], None] | None = None  # or gone; called once
        self._pusher: SocketWriter | None = None  # of pieces that are pushed

    def stall(self) -> None:
        """Let answers wait until the client reads again."""
        self.is_stalled = True
        self._tell_behind()

    def go_on(self) -> None:
        """Let answers go on."""
        self.is_stalled = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def leave(self) -> None:
        """Write nothing any more: the client is gone."""
        self.transport = None
        self._tell_behind()
        self.go_on()

    def send(self, answer: Response, keep_alive: bool, head_only: bool = False) -> None:
        """Write a whole answer."""
        if self.transport is None:
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
            self.transport.write(head)
        elif len(answer.body) <= ONE_WRITE:
            self.transport.write(head + answer.body)
        else:
            self.transport.writelines((head, answer.body))

    async def stream(self, request: Request, answer: StreamedResponse, keep: bool) -> bool:
        """Write an answer that goes on until its chunks end; returns whether another may follow."""
        chunked = request.version == "1.1"
        keep = keep and chunked
        try:
            self.is_streaming = True
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
                    self._write_piece(piece, chunked)
                    await self.drain(len(piece))
                    if self.unread.is_full:
                        await self.unread.room()
            if chunked:
                self._write(b"0\r\n\r\n")
            return keep
        finally:
            self.is_streaming = False
            closer = getattr(answer.chunks, "aclose", None)
            if closer is not None:
                await closer()

    def _write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def _write_piece(self, piece: bytes, chunked: bool) -> None:
        if not chunked or len(piece) <= ONE_WRITE:
            self._write(chunk(piece) if chunked else piece)
        elif self.transport is not None:  # a client that does not read holds no second copy
            self.transport.writelines((b"%x\r\n" % len(piece), piece, b"\r\n"))

    def unsent(self) -> int:
        """Return how many bytes wait for the client."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def close_for(self, reason: str) -> None:
        """Drop a client that does not read: nothing more can be said to it."""
        if self.transport is not None:
            self.transport.abort()

    def push(self, piece: bytes) -> bool:
        """Send a framed piece of the stream under way, unless the client is behind with it."""
        if self.transport is None or self.is_stalled:
            return False
        self._pusher_to(self.transport).send(piece)
        return True

    def writer(self, on_behind: Callable[[], None]) -> SocketWriter | None:
        """Return what sends pieces without asking, until the client is behind or gone."""
        if self.transport is None or self.is_stalled:
            return None
        self._on_behind = on_behind
        return self._pusher_to(self.transport)

    def _pusher_to(self, transport: asyncio.Transport) -> SocketWriter:
        if self._pusher is None:
            self._pusher = SocketWriter(transport)
        return self._pusher

    def _tell_behind(self) -> None:
        on_behind, self._on_behind = self._on_behind, None
        if on_behind is not None:
            on_behind()

    async def drain(self, kept: int = 0) -> None:
        """Wait for room; the sweep drops a client that leaves its answer unread.

        Whoever makes a stream keeps the last piece whole, however much of it has left.
        """
        if self.is_stalled:
            self._due.expect_reading()
            self._room = asyncio.get_running_loop().create_future()
            held = max(self.unsent(), kept)
            release = self.unread.hold(held)
            try:
                await self._room
            finally:
                release(held)
            self._room = self._due.at = None
