"""SharedFile: an open file of several threads, closed once it is let go and nobody uses it.

A descriptor that is closed under somebody's feet is worse than an error: its number may be another
file's by then, which would get the bytes.
"""

import threading

from millstream.store.disk.files import File


class SharedFile:
    """One open file; whoever lets it go waits for nobody."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._users = 0
        self._is_left = False

    def take(self) -> File:
        """Use the file until ``give_back``; it stays open as long."""
        with self._lock:
            self._users += 1
            return self._file

    def give_back(self) -> None:
        """Use it no longer."""
        with self._lock:
            self._users -= 1
            self._close_if_free()

    def let_go(self) -> None:
        """Have the file closed: now, or by the last who gives it back."""
        with self._lock:
            self._is_left = True
            self._close_if_free()

    def _close_if_free(self) -> None:
        if self._is_left and not self._users:
            self._file.close()
