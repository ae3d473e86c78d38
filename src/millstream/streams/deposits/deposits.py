"""Deposits: writers whose batches are in a stream exactly once, however often they are sent.

A writer, which clients call a sink, stages the records of a batch in as many files as it likes
(`staging`), then commits: the server appends all of them in one step, whole or absent, and the same
commit notes the batch as the writer's last. A batch at or below that note is acknowledged and
dropped, unless another query sends it: that one counts from 0 again, and its batch holds other
records.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec

from millstream.clock import Clock
from millstream.errors import BadRequest, MillstreamError, Throttled
from millstream.kernel._batch import Batch
from millstream.store.disk.files import Files
from millstream.store.disk.worker import FileWorker
from millstream.store.log.log import Committed, Note
from millstream.store.recovery.recovery import Recovery
from millstream.streams.catalog import Catalog
from millstream.streams.deposits.staging import MOST_PART, StagedFile, Staging, StagingPlace
from millstream.streams.stream import Stream, settle
from millstream.streams.writing.run import Run
from millstream.subjects.matcher import matcher
from millstream.subjects.subject import has_wildcard, is_pattern

log = logging.getLogger(__name__)

DEPOSITED_BATCH = 26
SECTION = "sinks"  # what snapshots call it
MOST_WRITERS = 10_000  # of one stream
MOST_JOBS = 1_000  # of those, writers of a single job
MOST_PARTS = 10_000  # staged files in a commit
LONGEST_NAME = 200
SWEEP_SECONDS = 60.0

_Result = TypeVar("_Result")


class DepositStore(Protocol):
    """What deposits ask of the store."""

    files: Files
    directory: str
    worker: FileWorker

    def control(
        self, kind: int, log_id: int, body: bytes, done: Committed, sync: bool = True
    ) -> None:
        """Write a control frame."""
        ...


class OtherQuery(MillstreamError):
    """A query begins to count where another one has written under the same name of a sink."""

    status = 400
    err_code = 10003
    http_status = 409
    code = "other_query"

    def __init__(self, asked: "CommitRequest", mark: "Mark") -> None:
        super().__init__(
            f"sink {asked.sink!r} holds batches up to {mark.batch} of query {mark.query}, and "
            f"query {asked.query} sends its batch {asked.batch}: the query's checkpoint was lost, "
            "or another query has the same sinkId. Nothing was written. Give the query another "
            "sinkId, and start its source (startSeq, startTime) after what was written",
            {"sink": asked.sink, "batch": asked.batch, "last_batch": mark.batch},
        )


class StageRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a part of staged records belongs."""

    sink: str
    batch: int
    id: str
    at: int = 0


class CommitRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What makes a batch visible: its staged files in order. ``once``: the writer ends with it.

    ``query`` says whose count of batches this is, where the writer's name does not.
    """

    sink: str
    batch: int
    files: list[StagedFile] = []
    once: bool = False
    query: str = ""


class AbortRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which staged records are not wanted: one file of a batch, or all."""

    sink: str
    batch: int
    id: str = ""


class CommitAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a commit did. Sequences are missing where nothing was appended."""

    sink: str
    batch: int
    records: int
    first_seq: int = 0
    last_seq: int = 0
    duplicate: bool = False


class Mark(msgspec.Struct, frozen=True):
    """The last batch of a writer, as control frames and the snapshot hold it."""

    sink: str
    batch: int
    records: int
    ts_ns: int
    once: bool = False
    query: str = ""  # empty where nobody said: such a mark is of any query


class _SavedDeposit(msgspec.Struct, frozen=True):
    stream: int
    marks: list[Mark]


class Deposits:
    """The last batch of each writer of each stream; a stream's go with it."""

    def __init__(self, catalog: Catalog, store: DepositStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._catalog = catalog
        self._staging = Staging(store.files, store.directory, clock)
        self._swept = clock.monotonic()
        self._marks: dict[int, dict[str, Mark]] = {}
        self._committing: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._commits: set[asyncio.Task[CommitAnswer]] = set()
        catalog.listen(self._stream_changed)

    def mark(self, stream: Stream, sink: str) -> Mark | None:
        """Return a writer's last batch."""
        return self._marks.get(stream.incarnation, {}).get(sink)

    def of(self, stream: Stream) -> list[Mark]:
        """Return the last batch of each of a stream's writers, by name."""
        return [mark for _, mark in sorted(self._marks.get(stream.incarnation, {}).items())]

    # -- what doors ask ----------------------------------------------------------------------

    async def stage(self, stream: Stream, asked: StageRequest, data: bytes) -> int:
        """Keep a part of a batch where nobody sees it; returns how much of the file is there."""
        place = _place(stream, asked.sink, asked.batch)
        if asked.at < 0 or not 0 < len(data) <= MOST_PART:
            raise BadRequest(f"a part of staged records has 1 to {MOST_PART} bytes")
        if self._is_done(stream, asked.sink, asked.batch):
            return asked.at + len(data)  # the commit of a batch that is there asks for none of it
        return await self._on_files(partial(self._staging.put, place, asked.id, asked.at, data))

    async def commit(self, stream: Stream, asked: CommitRequest) -> CommitAnswer:
        """Append a batch whole and note it as the writer's last, or do nothing if it was before.

        It goes on to its end when the caller leaves: who sends it again must meet its outcome.
        """
        work = asyncio.get_running_loop().create_task(self._commit(stream, asked))
        self._commits.add(work)
        work.add_done_callback(self._committed)
        return await asyncio.shield(work)

    async def abort(self, stream: Stream, asked: AbortRequest) -> None:
        """Forget staged records."""
        place = _place(stream, asked.sink, asked.batch)
        await self._on_files(partial(self._staging.drop, place, asked.id))

    async def finish(self) -> None:
        """Wait for commits that are under way, before the last snapshot is made."""
        if self._commits:
            await asyncio.wait(self._commits)

    def tick(self) -> None:
        """Call about once a second: removes what nobody will commit, now and then."""
        now = self._clock.monotonic()
        if now - self._swept >= SWEEP_SECONDS:
            self._swept = now
            self._store.worker.run(self._staging.sweep, _report)

    # -- committing --------------------------------------------------------------------------

    def _committed(self, work: asyncio.Task[CommitAnswer]) -> None:
        self._commits.discard(work)
        if not work.cancelled() and (error := work.exception()) is not None:
            log.info("commit refused error=%s", error)

    async def _commit(self, stream: Stream, asked: CommitRequest) -> CommitAnswer:
        place = _place(stream, asked.sink, asked.batch, asked.query)
        if len(asked.files) > MOST_PARTS:
            raise BadRequest(f"a commit names at most {MOST_PARTS} staged files")
        lock = self._committing.setdefault(stream.incarnation, asyncio.Lock())
        async with lock:  # a commit that is sent again meets the first one's outcome
            self._check_query(stream, asked)
            if self._is_done(stream, asked.sink, asked.batch):
                answer = CommitAnswer(asked.sink, asked.batch, 0, duplicate=True)
            else:
                self._check_room(stream, asked)
                batch = await self._on_files(partial(self._staging.take, place, asked.files))
                _check_subjects(stream, batch)
                answer = await self._append(stream, asked, batch)
        # Nobody waits for it: the records' own files may still be written before its turn comes.
        self._store.worker.run(partial(self._staging.drop_through, place), _report)
        return answer

    async def _append(self, stream: Stream, asked: CommitRequest, batch: Batch) -> CommitAnswer:
        now = self._clock.time_ns()
        mark = Mark(asked.sink, asked.batch, len(batch), now, asked.once, asked.query)
        note = Note(DEPOSITED_BATCH, msgspec.json.encode(mark))
        noted = partial(self._keep, stream.incarnation, mark)
        stored = await _store(stream, batch, note, noted) if len(batch) else None
        if stored is None:  # nothing to append, but the batch is over all the same
            await self._write(stream, note, noted)
            return CommitAnswer(asked.sink, asked.batch, 0)
        first, last = stored
        return CommitAnswer(asked.sink, asked.batch, last - first + 1, first, last)

    async def _write(self, stream: Stream, note: Note, noted: Callable[[], None]) -> None:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: MillstreamError | None) -> None:
            if error is None:
                noted()
            settle(written, error)

        self._store.control(note.kind, stream.incarnation, note.body, done)
        await written

    def _keep(self, incarnation: int, mark: Mark) -> None:
        marks = self._marks.setdefault(incarnation, {})
        known = marks.pop(mark.sink, None)
        marks[mark.sink] = mark if known is None or known.batch < mark.batch else known
        jobs = [name for name, one in marks.items() if one.once]
        for name in jobs[: max(0, len(jobs) - MOST_JOBS)]:  # the oldest: nobody asks any more
            del marks[name]

    def _is_done(self, stream: Stream, sink: str, batch: int) -> bool:
        mark = self.mark(stream, sink)
        return mark is not None and batch <= mark.batch

    def _check_query(self, stream: Stream, asked: CommitRequest) -> None:
        """Refuse what is no batch sent again, but the same number of another query."""
        mark = self.mark(stream, asked.sink)
        if mark is None or asked.batch > mark.batch or not mark.query or not asked.query:
            return
        if mark.query != asked.query:
            raise OtherQuery(asked, mark)

    def _check_room(self, stream: Stream, asked: CommitRequest) -> None:
        marks = self._marks.get(stream.incarnation, {})
        if asked.sink not in marks and len(marks) >= MOST_WRITERS:
            raise Throttled("sinks of a stream", MOST_WRITERS)

    async def _on_files(self, job: Callable[[], _Result]) -> _Result:
        """Run ``job`` on the file thread and return what it returned."""
        outcome: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        results: list[_Result] = []

        def done(error: Exception | None) -> None:
            if outcome.done():
                return
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(results[0])

        self._store.worker.run(lambda: results.append(job()), done)
        return await outcome

    def _stream_changed(self, stream: Stream, alive: bool) -> None:
        if not alive:
            self._marks.pop(stream.incarnation, None)
            gone = partial(self._staging.drop_stream, stream.incarnation)
            self._store.worker.run(gone, _report)

    # -- persistence -------------------------------------------------------------------------

    def recover(self, found: Recovery) -> None:
        """Bring back every writer's last batch, once the catalog knows its streams again."""
        streams = {stream.incarnation for stream in self._catalog.everything()}
        if section := found.sections.get(SECTION):
            for saved in msgspec.json.decode(section, type=list[_SavedDeposit]):
                for mark in saved.marks if saved.stream in streams else ():
                    self._keep(saved.stream, mark)
        for control in found.controls:
            if control.kind == DEPOSITED_BATCH and control.log_id in streams:
                self._keep(control.log_id, msgspec.json.decode(control.body, type=Mark))

    def section(self) -> bytes:
        """Return the snapshot's section."""
        return msgspec.json.encode(
            [_SavedDeposit(stream, list(marks.values())) for stream, marks in self._marks.items()]
        )


