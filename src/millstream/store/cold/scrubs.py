"""ColdScrubs: looks at sealed segments again and again, the cold ones from their objects."""

import logging
from collections.abc import Iterator
from functools import partial

from millstream.store.cold.fetches import Fetches
from millstream.store.cold.host import ColdHost
from millstream.store.cold.manifest import ColdFile
from millstream.store.cold.manifests import Manifests
from millstream.store.cold.options import ColdOptions
from millstream.store.cold.pool import ColdWork
from millstream.store.cold.scrub import Found, Scrub, rotten
from millstream.store.disk.objects import Objects
from millstream.store.log.file_log import FileLog
from millstream.store.segments.segment import Segment

SCRUB_DELAY = 60.0  # seconds after a start: it has other things to do

log = logging.getLogger(__name__)


class ColdScrubs:
    """Begins one look at a time; what a look finds is mended, or taken out of service."""

    def __init__(
        self,
        host: ColdHost,
        options: ColdOptions,
        objects: Objects | None,
        manifests: Manifests,
        fetches: Fetches,
        work: ColdWork,
    ) -> None:
        self._host = host
        self._options = options
        self._objects = objects
        self._manifests = manifests
        self._fetches = fetches
        self._work = work
        self._scrubbed_at: dict[tuple[int, int], float] = {}
        self._scrub_at = host.clock.monotonic() + SCRUB_DELAY
        self.scrubbed = self.mended = self.lost = 0

    def begin_next(self, logs: list[FileLog]) -> None:
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
        late = now - self._options.scrub_interval
        for each in logs:
            for segment in each.segments:
                key = (each.log_id, segment.base_seq)
                known = segment.cold is None or segment.base_seq in self._manifests.of(key[0])
                idle = segment.sealed and not segment.busy and not segment.erasing
                if idle and known and self._scrubbed_at.get(key, late) <= late:
                    self._scrub(each, segment, now)
                    return

    def _scrub(self, owner: FileLog, segment: Segment, now: float) -> None:
        self._scrubbed_at[owner.log_id, segment.base_seq] = now
        self._scrub_at = now + segment.size / self._options.scrub_rate
        files = self._manifests.of(owner.log_id)
        if segment.cold is None:
            self._work.is_busy = segment.busy = True
            job = partial(rotten, self._host.files, segment)
            self._work.pool.run(job, partial(self._looked_at, owner, segment))
        elif self._objects is not None and segment.base_seq in files:
            segment.cold.is_suspect = False
            self._work.is_busy = segment.busy = True
            scrub = self._scrub_of(owner, segment, self._objects)
            self._work.pool.run(scrub.run, partial(self._scrubbed, owner, segment))

    def _scrub_of(self, owner: FileLog, segment: Segment, objects: Objects) -> Scrub:
        others = self._manifests.without(owner.log_id, [segment.base_seq])
        file = self._manifests.of(owner.log_id)[segment.base_seq]
        said = self._manifests.say(owner)
        gone = {s for a, b in said.deleted for s in _within(a, b, file)}
        return Scrub(self._host.files, objects, segment, file, others, said, gone)

    def all_of(
        self, logs: list[FileLog], objects: Objects
    ) -> Iterator[tuple[FileLog, Segment, Found]]:
        """Look at every cold segment now, one after another."""
        for each in logs:
            for segment in [s for s in each.segments if s.cold is not None]:
                found = self._scrub_of(each, segment, objects).run()
                self._scrubbed(each, segment, found, None)
                yield each, segment, found

    def _looked_at(
        self, owner: FileLog, segment: Segment, seqs: list[int] | None, error: Exception | None
    ) -> None:
        """Have a read meet what is rotten: that takes it out of service and says so."""
        self._work.is_busy = segment.busy = False
        if seqs is None:
            log.warning("segment not scrubbed file=%s error=%s", segment.path, error)
            return
        self.scrubbed += 1
        before = owner.count
        for seq in seqs:
            owner.read(seq, 1, 1)
        self.lost += before - owner.count
        owner.erasure.step()
        owner.removal.drop_dead_segments()

    def _scrubbed(
        self, owner: FileLog, segment: Segment, found: Found | None, error: Exception | None
    ) -> None:
        self._work.is_busy = segment.busy = False
        if found is None:
            self._work.problems["scrub"] = f"cold history cannot be checked: {error}"
            log.warning("cold segment not scrubbed file=%s error=%s", segment.path, error)
            return
        self._work.problems.pop("scrub", None)
        self.scrubbed += 1
        if found.damaged and segment.cold is not None:
            log.warning(
                "cold segment damaged=%s mended=%s lost=%d",
                ",".join(found.damaged), ",".join(found.mended), len(found.lost),
            )  # fmt: skip
            self.mended += len(found.mended)
            self.lost += len(found.lost)
            self._manifests.note(owner.log_id, found.file)
            segment.cold.form = found.file.data
            self._fetches.forget(segment.cold)
            if found.head is not None:
                segment.cold.known_as(found.head, found.table)
            owner.removal.lose(found.lost)
        owner.erasure.step()
        owner.removal.drop_dead_segments()


def _within(first: int, last: int, file: ColdFile) -> range:
    return range(max(first, file.base_seq), min(last, file.last_seq) + 1)
