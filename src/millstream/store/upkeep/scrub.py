"""A data directory and its cold history, read whole: what is damaged is mended where it can be.

A running server does the same in the background, a little at a time. This is for a directory at
rest: a start, every record that is here read once, every form of every cold segment compared with
its checksum and mended from the others. Records here are not mended: that is what a repair does.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace

from millstream.clock import SystemClock
from millstream.errors import MillstreamError, StorageUnusable
from millstream.store.cold import manifest as cold_manifest
from millstream.store.cold.options import ColdOptions
from millstream.store.cold.remains import stream_of_twins
from millstream.store.disk.files import Files
from millstream.store.disk.keys import KeyRing
from millstream.store.log.file_log import FileLog
from millstream.store.options import StoreOptions
from millstream.store.store import Store
from millstream.store.upkeep.inspect import CLEAN, DAMAGED, UNUSABLE, Findings, Lost, read_all

WAL_BYTES = 1 << 16  # hardly anything is written


@dataclass(slots=True)
class Scrubbed:
    """What a scrub found; ``mended`` names objects that are sound again, ``lost`` records."""

    status: int = CLEAN
    logs: int = 0
    records: int = 0
    cold_segments: int = 0
    mended: list[str] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    error: str = ""

    def plain(self) -> dict[str, object]:
        """Return the report for JSON."""
        return asdict(self)


def scrub_directory(
    directory: str, files: Files, ring: KeyRing | None = None, cold: ColdOptions | None = None
) -> Scrubbed:
    """Look at everything and mend what can be; ``cold`` says where the cold history is."""
    report = Scrubbed()
    findings: list[str] = []
    with _heard(findings):
        try:
            _scrub(directory, files, ring or KeyRing(), cold or ColdOptions(), report)
        except (MillstreamError, OSError) as error:
            report.status, report.error = UNUSABLE, str(error)
    report.findings += findings
    if report.status == CLEAN and (report.findings or report.lost):
        report.status = DAMAGED
    return report


@contextmanager
def _heard(findings: list[str]) -> Iterator[None]:
    """Take what the store says of damage, instead of its log."""
    store_log = logging.getLogger("millstream.store")
    handler = Findings()
    handler.lines = findings
    propagate, store_log.propagate = store_log.propagate, False
    store_log.addHandler(handler)
    try:
        yield
    finally:
        store_log.removeHandler(handler)
        store_log.propagate = propagate


def _scrub(
    directory: str, files: Files, ring: KeyRing, cold: ColdOptions, report: Scrubbed
) -> None:
    if not files.exists(f"{directory}/meta"):
        raise StorageUnusable(f"{directory} is not a data directory")
    still = replace(cold, hot_segments=None, hot_bytes=None)  # nothing moves now
    options = StoreOptions(threads=False, ring=ring, cold=still, wal_file_bytes=WAL_BYTES)
    posted: deque[Callable[[], None]] = deque()
    store = Store.open(directory, files, SystemClock(), posted.append, options)
    try:
        logs = [found for i in store.log_ids() if (found := store.log(i)) is not None]
        for log in logs:
            report.logs += 1
            report.records += sum(1 for _ in read_all(log))  # of what is here
        _scrub_cold(store, logs, report)
        store.pump()
        while posted:
            posted.popleft()()
        for log in logs:
            report.lost += [
                Lost(f"{log.log_id:016x}", g.first, g.last, g.reason)
                for g in log.state().gaps
                if g.reason == "corruption"
            ]
    finally:
        store.close()


def _scrub_cold(store: Store, logs: list[FileLog], report: Scrubbed) -> None:
    tier = store.cold
    cold = [each for each in logs if any(s.cold is not None for s in each.segments)]
    if tier.objects is None:
        if cold:
            raise StorageUnusable("some records are in cold history: give --cold PLACE")
        return
    for each in cold:
        manifest = cold_manifest.load(tier.objects, each.log_id)
        told = manifest.stream if manifest is not None else ""
        each.name = told or stream_of_twins(tier.objects, each.log_id)
        if not each.name:  # for a manifest and twins that are made anew; a server knows it
            for segment in [s for s in each.segments if s.cold is not None]:
                report.cold_segments += 1
                report.findings.append(f"cold segment in no manifest file={segment.path} offset=0")
        elif manifest is None:
            report.mended.append(f"{cold_manifest.folder(each.log_id)}/{cold_manifest.NAME}")
    for _, _, found in tier.scrub_all([each for each in cold if each.name]):
        report.cold_segments += 1
        report.mended += found.mended
        left = sorted(set(found.damaged) - set(found.mended))
        report.findings += [f"cold object damaged file={name} offset=0" for name in left]
        report.records -= len(found.lost)