async def _store(
    stream: Stream, batch: Batch, note: Note, noted: Callable[[], None]
) -> tuple[int, int] | None:
    """Store a batch and its note in one commit: both, or neither.

    ``noted`` is called as they are committed, before anything else can look: a snapshot of that
    moment covers the note. Records whose message id is known are left out. None means that
    there was nothing to store; the note is then not written either.
    """
    stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_end(_run: Run, error: MillstreamError | None) -> None:
        if error is None:
            noted()
        settle(stored, error)

    run = stream.admission.deposited(batch, note, on_end)
    if not run.count:
        return None
    stream.writes.append(run)
    await stored
    return run.first_seq, run.last_seq


def _place(stream: Stream, sink: str, batch: int, query: str = "") -> StagingPlace:
    if not 0 < len(sink.encode()) <= LONGEST_NAME:
        raise BadRequest(f"the name of a sink has 1 to {LONGEST_NAME} bytes")
    if len(query.encode()) > LONGEST_NAME:
        raise BadRequest(f"the name of a query has at most {LONGEST_NAME} bytes")
    if not 0 <= batch < 1 << 63:
        raise BadRequest("batches are numbered from 0")
    if stream.config.mirror is not None:
        raise BadRequest("a mirror takes records from its origin alone")
    return StagingPlace(stream.incarnation, sink, batch)


def _check_subjects(stream: Stream, batch: Batch) -> None:
    """Refuse subjects that the stream would not capture from NATS either."""
    allowed = stream.config.subjects
    match = matcher(allowed) if allowed else None
    own = stream.name.encode()
    for subject in batch.subjects():
        text = subject.decode("utf-8", "surrogateescape")
        taken = subject == own or (bool(allowed) and (match is None or match(subject)))
        if not taken or not is_pattern(text) or has_wildcard(text):
            raise BadRequest(
                f"subject {text!r} is not one that stream {stream.name} takes",
                {"topic": stream.name, "subjects": list(allowed)},
            )


def _report(error: Exception | None) -> None:
    if error is not None:
        log.warning("staged records not removed error=%s", error)
