"""Sleeper: a stream that nobody uses has only its configuration and its log."""

from functools import partial
from typing import TYPE_CHECKING, cast

from millstream.store.log.log import Log
from millstream.streams.config.config import StreamConfig
from millstream.streams.publishing.admission import Admission
from millstream.streams.publishing.capture import Capture
from millstream.streams.reading.contents import Contents, resting_state
from millstream.streams.reading.subject_index import SubjectIndex
from millstream.streams.reading.watchers import Watchers
from millstream.streams.retention.removal import Removal
from millstream.streams.state import StreamState
from millstream.streams.stream_parts import StreamParts, Surroundings, may_sleep
from millstream.streams.writing.writes import Writes

if TYPE_CHECKING:
    from millstream.kernel._batch import Batch
    from millstream.streams.stream import Stream


class Sleeper:
    """Makes the parts that let records in and out when somebody needs one of them."""

    __slots__ = (
        "__weakref__",
        "_around",
        "_capture",
        "_is_held",
        "_is_pinned",
        "_parts",
        "_read_before",
        "config",
        "log",
    )

    def __init__(self, config: StreamConfig, log: Log, around: Surroundings) -> None:
        self.config = config
        self.log = log
        self._around = around
        self._capture = Capture(around.interest, self)
        self._is_held = False  # publishers wait for the disk
        self._is_pinned = False
        self._read_before = 0  # records, until it slept last
        self._parts: StreamParts | None = None
        if not may_sleep(config, log):
            self.wake()

    def deliver(self, batch: "Batch") -> None:
        """Store captured publishes in order; a reply is answered once its record is committed."""
        self.wake().admission.publish(batch)

    def wake(self) -> StreamParts:
        """Return the parts, made if there are none."""
        parts = self._parts
        if parts is None:
            abandoned = partial(self._around.on_abandoned, cast("Stream", self))
            parts = StreamParts(self.config, self.log, self._around, self._capture.pause, abandoned)
            self._parts = parts
            parts.index.records_read = self._read_before
            parts.begin()
            if self._is_held:
                parts.writes.backlog.hold_publishers(True)
        parts.is_used = True
        return parts

    def pin(self) -> None:
        """Stay awake: somebody remembers what the parts have counted."""
        self._is_pinned = True
        self.wake()

    def sleep(self) -> bool:
        """Give up the parts, unless somebody used them since this was called last."""
        parts = self._parts
        if parts is None:
            return True
        was_used, parts.is_used = parts.is_used, False
        if was_used or self._is_pinned or not may_sleep(self.config, self.log):
            return False
        if not parts.are_idle():
            return False
        self._read_before = parts.index.records_read
        self._parts = None
        return True

    @property
    def is_asleep(self) -> bool:
        """Say whether it has only its configuration and its log."""
        return self._parts is None

    @property
    def index(self) -> SubjectIndex:
        """Return the records by subject, from the log's integers."""
        return self.wake().index

    @property
    def contents(self) -> Contents:
        """Return state and counts, as readers see them."""
        return self.wake().contents

    @property
    def watchers(self) -> Watchers:
        """Return who looks again after a change."""
        return self.wake().watchers

    @property
    def admission(self) -> Admission:
        """Return what may come in, and as which runs."""
        return self.wake().admission

    @property
    def writes(self) -> Writes:
        """Return the runs on their way into the log."""
        return self.wake().writes

    @property
    def removal(self) -> Removal:
        """Return claims, limits, age, requests; what went lately."""
        return self.wake().removal

    @property
    def staged_size(self) -> int:
        """Return what records on their way in will count in ``max_bytes``."""
        return 0 if self._parts is None else self._parts.writes.staged_size

    @property
    def records_read(self) -> int:
        """Return how many records were read since the start, by whoever."""
        return self._read_before if self._parts is None else self._parts.index.records_read

    def hold_publishers(self, held: bool) -> None:
        """Hold publishers back while the disk is behind with what all streams have staged."""
        self._is_held = held
        if self._parts is not None:
            self._parts.writes.backlog.hold_publishers(held)
        else:
            self._capture.pause(held)

    def state(self) -> StreamState:
        """Return one consistent look at the stream."""
        parts = self._parts
        return resting_state(self.config, self.log) if parts is None else parts.contents.state()
