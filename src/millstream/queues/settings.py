"""What a topic's configuration says about its queue."""

import msgspec

from millstream.delivery.record_key import RecordKey
from millstream.streams.config.config import StreamConfig

TYPE = "millstream.type"
SHORTEST_LEASE_MS = 100
LONGEST_MS = 86_400_000
LONGEST_JITTER_MS = 5000


class Settings(msgspec.Struct, frozen=True):
    """The queue fields of a topic, within their ranges."""

    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False
    key: str | None = None

    @property
    def record_key(self) -> RecordKey | None:
        """Return where the key is whose jobs go one by one, None where order is not kept."""
        try:
            return RecordKey.read(self.key) if self.key else None
        except ValueError:
            return None

    @property
    def keeps_leases(self) -> bool:
        """Whether leases outlive the process: an order by key also holds across a restart."""
        return self.leases_durable or bool(self.key)

    @property
    def most_deliveries(self) -> int:
        """Return after how many deliveries a job is given up, 0 for never."""
        return self.max_deliveries if self.dead_letter else 0


def is_queue(config: StreamConfig) -> bool:
    """Return whether the topic hands its records out as jobs."""
    return config.metadata.get(TYPE) == "queue"


def settings_of(config: StreamConfig) -> Settings:
    """Return a topic's queue settings; metadata that a NATS client garbled means the defaults."""
    try:
        found = msgspec.convert(config.to_topic(), Settings)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return Settings()
    return msgspec.structs.replace(
        found,
        lease_ms=clamp_lease(found.lease_ms),
        claim_jitter_ms=min(max(found.claim_jitter_ms, 0), LONGEST_JITTER_MS),
    )


def clamp_lease(lease_ms: int) -> int:
    """Return a lease's length within its range."""
    return min(max(lease_ms, SHORTEST_LEASE_MS), LONGEST_MS)
