"""Erasure: one log's erases on their way through memory and files, in order."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from millstream.errors import MillstreamError, ShardReadOnly
from millstream.store.disk.files import Files
from millstream.store.disk.worker import FileWorker
from millstream.store.log.log import Committed
from millstream.store.log.overwrite import (
    ErasedCopy,
    Patch,
    Redo,
    block_patches,
    carry_out,
    erased,
    finish_last,
    plain_patches,
    wal_patches,
)
from millstream.store.segments.files import HEADER_BYTES
from millstream.store.segments.rewrite import Rewrite
from millstream.store.segments.segment import Keeping, Segment

log = logging.getLogger(__name__)


class ErasureHost(Protocol):
    """What an erase needs of the store."""

    files: Files
    worker: FileWorker
    directory: str
    keeping: Keeping

    def post(self, callback: Callable[[], None]) -> object:
        """Run on the loop, soon."""
        ...

    def may_erase(self, log_id: int) -> bool:
        """Say whether no start needs what the log held; else a snapshot comes, and a step then."""
        ...

    def withdraw(
        self, log_id: int, segments: list[Segment], done: Callable[[Exception | None], None]
    ) -> bool:
        """Have nothing left of segments at a cold place, then call; False when nothing can be."""
        ...


class Removing(Protocol):
    """How records and segments leave a log."""

    def apply_delete(self, seqs: list[int]) -> None:
        """Take records out of the index."""
        ...

    def drop_dead_segments(self) -> None:
        """Give back segments without a live record."""
        ...


class Erasing(Protocol):
    """What an erase needs of its log."""

    compressed: bool

    @property
    def log_id(self) -> int:
        """Return the incarnation id."""
        ...

    @property
    def segments(self) -> Sequence[Segment]:
        """Return the log's stretches in order."""
        ...

    @property
    def removal(self) -> Removing:
        """Return how its records leave."""
        ...


class Erasure:
    """The erases of one log: logged and out of the index, some of them still in files."""

    __slots__ = ("_failed", "_held", "_host", "_log", "_under_way", "_waiting")

    def __init__(self, host: ErasureHost, owner: Erasing) -> None:
        self._host = host
        self._log = owner
        self._held: list[tuple[list[int], Committed]] = []  # copies must be safe elsewhere first
        self._waiting: list[tuple[list[int], Committed]] = []
        self._under_way: list[tuple[list[int], Committed]] = []
        self._failed: list[int] = []  # for the next try, and at the latest for the next start

    @property
    def pending(self) -> list[int]:
        """Return what is logged as erased and may still be in a file."""
        all_begun = (*self._under_way, *self._waiting, *self._held)
        begun = [seq for seqs, _ in all_begun for seq in seqs]
        return sorted({*self._failed, *begun})

    def begin(self, seqs: list[int], done: Committed) -> None:
        """Take records out of the index now, and out of memory and files before ``done``."""
        for segment, _ in self._places(seqs):
            segment.erasing = True
        self._log.removal.apply_delete(seqs)
        self._held.append((seqs, done))
        self.step()

    def again(self, seqs: Iterable[int]) -> None:
        """Erase what an earlier run logged; it may have done so already."""
        self.begin(sorted(seqs), lambda error: None)

    def step(self) -> None:
        """Begin with the files of all that waits, unless other work is under way on them."""
        if self._held and self._host.may_erase(self._log.log_id):
            self._take_up()
        if self._failed and not self._waiting:
            self._waiting.append((self._failed, lambda error: None))
            self._failed = []
        if self._under_way or not self._waiting or not self._host.directory:
            self._settle_in_memory()
            return
        seqs = {seq for some, _ in self._waiting for seq in some}
        places = self._places(seqs)
        touched = {segment.base_seq: segment for segment, _ in places}
        if any(segment.busy for segment in touched.values()):
            return
        self._under_way, self._waiting = self._waiting, []
        for segment in touched.values():
            segment.busy = True
        begin = partial(self._overwrite, seqs, list(touched.values()))
        sealed = [segment for segment in touched.values() if segment.sealed]
        if not sealed or not self._host.withdraw(self._log.log_id, sealed, begin):
            begin(None)

    def _take_up(self) -> None:
        """Overwrite in memory what nothing is made of any more, and let the files follow."""
        held, self._held = self._held, []
        for seqs, _ in held:
            for segment, at in self._places(seqs):
                segment.scrub(at, erased)
        self._waiting += held

    def _overwrite(self, seqs: set[int], touched: list[Segment], error: Exception | None) -> None:
        """Go on with the files, which are all here now."""
        job = _Job(self._host, self._log, seqs, self._places(seqs))
        if error is not None:
            job.segments = touched
            self._finished(job, error)
            return
        self._host.worker.run(job.prepare, partial(self._prepared, job))

    def _settle_in_memory(self) -> None:
        if not self._host.directory:
            waiting, self._waiting = self._waiting, []
            for _, done in waiting:
                done(None)

    def _places(self, seqs: Iterable[int]) -> list[tuple[Segment, int]]:
        found = []
        for segment in self._log.segments:
            for seq in seqs:
                at = segment.index.find(seq)
                if at >= 0:
                    found.append((segment, at))
        return found

    def _prepared(self, job: "_Job", error: Exception | None) -> None:
        if error is not None:
            self._finished(job, error)
            return
        for rewrite in job.rewrites:
            rewrite.take_up()
        self._host.worker.run(job.carry_out, partial(self._finished, job))

    def _finished(self, job: "_Job", error: Exception | None) -> None:
        under_way, self._under_way = self._under_way, []
        for segment in job.segments:
            segment.busy = False
            segment.erasing = error is not None
        answer: MillstreamError | None = None
        if error is not None:
            log.error("records not erased log=%x error=%s", self._log.log_id, error)
            self._failed = sorted(job.seqs)
            answer = ShardReadOnly(
                "the records are deleted, and their bytes could not be overwritten "
                f"({_why(error)}); check the disk: it is tried again"
            )
        for _, done in under_way:
            done(answer)
        self._log.removal.drop_dead_segments()
        if error is None:
            self.step()


