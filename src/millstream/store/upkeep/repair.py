"""Repair: a directory made sound again, with what remains lost on record.

Everything that is damaged is written anew from what is sound: a start first takes what snapshots,
segments and WAL still tell, then segments with damage are copied without it, every segment is
sealed, and two new snapshots take the place of the old ones and of the whole WAL. The same steps
run over a copy in memory to say what they will do, and over the files once somebody agrees.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from millstream.clock import SystemClock
from millstream.errors import MillstreamError, StorageUnusable
from millstream.kernel._frames import scan
from millstream.store.disk.files import Files, ensure_dir, write_all
from millstream.store.disk.keys import KeyRing
from millstream.store.disk.lock import lock_directory
from millstream.store.log.control_frames import VOID, Voided
from millstream.store.log.file_log import FileLog
from millstream.store.log.snapshot import write_snapshot
from millstream.store.options import StoreOptions
from millstream.store.recovery.recovery import Recovery
from millstream.store.recovery.wal_rescue import find_in_wal, lost_positions
from millstream.store.segments.files import HEADER_BYTES, read_data_header
from millstream.store.segments.rewrite import Rewrite
from millstream.store.segments.segment import Segment
from millstream.store.store import Store
from millstream.store.upkeep.base_snapshot import lay_foundation
from millstream.store.upkeep.inspect import (
    CLEAN,
    ReadOnlyFiles,
    Report,
    check_directory,
    read_all,
)

COPY_BYTES = 1 << 20
WAL_BYTES = 1 << 16  # the new WAL holds control frames alone, and grows with them

ControlFrame = tuple[int, int, bytes]  # kind, log, body
# Returns frames that name logs which nothing else names any more.
Adopt = Callable[[Recovery, Sequence[int]], list[ControlFrame]]


def nobody_adopts(_recovery: Recovery, _log_ids: Sequence[int]) -> list[ControlFrame]:
    """Leave logs without a name as they are."""
    return []


@dataclass(slots=True)
class RepairPlan:
    """What a repair does: ``found`` as a check says it, and what becomes of it."""

    before: Report
    after: Report
    rebuilt: list[str] = field(default_factory=list)
    error: str = ""  # why nothing can be done

    @property
    def is_needed(self) -> bool:
        """Say whether there is anything to repair."""
        return self.before.status != CLEAN


class _Repairs(logging.Handler):
    def __init__(self, rebuilt: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._rebuilt = rebuilt

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if line.startswith("repaired ") and line not in self._rebuilt:
            self._rebuilt.append(line)


def plan_repair(
    directory: str, files: Files, ring: KeyRing, adopt: Adopt = nobody_adopts
) -> RepairPlan:
    """Return what a repair would do; the directory stays as it is."""
    before = check_directory(directory, files, ring)
    plan = RepairPlan(before, before)
    if before.status == CLEAN or not files.exists(directory):
        plan.error = before.error
        return plan
    over = ReadOnlyFiles(files)
    try:
        plan.rebuilt = _overhaul(directory, over, ring, adopt)
    except (MillstreamError, OSError) as error:
        plan.error = str(error)
        return plan
    plan.after = check_directory(directory, over, ring)
    return plan


def repair_directory(
    directory: str, files: Files, ring: KeyRing, kept: str, adopt: Adopt = nobody_adopts
) -> Report:
    """Keep a copy of the directory at ``kept``, repair it, and return what a check says then."""
    if files.exists(kept):
        raise StorageUnusable(f"{kept} exists: name another place for the copy")
    lock = lock_directory(files, directory)
    try:
        copy_tree(files, directory, kept)
    finally:
        lock.close()
    _overhaul(directory, files, ring, adopt)
    return check_directory(directory, files, ring)


def copy_tree(files: Files, source: str, target: str) -> None:
    """Copy a directory with all that is in it, durably."""
    ensure_dir(files, target)
    for name in files.listdir(source):
        path = f"{source}/{name}"
        if name == "lock":
            continue
        if _is_directory(files, path):
            copy_tree(files, path, f"{target}/{name}")
        else:
            _copy_file(files, path, f"{target}/{name}")
    files.sync_dir(target)


def _is_directory(files: Files, path: str) -> bool:
    try:
        files.listdir(path)
    except (NotADirectoryError, FileNotFoundError):
        return False
    return True


def _copy_file(files: Files, source: str, target: str) -> None:
    old = files.open(source)
    try:
        new = files.open(target, create=True)
        try:
            size = old.size()
            new.truncate(0)
            for at in range(0, size, COPY_BYTES):
                write_all(new, old.pread(COPY_BYTES, at), at)
            new.sync()
        finally:
            new.close()
    finally:
        old.close()


def _overhaul(directory: str, files: Files, ring: KeyRing, adopt: Adopt) -> list[str]:
    """Make the directory sound; returns what was made anew, from what."""
    rebuilt: list[str] = []
    with _quiet(rebuilt):
        foundation = lay_foundation(files, directory, ring)
        rebuilt += foundation.notes
        if foundation.is_new:
            write_snapshot(files, f"{directory}/meta", foundation.snapshot, ring)
            rebuilt.append("a snapshot is made of segment files and the oldest WAL")
        for path in _rotten_indexes(directory, files):
            files.unlink(path)  # so that the start looks at the data, and asks the WAL for it
        options = StoreOptions(threads=False, ring=ring, wal_file_bytes=WAL_BYTES)
        posted: deque[Callable[[], None]] = deque()
        store = Store.open(directory, files, SystemClock(), posted.append, options)
        try:
            log_ids = store.log_ids()
            logs = [found for log_id in log_ids if (found := store.log(log_id)) is not None]
            rebuilt += _fill_blocks(logs, directory, files, ring)
            for log in logs:
                for _ in read_all(log):  # that is what finds rot in sealed files
                    pass
            _log_losses(store, logs, posted)
            for log in logs:
                rebuilt += _write_anew(log, files)
            named = adopt(store.recovery, log_ids) if foundation.lacks_names else []
            rebuilt += [
                f"log {log_id:016x} is kept under the name that its control frame gives it"
                for _, log_id, _ in named
            ]
            store.renew(named)
            rebuilt.append("two new snapshots take the place of the old ones and of the WAL")
        finally:
            store.close()
    return rebuilt


def _log_losses(store: Store, logs: list[FileLog], posted: deque[Callable[[], None]]) -> None:
    """Have the WAL say what is lost, before the files that show it are written anew.

    The snapshots that keep it come last: a crash before them would leave files in which nothing is
    damaged and something is missing.
    """
    for log in logs:
        for gap in log.gaps:
            body = msgspec.json.encode(Voided(gap.first, gap.last, gap.reason))
            store.control(VOID, log.log_id, body, lambda error: None)
    store.pump()
    while posted:
        posted.popleft()()


@contextmanager
def _quiet(rebuilt: list[str]) -> Iterator[None]:
    """Take what the store says of repairs; the check before has said what is damaged."""
    store_log = logging.getLogger("millstream.store")
    handler = _Repairs(rebuilt)
    propagate, store_log.propagate = store_log.propagate, False
    store_log.addHandler(handler)
    try:
        yield
    finally:
        store_log.removeHandler(handler)
        store_log.propagate = propagate


def _rotten_indexes(directory: str, files: Files) -> Iterator[str]:
    """Yield the indexes of sealed files of frames in which something is damaged."""
    streams = f"{directory}/streams"
    for name in files.listdir(streams) if files.exists(streams) else []:
        for file in files.listdir(f"{streams}/{name}"):
            path = f"{streams}/{name}/{file}"
            idx = f"{path[:-5]}.idx"
            if file.endswith(".data") and files.exists(idx) and _is_rotten(path, name, files):
                yield idx


def _is_rotten(path: str, name: str, files: Files) -> bool:
    data = files.open(path)
    try:
        buffer = data.view(data.size())
    finally:
        data.close()
    base_seq = int(path[-25:-5])
    head = read_data_header(bytes(buffer[:HEADER_BYTES]), int(name, 16), base_seq, path)
    return head is not None and not head.in_blocks and bool(scan(buffer, HEADER_BYTES)[1])


def _fill_blocks(logs: list[FileLog], directory: str, files: Files, ring: KeyRing) -> Iterator[str]:
    """Copy segments with damaged blocks, with the records of those that the WAL still has."""
    damaged = [(s, lost) for log in logs for s in log.segments if (lost := lost_positions(s))]
    wanted = {(s.log_id, s.index.seq(at)) for s, lost in damaged for at in lost}
    found = find_in_wal(files, directory, ring, wanted)
    for segment, lost in damaged:
        index = segment.index
        places = {at: found.get((segment.log_id, index.seq(at)), b"") for at in lost}
        if not all(len(frame) == index.frame_len(at) for at, frame in places.items()):
            continue  # part of it would be taken for whole: readers find what is lost
        rewrite = Rewrite(files, segment, compressed=True, drop=False)
        rewrite.changes = [(index.offset(at), frame) for at, frame in places.items()]
        _put_in_place(rewrite)
        yield f"repaired from the wal file={segment.path} records={len(lost)}"


def _put_in_place(rewrite: Rewrite) -> None:
    rewrite.write()
    rewrite.take_up()
    rewrite.place()
    rewrite.segment.sealed = True


def _write_anew(log: FileLog, files: Files) -> Iterator[str]:
    """Seal every segment, and copy those that hold damage without it."""
    for segment in log.segments:
        segment.full = True
    damaged = [s for s in log.segments if s.cold is None and _needs_copy(log, s, files)]
    log.flush()
    for segment in damaged:
        whole = len(segment.index)
        _cut_dead_end(log, segment)
        _put_in_place(Rewrite(files, segment, segment.head.in_blocks, drop=True))
        yield f"{segment.path} is written anew: {segment.index.live} of {whole} records stay in it"
    log.recount()
    log.removal.drop_dead_segments()


def _needs_copy(log: FileLog, segment: Segment, files: Files) -> bool:
    """Say whether the file holds, or may hold, bytes that are no records."""
    if any(a <= segment.last_seq and b >= segment.base_seq for a, b in log.lost):
        return True
    if not segment.made:
        return False
    with segment.use() as file:
        head = bytes(file.pread(HEADER_BYTES, 0))
    if read_data_header(head, segment.log_id, segment.base_seq, segment.path) is None:
        return True
    return not segment.sealed


def _cut_dead_end(log: FileLog, segment: Segment) -> None:
    """Forget lost records at the end, as a copy keeps the last one also when it is dead."""
    index = segment.index
    while len(index) and index.seq(len(index) - 1) in log.lost:
        index.truncate(len(index) - 1)
