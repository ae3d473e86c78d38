"""Origin: the stream that an intake follows at present, and what the intake claims of it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from millstream.streams.config.source import Source
from millstream.streams.retention.claims import RecordClaim

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

PAGE_BYTES = 1024 * 1024
Stored = tuple[int, int, bytes, bytes, bytes, bytes, bytes, bytes]  # as frames give records


class Origin:
    """One stream, from when it is found until the intake lets go of it."""

    def __init__(self, stream: "Stream", source: Source, holder: str) -> None:
        self.stream = stream
        self._filters = source.filters
        self._holder = holder
        self._chosen = stream.index.select(source.filters)
        self._unwatch: Callable[[], object] | None = None

    def claim(self, position: int, on_change: Callable[[], None]) -> None:
        """Keep records from ``position`` on until they are taken, and hear of new ones."""
        self.stream.removal.claims.put(self._holder, RecordClaim(self._filters, position, ()))
        self._unwatch = self.stream.watch(on_change)

    def page(self, position: int, most: int) -> list[Stored]:
        """Return the next records that pass the filters and are not on their way out."""
        index, at = self.stream.index, position
        hidden = index.hidden.seqs
        while records := list(index.read(self._chosen, at, most, PAGE_BYTES)):
            if found := [record for record in records if record[0] not in hidden]:
                return found
            at = records[-1][0] + 1
        return []

    def count_from(self, position: int) -> int:
        """Return how many records are left to take."""
        return self.stream.contents.count_from(position, self._chosen)

    def release(self, seqs: Sequence[int]) -> None:
        """Need these records no longer."""
        self.stream.removal.release(self._holder, seqs)

    def leave(self) -> None:
        """Need nothing of it any more."""
        if self._unwatch is not None:
            self._unwatch()
        if not self.stream.is_closed:
            self.stream.removal.unclaim(self._holder)
