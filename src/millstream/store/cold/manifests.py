"""Manifests: which files the cold place holds of each log, and what was said of them there."""

from collections.abc import Mapping, Sequence

from millstream.store.cold.manifest import ColdFile, Said
from millstream.store.log.file_log import FileLog


class Manifests:
    """What the manifests at the cold place say, as far as this process knows."""

    def __init__(self) -> None:
        self._files: dict[int, dict[int, ColdFile]] = {}  # log → base → what the manifest says
        self._said: dict[int, tuple[int, ...]] = {}  # log → what its manifest was made of

    def of(self, log_id: int) -> Mapping[int, ColdFile]:
        """Return the files of a log by their first sequence."""
        return self._files.get(log_id, {})

    def without(self, log_id: int, bases: Sequence[int]) -> list[ColdFile]:
        """Return the files of a log but for these."""
        return [file for base, file in self.of(log_id).items() if base not in bases]

    def take(self, found: Mapping[int, Sequence[ColdFile]]) -> None:
        """Take in what was read at the cold place."""
        self._files = {
            log_id: {f.base_seq: f for f in files} for log_id, files in found.items() if files
        }

    def note(self, log_id: int, file: ColdFile) -> None:
        """Take note of a file that was put there, or put anew."""
        self._files.setdefault(log_id, {})[file.base_seq] = file

    def forget(self, log_id: int, bases: Sequence[int]) -> None:
        """Forget files that go."""
        files = self._files.get(log_id, {})
        for base in bases:
            files.pop(base, None)

    def forget_log(self, log_id: int) -> None:
        """Forget everything of a log."""
        self._files.pop(log_id, None)
        self._said.pop(log_id, None)

    def retry(self, log_id: int) -> None:
        """Have the manifest of a log made once more."""
        self._said.pop(log_id, None)

    def say(self, owner: FileLog) -> Said:
        """Return what a manifest says of the log now."""
        cold = [s for s in owner.segments if s.cold is not None or s.busy]
        last = max((s.last_seq for s in cold), default=0)
        first = owner.first_kept
        below = [(1, first - 1)] if first > 1 else []
        deleted = below + [(a, min(b, last)) for a, b in owner.deleted if a <= last]
        gaps = [(g.first, min(g.last, last), g.reason) for g in owner.gaps if g.first <= last]
        self._said[owner.log_id] = _mark(owner)
        return Said(owner.log_id, owner.name, deleted, gaps)

    def is_outdated(self, owner: FileLog) -> bool:
        """Say whether records of cold segments were removed since the manifest was made."""
        known = owner.log_id in self._files
        return known and self._said.get(owner.log_id) != _mark(owner)


def _mark(owner: FileLog) -> tuple[int, ...]:
    """Return what changes whenever records of cold segments are removed or segments go."""
    cold = [s for s in owner.segments if s.cold is not None]
    return (owner.first_kept, len(cold), sum(s.index.live for s in cold))
