"""Group commit: what arrives while one commit runs shares the next one.

What makes an acknowledgement true: ``disk`` is answered after the entry was written to the
operating system, ``fsync`` and control frames after the sync that covers it, always in the
order of submission per log. After a failed sync nothing is answered but errors.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from millstream.clock import Clock
from millstream.errors import MillstreamError, ShardReadOnly, StorageFull
from millstream.store.commit import Ok
from millstream.store.entry import TARGET_BYTES, Run, encode_entry
from millstream.store.local_engine import LocalEngine

log = logging.getLogger(__name__)

Post = Callable[[Callable[[], None]], object]


@dataclass(slots=True)
class Submission:
    """Frames that become durable together, and who wants to know."""

    stream_id: int
    first_seq: int  # 0: control frames
    count: int
    data: bytes
    sync: bool
    committed: Callable[[MillstreamError | None], None]


class Committer:
    """One WAL shard: a queue filled on the loop and emptied by ``step`` on one thread.

    The state that both sides touch is the queue and a few flags under one lock; results go
    back by ``post`` alone.
    """

    def __init__(
        self,
        engine: LocalEngine,
        epoch: int,
        nonce: int,
        clock: Clock,
        post: Post,
        dirty_age: float = 0.05,
        high_water: int = 32 << 20,
        entry_bytes: int = TARGET_BYTES,
    ) -> None:
        self._engine = engine
        self._epoch = epoch
        self._nonce = nonce
        self._clock = clock
        self._post = post
        self._dirty_age = dirty_age
        self._high_water = high_water
        self._low_water = high_water // 2
        self._entry_bytes = entry_bytes
        self._pressed = False
        self._queue: deque[Submission] = deque()
        self._wake = threading.Condition()
        self._paused = False  # a commit failed and the loop has not taken its records back yet
        self._stopping = False
        self._dirty_since: float | None = None
        self._marked = engine.synced_position  # the durable mark that the log itself tells
        self._thread: threading.Thread | None = None
        self.backlog_bytes = 0
        self.applied_position = engine.position - 1  # the loop has seen everything up to here
        self.on_pressure: Callable[[bool], None] = lambda pressed: None
        self.on_synced: Callable[[int], None] = lambda position: None
        self.on_failed: Callable[[MillstreamError], None] = lambda error: None
        self.read_only = ""  # why, once it is

    # --- the loop's side

    def check(self) -> None:
        """Raise what an append would end in anyway."""
        if self.read_only:
            raise ShardReadOnly(self.read_only)

    def submit(self, submission: Submission) -> None:
        """Queue a submission; its ``committed`` is called on the loop, once, in order."""
        self.backlog_bytes += len(submission.data)
        with self._wake:
            self._queue.append(submission)
            if len(self._queue) == 1:
                self._wake.notify()
        if not self._pressed and self.backlog_bytes >= self._high_water:
            self._pressed = True
            self.on_pressure(True)

    def start(self) -> None:
        """Commit on a thread of its own from now on."""
        self._thread = threading.Thread(target=self._run, name="millstream-committer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Commit and sync everything accepted, write the durable mark, end the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        else:
            self._finish()

    def _settle(
        self, group: list[Submission], error: MillstreamError | None, position: int | None = None
    ) -> None:
        for submission in group:
            self.backlog_bytes -= len(submission.data)
            submission.committed(error)
        if position is not None:
            self.applied_position = position - 1
        if self._pressed and self.backlog_bytes <= self._low_water:
            self._pressed = False
            self.on_pressure(False)

    def _settle_failed(self, group: list[Submission], error: MillstreamError) -> None:
        """Fail the group and all that was staged behind it, so that its sequences are free again.

        Everything uncommitted goes: a later batch of the same log already has sequences above
        the failed ones, and giving back only the first would leave a hole or reuse a number.
        """
        with self._wake:
            waiting = list(self._queue)
            self._queue.clear()
        if isinstance(error, ShardReadOnly):
            self.read_only = self.read_only or str(error)
        self.on_failed(error)
        with self._wake:
            self._paused = False
            self._wake.notify()
        self._settle(group + waiting, error)

    def _settle_synced(self, position: int) -> None:
        self.on_synced(position)

    # --- the thread's side

    def step(self) -> bool:
        """Commit what is queued, or sync what is dirty for long enough; False when idle."""
        with self._wake:
            if self._paused:
                return False
            group = list(self._queue)
            self._queue.clear()
        if not group:
            return self._sync_if_due()
        self._commit(group)
        return True

    def tick(self) -> None:
        """Let the log itself say how far it is synced, once nothing else is going on."""
        with self._wake:
            if self._paused or self._queue:
                return
        if self._marked < self._engine.synced_position == self._engine.position - 1:
            self._write_mark()

    def _commit(self, group: list[Submission]) -> None:
        written, error = self._write(group)
        due = self._dirty_since is not None and self._due(self._dirty_since)
        early, late = _in_promise_order(written)
        if early:
            self._post(partial(self._settle, early, None, None if late else self._engine.position))
        if late or due:
            try:
                self._engine.sync()
            except ShardReadOnly as failed:
                self._fail(late + group[len(written) :], failed)
                return
            self._dirty_since = None
            self._post(partial(self._settle, late, None, self._engine.position))
            self._post(partial(self._settle_synced, self._engine.synced_position))
        elif self._dirty_since is None:
            self._dirty_since = self._clock.monotonic()
        if error is not None:
            self._fail(group[len(written) :], error)

    def _write(self, group: list[Submission]) -> tuple[list[Submission], MillstreamError | None]:
        """Write the group as entries of about 1 MiB; says how much of it is in the log."""
        written: list[Submission] = []
        for chunk in _chunks(group, self._entry_bytes):
            try:
                if len(chunk) == 1 and len(chunk[0].data) > self._entry_bytes:
                    self._write_large(chunk[0])
                else:
                    runs: list[Run] = []
                    for submission in chunk:
                        _add_run(runs, submission)
                    self._append(runs, [s.data for s in chunk], commits=True)
            except (StorageFull, ShardReadOnly) as error:
                return written, error
            written += chunk
        return written, None

    def _write_large(self, submission: Submission) -> None:
        """Write a batch above the entry size as several entries; only the last one commits it."""
        pieces = split_frames(submission.data, self._entry_bytes)
        first = submission.first_seq
        for i, (piece, count) in enumerate(pieces):
            run = Run(submission.stream_id, first, count, len(piece))
            self._append([run], [piece], commits=i == len(pieces) - 1, continues=i > 0)
            first += count if first else 0

    def _append(
        self, runs: list[Run], parts: list[bytes], commits: bool, continues: bool = False
    ) -> None:
        engine = self._engine
        durable = engine.synced_position
        entry = encode_entry(
            engine.position, self._epoch, self._nonce, durable, commits, runs, parts, continues
        )
        outcome = engine.append_at(engine.position, entry, sync=False)
        if not isinstance(outcome, Ok):
            raise ShardReadOnly(f"another writer has taken the log: {outcome}")
        self._marked = durable

    def _fail(self, group: list[Submission], error: MillstreamError) -> None:
        self._dirty_since = None  # a failed sync is not tried again
        with self._wake:
            self._paused = True
        self._post(partial(self._settle_failed, group, error))

    def _sync_if_due(self) -> bool:
        if self._dirty_since is None or not self._due(self._dirty_since):
            return False
        try:
            self._engine.sync()
        except ShardReadOnly as error:
            self._fail([], error)
            return True
        self._dirty_since = None
        self._post(partial(self._settle_synced, self._engine.synced_position))
        return True

    def _write_mark(self) -> None:
        try:
            self._append([], [], commits=True)
        except (StorageFull, ShardReadOnly) as error:
            log.warning("durable mark not written error=%s", error)

    def _due(self, since: float) -> bool:
        return self._clock.monotonic() - since >= self._dirty_age

    def _finish(self) -> None:
        while self.step():
            pass
        if not self._paused:
            try:
                self._engine.sync()
                self._write_mark()
                self._engine.sync()
                self._engine.give_back()
            except (StorageFull, ShardReadOnly, OSError) as error:
                log.warning("last sync failed error=%s", error)
        self._engine.close()

    def _run(self) -> None:
        while not self._stopping:
            busy = self.step()
            self._engine.prepare()
            if not busy and not self._wait():
                self.tick()
        self._finish()

    def _wait(self) -> bool:
        """Sleep until there is work; False when nothing came for a while."""
        with self._wake:
            if self._stopping or (self._queue and not self._paused):
                return True
            return self._wake.wait(self._dirty_age)


def _add_run(runs: list[Run], submission: Submission) -> None:
    """Name a submission in the run table; records that follow each other share a run."""
    size = len(submission.data)
    if runs and submission.first_seq and runs[-1].first_seq:
        stream_id, first_seq, frames, before = runs[-1]
        follows = first_seq + frames == submission.first_seq
        if stream_id == submission.stream_id and follows:
            runs[-1] = Run(stream_id, first_seq, frames + submission.count, before + size)
            return
    runs.append(Run(submission.stream_id, submission.first_seq, submission.count, size))


def _chunks(group: list[Submission], target: int) -> Iterator[list[Submission]]:
    """Cut a group into entries; a submission above the size of an entry stands alone."""
    chunk: list[Submission] = []
    size = 0
    for submission in group:
        if chunk and size + len(submission.data) > target:
            yield chunk
            chunk, size = [], 0
        chunk.append(submission)
        size += len(submission.data)
    if chunk:
        yield chunk


def _in_promise_order(group: list[Submission]) -> tuple[list[Submission], list[Submission]]:
    """Split into (answered after the write, answered after the sync), each log's order kept."""
    if not any(submission.sync for submission in group):
        return group, []
    early: list[Submission] = []
    late: list[Submission] = []
    waiting: set[int] = set()
    for submission in group:
        if submission.sync or submission.stream_id in waiting:
            waiting.add(submission.stream_id)
            late.append(submission)
        else:
            early.append(submission)
    return early, late


def split_frames(data: bytes, target: int = TARGET_BYTES) -> list[tuple[bytes, int]]:
    """Cut frames into pieces of about ``target`` bytes at frame borders: (bytes, frames) each."""
    pieces: list[tuple[bytes, int]] = []
    start = at = count = 0
    while at < len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        if count and at + size - start > target:
            pieces.append((data[start:at], count))
            start, count = at, 0
        at += size
        count += 1
    pieces.append((data[start:], count))
    return pieces
