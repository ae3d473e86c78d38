"""SegmentGrowth: which segment takes the next records, and when a new one begins."""

from typing import TYPE_CHECKING

from millstream.store.log.host import LogHost
from millstream.store.segments.segment import Segment

if TYPE_CHECKING:
    from millstream.store.log.file_log import FileLog

MOST_DELTA = 0xFFFFFFFF  # how far a record's sequence may be above its segment's base


class SegmentGrowth:
    """The newest segment of a log grows until it has reached a limit."""

    __slots__ = ("_host", "_log", "_most_age", "_most_bytes", "_most_records")

    def __init__(
        self, host: LogHost, log: "FileLog", most_records: int, most_bytes: int, most_age: float
    ) -> None:
        self._host = host
        self._log = log
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._most_age = most_age

    def take(self, first: int, last: int) -> Segment:
        """Return the segment that takes ``first..last``, a new one when the newest is full."""
        segments = self._log.segments
        if segments:
            segment = segments[-1]
            too_far = last - segment.base_seq > MOST_DELTA
            if not segment.full and (too_far or self.is_full(segment)):
                segment.full = True
            if not segment.full:
                return segment
        return self.start(first)

    def start(self, base_seq: int) -> Segment:
        """Begin a segment at ``base_seq``."""
        if self._log.segments:
            self._log.segments[-1].full = True
        host, log = self._host, self._log
        segment = Segment(
            host.files, log.directory, log.log_id, base_seq, log.subjects, host.keeping
        )
        segment.born = host.clock.monotonic()
        self._log.segments.append(segment)
        return segment

    def is_full(self, segment: Segment) -> bool:
        """Say whether the segment has reached a limit of count, bytes or age."""
        if not len(segment.index):
            return False
        return (
            len(segment.index) >= self._most_records
            or segment.size >= self._most_bytes
            or self._host.clock.monotonic() - segment.born >= self._most_age
        )

    def end_by_age(self) -> None:
        """Let age end a segment also when nothing is written."""
        newest = self._log.segments[-1] if self._log.segments else None
        if newest is not None and not newest.full and self.is_full(newest):
            newest.full = True
