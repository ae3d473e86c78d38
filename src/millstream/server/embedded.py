"""EmbeddedServer: a whole server inside another asyncio program, as ``millstream.Server``."""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from millstream.clock import SystemClock
from millstream.server.command_line.serve_options import load_serve
from millstream.server.options.config_error import ConfigError
from millstream.server.options.loaded import Loaded
from millstream.server.options.serve_config import ServeConfig
from millstream.server.process.orders import Order
from millstream.server.reload.reloading import Reloading
from millstream.server.running import RunningParts
from millstream.server.server import Server, assemble, follow


class EmbeddedServer:
    """Serves from ``async with`` to its end, on the loop that runs it.

        async with millstream.Server() as server:
            nc = await nats.connect(server.nats_url)

    It takes the settings of ``millstream serve`` by name, with two defaults of its own: free ports,
    and a temporary directory that goes at the end. Give ``data_dir`` to keep the records, and
    ``config`` to read a configuration file. It takes no signal: your program decides when it ends.
    """

    def __init__(
        self, data_dir: str | Path | None = None, *, config: str | Path = "", **settings: Any
    ) -> None:
        unknown = sorted(settings.keys() - set(ServeConfig.__struct_fields__))
        if unknown:
            raise ConfigError(f"no setting named {unknown[0]}: see `millstream serve --help`")
        self._data_dir = Path(data_dir) if data_dir is not None else None
        self._config = str(config)
        self._settings = {"port": 0, "http_port": 0, **settings}
        self._open = AsyncExitStack()
        self.nats_url = ""
        self.http_url: str | None = None

    @property
    def data_dir(self) -> Path:
        """The directory of all records; a temporary one exists while the server serves."""
        if self._data_dir is None:
            raise ConfigError("the server has no directory yet: it makes one when it starts")
        return self._data_dir

    async def __aenter__(self) -> Self:
        """Start; raises when a port or the directory cannot be used."""
        try:
            await self._start()
        except BaseException:
            await self._open.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop as SIGTERM would: what was accepted is stored and answered first."""
        await self._open.aclose()

    async def _start(self) -> None:
        if self._data_dir is None:
            made = self._open.enter_context(tempfile.TemporaryDirectory(prefix="millstream-"))
            self._open.callback(self._forget_directory)
            self._data_dir = Path(made) / "data"
        options = self._load().options
        orders: asyncio.Queue[Order] = asyncio.Queue()
        parts, opening = assemble(options, orders, SystemClock())
        server = Server(options, parts, opening)
        self._open.push_async_callback(server.stop)
        await server.start()
        facts = server.facts(0.0, data_is_new=False)
        self.nats_url, self.http_url = facts.nats_url or "", facts.http_url
        running = RunningParts(parts, None, server.write_files)
        reloading = Reloading(options, self._load if self._config else None, running)
        following = asyncio.create_task(follow(orders, running, reloading))
        self._open.push_async_callback(_end, orders, following)

    def _load(self) -> Loaded:
        values = {**self._settings, "data_dir": self.data_dir}
        return load_serve(values, self._config)

    def _forget_directory(self) -> None:
        self._data_dir = None


async def _end(orders: "asyncio.Queue[Order]", following: "asyncio.Task[None]") -> None:
    orders.put_nowait(Order.STOP)
    await following
