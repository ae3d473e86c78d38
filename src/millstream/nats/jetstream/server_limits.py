"""What the server's own configuration allows of JetStream, whichever account asks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.errors import InvalidStreamConfig
from millstream.nats.jetstream.errors import ApiError
from millstream.streams.config.config import DEFAULT_WINDOW_NS
from millstream.streams.config.times import go_text

if TYPE_CHECKING:
    from millstream.consumers.config import ConsumerConfig
    from millstream.streams.config.config import StreamConfig

_DEFAULT_ACK_PENDING = 1000


class ServerLimits(msgspec.Struct, frozen=True):
    """Bounds of the ``jetstream { limits {} }`` block; 0 means none."""

    max_ack_pending: int = 0
    max_request_batch: int = 0
    duplicate_window_ns: int = 0
    max_memory: int = -1  # bytes in all accounts; below 0 means any number
    max_storage: int = -1

    def _most(self, storage: str) -> int:
        return self.max_memory if storage == "memory" else self.max_storage

    def check_reserved(self, config: "StreamConfig", reserved: int) -> None:
        """Refuse a stream whose bytes are promised to others, who have ``reserved``."""
        most, asked = self._most(config.storage), max(config.max_bytes, 0)
        if asked and 0 <= most < reserved + asked:
            what = "memory" if config.storage == "memory" else "storage"
            code = 10028 if config.storage == "memory" else 10047
            raise ApiError(500, code, f"insufficient {what} resources available")

    def fill_consumer(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return a consumer's request with these bounds where it names none of its own."""
        filled = dict(config)
        tracks = config.get("ack_policy", "none") != "none"
        is_lower = 0 < self.max_ack_pending < _DEFAULT_ACK_PENDING
        if tracks and is_lower and not config.get("max_ack_pending"):
            filled["max_ack_pending"] = self.max_ack_pending
        if self.max_request_batch and not config.get("deliver_subject"):
            filled["max_batch"] = config.get("max_batch") or self.max_request_batch
        return filled

    def check_consumer(self, config: "ConsumerConfig") -> None:
        """Refuse a consumer that asks for more; raises ApiError."""
        if 0 < self.max_request_batch < config.max_batch and not config.is_push:
            raise ApiError(
                400,
                10125,
                f"consumer max request batch exceeds server limit of {self.max_request_batch}",
            )
        if 0 < self.max_ack_pending < config.max_ack_pending:
            raise ApiError(
                400,
                10121,
                f"consumer max ack pending exceeds system limit of {self.max_ack_pending}",
            )

    def fill_stream(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a stream's request with the largest window where it names none of its own."""
        filled = dict(config)
        is_fed = config.get("mirror") or config.get("sources")
        window, age = self.duplicate_window_ns, config.get("max_age") or 0
        if is_fed or config.get("duplicate_window") or not 0 < window < DEFAULT_WINDOW_NS:
            return filled
        if not isinstance(age, int) or not 0 < age < window:  # else the age is the default
            filled["duplicate_window"] = window
        return filled

    def check_stream(self, config: "StreamConfig") -> None:
        """Refuse a window above the bound; raises InvalidStreamConfig."""
        if 0 < self.duplicate_window_ns < config.duplicate_window:
            most = go_text(self.duplicate_window_ns)
            raise InvalidStreamConfig(
                f"duplicates window can not be larger then server limit of {most}"
            )
