"""Facts: what the monitor may ask about the server, handed over once by whoever builds it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.clock import Clock

if TYPE_CHECKING:
    from millstream.streams.catalog import Catalog


def _nothing() -> dict[str, int]:
    return {}


def _healthy() -> list[str]:
    return []


@dataclass(slots=True)
class Facts:
    """Fixed facts as values, changing ones as calls; ``health`` is empty when all is well.

    ``port`` and ``http_port`` are set to the real ones once the doors are open.

    ``traffic`` returns those of nats-server's counters that are known: connections,
    total_connections, in_msgs, in_bytes, out_msgs, out_bytes, slow_consumers, subscriptions.
    """

    clock: Clock
    started_ns: int
    server_id: str
    server_name: str
    nats_version: str  # what clients are told, for feature gates
    host: str = "127.0.0.1"
    port: int = 0
    http_host: str = "127.0.0.1"
    http_port: int = 0
    max_payload: int = 1024 * 1024
    max_connections: int = 65_536
    max_pending: int = 8 * 1024 * 1024
    health: Callable[[], list[str]] = field(default=_healthy)
    traffic: Callable[[], dict[str, int]] = field(default=_nothing)
    catalog: "Catalog | None" = None
