"""Server: starts the parts, answers signals, stops the parts in the order that keeps promises."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import uvloop

from millstream.clock import Clock, SystemClock
from millstream.server.build import Parts, build
from millstream.server.config import ServeConfig
from millstream.server.facts import RecoveredStream, ServerFacts

log = logging.getLogger(__name__)

Announce = Callable[[ServerFacts], None]

_STORE_TICK = 1.0


def run(config: ServeConfig, announce: Announce) -> int:
    """Serve until a signal says stop; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    new = not config.data_dir.exists()
    return uvloop.run(_serve(config, announce, SystemClock(), new))


async def _serve(config: ServeConfig, announce: Announce, clock: Clock, new: bool) -> int:
    started = clock.monotonic()
    server = Server(config, build(config, asyncio.get_running_loop(), clock))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await server.start()
        with _written(server.launcher_files()):
            announce(server.facts(clock.monotonic() - started, new))
            await stop.wait()
    finally:
        await server.stop()
    return 0


@contextlib.contextmanager
def _written(files: dict[Path, str]) -> Iterator[None]:
    """Keep small files for launchers while serving; each appears whole or not at all."""
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".tmp")
        partial.write_text(text)
        partial.replace(path)
    try:
        yield
    finally:
        for path in files:
            path.unlink(missing_ok=True)


class Server:
    """The running parts of one process."""

    def __init__(self, config: ServeConfig, parts: Parts) -> None:
        self._config = config
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self.nats_address = ("", 0)
        self.http_address = ("", 0)

    async def start(self) -> None:
        """Open the doors; what was recovered is already in place."""
        parts, config = self._parts, self._config
        parts.jetstream.start()
        self.nats_address = parts.nats.start(config.host, config.port)
        self.http_address = (
            config.http_host,
            await parts.http.start(config.http_host, config.http_port),
        )
        self._tick()

    async def stop(self) -> None:
        """Close the doors first, then let the store finish what it accepted."""
        parts = self._parts
        parts.topics.stop()
        await parts.http.stop()
        sections = parts.jetstream.sections()
        await parts.jetstream.close()
        parts.nats.stop()
        parts.store.checkpoint(sections)
        parts.timers.close()
        parts.store.close()

    def _tick(self) -> None:
        parts = self._parts
        parts.store.tick()
        if parts.store.checkpoint_due:
            parts.store.checkpoint(parts.jetstream.sections())
        parts.timers.after(_STORE_TICK, self._tick)

    def launcher_files(self) -> dict[Path, str]:
        """Return what launchers wait for: the process id, and the ports that were taken."""
        files = {Path(self._config.data_dir) / "millstream.pid": f"{os.getpid()}\n"}
        if self._config.pid_file is not None:
            files[self._config.pid_file] = f"{os.getpid()}\n"
        if self._config.ports_file_dir is not None:
            ports = {
                "nats": [_url("nats", self.nats_address)],
                "monitoring": [_url("http", self.http_address)],
            }
            name = f"millstream_{os.getpid()}.ports"
            files[self._config.ports_file_dir / name] = msgspec.json.encode(ports).decode()
        return files

    def facts(self, ready_seconds: float, data_is_new: bool) -> ServerFacts:
        """Return what the banner says."""
        recovery = self._parts.store.recovery
        recovered = []
        for stream in self._parts.jetstream.catalog.streams():
            found = recovery.logs.get(stream.incarnation)
            if found is not None:
                recovered.append(
                    RecoveredStream(stream.name, found.records, found.lost, found.torn)
                )
        return ServerFacts(
            data_dir=str(self._config.data_dir),
            data_is_new=data_is_new,
            nats_url=_url("nats", self.nats_address),
            http_url=_url("http", self.http_address),
            http_offers=("API", "/healthz"),
            loopback_only=self._config.loopback_only,
            ready_seconds=ready_seconds,
            recovered=tuple(recovered),
            recovery_seconds=recovery.seconds,
        )


def _url(scheme: str, address: tuple[str, int]) -> str:
    host, port = address
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
