"""WatchPosition: where a watch stands in each of its topics, so that another can go on there."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from millstream.client import topic_calls as calls
from millstream.client.errors import ApiError, ConnectFailed
from millstream.client.topic_values import Event, TopicDeleted

EVENTS = {"Accept": "text/event-stream"}


class _Moved(msgspec.Struct):
    """What record and tombstone events say about the position behind them."""

    topic: str
    to_seq: int | None = None
    gap_from: int = 0
    gap_to: int = 0
    earliest_seq: int = 1

    @property
    def position(self) -> int:
        """Return behind which sequence to go on."""
        if self.to_seq is not None:
            return self.to_seq
        # A gap from the first sequence on may tell of a topic made anew: its records follow.
        return self.gap_to if self.gap_from > 1 else min(self.gap_to, self.earliest_seq - 1)


class WatchPosition:
    """Makes the request that opens a watch, and reads its answer and its events."""

    def __init__(self, positions: Mapping[str, int | None], options: Mapping[str, Any]) -> None:
        self._positions = dict(positions)
        self._options = options
        self.was_open = False

    @property
    def is_over(self) -> bool:
        """Return whether no topic is left to watch."""
        return not self._positions

    def call(self) -> calls.Call:
        """Return what opens the watch; one that was open before is content with what is left."""
        return calls.open_watch(self._positions, self._options, lenient=self.was_open)

    def opened(self, watch: calls.Watch) -> list[Event]:
        """Take note of where the server begins; returns which topics went meanwhile."""
        gone = [name for name in self._positions if name not in watch.topics]
        self._positions = {name: shown["from_seq"] for name, shown in watch.topics.items()}
        self.was_open = True
        return [TopicDeleted(name) for name in gone]

    def read(self, name: str, data: bytes) -> Iterable[Event]:
        """Return what an event tells, and move behind it."""
        events = calls.events_of(name, data)
        if name in ("record", "tombstone"):
            moved = msgspec.json.decode(data, type=_Moved)
            self._positions[moved.topic] = moved.position
        elif name == "topic-deleted":
            self._positions.pop(msgspec.json.decode(data, type=TopicDeleted).topic, None)
        return events

    def lost(self, error: ApiError | ConnectFailed) -> ApiError | ConnectFailed:
        """Return why a watch that was open ended; a server that knows it no longer was away."""
        if isinstance(error, ApiError) and (error.status, error.code) == (404, "not_found"):
            return ConnectFailed(str(error))
        return error
