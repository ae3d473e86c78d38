"""ColdTier: sealed segments on their way to the cold place, and pieces of them on their way back.

Nothing here waits for the cold place on the loop or on the thread that writes files: moves and
fetches have threads of their own, and a reader whose bytes are not here is told to come again.

A move leaves a whole copy behind at every step: the object is put and read back, the manifest
names it, the marker beside the index says where the bytes are, and only then the file goes.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Protocol, TypeVar

import msgspec

from millstream.clock import Clock
from millstream.errors import ColdUnavailable, MillstreamError
from millstream.store.cold import manifest as cold_manifest
from millstream.store.cold.copy import ColdCopy
from millstream.store.cold.fetches import Fetches
from millstream.store.cold.manifest import ColdFile, Manifest, Said, folder, object_names
from millstream.store.cold.move import Move, put_back
from millstream.store.cold.owner import PlaceOwner
from millstream.store.cold.pool import InlinePool, Pool, ThreadPool
from millstream.store.cold.remains import Remains
from millstream.store.cold.scrub import Found, Scrub, rotten
from millstream.store.cold.sweep import is_doubtful, remove, remove_folder, sweep
from millstream.store.disk.files import Files
from millstream.store.disk.objects import Objects, open_objects
from millstream.store.disk.worker import FileWorker
from millstream.store.log.file_log import FileLog
from millstream.store.segments.files import DataHead
from millstream.store.segments.segment import Segment
from millstream.supervisor import Supervisor

READERS = 4
SCRUB_DELAY = 60.0  # seconds after a start: it has other things to do

log = logging.getLogger(__name__)

T = TypeVar("T")
Arrived = Callable[[MillstreamError | None], None]


@dataclass(frozen=True, slots=True)
class ColdOptions:
    """Where cold history goes, and what stays: without a bound nothing moves."""

    place: str = ""
    hot_segments: int | None = None  # sealed ones of each log that stay
    hot_bytes: int | None = None  # of sealed segments of each log that stay
    cache_bytes: int = 64 << 20  # of pieces that were read
    patience: float = 10.0  # seconds until a reader is told that the place does not answer
    checkpoint_gap: float = 30.0  # between checkpoints that only a move waits for
    scrub_rate: int = 4 << 20  # bytes a second that are checked in the background, 0 for none
    scrub_interval: float = 24 * 3600.0  # seconds between two looks at the same segment
    twins: str = "plain"  # of which segments a Parquet twin is made: "none", "plain", "all"
    objects: Objects | None = None  # instead of what ``place`` names

    @property
    def moves(self) -> bool:
        """Say whether segments are moved at all."""
        return self.hot_segments is not None or self.hot_bytes is not None


class ColdPlan(msgspec.Struct, frozen=True):
    """A Parquet file that any reader of tables may read."""

    path: str
    base_seq: int
    last_seq: int


class ColdHost(Protocol):
    """What the tier needs of the store."""

    files: Files
    clock: Clock
    worker: FileWorker
    supervisor: Supervisor
    directory: str

    def post(self, callback: Callable[[], None]) -> object:
        """Run on the loop, soon."""
        ...

    def covered_seq(self, log_id: int) -> int:
        """Return up to where every snapshot that is kept knows the log."""
        ...

    def may_move(self, log_id: int) -> bool:
        """Say whether no replay needs the log's files where they are."""
        ...


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
        self._files: dict[int, dict[int, ColdFile]] = {}  # log → base → what the manifest says
        self._said: dict[int, tuple[int, ...]] = {}  # log → what its manifest was made of
        self._swept = False
        self._tried: set[tuple[int, int]] = set()  # (log, base) that were moved, or perhaps
        self._busy = False  # the mover has something to do
        self._problems: dict[str, str] = {}
        self.wants_checkpoint = False
        self._scrubbed_at: dict[tuple[int, int], float] = {}
        self._scrub_at = host.clock.monotonic() + SCRUB_DELAY
        self.moved = 0
        self.scrubbed = self.mended = self.lost = 0

    def health(self) -> list[str]:
        """Return what is wrong, in words."""
        problem = self._fetches.problem
        return [*([problem] if problem else []), *self._problems.values()]

    def figures(self) -> dict[str, int]:
        """Return what was done since the start."""
        return {
            "cold_segments_moved_total": self.moved,
            "cold_pieces_fetched_total": self._fetches.fetched,
            "cold_reads_failed_total": self._fetches.failed,
            "scrub_segments_total": self.scrubbed,
            "scrub_objects_mended_total": self.mended,
            "scrub_records_lost_total": self.lost,
        }

    # --- reading

    def adopt(self, segment: Segment, form: cold_manifest.Form | None) -> ColdCopy:
        """Have a segment read from the cold place from now on."""
        copy = ColdCopy(self._fetches, segment, form, next(self._tokens))
        segment.cold = copy  # shape: state
        return copy

    # --- time

    def tick(self, logs: Iterable[FileLog]) -> None:
        """Call about once a second: one piece of work for the mover, and late readers are told."""
        self._fetches.end_waits()
        if self._busy:
            return
        kept = [each for each in logs if each.is_kept]
        if not self._tend(kept) and self.options.scrub_rate:
            self._scrub_next(kept)

    def _tend(self, kept: list[FileLog]) -> bool:
        """Begin with a move or a manifest if one is due; False when there is nothing to do."""
        if self.objects is None:
            return False
        if not self._swept:
            self._sweep(kept)
            return True
        self.wants_checkpoint = False
        for each in kept:
            segment = self._due(each) if self.options.moves else None
            if segment is not None:
                self._move(each, segment)
                return True
            if self._is_outdated(each):
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
        self._busy = segment.busy = True
        self._tried.add((owner.log_id, segment.base_seq))
        files = self._files.setdefault(owner.log_id, {})
        others = [f for base, f in files.items() if base != segment.base_seq]
        move = Move(
            self._host.files, self.objects, segment, self._say(owner), others, self.options.twins
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
        self._busy = segment.busy = False
        if made is None or segment not in owner.segments:
            self._problems["move"] = f"cold history at {self.options.place} takes nothing: {error}"
            log.error("segment not moved file=%s error=%s", segment.path, error)
            self._host.worker.run(move.unmark, _ignore)
            if segment not in owner.segments:
                self._problems.pop("move", None)
                self.forget(owner.log_id, [segment.base_seq])
            return
        self._problems.pop("move", None)
        self._files.setdefault(owner.log_id, {})[segment.base_seq] = made
        copy = self.adopt(segment, made.data)
        copy.known_as(move.head, move.table)
        segment.leave()
        self.moved += 1
        log.info("segment moved file=%s place=%s", segment.path, self.options.place)
        self._host.worker.run(segment.unlink_data, partial(_report, segment.path))
        owner.erasure.step()
        owner.drop_dead_segments()

    def _say(self, owner: FileLog) -> Said:
        """Return what a manifest says of the log now."""
        cold = [s for s in owner.segments if s.cold is not None or s.busy]
        last = max((s.last_seq for s in cold), default=0)
        first = owner.first_kept
        below = [(1, first - 1)] if first > 1 else []
        deleted = below + [(a, min(b, last)) for a, b in owner.deleted if a <= last]
        gaps = [(g.first, min(g.last, last), g.reason) for g in owner.gaps if g.first <= last]
        self._said[owner.log_id] = _mark(owner)
        return Said(owner.log_id, owner.name, deleted, gaps)

    def _is_outdated(self, owner: FileLog) -> bool:
        """Say whether records of cold segments were removed since the manifest was made."""
        known = owner.log_id in self._files
        return known and self._said.get(owner.log_id) != _mark(owner)

    def _publish(self, owner: FileLog) -> None:
        assert self.objects is not None
        self._busy = True
        files = list(self._files.get(owner.log_id, {}).values())
        said = self._say(owner)
        job = partial(cold_manifest.publish, self.objects, said, files)
        self.mover.run(job, partial(self._published, owner.log_id))

    def _published(self, log_id: int, made: Manifest | None, error: Exception | None) -> None:
        self._busy = False
        if made is None:
            self._said.pop(log_id, None)  # tried again
            self._problems["move"] = f"cold history at {self.options.place} takes nothing: {error}"
        else:
            self._problems.pop("move", None)

    # --- scrubbing

    def _scrub_next(self, logs: list[FileLog]) -> None:
        """Begin to look at the segment that was not looked at for longest, if one is due."""
        now = self._host.clock.monotonic()
        suspects = [
            (each, s) for each in logs for s in each.segments if s.cold and s.cold.is_suspect
        ]
        if suspects:
            self._scrub(*suspects[0], now)
            return
        if now < self._scrub_at:
            return
        late = now - self.options.scrub_interval
        for each in logs:
            for segment in each.segments:
                key = (each.log_id, segment.base_seq)
                known = segment.cold is None or segment.base_seq in self._files.get(key[0], {})
                idle = segment.sealed and not segment.busy and not segment.erasing
                if idle and known and self._scrubbed_at.get(key, late) <= late:
                    self._scrub(each, segment, now)
                    return

    def _scrub(self, owner: FileLog, segment: Segment, now: float) -> None:
        self._scrubbed_at[owner.log_id, segment.base_seq] = now
        self._scrub_at = now + segment.size / self.options.scrub_rate
        files = self._files.get(owner.log_id, {})
        if segment.cold is None:
            self._busy = segment.busy = True
            job = partial(rotten, self._host.files, segment)
            self.mover.run(job, partial(self._looked_at, owner, segment))
        elif self.objects is not None and segment.base_seq in files:
            segment.cold.is_suspect = False
            self._busy = segment.busy = True
            scrub = self._scrub_of(owner, segment, self.objects)
            self.mover.run(scrub.run, partial(self._scrubbed, owner, segment))

    def _scrub_of(self, owner: FileLog, segment: Segment, objects: Objects) -> Scrub:
        files = self._files[owner.log_id]
        others = [f for base, f in files.items() if base != segment.base_seq]
        file, said = files[segment.base_seq], self._say(owner)
        gone = {s for a, b in said.deleted for s in _within(a, b, file)}
        return Scrub(self._host.files, objects, segment, file, others, said, gone)

    def scrub_all(self, logs: list[FileLog]) -> Iterator[tuple[FileLog, Segment, Found]]:
        """Look at every cold segment now, one after another.

        Only without threads, while nothing else goes on. Raises what the cold place raises.
        """
        assert self.objects is not None
        if not self._swept:
            self._sweep(logs)
        if not self._swept:
            raise ColdUnavailable(self._problems["move"])
        for each in logs:
            for segment in [s for s in each.segments if s.cold is not None]:
                found = self._scrub_of(each, segment, self.objects).run()
                self._scrubbed(each, segment, found, None)
                yield each, segment, found

    def _looked_at(
        self, owner: FileLog, segment: Segment, seqs: list[int] | None, error: Exception | None
    ) -> None:
        """Have a read meet what is rotten: that takes it out of service and says so."""
        self._busy = segment.busy = False
        if seqs is None:
            log.warning("segment not scrubbed file=%s error=%s", segment.path, error)
            return
        self.scrubbed += 1
        before = owner.count
        for seq in seqs:
            owner.read(seq, 1, 1)
        self.lost += before - owner.count
        owner.erasure.step()
        owner.drop_dead_segments()

    def _scrubbed(
        self, owner: FileLog, segment: Segment, found: Found | None, error: Exception | None
    ) -> None:
        self._busy = segment.busy = False
        if found is None:
            self._problems["scrub"] = f"cold history cannot be checked: {error}"
            log.warning("cold segment not scrubbed file=%s error=%s", segment.path, error)
            return
        self._problems.pop("scrub", None)
        self.scrubbed += 1
        if found.damaged and segment.cold is not None:
            log.warning(
                "cold segment damaged=%s mended=%s lost=%d",
                ",".join(found.damaged), ",".join(found.mended), len(found.lost),
            )  # fmt: skip
            self.mended += len(found.mended)
            self.lost += len(found.lost)
            self._files[owner.log_id][segment.base_seq] = found.file
            segment.cold.form = found.file.data
            self._fetches.forget(segment.cold)
            if found.head is not None:
                segment.cold.known_as(found.head, found.table)
            owner.lose(found.lost)
        owner.erasure.step()
        owner.drop_dead_segments()

    # --- removing

    def forget(self, log_id: int, bases: list[int]) -> None:
        """Remove the objects of segments that are gone; what fails is swept at the next start."""
        if self.objects is None:
            return
        files = self._files.get(log_id, {})
        for base in bases:
            files.pop(base, None)
        names = [f"{folder(log_id)}/{name}" for base in bases for name in object_names(base)]
        self.mover.run(partial(remove, self.objects, names), _ignore_both)

    def forget_log(self, log_id: int) -> None:
        """Remove everything of a log that was dropped."""
        if self.objects is not None:
            self._files.pop(log_id, None)
            self._said.pop(log_id, None)
            self.mover.run(partial(remove_folder, self.objects, log_id), _ignore_both)

    def _sweep(self, logs: list[FileLog]) -> None:
        """Read the manifests once, and remove what a crash left of segments that are gone."""
        self._busy = True
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
        self._busy = False
        if found is None:
            self._problems["move"] = f"cold history at {self.options.place} fails: {error}"
            return
        self._problems.pop("move", None)
        self._swept = True
        self._files = {
            log_id: {f.base_seq: f for f in files} for log_id, files in found.items() if files
        }
        for each in logs:
            known = self._files.get(each.log_id, {})
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
        files = self._files.get(owner.log_id, {})
        rest = [f for base, f in files.items() if base not in bases]
        job = partial(put_back, self._host.files, self.objects, segments, self._say(owner), rest)
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
            for segment in segments:
                self._files.get(owner.log_id, {}).pop(segment.base_seq, None)
                if segment.cold is not None:
                    self._fetches.forget(segment.cold)
                    segment.come_back(heads[segment.base_seq])
        done(error)

    def plan(self, owner: FileLog) -> tuple[list[ColdPlan], list[tuple[int, int]]]:
        """Return the twins of a log's oldest segments, without a hole, and what in them is gone."""
        known, found = self._files.get(owner.log_id, {}), list[ColdPlan]()
        for segment in owner.segments:
            file = known.get(segment.base_seq) if segment.cold is not None else None
            if file is None or file.parquet is None or self.objects is None:
                break
            if not file.parquet.is_vouched_for:
                break
            path = f"{self.objects.place.rstrip('/')}/{folder(owner.log_id)}/{file.parquet.name}"
            found.append(ColdPlan(path, file.base_seq, file.last_seq))
        last = found[-1].last_seq if found else 0
        trimmed = [(1, owner.first_kept - 1)] if owner.first_kept > 1 else []
        gone = [(a, min(b, last)) for a, b in owner.deleted if a <= last]
        lost = [(g.first, min(g.last, last)) for g in owner.gaps if g.first <= last]
        return found, (trimmed + gone + lost if found else [])

    def close(self) -> None:
        """Stop the threads; one that hangs is left behind."""
        self._fetches.close()
        self.mover.close()


def _within(first: int, last: int, file: ColdFile) -> range:
    return range(max(first, file.base_seq), min(last, file.last_seq) + 1)


def _mark(owner: FileLog) -> tuple[int, ...]:
    """Return what changes whenever records of cold segments are removed or segments go."""
    cold = [s for s in owner.segments if s.cold is not None]
    return (owner.first_kept, len(cold), sum(s.index.live for s in cold))


def _ignore(error: Exception | None) -> None:
    if error is not None:
        log.warning("cold marker not removed error=%s", error)


def _ignore_both(found: object, error: Exception | None) -> None:
    if error is not None:
        log.warning("cold objects not removed error=%s", error)


def _report(path: str, error: Exception | None) -> None:
    if error is not None:
        log.warning("file not removed file=%s error=%s", path, error)
