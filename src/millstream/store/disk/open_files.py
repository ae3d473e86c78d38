"""OpenFiles: who has a file open, so that only so many do, however many files there are.

A mapped file counts as well: Python's maps keep a descriptor of their own.
"""

import threading
from collections import OrderedDict
from typing import Protocol

MOST = 512
TRIES = 8  # of those that may not be closed now, before the others are left for the next time


class Opened(Protocol):
    """Somebody with a file that can be opened again."""

    def put_away(self, may_sync: bool) -> bool:
        """Close the file; False when that must wait, perhaps for a sync."""
        ...


class OpenFiles:
    """Has those put away that were not used for longest; called from any thread."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._open: OrderedDict[Opened, None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def note(self, user: Opened) -> None:
        """Note that somebody's file is open and used."""
        with self._lock:
            self._open[user] = None
            self._open.move_to_end(user)
        if len(self._open) > self._most:
            self.trim(may_sync=False)

    def forget(self, user: Opened) -> None:
        """Note that somebody's file is closed."""
        with self._lock:
            self._open.pop(user, None)

    def trim(self, may_sync: bool) -> None:
        """Have files closed until few enough are open; whoever may sync waits for the disk."""
        for _ in range(TRIES if not may_sync else len(self._open)):
            with self._lock:
                if len(self._open) <= self._most:
                    return
                oldest, _ = self._open.popitem(last=False)
            if not oldest.put_away(may_sync):
                with self._lock:
                    self._open.setdefault(oldest)
