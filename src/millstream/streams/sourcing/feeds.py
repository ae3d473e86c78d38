"""Feeds: which streams follow others, and through what."""

from functools import partial
from typing import TYPE_CHECKING

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.streams.config import source as sources
from millstream.streams.config.source import Source
from millstream.streams.sourcing.deliveries import Deliveries
from millstream.streams.sourcing.mirroring import Mirroring
from millstream.streams.sourcing.source_positions import PositionControls, SourcePositions
from millstream.streams.sourcing.sourcing import Sourcing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest
    from millstream.streams.stream import Stream


class Feeds:
    """Makes mirrors and sources follow their origins; ``find`` says which stream is meant."""

    def __init__(
        self,
        store: PositionControls,
        find: "Callable[[str, Source], Stream | None]",
        clock: Clock,
        timers: Timers,
        hub: "Hub | None",
        interests: "Mapping[str, Interest]",
    ) -> None:
        self.positions = SourcePositions(store)
        self._find = find
        self._clock = clock
        self._timers = timers
        self._hub = hub
        self._interests = interests
        self._fed: dict[int, Stream] = {}  # streams with sources or an origin

    def connect(self, stream: "Stream") -> None:
        """Let a stream be fed by the sources or the origin that its configuration names."""
        find, clock, timers = partial(self._find, stream.account), self._clock, self._timers
        config = stream.config
        if config.mirror is not None or config.sources:
            self._fed[stream.incarnation] = stream
        else:
            self._fed.pop(stream.incarnation, None)
        if config.mirror is not None:
            origin = Source.read(config.mirror)
            consumer = self._deliveries(origin, mirrors=True)
            stream.feed_by([Mirroring(stream, origin, find, clock, timers, consumer)])
            return
        named = ((one := Source.read(wire), self._deliveries(one)) for wire in config.sources)
        stream.feed_by(
            [
                Sourcing(stream, one, find, clock, timers, self.positions, consumer)
                for one, consumer in named
            ]
        )

    def _deliveries(self, source: Source, *, mirrors: bool = False) -> Deliveries | None:
        """Return the way in through a consumer of the origin, where a source names one."""
        if source.consumer is None or self._hub is None:
            return None
        refused = sources.needs_flow_acks(mirrors=mirrors)
        return Deliveries(self._hub, self._interests, self._timers, source.consumer, refused)

    def refresh(self) -> None:
        """Let sources and mirrors notice that a stream or a way to one came or went."""
        for stream in list(self._fed.values()):
            for feed in stream.feeds:
                feed.refresh()

    def forget(self, stream: "Stream") -> None:
        """Forget a stream that is gone."""
        self.positions.forget(stream.incarnation)
        self._fed.pop(stream.incarnation, None)
