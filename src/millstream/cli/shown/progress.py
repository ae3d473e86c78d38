"""ProgressLine of long work: a line on a terminal that is written over, silence in a pipe."""

import sys
import time
from types import TracebackType
from typing import Self

from millstream.cli.shown.figures import count, size

PAUSE = 0.1  # seconds between two looks at the clock that are shown


class ProgressLine:
    """Counts towards a total, in records or bytes, and shows it on standard error."""

    def __init__(self, what: str, total: int | None, *, in_bytes: bool = False) -> None:
        self._what = what
        self._total = total
        self._shown = size if in_bytes else count
        self._done = 0
        self._began = self._last = time.monotonic()
        self._is_seen = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_seen:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def add(self, more: int) -> None:
        """Count what was done since."""
        self.reach(self._done + more)

    def add_of(self, more: int, total: int) -> None:
        """Count what was done since, where the total comes with it."""
        self._total = total
        self.add(more)

    def reach(self, done: int) -> None:
        """Say how much is done by now."""
        self._done = done
        now = time.monotonic()
        if not self._is_seen or now - self._last < PAUSE:
            return
        self._last = now
        rate = self._shown(int(done / max(now - self._began, 1e-6)))
        whole = f" of {self._shown(self._total)}" if self._total else ""
        share = f"  {_bar(done / self._total)}" if self._total else ""
        sys.stderr.write(f"\r\x1b[K{self._what}  {self._shown(done)}{whole}{share}  {rate}/s")
        sys.stderr.flush()


def _bar(share: float) -> str:
    filled = round(min(share, 1.0) * 20)
    return f"[{'#' * filled}{'.' * (20 - filled)}] {min(share, 1.0):.0%}"
