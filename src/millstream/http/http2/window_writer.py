"""WindowWriter: sends the answers of one HTTP/2 client within its windows."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import h2.connection
import h2.errors
import h2.exceptions

if TYPE_CHECKING:
    from millstream.http.response import StreamedResponse
    from millstream.http.unread import UnreadShare


class WindowWriter:
    """Its owner sets ``moved`` whenever a window opens or the transport drains."""

    def __init__(self, framing: h2.connection.H2Connection, unread: UnreadShare) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_writable = True
        self.moved = asyncio.Event()
        self.unread = unread
        self._h2 = framing

    async def stream(self, stream_id: int, answer: StreamedResponse, skip: bool) -> None:
        """Send an answer until its chunks end; none of them where the head was all."""
        try:
            if not skip:
                async for chunk in answer.chunks:
                    await self.send(stream_id, chunk)
                    if self.unread.is_full:
                        await self.unread.room()
                await self.send(stream_id, b"", end=True)
        finally:
            closer = getattr(answer.chunks, "aclose", None)
            if closer is not None:
                await closer()

    async def send(self, stream_id: int, data: bytes, end: bool = False) -> None:
        """Send within the client's windows, waiting for them to open."""
        at, release = 0, self.unread.hold(len(data))
        try:
            while self.transport is not None:
                window = self._h2.local_flow_control_window(stream_id)
                size = min(window, self._h2.max_outbound_frame_size, len(data) - at)
                if (size <= 0 and at < len(data)) or not self.is_writable:
                    self.moved.clear()
                    await self.moved.wait()
                    continue
                last = at + size >= len(data)
                self._h2.send_data(stream_id, data[at : at + size], end_stream=end and last)
                self.flush()
                at += size
                release(size)
                if last:
                    return
        finally:
            release(len(data) - at)

    def give_up(self, stream_id: int) -> None:
        """End an answer of which no more will come."""
        with suppress(h2.exceptions.ProtocolError):  # the client may have reset it
            self._h2.reset_stream(stream_id, h2.errors.ErrorCodes.INTERNAL_ERROR)
            self.flush()

    def flush(self) -> None:
        """Hand what h2 has to say to the transport."""
        data = self._h2.data_to_send()
        if data and self.transport is not None:
            self.transport.write(data)
