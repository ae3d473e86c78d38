"""What a log needs of the store that holds it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from millstream.clock import Clock
from millstream.store.disk.files import Files
from millstream.store.disk.worker import FileWorker
from millstream.store.log.log import Committed
from millstream.store.segments.segment import Keeping, Segment
from millstream.store.wal.submission import Submission

if TYPE_CHECKING:
    from millstream.store.log.file_log import FileLog


class LogHost(Protocol):
    """What a log needs of the store that holds it."""

    files: Files
    clock: Clock
    worker: FileWorker
    syncer: FileWorker
    directory: str
    keeping: Keeping
    syncs_soon: bool  # what is written is stable soon, not as late as it may be
    quiet_age: float  # seconds without a write after which a log promises no sequences ahead

    def check(self, log_id: int) -> None:
        """Raise when the log's shard takes no writes."""
        ...

    def submit(self, submission: Submission, at_once: bool = False) -> None:
        """Queue frames for commit; ``at_once`` asks for it before this returns, if it can be."""
        ...

    def control(
        self,
        kind: int,
        log_id: int,
        body: bytes,
        done: Committed,
        sync: bool = True,
        can_wait: bool = False,
        apart: bool = False,
    ) -> None:
        """Log a control frame; nothing waits behind one that stands ``apart``."""
        ...

    def joined(
        self, kind: int, log_id: int, body: bytes, done: Committed
    ) -> tuple[bytes, Committed]:
        """Return control frames to commit with records, and what to call with the outcome."""
        ...

    def post(self, callback: Callable[[], None]) -> object:
        """Run on the loop, soon."""
        ...

    def unsynced(self, log: "FileLog") -> None:
        """Note that the log has records that wait for the next timer sync."""
        ...

    def promised(self, log: "FileLog") -> None:
        """Note that the log has promised sequences ahead; it is asked to end that when quiet."""
        ...

    def written_position(self, log_id: int) -> int:
        """Return the newest position of the log's WAL shard that is written."""
        ...

    def remove(self, segment: Segment) -> None:
        """Remove a dead segment's files once the frames that killed it are stable."""
        ...

    def may_erase(self, log_id: int) -> bool:
        """Say whether no start needs what the log held; else a snapshot comes, and a step then."""
        ...

    def may_rewrite(self, log_id: int, position: int) -> bool:
        """Say whether records that were dead at ``position`` may go; 0 asks for a turn."""
        ...

    def rewriting(self, is_rewriting: bool) -> None:
        """Note that a rewrite in the background began or ended."""
        ...

    def withdraw(
        self, log_id: int, segments: list[Segment], done: Callable[[Exception | None], None]
    ) -> bool:
        """Have nothing left of segments at a cold place, then call; False when nothing can be."""
        ...

    def removed(self, log_id: int) -> None:
        """Note that the files of a dropped log are gone."""
        ...
