"""NearOrigin: a stream of this server, read in place."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from millstream.streams.config import source as sources
from millstream.streams.config.source import Source
from millstream.streams.config.times import time_ns
from millstream.streams.retention.claims import RecordClaim
from millstream.streams.sourcing.origin import OriginFollower, OriginStart, Stored

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

PAGE_BYTES = 1024 * 1024


class NearOrigin:
    """Reads a stream, and claims of it what was not read yet."""

    error = None
    is_near = True

    def __init__(self, stream: "Stream", source: Source, holder: str) -> None:
        self.identity = sources.identity_of(stream)
        self._stream = stream
        self._filters = source.filters
        self._holder = holder
        self._chosen = stream.index.select(source.filters)
        self._unwatch: Callable[[], object] | None = None

    def begin(self, start: OriginStart, follower: OriginFollower) -> None:
        """Keep records until they are taken, and tell of new ones."""
        position, is_same = place_in(self._stream, start)
        follower.begun(position, is_same=is_same)
        claim = RecordClaim(self._filters, position, ())
        self._stream.removal.claims.put(self._holder, claim)
        self._unwatch = self._stream.watch(follower.pump)
        follower.pump()

    def page(self, position: int, most: int) -> list[Stored]:
        """Return the next records that pass the filters and are not on their way out."""
        index, at = self._stream.index, position
        hidden = index.hidden.seqs
        while records := list(index.read(self._chosen, at, most, PAGE_BYTES)):
            if found := [record for record in records if record[0] not in hidden]:
                return found
            at = records[-1][0] + 1
        return []

    def left(self, position: int) -> int:
        """Return how many records are left to take."""
        return self._stream.contents.count_from(position, self._chosen)

    def taken(self, seqs: Sequence[int]) -> None:
        """Need these records no longer."""
        self._stream.removal.release(self._holder, seqs)

    def leave(self) -> None:
        """Need nothing of it any more."""
        if self._unwatch is not None:
            self._unwatch()
        if not self._stream.is_closed:
            self._stream.removal.unclaim(self._holder)


def place_in(stream: "Stream", start: OriginStart) -> tuple[int, bool]:
    """Return the sequence to go on at, and whether the stream is the one that it was."""
    is_same = not start.identity or sources.is_same(start.identity, stream)
    seq = start.seq if is_same else 1
    if start.time:
        seq = stream.log.seek_time(time_ns(start.time))
    return max(seq, stream.log.state().first_seq), is_same
