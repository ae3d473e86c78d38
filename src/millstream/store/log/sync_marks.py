"""SyncMarks: what a log has written and the disk has not confirmed, and who waits for that."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from millstream.store.log.host import LogHost
from millstream.store.log.log import Durability

if TYPE_CHECKING:
    from millstream.store.log.file_log import FileLog


class SyncMarks:
    """Raises a log's synced mark as the WAL's positions become stable."""

    __slots__ = ("_host", "_log", "_watching", "_written")

    def __init__(self, host: LogHost, log: "FileLog") -> None:
        self._host = host
        self._log = log
        self._written: deque[tuple[int, int]] | None = None  # (position, seq) not known as synced
        self._watching: dict[object, Callable[[], None]] = {}  # told when more is synced

    @property
    def are_open(self) -> bool:
        """Say whether something written is not known to be stable."""
        return bool(self._written)

    def add(self, last: int, durability: Durability) -> None:
        """Note that everything up to ``last`` is written, and stable with the next sync."""
        if durability is not Durability.EPHEMERAL:  # which no sync ever covers
            if self._written is None:
                self._written = deque()
            self._written.append((self._host.written_position(self._log.log_id), last))
            self._host.unsynced(self._log)

    def rise(self, position: int) -> bool:
        """Raise the synced mark to what was written up to ``position``; True when all was."""
        written, log = self._written, self._log
        before = log.synced_seq
        while written and written[0][0] <= position:
            log.synced_seq = max(log.synced_seq, written.popleft()[1])
        if self._watching and log.synced_seq > before:
            for rose in list(self._watching.values()):
                rose()
        if not written:
            self._written = None  # an idle log has none: even an empty one is large
        return not written

    def watch(self, rose: Callable[[], None]) -> Callable[[], None]:
        """Call ``rose`` when more became stable after it was committed; returns the undo."""
        key = object()
        self._watching[key] = rose
        return partial(self._unwatch, key)

    def _unwatch(self, key: object) -> None:
        self._watching.pop(key, None)
