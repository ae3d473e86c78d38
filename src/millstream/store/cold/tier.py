"""ColdTier: sealed segments on their way to the cold place, and pieces of them on their way back.

Nothing here waits for the cold place on the loop or on the thread that writes files: moves and
fetches have threads of their own, and a reader whose bytes are not here is told to come again.

A move leaves a whole copy behind at every step: the object is put and read back, the manifest
names it, the marker beside the index says where the bytes are, and only then the file goes.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import count

from millstream.errors import ColdUnavailable
from millstream.store.cold import manifest as cold_manifest
from millstream.store.cold.copy import ColdCopy
from millstream.store.cold.fetches import Fetches
from millstream.store.cold.host import ColdHost
from millstream.store.cold.manifest import ColdFile, Manifest, folder, object_names
from millstream.store.cold.manifests import Manifests
from millstream.store.cold.move import Move, put_back
from millstream.store.cold.options import ColdOptions
from millstream.store.cold.owner import PlaceOwner
from millstream.store.cold.plan import ColdPlan, cold_plan
from millstream.store.cold.pool import ColdWork, InlinePool, Pool, ThreadPool
from millstream.store.cold.remains import Remains
from millstream.store.cold.scrub import Found
from millstream.store.cold.scrubs import ColdScrubs
from millstream.store.cold.sweep import is_doubtful, remove, remove_folder, sweep
from millstream.store.disk.files import is_no_space
from millstream.store.disk.objects import Objects, open_objects
from millstream.store.log.file_log import FileLog
from millstream.store.log.log import Durability
from millstream.store.segments.files import DataHead
from millstream.store.segments.segment import Segment

READERS = 4

log = logging.getLogger(__name__)


class ColdTier:
    """All methods run on the loop but for the jobs that they hand to the pools."""

    def __init__(self, host: ColdHost, options: ColdOptions, threads: bool) -> None:
        self._host = host
        self.options = options
        self.objects: Objects | None = options.objects
        if self.objects is None and options.place:
            self.objects = open_objects(options.place, host.files)
        active = threads and self.objects is not None
        pool: Pool = InlinePool()
        if active:
            pool = ThreadPool(host.post, READERS, "reads", host.supervisor)
        bounds = options.cache_bytes, options.patience
        self._fetches = Fetches(host, self.objects, pool, *bounds)
        self.mover: Pool = InlinePool()
        if threads:
            self.mover = ThreadPool(host.post, 1, "moves", host.supervisor)
        self._tokens = count(1)
        self._manifests = Manifests()
        self._swept = False
        self._tried: set[tuple[int, int]] = set()  # (log, base) that were moved, or perhaps
        self._work = ColdWork(self.mover)
        self.wants_checkpoint = False
        self.scrubs = ColdScrubs(
            host, options, self.objects, self._manifests, self._fetches, self._work
        )
        self.moved = 0

    def health(self) -> list[str]:
        """Return what is wrong, in words."""
        problem = self._fetches.problem
        return [*([problem] if problem else []), *self._work.problems.values()]

    def figures(self) -> dict[str, int]:
        """Return what was done since the start."""
        return {
            "cold_segments_moved_total": self.moved,
            "cold_pieces_fetched_total": self._fetches.fetched,
            "cold_reads_failed_total": self._fetches.failed,
            "scrub_segments_total": self.scrubs.scrubbed,
            "scrub_objects_mended_total": self.scrubs.mended,
            "scrub_records_lost_total": self.scrubs.lost,
        }

    # --- reading

    def adopt(self, segment: Segment, form: cold_manifest.Form | None) -> ColdCopy:
        """Have a segment read from the cold place from now on."""
        copy = ColdCopy(self._fetches, segment, form, next(self._tokens))
        segment.cold = copy  # shape: state
        return copy

    # --- time

    def tick(self, some: Iterable[FileLog], logs: Mapping[int, FileLog]) -> None:
        """Call about once a second: one piece of work for the mover, and late readers are told.

        The work is one of ``some``, whose turn it is; a sweep looks at all logs.
        """
        self._fetches.end_waits()
        if self._work.is_busy:
            return
        kept = [each for each in some if each.durability is not Durability.EPHEMERAL]
        if not self._tend(kept, logs) and self.options.scrub_rate:
            self.scrubs.begin_next(kept)

    def _tend(self, kept: list[FileLog], logs: Mapping[int, FileLog]) -> bool:
        """Begin with a move or a manifest if one is due; False when there is nothing to do."""
        if self.objects is None:
            return False
        if not self._swept:
            all_logs = logs.values()
            self._sweep([each for each in all_logs if each.durability is not Durability.EPHEMERAL])
            return True
        self.wants_checkpoint = False
        for each in kept:
            segment = self._due(each) if self.options.moves else None
            if segment is not None:
                self._move(each, segment)
                return True
            if self._manifests.is_outdated(each):
                self._publish(each)
                return True
        return False

    def _due(self, owner: FileLog) -> Segment | None:
        """Return the oldest segment beyond what stays hot, if it may go now."""
        sealed = [s for s in owner.segments if s.sealed and s.cold is None]
        segment = next(iter(sealed), None)
        if segment is None or not self._is_beyond(sealed) or owner.stays_hot:
            return None
        newest_ns = segment.index.ts_ns(len(segment.index) - 1) if len(segment.index) else 0
        if newest_ns + owner.hot_ns > self._host.clock.time_ns():
            return None
        if segment.busy or segment.failed or segment.erasing or segment.unplaced is not None:
            return None
        if not segment.index.live or not self._host.may_move(owner.log_id):
            return None
        if segment.last_seq > self._host.covered_seq(owner.log_id):
            self.wants_checkpoint = True
            return None
        return segment

    def _is_beyond(self, sealed: list[Segment]) -> bool:
        options = self.options
        if options.hot_segments is not None and len(sealed) > options.hot_segments:
            return True
        return options.hot_bytes is not None and sum(s.size for s in sealed) > options.hot_bytes

    # --- moving

    def _move(self, owner: FileLog, segment: Segment) -> None:
        assert self.objects is not None
        self._work.is_busy = segment.busy = True
        self._tried.add((owner.log_id, segment.base_seq))
        others = self._manifests.without(owner.log_id, [segment.base_seq])
        move = Move(
            self._host.files,
            self.objects,
            segment,
            self._manifests.say(owner),
            others,
            self.options.twins,
        )
        self.mover.run(move.run, partial(self._moved, owner, segment, move))

    def _moved(
        self,
        owner: FileLog,
        segment: Segment,
        move: Move,
        made: ColdFile | None,
        error: Exception | None,
    ) -> None:
        self._work.is_busy = segment.busy = False
        if made is None or segment not in owner.segments:
            self._refused(error)
            log.error("segment not moved file=%s error=%s", segment.path, error)
            self._host.worker.run(move.unmark, _ignore)
            if segment not in owner.segments:
                self._work.problems.pop("move", None)
                self.forget(owner.log_id, [segment.base_seq])
            return
        self._work.problems.pop("move", None)
        self._manifests.note(owner.log_id, made)
        copy = self.adopt(segment, made.data)
        copy.known_as(move.head, move.table)
        segment.leave()
        self.moved += 1
        log.info("segment moved file=%s place=%s", segment.path, self.options.place)
        self._host.worker.run(segment.unlink_data, partial(_report, segment.path))
        owner.erasure.step()
        owner.removal.drop_dead_segments()

    def _refused(self, error: Exception | None) -> None:
        """Say in the health what is wrong; the records stay here, and each tick tries again."""
        place, what = self.options.place, f"takes nothing: {error}"
        if isinstance(error, OSError) and is_no_space(error):
            what = f"is full ({error.strerror}): make room there; records stay here until then"
        self._work.problems["move"] = f"cold history at {place} {what}"

    def _publish(self, owner: FileLog) -> None:
        assert self.objects is not None
        self._work.is_busy = True
        files = self._manifests.without(owner.log_id, [])
        said = self._manifests.say(owner)
        job = partial(cold_manifest.publish, self.objects, said, files)
        self.mover.run(job, partial(self._published, owner.log_id))

    def _published(self, log_id: int, made: Manifest | None, error: Exception | None) -> None:
        self._work.is_busy = False
        if made is None:
            self._manifests.retry(log_id)
            self._refused(error)
        else:
            self._work.problems.pop("move", None)

    # --- removing

    def forget(self, log_id: int, bases: list[int]) -> None:
        """Remove the objects of segments that are gone; what fails is swept at the next start."""
        if self.objects is None:
            return
        self._manifests.forget(log_id, bases)
        names = [f"{folder(log_id)}/{name}" for base in bases for name in object_names(base)]
        self.mover.run(partial(remove, self.objects, names), _ignore_both)

    def forget_log(self, log_id: int) -> None:
        """Remove everything of a log that was dropped."""
        if self.objects is not None:
            self._manifests.forget_log(log_id)
            self.mover.run(partial(remove_folder, self.objects, log_id), _ignore_both)

    def _sweep(self, logs: list[FileLog]) -> None:
        """Read the manifests once, and remove what a crash left of segments that are gone."""
        self._work.is_busy = True
        cold = {
            each.log_id: {s.base_seq: Remains.of(s) for s in each.segments if s.cold is not None}
            for each in logs
        }
        assert self.objects is not None
        files = self._host.files
        owner = PlaceOwner(files, self._host.directory, self.objects)
        job = partial(sweep, owner, self.objects, files, cold)
        self.mover.run(job, partial(self._sweep_done, logs))

    def _sweep_done(
        self,
        logs: list[FileLog],
        found: "dict[int, list[ColdFile]] | None",
        error: Exception | None,
    ) -> None:
        self._work.is_busy = False
        if found is None:
            self._refused(error)
            return
        self._work.problems.pop("move", None)
        self._swept = True
        self._manifests.take(found)
        for each in logs:
            known = self._manifests.of(each.log_id)
            for segment in each.segments:
                if segment.cold is not None and is_doubtful(known.get(segment.base_seq)):
                    segment.cold.is_suspect = True

    def may_hold(self, segments: list[Segment]) -> bool:
        """Say whether the cold place has, or may have, something of one of these segments."""
        if self.objects is None:
            return False
        tried = any((s.log_id, s.base_seq) in self._tried for s in segments)
        return not self._swept or tried or any(s.cold is not None for s in segments)

    def withdraw(
        self, owner: FileLog, segments: list[Segment], done: Callable[[Exception | None], None]
    ) -> None:
        """Bring segments back and leave nothing of them at the cold place."""
        assert self.objects is not None
        bases = [segment.base_seq for segment in segments]
        rest = self._manifests.without(owner.log_id, bases)
        job = partial(
            put_back, self._host.files, self.objects, segments, self._manifests.say(owner), rest
        )
        self.mover.run(job, partial(self._withdrawn, owner, segments, done))

    def _withdrawn(
        self,
        owner: FileLog,
        segments: list[Segment],
        done: Callable[[Exception | None], None],
        heads: dict[int, DataHead] | None,
        error: Exception | None,
    ) -> None:
        if heads is not None:
            self._manifests.forget(owner.log_id, list(heads))
            for segment in segments:
                if segment.cold is not None:
                    self._fetches.forget(segment.cold)
                    segment.come_back(heads[segment.base_seq])
        done(error)

    def scrub_all(self, logs: list[FileLog]) -> Iterator[tuple[FileLog, Segment, Found]]:
        """Look at every cold segment now, one after another.

        Only without threads, while nothing else goes on. Raises what the cold place raises.
        """
        assert self.objects is not None
        if not self._swept:
            self._sweep(logs)
        if not self._swept:
            raise ColdUnavailable(self._work.problems["move"])
        yield from self.scrubs.all_of(logs, self.objects)

    def plan(self, owner: FileLog) -> tuple[list[ColdPlan], list[tuple[int, int]]]:
        """Return the twins of a log's oldest segments, without a hole, and what in them is gone."""
        place = self.objects.place if self.objects is not None else None
        return cold_plan(owner, self._manifests.of(owner.log_id), place)

    def close(self) -> None:
        """Stop the threads; one that hangs is left behind."""
        self._fetches.close()
        self.mover.close()


def _ignore(error: Exception | None) -> None:
    if error is not None:
        log.warning("cold marker not removed error=%s", error)


def _ignore_both(found: object, error: Exception | None) -> None:
    if error is not None:
        log.warning("cold objects not removed error=%s", error)


def _report(path: str, error: Exception | None) -> None:
    if error is not None:
        log.warning("file not removed file=%s error=%s", path, error)
