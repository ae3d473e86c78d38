"""Feeds: which streams follow others, and through what."""

from functools import partial
from typing import TYPE_CHECKING

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.streams.config import source as sources
from millstream.streams.config.source import Source
from millstream.streams.sourcing.mirroring import Mirroring
from millstream.streams.sourcing.origin_consumers import (
    NamedConsumer,
    OriginConsumer,
    OwnConsumer,
)
from millstream.streams.sourcing.origins import Origins, Requests, Whereabouts
from millstream.streams.sourcing.source_positions import PositionControls, SourcePositions
from millstream.streams.sourcing.sourcing import Sourcing

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.streams.stream import Stream


class Feeds:
    """Makes mirrors and sources follow their origins; ``find`` says which stream is meant."""

    def __init__(
        self,
        store: PositionControls,
        find: "Callable[[str, Source], Whereabouts]",
        clock: Clock,
        timers: Timers,
        requests: Requests | None,
        domain: str = "",
    ) -> None:
        """``requests`` reaches the APIs of others, ``domain`` is who we are there."""
        self.positions = SourcePositions(store)
        self._find = find
        self._clock = clock
        self._timers = timers
        self._requests = requests
        self._domain = domain
        self._fed: dict[int, Stream] = {}  # streams with sources or an origin

    def connect(self, stream: "Stream") -> None:
        """Let a stream be fed by the sources or the origin that its configuration names."""
        config, clock, timers = stream.config, self._clock, self._timers
        if config.mirror is not None or config.sources:
            self._fed[stream.incarnation] = stream
        else:
            self._fed.pop(stream.incarnation, None)
        if config.mirror is not None:
            source = Source.read(config.mirror)
            origins = self._origins(stream, source, mirrors=True)
            stream.feed_by([Mirroring(stream, source, origins, clock, timers)])
            return
        named = [Source.read(wire) for wire in config.sources]
        stream.feed_by(
            [
                Sourcing(stream, one, self._origins(stream, one), clock, timers, self.positions)
                for one in named
            ]
        )

    def _origins(self, stream: "Stream", source: Source, *, mirrors: bool = False) -> Origins:
        holder = stream.account, stream.name
        find = partial(self._find, stream.account, source)
        consumer = partial(self._consumer, stream, source, mirrors=mirrors)
        return Origins(source, holder, find, self._requests, consumer)

    def _consumer(self, stream: "Stream", source: Source, *, mirrors: bool) -> OriginConsumer:
        """Return the consumer that brings records: the one that is named, or one for this."""
        if source.consumer is not None:
            return NamedConsumer(source, sources.needs_flow_acks(mirrors=mirrors))
        target = stream.name, stream.account, self._domain
        return OwnConsumer(source, target, mirrors=mirrors)

    def refresh(self) -> None:
        """Let sources and mirrors notice that a stream or a way to one came or went."""
        for stream in list(self._fed.values()):
            for feed in stream.feeds:
                feed.refresh()

    def forget(self, stream: "Stream") -> None:
        """Forget a stream that is gone."""
        self.positions.forget(stream.incarnation)
        self._fed.pop(stream.incarnation, None)
