"""SharedParts: what the JetStream APIs of all accounts have in common."""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from millstream.clock import Clock
from millstream.consumers import registry
from millstream.consumers.registry import Registry
from millstream.delivery.timers import Timers
from millstream.nats.jetstream.asker import Clients, UnguardedClients
from millstream.nats.jetstream.server_limits import ServerLimits
from millstream.store.checkpoints import Section
from millstream.store.store import Store
from millstream.streams import catalog as catalog_module
from millstream.streams.catalog import Catalog
from millstream.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest


def _no_system() -> None:
    """There is no system account."""


class ApiTerms(msgspec.Struct, frozen=True):
    """What the server's options say about the API."""

    server_name: str = ""
    domain: str = ""
    limits: ServerLimits = ServerLimits()
    is_strict: bool = True  # about fields of requests that there are not


class SharedParts(msgspec.Struct, frozen=True):
    """Hub, store, streams and consumers; ``system`` returns the system account's subjects."""

    hub: "Hub"
    store: Store
    clock: Clock
    loop: asyncio.AbstractEventLoop
    timers: Timers
    catalog: Catalog
    consumers: Registry
    terms: ApiTerms = ApiTerms()
    clients: Clients = UnguardedClients()
    system: "Callable[[], Interest | None]" = _no_system
    supervisor: Supervisor = msgspec.field(default_factory=Supervisor)

    def recover(self) -> None:
        """Replay what the store recovered, then let streams capture their subjects."""
        found = self.store.recovery
        self.catalog.replay(found.sections.get(catalog_module.SECTION), found.controls)
        self.consumers.replay(found.sections.get(registry.SECTION), found.controls)
        self.catalog.capture()

    def sections(self) -> dict[str, Section]:
        """Return what the store's snapshots keep of streams and consumers."""
        return {
            catalog_module.SECTION: self.catalog.section(),
            registry.SECTION: self.consumers.section(),
        }

    def close(self) -> None:
        """Send waiting consumers away, and take no more records."""
        self.consumers.close()
        self.catalog.close()
