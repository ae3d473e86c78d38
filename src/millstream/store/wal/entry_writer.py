"""EntryWriter: cuts groups into entries and hands them to the engine, position by position."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

from millstream.errors import ShardReadOnly, StorageFull
from millstream.kernel._frames import cut
from millstream.store.disk.keys import KeyRing
from millstream.store.wal.commit import (
    UNKNOWN,
    CommitEngine,
    Completed,
    Ok,
    Outcome,
    Taken,
)
from millstream.store.wal.commit_queue import Chunk, Group
from millstream.store.wal.entry import FrameRun, encode_entry
from millstream.store.wal.positions import Positions, taken_error
from millstream.store.wal.submission import Submission


class EntryWriter:
    """The writer of one log, under one epoch and nonce; used by one thread at a time."""

    def __init__(
        self,
        engine: CommitEngine,
        positions: Positions,
        completed: Completed,
        lock: AbstractContextManager[object],
        stamp: tuple[int, int],
        entry_bytes: int,
        ring: KeyRing | None = None,
    ) -> None:
        self._engine = engine
        self._positions = positions
        self._completed = completed
        self._lock = lock  # of the positions, which answers change too
        self._epoch, self._nonce = stamp
        self._entry_bytes = entry_bytes
        self._ring = ring  # seals entries
        self._told = engine.synced_position  # the durable mark that the log itself tells
        self._is_prompt = not engine.ahead
        self._is_mark = False  # the newest entry says nothing but that

    def write(self, group: Group, now: float) -> tuple[list[Chunk], Exception | None]:
        """Hand a group over as entries of about 1 MiB; returns how much of it, and why not all.

        Behind an error that is none of ours some of it may be in the log.
        """
        chunks: list[Chunk] = []
        self._is_mark = False
        for chunk in _chunks(group, self._entry_bytes) if len(group) > 1 else (group,):
            try:
                if len(chunk) == 1 and len(chunk[0].data) > self._entry_bytes:
                    self._write_large(chunk[0], now)
                else:
                    runs: list[FrameRun] = []
                    parts: list[bytes] = []
                    for submission in chunk:
                        _add_runs(runs, parts, submission)
                    self._append(runs, parts, now)
            except Exception as error:
                return chunks, error
            chunks.append((self._positions.next - 1, chunk))
        return chunks, None

    @property
    def has_news(self) -> bool:
        """Say whether everything is synced, and the log does not say so."""
        if not self._is_prompt:
            return False  # what is confirmed is stable there, and a reader knows that
        synced = self._engine.synced_position
        return not self._is_mark and self._told < synced == self._positions.next - 1

    def mark(self, now: float) -> None:
        """Let the log itself say how far it is synced, where a reader could not know it."""
        if self._is_prompt:
            self._append([], [], now)
            self._is_mark = True

    def send_due(self, now: float) -> None:
        """Send again what the engine gave no answer for, and what it had no room for."""
        with self._lock:
            due = self._positions.due(now)
        for position, entry in due:
            try:
                self._submit(position, entry)
            except StorageFull:  # others stand behind it already: it cannot be given up
                self._completed(position, UNKNOWN)

    def _write_large(self, submission: Submission, now: float) -> None:
        """Write a batch above the entry size as several entries; only the last one commits it."""
        entries = split_pieces(submission.pieces(), self._entry_bytes)
        for i, pieces in enumerate(entries):
            runs, parts = [run for run, _ in pieces], [data for _, data in pieces]
            self._append(runs, parts, now, commits=i == len(entries) - 1, continues=i > 0)

    def _append(
        self,
        runs: Sequence[FrameRun],
        parts: Sequence[bytes],
        now: float,
        commits: bool = True,
        continues: bool = False,
    ) -> None:
        positions, durable = self._positions, self._engine.synced_position
        if positions.taken is not None:
            raise taken_error(positions.taken)
        position = positions.next
        entry = encode_entry(
            position, self._epoch, self._nonce, durable, commits, runs, parts, continues, self._ring
        )
        if self._is_prompt:
            outcome = self._engine.append_at(position, entry, self._completed)
            if isinstance(outcome, Ok):
                positions.pass_by()
            else:
                self._end(outcome)
        else:
            self._send_new(position, entry, now)
        self._told = durable

    def _end(self, outcome: Outcome | None) -> None:
        if isinstance(outcome, Taken):
            self._positions.taken = outcome
            raise taken_error(outcome)
        raise ShardReadOnly("the engine did not say what became of an entry")

    def _send_new(self, position: int, entry: Sequence[bytes], now: float) -> None:
        with self._lock:
            may_go = self._positions.give(entry, now)
        if may_go:
            self._send(position, entry)
        if self._positions.taken is not None:
            raise taken_error(self._positions.taken)

    def _send(self, position: int, entry: Sequence[bytes]) -> None:
        try:
            self._submit(position, entry)
        except (StorageFull, ShardReadOnly) as error:
            with self._lock:
                is_alone = position == self._positions.confirmed + 1
                if is_alone or isinstance(error, ShardReadOnly):
                    self._positions.take_back()
                    raise
            self._completed(position, UNKNOWN)  # what is before it may still come true: ask again

    def _submit(self, position: int, entry: Sequence[bytes]) -> None:
        outcome = self._engine.append_at(position, entry, self._completed)
        if outcome is not None:
            self._completed(position, outcome)


def _add_runs(runs: list[FrameRun], parts: list[bytes], submission: Submission) -> None:
    """Name a submission in the run table; records that follow each other share a run."""
    if submission.control or submission.runs:
        for run, data in submission.pieces():
            runs.append(run)
            parts.append(data)
        return
    parts.append(submission.data)
    size = len(submission.data)
    if runs and submission.first_seq and runs[-1].first_seq:
        stream_id, first_seq, frames, before = runs[-1]
        follows = first_seq + frames == submission.first_seq
        if stream_id == submission.stream_id and follows:
            runs[-1] = FrameRun(stream_id, first_seq, frames + submission.count, before + size)
            return
    runs.append(FrameRun(submission.stream_id, submission.first_seq, submission.count, size))


def _chunks(group: Group, target: int) -> Iterator[Group]:
    """Cut a group into entries; a submission above the size of an entry stands alone."""
    chunk: Group = []
    size = 0
    for submission in group:
        if chunk and size + submission.size > target:
            yield chunk
            chunk, size = [], 0
        chunk.append(submission)
        size += submission.size
    if chunk:
        yield chunk


def split_pieces(
    pieces: Iterable[tuple[FrameRun, bytes]], target: int
) -> list[list[tuple[FrameRun, bytes]]]:
    """Cut runs with their frames into entries of about ``target`` bytes."""
    entries: list[list[tuple[FrameRun, bytes]]] = []
    room = 0
    for (stream_id, first, _, _), frames in pieces:
        for start, end, count in cut(frames, target):
            data = frames[start:end]
            if len(data) > room:
                entries.append([])
                room = target
            entries[-1].append((FrameRun(stream_id, first, count, len(data)), data))
            room -= len(data)
            first += count if first else 0
    return entries
