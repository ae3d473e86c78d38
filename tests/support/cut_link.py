"""CutLink: a way between two servers that a test can cut, close and open again."""

import asyncio
import contextlib
import socket
from types import TracebackType


class CutLink:
    """Listens on a port of its own and passes bytes on to another one; ``async with`` runs it."""

    def __init__(self, target: int) -> None:
        self.cuts = 0  # connections that were cut off
        self._target = target
        self._is_closed = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._socket = socket.create_server(("127.0.0.1", 0))

    @property
    def port(self) -> int:
        """Where to connect."""
        return int(self._socket.getsockname()[1])

    async def __aenter__(self) -> "CutLink":
        self._server = await asyncio.start_server(self._accepted, sock=self._socket)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Break every connection off, as a cable that is pulled."""
        for writer in self._writers:
            writer.transport.abort()
            self.cuts += 1
        self._writers.clear()

    def close(self) -> None:
        """Cut, and let nobody connect until ``open``."""
        self._is_closed = True
        self.cut()

    def open(self) -> None:
        """Let others connect again."""
        self._is_closed = False

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closed:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.ensure_future(_copy(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    sink.transport.abort()
