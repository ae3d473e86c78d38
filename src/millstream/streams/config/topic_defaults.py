"""TopicDefaults: what a topic that is made over HTTP gets where nobody says it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from millstream.streams.config.config import MADE_AS, StreamConfig


class TopicDefaults(msgspec.Struct, frozen=True):
    """The server's own defaults: what an acknowledgement promises."""

    durability: str = "disk"

    def config(
        self, name: str, wish: Mapping[str, Any], existing: StreamConfig | None = None
    ) -> StreamConfig:
        """Read a topic's configuration; a stream of NATS clients keeps its own promise."""
        is_ours = existing is None or MADE_AS in existing.metadata
        if is_ours and wish.get("durability") is None and wish.get("durable") is None:
            wish = {**wish, "durability": self.durability}
        return StreamConfig.from_topic(name, wish, existing)