def _why(error: Exception) -> str:
    """Return the cause for a client, who is told no path."""
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)


class _Job:
    """One round of overwriting, on the file thread but for ``take_up`` of its copies."""

    def __init__(
        self, host: ErasureHost, owner: Erasing, seqs: set[int], places: list[tuple[Segment, int]]
    ) -> None:
        self._host = host
        self._log_id = owner.log_id
        self.seqs = seqs
        self.segments = list({s.base_seq: s for s, _ in places}.values())
        self.rewrites: list[Rewrite] = []
        self._patches: list[Patch] = []
        self._copies: list[ErasedCopy] = []
        self._frames = {
            id(s): [
                (s.index.offset(at), s.index.frame_len(at)) for other, at in places if other is s
            ]
            for s in self.segments
        }
        for segment in self.segments:
            if segment.head.in_blocks and segment.head.complete:
                rewrite = Rewrite(host.files, segment, owner.compressed, drop=False)
                self.rewrites.append(rewrite)

    def prepare(self) -> None:
        """Find out what to change, and write the copies of files in which nothing can be."""
        host = self._host
        ring = host.keeping.ring
        directory = host.directory
        finish_last(host.files, directory)
        for segment in self.segments:
            if isinstance(segment.unplaced, Rewrite):  # what failed when it was tried
                segment.unplaced.place()
        self._patches += wal_patches(host.files, directory, self._log_id, self.seqs, ring)
        for segment in self.segments:
            if segment.made and not (segment.head.in_blocks and segment.head.complete):
                self._patches += self._segment_patches(segment)
        for rewrite in self.rewrites:
            self._copy(rewrite)

    def _segment_patches(self, segment: Segment) -> list[Patch]:
        with segment.use() as file:
            buffer = file.view(file.size())
        path = self._relative(segment.path)
        end = len(buffer)
        if segment.head.in_blocks:
            ring = self._host.keeping.ring
            found = block_patches(
                buffer, HEADER_BYTES, end, self._log_id, self.seqs, segment.bound, ring
            )
            return [Patch(path, offset, data) for offset, data in found]
        return [
            Patch(path, at, data)
            for offset, size in self._frames[id(segment)]
            for at, data in plain_patches(
                buffer, offset, min(offset + size, end), self._log_id, self.seqs
            )
        ]

    def _copy(self, rewrite: Rewrite) -> None:
        segment = rewrite.segment
        plain = segment.plain()
        for offset, size in self._frames[id(segment)]:
            rewrite.changes.append((offset, erased(plain[offset : offset + size])))
        rewrite.write()
        self._host.files.sync_dir(segment.directory)  # the redo relies on the copy's name
        self._copies.append(ErasedCopy(self._relative(rewrite.path), self._relative(segment.path)))

    def _relative(self, path: str) -> str:
        return path.removeprefix(f"{self._host.directory}/")

    def carry_out(self) -> None:
        """Change the files, then give the copies their indexes."""
        carry_out(self._host.files, self._host.directory, Redo(self._patches, self._copies))
        for rewrite in self.rewrites:
            rewrite.segment.unplaced = None
            rewrite.segment.write_idx()
