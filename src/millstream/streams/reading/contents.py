"""Contents: what a stream holds as its readers see it, without what is on its way out."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from millstream.errors import RecordNotFound
from millstream.message import Record
from millstream.store.log.log import Log, LogState
from millstream.streams.config.config import StreamConfig
from millstream.streams.config.data_size import counts_data, data_bytes
from millstream.streams.config.size import size_of, stored_size
from millstream.streams.reading.subject_index import Selection, SubjectIndex
from millstream.streams.state import StreamState

if TYPE_CHECKING:
    from millstream.kernel._frames import Frames

READ_BYTES = 1024 * 1024


class Contents:
    """Looks at one stream's log; ``going`` says how many of its records are on their way out."""

    def __init__(
        self, config: StreamConfig, log: Log, index: SubjectIndex, going: Callable[[], int]
    ) -> None:
        self.config = config
        self.log = log
        self.index = index
        self._going = going
        self._everything = index.select(())

    def configure(self, config: StreamConfig) -> None:
        """Count as a configuration says."""
        self.config = config

    def get(self, seq: int) -> Record:
        """Return one record; raises RecordNotFound."""
        # A record that is being removed is gone for readers, though that is not logged yet.
        sought = seq > 0 and seq not in self.index.hidden.seqs
        frames = self.log.read(seq, 1, READ_BYTES) if sought else None
        if frames is None or not len(frames) or frames.first_seq != seq:
            raise RecordNotFound()
        return as_record(frames, 0)

    def state(self) -> StreamState:
        """Return one consistent look at the stream."""
        state = self.log.state()
        messages = max(0, state.count - self._going())
        first = self._first_seq(state.first_seq)
        return StreamState(
            messages=messages,
            bytes=stored_size(self.config, state) - self._leaving_size(),
            first_seq=first,
            last_seq=state.last_seq,
            synced_seq=state.synced_seq,
            first_ts_ns=self._time_of_first(state, first) if messages else 0,
            last_ts_ns=state.last_ts_ns,
            num_deleted=max(state.last_seq - first + 1 - messages, 0),
            evict_floor=state.evict_floor,
            gaps=state.gaps,
            floors=state.floors,
            capped=self.stored_bytes() if self.config.max_bytes > 0 else None,
        )

    def _leaving_size(self) -> int:
        if not self.index.hidden.seqs:
            return 0
        return size_of(self.config, *self.index.hidden.sizes())

    def bounds(self) -> tuple[int, int]:
        """Return the first and the last sequence, as ``state`` does, in fewer steps."""
        return self._first_seq(self.log.first_seq()), self.log.committed_seq

    def _first_seq(self, first: int) -> int:
        """Return the oldest sequence that is not on its way out; ``first`` is the log's."""
        if first not in self.index.hidden.seqs:
            return first
        return next(self.index.seqs(self._everything, first, 1), self.log.committed_seq + 1)

    def _time_of_first(self, state: LogState, first: int) -> int:
        """Return when the oldest record was stored that is not on its way out."""
        return state.first_ts_ns if first == state.first_seq else self.index.time_of(first)

    def stored_bytes(self) -> int:
        """Return the size of what is in the log, as ``max_bytes`` counts it."""
        state = self.log.state()
        if counts_data(self.config):
            return data_bytes(self.log, self.config.name, state.first_seq)
        return stored_size(self.config, state)

    def count_from(self, seq: int, chosen: Selection | None = None) -> int:
        """Return exactly how many live records from ``seq`` on are chosen."""
        first, last = self.log.first_seq(), self.log.committed_seq
        everything = (chosen is None or chosen.is_everything) and not self.index.hidden.seqs
        if everything and self.log.count == last - first + 1:
            return max(0, last - max(seq, first) + 1)
        return self.index.count(chosen or self._everything, seq)

    def subject_counts(self, filters: Sequence[str] = ()) -> dict[bytes, int]:
        """Return how many live records each matching subject has."""
        return self.index.counts(self.index.select(filters))

    def num_subjects(self) -> int:
        """Return how many subjects have a live record."""
        return self.log.subjects.living - self.index.hidden.whole_subjects()

    def deleted(self) -> list[int]:
        """Return the sequences between first and last that hold no record."""
        state = self.log.state()
        live = set(self.index.seqs(self._everything))
        first = self._first_seq(state.first_seq)  # what is on its way out below it is no hole
        return [seq for seq in range(first, state.last_seq + 1) if seq not in live]


def resting_state(config: StreamConfig, log: Log) -> StreamState:
    """Return a look at a stream without a limit on bytes, from which nothing is on its way out."""
    state = log.state()
    return StreamState(
        messages=state.count,
        bytes=stored_size(config, state),
        first_seq=state.first_seq,
        last_seq=state.last_seq,
        synced_seq=state.synced_seq,
        first_ts_ns=state.first_ts_ns,
        last_ts_ns=state.last_ts_ns,
        num_deleted=max(state.last_seq - state.first_seq + 1 - state.count, 0),
        evict_floor=state.evict_floor,
        gaps=state.gaps,
        floors=state.floors,
        capped=None,
    )


def as_record(frames: "Frames", at: int) -> Record:
    """Return one frame as a value."""
    return Record(*frames.record(at))
