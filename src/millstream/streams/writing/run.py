"""Run: entries that went to the log together, until their commit is known."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millstream.kernel._batch import Batch
from millstream.streams.config.config import StreamConfig
from millstream.streams.config.size import record_size
from millstream.streams.writing import preconditions

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from millstream.errors import MillstreamError
    from millstream.store.log.log import Note

    OnEnd = Callable[["Run", MillstreamError | None], None]


class Demand(NamedTuple):
    """What one entry of a run asks of the stream once it is stored."""

    at: int  # counted from the first of the run
    msg_id: bytes = b""
    rollup: bytes = b""
    ttl: float = 0.0
    forever: bool = False  # outlives max_age

    @classmethod
    def of(cls, at: int, values: Mapping[bytes, bytes]) -> "Demand":
        """Read the demands of checked headers."""
        ttl = values.get(preconditions.TTL)
        return cls(
            at,
            values.get(preconditions.MSG_ID, b""),
            values.get(preconditions.ROLLUP, b"").lower(),
            seconds := preconditions.ttl_seconds(ttl) if ttl is not None else 0.0,
            ttl is not None and not seconds,
        )


class Run:
    """Entries ``start`` to ``start + count`` of a batch, and who waits for them."""

    __slots__ = (
        "_tally", "ack_suffix", "batch", "count", "demands", "duplicates", "first_seq", "future",
        "note", "on_end", "previous", "seqs", "start", "times_ns", "waiting",
    )  # fmt: skip

    def __init__(self, batch: Batch, start: int, count: int, on_end: "OnEnd | None" = None) -> None:
        """``on_end`` is called instead of answers to publishers, once the outcome is known."""
        self.batch = batch
        self.start = start
        self.count = count
        self.first_seq = 0
        self.seqs: Sequence[int] | None = None  # where they must be stored, when not behind
        self.times_ns: Sequence[int] = ()  # and their times
        self.on_end = on_end
        self.note: Note | None = None  # what is written down in the same commit
        self.future: asyncio.Future[tuple[int, int]] | None = None
        self.demands: list[Demand] = []
        self.ack_suffix = b"}"
        self.duplicates: list[tuple[bytes, bytes]] = []  # replies that wait for this commit
        self.previous: dict[bytes, int] = {}  # the newest before this run, of subjects to republish
        self.waiting: list[Callable[[], None]] = []  # reads that this run may concern
        self._tally: RunTally | None = None  # of entries that somebody looked at

    @property
    def last_seq(self) -> int:
        """Return the newest sequence of the run."""
        return self.seqs[self.count - 1] if self.seqs else self.first_seq + self.count - 1

    def seq_of(self, at: int) -> int:
        """Return the sequence of an entry, counted from the first of the run."""
        return self.seqs[at] if self.seqs is not None else self.first_seq + at

    def time_of(self, at: int, now_ns: int) -> int:
        """Return the time of an entry; ``now_ns`` where it has none of its own."""
        return self.times_ns[at] if self.times_ns else now_ns

    @property
    def last_msg_id(self) -> bytes:
        """Return the message id of the newest entry, empty when it has none."""
        newest = self.demands[-1] if self.demands else None
        return newest.msg_id if newest is not None and newest.at == self.count - 1 else b""

    def last_of_subjects(self) -> dict[bytes, int]:
        """Return subject → newest sequence within this run."""
        return self._look().last_of_subjects()

    def count_of(self, subject: bytes) -> int:
        """Return how many entries have a subject."""
        return self._look().count_of(subject)

    def subjects(self) -> set[bytes]:
        """Return the distinct subjects."""
        return self.batch.subjects(self.start, self.count)

    def stored_size(self, config: StreamConfig) -> int:
        """Return what the entries count in ``max_bytes`` once they are stored."""
        return self._look().stored_size(config)

    def _look(self) -> "RunTally":
        if self._tally is None:
            self._tally = RunTally(self)
        return self._tally


class RunTally:
    """What the entries of a run add up to; each is looked at once, while the run may grow."""

    __slots__ = ("_counted", "_counts", "_last_of", "_run", "_size", "_sized")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._last_of: dict[bytes, int] = {}
        self._counts: dict[bytes, int] = {}
        self._counted = self._size = self._sized = 0

    def last_of_subjects(self) -> dict[bytes, int]:
        """Return subject → newest sequence."""
        self._count()
        return self._last_of

    def count_of(self, subject: bytes) -> int:
        """Return how many entries have a subject."""
        self._count()
        return self._counts.get(subject, 0)

    def _count(self) -> None:
        """Count in what the run has grown by since the last look."""
        run, counts, last_of = self._run, self._counts, self._last_of
        for at in range(self._counted, run.count):
            subject = run.batch.subject(run.start + at)
            counts[subject] = counts.get(subject, 0) + 1
            last_of[subject] = run.seq_of(at)
        self._counted = run.count

    def stored_size(self, config: StreamConfig) -> int:
        """Return what the entries count in ``max_bytes`` once they are stored."""
        run = self._run
        for at in range(run.start + self._sized, run.start + run.count):
            subject, _, headers, payload, _ = run.batch.message(at)
            meta = run.batch.extras(at)[2]
            self._size += record_size(config, subject, headers, payload, meta)
        self._sized = run.count
        return self._size
