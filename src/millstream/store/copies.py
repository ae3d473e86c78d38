"""Copies: records that a log has from another one, and what a replay needs to make them again.

One DERIVE frame stands for all copies of a step, so that the copies cost no frames of their own. A
replay reads the source for them: its files stay, however dead, until a snapshot covers the frame.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from millstream.errors import MillstreamError
from millstream.store.controls import Controls
from millstream.store.log import derived
from millstream.store.log.control_frames import VOID, Voided
from millstream.store.log.derived import DERIVE, Derivation, DerivedPart
from millstream.store.log.file_log import FileLog
from millstream.store.log.log import Committed, Staged
from millstream.store.segments.segment import Segment
from millstream.store.shards import Shards
from millstream.store.wal.marks import SYNCED
from millstream.store.wal.submission import Submission

UNKNOWN_POSITION = 1 << 63


class CopyReleased(msgspec.Struct, frozen=True):
    """What no replay needs any more."""

    segments: list[Segment]
    logs: list[FileLog]  # dropped ones
    directories: list[int]  # of logs that an earlier run had dropped
    erases: bool  # some erase has waited for this


class Copies:
    """Logs copies, and holds what they are made of."""

    def __init__(
        self, shards: Shards, controls: Controls, log: Callable[[int], FileLog | None]
    ) -> None:
        self._shards = shards
        self._controls = controls
        self._log = log
        # Source → where the shards were at its newest DERIVE, until a snapshot covers that.
        self._sources: dict[int, dict[int, int]] = {}
        self._under_way: Counter[int] = Counter()  # source → frames that are not answered yet
        self._segments: list[Segment] = []
        self._logs: list[FileLog] = []
        self._directories: set[int] = set()
        self.erase_waits = False  # for a snapshot, as copies of what it erases are only named

    def found(self, sources: Iterable[int], positions: dict[int, int]) -> None:
        """Note what this start has copied from, with frames that no snapshot covers."""
        self._sources = dict.fromkeys(sources, positions)

    def need(self, log_id: int) -> bool:
        """Say whether a replay may have to copy from a log, also what is dead in it."""
        return log_id in self._sources

    # --- holding

    def hold_segment(self, segment: Segment) -> None:
        """Keep the files of a dead segment."""
        self._segments.append(segment)

    def hold_log(self, dropped: FileLog) -> None:
        """Keep the files of a dropped log."""
        self._logs.append(dropped)

    def hold_directory(self, log_id: int) -> None:
        """Keep what an earlier run left of a dropped log."""
        self._directories.add(log_id)

    def release(self, positions: dict[int, int]) -> CopyReleased:
        """Give up what was kept for copies that a snapshot at ``positions`` vouches for."""
        self._sources = {
            source: needs
            for source, needs in self._sources.items()
            if any(at > positions.get(shard, 0) for shard, at in needs.items())
        }
        erases, self.erase_waits = self.erase_waits, False
        segments, self._segments = self._segments, []
        free = [each for each in self._logs if not self.need(each.log_id)]
        self._logs = [each for each in self._logs if self.need(each.log_id)]
        directories = sorted(self._directories - self._sources.keys())
        self._directories -= set(directories)
        return CopyReleased(segments, free, directories, erases)

    def close(self) -> None:
        """Close the files that are held."""
        for each in self._logs:
            each.close()
        for segment in self._segments:
            segment.close()

    # --- logging

    def derive(self, derivation: Derivation, staged: Sequence[Staged], done: Committed) -> None:
        """Log what copies were made of, in one frame; they commit with it, then ``done`` is told.

        From here on a replay needs the source's files, however soon their records are trimmed.
        """
        logs = (derivation.source, *(each.log_id for each in staged))
        source = self._log(derivation.source)
        is_cold = source is not None and any(s.cold is not None for s in source.segments)
        shards = {self._shards.of(log_id).number for log_id in logs}
        if len(shards) > 1 or is_cold:  # no start may have to wait for the cold place
            self._log_records(derivation, staged, done)
            return
        self._sources[derivation.source] = {0: UNKNOWN_POSITION}
        self._under_way[derivation.source] += 1
        targets = tuple({part.target for part in derivation.parts if part.target})
        self._controls.log(
            DERIVE,
            targets[0] if targets else derivation.source,  # whose timelines it stands on
            derived.encode(derivation),
            partial(self._derived, derivation.source, staged, done),
            any(each.sync for each in staged),
            targets,
            tuple(((SYNCED, s.log_id), s.first_seq + s.count - 1) for s in staged),
        )

    def _derived(
        self,
        source: int,
        staged: Sequence[Staged],
        done: Committed,
        error: MillstreamError | None,
    ) -> None:
        self._under_way[source] -= 1
        if not self._under_way[source]:
            del self._under_way[source]
            shard = self._shards.of(source)  # that of the copies too
            self._sources[source] = {shard.number: shard.written_position}
        for each in staged:
            each.committed(error)
        done(error)

    def _log_records(
        self, derivation: Derivation, staged: Sequence[Staged], done: Committed
    ) -> None:
        """Log copies as records where no frame could stand on the timelines of several shards.

        With each target's copies goes the part that says how far the source was copied.
        """
        parts = [part for part in derivation.parts if part.target]
        rest = [part for part in derivation.parts if not part.target]
        waiting = len(parts) + bool(rest)
        errors: list[MillstreamError] = []

        def settled(error: MillstreamError | None) -> None:
            nonlocal waiting
            waiting -= 1
            errors.extend([error] if error is not None else [])
            if not waiting:
                done(errors[0] if errors else None)

        for part, each in zip(parts, staged, strict=True):
            progress = msgspec.structs.replace(part, target=0)  # nothing is to be made again
            self._log_part(derivation, [progress], each, partial(_both, each.committed, settled))
        if rest:
            body = derived.encode(msgspec.structs.replace(derivation, parts=rest))
            self._controls.log(DERIVE, derivation.source, body, settled, sync=False)

    def _log_part(
        self, derivation: Derivation, parts: list[DerivedPart], copies: Staged, done: Committed
    ) -> None:
        body = derived.encode(msgspec.structs.replace(derivation, parts=parts))
        control, done = self._controls.joined(DERIVE, copies.log_id, body, done)
        submit = self._shards.committer(copies.log_id).submit
        if not copies.reason:
            first, count, data = copies.first_seq, copies.count, copies.data
            submit(
                Submission(copies.log_id, first, count, data, copies.sync, done, control=control)
            )
            return
        void = Voided(copies.first_seq, copies.first_seq + copies.count - 1, copies.reason)
        frame = self._controls.frame(VOID, copies.log_id, msgspec.json.encode(void))
        submit(Submission(copies.log_id, 0, 4, control + frame * 2, copies.sync, done))


def _both(one: Committed, two: Committed, error: MillstreamError | None) -> None:
    one(error)
    two(error)
