"""LogFiles: a log's segments on their way into files, sealed there, and removed again.

Everything here is decided on the loop and done on the file threads, one job of a segment at a time
but for syncs of one that grows.
A file that could not be written is no loss: the WAL has what it should hold.
"""

import errno
import logging
from functools import partial
from typing import TYPE_CHECKING

from millstream.store.log.host import LogHost
from millstream.store.log.log import Durability
from millstream.store.segments.rewrite import Rewrite
from millstream.store.segments.segment import Flush, Segment

if TYPE_CHECKING:
    from millstream.store.log.file_log import FileLog

log = logging.getLogger(__name__)


class LogFiles:
    """The files of one log."""

    __slots__ = ("_cache_bytes", "_flush_bytes", "_host", "_log", "_unwanted")

    def __init__(self, host: LogHost, log: "FileLog", flush_bytes: int, cache_bytes: int) -> None:
        self._host = host
        self._log = log
        self._flush_bytes = flush_bytes
        self._cache_bytes = cache_bytes
        self._unwanted = False  # the files are being removed

    def has_work(self) -> bool:
        """Say whether the one that grows, or the one before it, is to be written or sealed."""
        segments = self._log.segments
        segment = segments[-1]
        if segment.size - segment.flushed >= self._flush_bytes and not segment.busy:
            return True
        if len(segments) < 2:
            return False
        full = segments[-2]
        if full.sealed or full.busy:
            return False
        return full.flushed < full.size or self.may_seal(full)

    def may_seal(self, segment: Segment) -> bool:
        """Say whether the disk may have a full segment: the WAL goes first, where a sync is due.

        A ``memory`` log's records may never get into the WAL.
        """
        if self._log.durability is not Durability.DISK:
            return True
        return self._log.synced_seq >= segment.last_seq or segment.synced >= segment.size

    def flush(self) -> None:
        """Hand committed bytes to the files, and seal what is complete."""
        for segment in self._log.segments:
            if segment.sealed and not segment.flags:
                continue
            if not segment.busy:
                self._flush(segment)

    def _flush(self, segment: Segment) -> None:
        flush = segment.unflushed(self._log.committed_seq)
        seal = segment.full and not segment.sealed and flush.end == segment.size
        seal = seal and not segment.failed and self.may_seal(segment)
        if not flush.parts and not flush.flags and not seal:
            return
        if segment.flushed == segment.size == flush.end and not segment.made:
            return

        segment.busy = True
        self._host.worker.run(
            partial(segment.write, flush), partial(self._flushed, segment, flush, seal)
        )

    def _flushed(self, segment: Segment, flush: Flush, seal: bool, error: Exception | None) -> None:
        segment.busy = False
        if error is not None:
            segment.flags = flush.flags + segment.flags
            log.error("segment not written file=%s error=%s", segment.path, error)
            return
        self.wrote(segment, flush)
        if self._unwanted:
            self._host.worker.run(segment.unlink, partial(_report, segment.path))
            return
        if self._log.is_closed:
            return
        if self._host.syncs_soon and segment.has_piece():
            self._host.syncer.run(segment.sync_piece, partial(_report_sync, segment.path))
        if seal:  # apart from the write: what is written is not written again when this fails
            self._seal(segment)
        else:
            self._log.erasure.step()

    def wrote(self, segment: Segment, flush: Flush) -> None:
        """Note what the file has now; only the newest of a growing one stays in memory."""
        segment.wrote(flush, 0 if segment.full else self._cache_bytes)

    def checkpointed(self, segment: Segment, flush: Flush) -> None:
        """Note what a checkpoint wrote and synced."""
        self.wrote(segment, flush)
        segment.synced = max(segment.synced, flush.end)

    def _seal(self, segment: Segment) -> None:
        segment.busy = True
        run = self._host.worker.run
        if isinstance(segment.unplaced, Rewrite):
            run(segment.unplaced.place, partial(self._sealed, segment))
        elif self._must_pack(segment):
            rewrite = Rewrite(self._host.files, segment, self._log.compressed, drop=False)
            run(rewrite.write, partial(self._packed, rewrite))
        else:
            run(_nothing, partial(self._seal_written, segment))

    def _seal_written(self, segment: Segment, error: Exception | None) -> None:
        """Go on: a checkpoint that was taken before has written what it had of the segment."""
        if self._log.is_closed or self._unwanted:
            return
        self._host.syncer.run(segment.write_idx, partial(self._sealed, segment))

    def _must_pack(self, segment: Segment) -> bool:
        """Say whether a full segment is kept in another form than it grew in."""
        ring = self._host.keeping.ring
        return not segment.head.complete and (
            self._log.compressed or ring.seals or segment.head.in_blocks
        )

    def _packed(self, rewrite: Rewrite, error: Exception | None) -> None:
        if error is None and not self._unwanted and not self._log.is_closed:
            rewrite.take_up()
            self._host.worker.run(rewrite.place, partial(self._sealed, rewrite.segment))
            return
        self._host.worker.run(rewrite.discard, partial(_report, rewrite.path))
        if not self._log.is_closed:
            self._sealed(rewrite.segment, error or OSError(errno.ECANCELED, "the log is gone"))

    def _sealed(self, segment: Segment, error: Exception | None) -> None:
        segment.busy = False
        if error is not None:
            log.error("segment not sealed file=%s error=%s", segment.path, error)
            return
        segment.sealed = True
        segment.synced = segment.flushed
        segment.release()
        self._log.erasure.step()
        if self._unwanted:
            self._host.worker.run(segment.unlink, partial(_report, segment.path))
        else:
            self._log.removal.drop_dead_segments()  # it may have died meanwhile

    def remove(self, segments: list[Segment]) -> None:
        """Remove the files of a log that is gone, and what is on its way into them."""
        self._unwanted = True
        self._host.syncer.run(_nothing, partial(self._remove_unused, segments))

    def _remove_unused(self, segments: list[Segment], error: Exception | None) -> None:
        """Go on: what was being sealed is."""
        self._host.worker.run(partial(self._remove, segments), self._removed)

    def _remove(self, segments: list[Segment]) -> None:
        for segment in segments:
            segment.unlink()
        files, directory = self._host.files, self._log.directory
        if files.exists(directory) and not files.listdir(directory):
            files.remove_dir(directory)
            files.sync_dir(f"{self._host.directory}/streams")  # before a snapshot forgets the log

    def _removed(self, error: Exception | None) -> None:
        _report(self._log.directory, error)
        self._host.removed(self._log.log_id)


def _nothing() -> None:
    """Do nothing: what is done behind it is done behind everything before it."""


def _report_sync(path: str, error: Exception | None) -> None:
    if error is not None:
        log.error("segment not synced file=%s error=%s", path, error)


def _report(path: str, error: Exception | None) -> None:
    if error is not None:
        log.warning("file not removed file=%s error=%s", path, error)
