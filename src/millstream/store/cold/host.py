"""ColdHost: what the cold tier needs of the store."""

from collections.abc import Callable
from typing import Protocol

from millstream.clock import Clock
from millstream.store.disk.files import Files
from millstream.store.disk.worker import FileWorker
from millstream.supervisor import Supervisor


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
