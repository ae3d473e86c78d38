"""Recall: what a stream knows from its records: message ids, lifetimes, schedules."""

from typing import TYPE_CHECKING

from millstream.errors import ColdUnavailable
from millstream.store.log.log import Log
from millstream.streams.config import durations, extras
from millstream.streams.config.config import StreamConfig
from millstream.streams.publishing.scheduling import Scheduling
from millstream.streams.reading.contents import READ_BYTES
from millstream.streams.retention.expiry import Expiry
from millstream.streams.writing import preconditions
from millstream.streams.writing.writes import Writes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.kernel._frames import Frames

_READ_RECORDS = 4096


class Recall:
    """Reads the records that were there before a start, and tells each part what concerns it."""

    def __init__(
        self,
        config: StreamConfig,
        log: Log,
        writes: Writes,
        expiry: Expiry,
        scheduling: Scheduling,
    ) -> None:
        self._config = config
        self._log = log
        self._writes = writes
        self._expiry = expiry
        self._scheduling = scheduling

    def everything(self, now_ns: int) -> None:
        """Recover message ids, lifetimes and schedules, each as far back as it counts."""
        state, config = self._log.state(), self._config
        if not state.headed:  # all three are headers: most streams have none to read
            return
        from_start = config.allow_msg_ttl or config.allow_msg_schedules
        oldest = now_ns - config.duplicate_window
        start = state.first_seq if from_start else self._log.seek_time(oldest)
        for frames in _pages(self._log, start, state.last_seq):
            self._writes.newest_msg_id = b""
            # One search over the bytes: most records carry no demand and need no look.
            looked_at = config.allow_msg_schedules or b"\nNats-" in frames.raw()
            for seq, ts_ns, subject, _, headers, *_ in frames if looked_at else ():
                self._writes.newest_msg_id = b""
                self._scheduling.recall(seq, ts_ns, subject, headers)
                if b"\nNats-" in headers:
                    self._recall(seq, ts_ns, extras.first_values(headers))

    def _recall(self, seq: int, ts_ns: int, values: dict[bytes, bytes]) -> None:
        if preconditions.MSG_ID in values:
            self._writes.newest_msg_id = values[preconditions.MSG_ID]
            self._writes.window.add(self._writes.newest_msg_id, seq, ts_ns)
        if preconditions.TTL in values and self._config.allow_msg_ttl:
            seconds = durations.lifetime(values[preconditions.TTL])
            if seconds:
                self._expiry.later(seq, ts_ns, seconds)
            elif seconds == 0:
                self._expiry.never(seq)


def recall_ids(log: Log, writes: Writes, since_ns: int) -> None:
    """Know the ids of records that a wider window reaches back to."""
    for frames in _pages(log, log.seek_time(since_ns), log.state().last_seq):
        for seq, ts_ns, _, _, headers, *_ in frames:
            if b"\nNats-Msg-Id:" in headers:
                msg_id = extras.first_values(headers)[preconditions.MSG_ID]
                writes.window.add(msg_id, seq, ts_ns)


def _pages(log: Log, at: int, last: int) -> "Iterator[Frames]":
    """Yield the records from ``at`` to ``last`` that are here."""
    while at <= last:
        try:
            frames = log.read(at, _READ_RECORDS, READ_BYTES)
        except ColdUnavailable:  # moved: nothing in there is young enough to matter
            at = _after_cold(log, at)
            continue
        if not len(frames):
            return
        yield frames
        at = frames.last_seq + 1


def _after_cold(log: Log, at: int) -> int:
    """Return where the log goes on behind the segment that ``at`` is in."""
    later = (segment.base_seq for segment in log.segments if segment.base_seq > at)
    return next(later, log.committed_seq + 1)
