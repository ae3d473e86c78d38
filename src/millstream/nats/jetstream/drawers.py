"""Drawers: mirrors and sources, shown as the consumers through which the reference lets them draw.

Here they copy records without a consumer. A stream that waits for somebody to take its records
still shows who takes them.
"""

import hashlib
from typing import TYPE_CHECKING, Any

from millstream.consumers.config import ConsumerConfig
from millstream.streams.config.config import shown_metadata
from millstream.streams.config.times import rfc3339

if TYPE_CHECKING:
    from millstream.nats.jetstream.endpoint import JetStream
    from millstream.streams.stream import Stream, StreamFollower

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LENGTH = 8
_HEARTBEAT = 1_000_000_000


class Drawer:
    """One stream that draws from another, under a name that stays the same."""

    def __init__(self, origin: "Stream", target: "Stream", feed: "StreamFollower") -> None:
        kind = "MIRROR" if target.config.mirror is not None else "SRC"
        said = repr((kind, target.account, target.name, target.incarnation, feed.source.identity))
        self._word = _word(said.encode())
        self.name = f"JS_{kind}_{self._word}"
        self._kind = kind
        self._origin = origin
        self._target = target
        self._feed = feed

    def info(self, now_ns: int, *, full: bool = True) -> dict[str, Any]:
        """Return a ConsumerInfo."""
        config = ConsumerConfig.from_request(self._request(), self._origin.config)
        taken, ago = self._feed.taken, self._feed.info()["active"]
        position: dict[str, Any] = {"consumer_seq": taken, "stream_seq": taken}
        if taken and ago >= 0:
            position["last_active"] = rfc3339(now_ns - ago)
        return {
            "stream_name": self._origin.name,
            "name": self.name,
            "created": rfc3339(self._target.created_ns),
            "config": {
                **config.to_request(),
                "sourcing": True,
                "metadata": shown_metadata(config.metadata, 4, full=full),
            },
            "delivered": position,
            "ack_floor": position,
            "num_ack_pending": 0,
            "num_redelivered": 0,
            "num_waiting": 0,
            "num_pending": self._feed.info()["lag"],
            "push_bound": True,
            "ts": rfc3339(now_ns),
        }

    def _request(self) -> dict[str, Any]:
        kind = {"MIRROR": ("M", "mirror"), "SRC": ("S", "src")}[self._kind]
        filters = [transform.source for transform in self._feed.source.transforms()]
        if self._feed.source.filter_subject:
            filters = [self._feed.source.filter_subject]
        return {
            "durable_name": self.name,
            "name": self.name,
            "deliver_policy": "all",
            "ack_policy": "flow_control",
            "flow_control": True,
            "deliver_subject": f"$JS.{kind[0]}.{self._word}",
            "idle_heartbeat": _HEARTBEAT,
            **({"filter_subject": filters[0]} if len(filters) == 1 else {}),
            **({"filter_subjects": filters} if len(filters) > 1 else {}),
            "metadata": {
                f"_nats.{kind[1]}.acc": self._target.account,
                f"_nats.{kind[1]}.stream": self._target.name,
            },
        }


def _word(said: bytes) -> str:
    left, made = int.from_bytes(hashlib.blake2b(said, digest_size=8).digest()), ""
    for _ in range(_LENGTH):
        left, at = divmod(left, len(_DIGITS))
        made += _DIGITS[at]
    return made


def drawing_from(js: "JetStream", origin: "Stream") -> list[Drawer]:
    """Return who draws from a stream that waits for somebody to take its records."""
    if origin.config.retention == "limits":
        return []
    found = [
        Drawer(origin, target, feed)
        for target in js.catalog.streams(js.account)
        for feed in target.feeds
        if feed.source.name == origin.name
        and feed.source.external is None
        and feed.source.consumer is None  # which is a consumer of its own
    ]
    return sorted(found, key=lambda drawer: drawer.name)
