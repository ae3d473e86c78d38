"""A broker inside the test's own event loop: hub, store and JetStream, on a free port."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from nats.aio.client import Client

import nats
from millstream.clock import Clock, SystemClock
from millstream.consumers.registry import Registry
from millstream.delivery.timers import Timers
from millstream.kernel._interest import Interest
from millstream.nats.door import NatsDoor
from millstream.nats.jetstream.endpoint import JetStream
from millstream.nats.jetstream.serving.shared_parts import ApiTerms, SharedParts
from millstream.store.disk.files import OsFiles
from millstream.store.store import Store
from millstream.streams.catalog import Catalog
from millstream.wire.info import server_info
from support.nats_server import nats_server


class Broker:
    """Everything that NATS clients of JetStream need, over one directory."""

    def __init__(self, directory: str, clock: Clock | None = None, domain: str = "") -> None:
        loop = asyncio.get_running_loop()
        clock = clock or SystemClock()
        self.interest = Interest()
        # A clock that a test moves drives its deadlines by run_due alone.
        self.timers = Timers(clock, loop if isinstance(clock, SystemClock) else None)
        info = server_info(b"\x01" * 32, host="127.0.0.1", port=0, jetstream=True)
        self.door = NatsDoor(loop, SystemClock(), self.interest, info)
        self.store = Store.open(directory, OsFiles(), clock, loop.call_soon_threadsafe)
        self.js = JetStream(self._shared(loop, clock, domain), "$G", self.interest)

    def _shared(self, loop: asyncio.AbstractEventLoop, clock: Clock, domain: str) -> SharedParts:
        hub, store, timers, spaces = self.door.hub, self.store, self.timers, {"$G": self.interest}
        catalog = Catalog(store, clock, timers, hub, spaces)
        consumers = Registry(catalog, store, clock, timers, hub, spaces)
        terms = ApiTerms(domain=domain)
        return SharedParts(hub, store, clock, loop, timers, catalog, consumers, terms)

    def start(self) -> str:
        """Serve; returns the address for clients."""
        self.js.parts.recover()
        self.js.start()
        self.js.parts.consumers.open()
        host, port = self.door.start("127.0.0.1", 0)
        return f"nats://{host}:{port}"

    async def stop(self) -> None:
        """Stop as the server does."""
        await self.js.finish()
        self.js.parts.close()
        self.door.stop()
        self.timers.close()
        self.store.close()


async def both(tmp_path: Path, scenario: Callable[[Client], Awaitable[Any]]) -> tuple[Any, Any]:
    """Return what the scenario saw here and at the reference."""
    broker = Broker(str(tmp_path / "ours"))
    seen = []
    with nats_server("-js", "-sd", str(tmp_path / "theirs")) as reference:
        for url in (broker.start(), reference.url):
            client = await nats.connect(url, allow_reconnect=False)
            seen.append(await scenario(client))
            await client.close()
    await broker.stop()
    return seen[0], seen[1]
