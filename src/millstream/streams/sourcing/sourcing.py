"""Sourcing: one source that feeds a stream, record by record, each exactly once.

Every record that is taken in says in its headers where it comes from, so that position and record
are committed together. The position is written down as well, behind the record: it counts when
the record is gone.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.errors import NotHere
from millstream.streams.config import source as sources
from millstream.streams.config.source import Source
from millstream.streams.sourcing.incoming import Incoming
from millstream.streams.sourcing.intake import Intake
from millstream.streams.sourcing.near_origin import PAGE_BYTES
from millstream.streams.sourcing.origin import Origin, OriginStart, Stored
from millstream.streams.sourcing.origins import Origins
from millstream.streams.sourcing.source_positions import SourcePosition, SourcePositions

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

SCAN_RECORDS = 4096


class Sourcing(Intake):
    """Takes the records of a source in behind whatever the target holds already."""

    def __init__(
        self,
        target: "Stream",
        source: Source,
        origins: Origins,
        clock: Clock,
        timers: Timers,
        positions: SourcePositions,
    ) -> None:
        super().__init__(target, source, origins, clock, timers)
        self._positions = positions

    def _start(self) -> OriginStart:
        known = self._positions.get(self._target.incarnation, self.source.identity)
        found = _newest(self._target, self.source.identity, known)
        if found is None:
            return OriginStart(self.source.opt_start_seq or 1, self.source.opt_start_time)
        self._taken = found.seq
        return OriginStart(found.seq + 1, identity=found.origin)

    def _packed(self, records: Iterable[Stored], origin: Origin) -> Incoming:
        coming, (name, taken, made) = Incoming(), self.source.identity
        which = f" {origin.identity}".encode() if origin.identity else b""
        for seq, _, subject, payload, headers, tag, node, meta in records:
            place = f"{name} {seq} {taken} {made} ".encode() + subject + which
            coming.demand(headers)
            coming.batch.add(
                self._rewritten(subject), b"", sources.marked(headers, place), payload,
                tag, node, meta,
            )  # fmt: skip
        return coming

    def _stored(self, origin: Origin, last: int) -> None:
        self._taken = last
        self._positions.note(
            self._target.incarnation,
            self.source.identity,
            SourcePosition(self._target.log.committed_seq, last, origin.identity),
        )


def _newest(
    stream: "Stream", identity: tuple[str, str, str], known: SourcePosition | None
) -> SourcePosition | None:
    """Return where a source got to: what its newest record says, else what was written down."""
    state = stream.log.state()
    first = max(state.first_seq, known.at + 1 if known is not None else 0)
    stop = state.last_seq + 1
    while stop > first:
        start = max(stop - SCAN_RECORDS, first)
        found = _newest_in(stream, identity, start, stop)
        if found is not None:
            return found
        stop = start
    return known


def _newest_in(
    stream: "Stream", identity: tuple[str, str, str], at: int, stop: int
) -> SourcePosition | None:
    found = None
    while at < stop:
        try:
            frames = stream.log.read(at, stop - at, PAGE_BYTES)
        except NotHere as missing:  # what is written down is newer than anything in cold history
            at = missing.next_seq
            continue
        if not len(frames):
            break
        for seq, _, _, _, headers, *_ in frames if sources.HEADER in frames.raw() else ():
            if seq < stop and sources.HEADER in headers:
                place = sources.origin_of(headers, identity)
                found = SourcePosition(seq, *place) if place is not None else found
        at = frames.last_seq + 1
    return found
