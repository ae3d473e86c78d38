"""Controls: control frames on their way into the WAL, each under a number of its own.

Numbers rise over all shards, so that a replay applies each frame once and in order, and a snapshot
can say up to which one everything was applied when it was made.
"""

from functools import partial

from millstream.clock import Clock
from millstream.errors import MillstreamError
from millstream.kernel._frames import encode_control
from millstream.store.log.control_frames import DELETE
from millstream.store.log.derived import DERIVE
from millstream.store.log.log import Committed
from millstream.store.shards import Shards
from millstream.store.wal.committer import Post
from millstream.store.wal.marks import Key
from millstream.store.wal.submission import Submission


class Controls:
    """Gives out the numbers, and knows which frames were logged and not yet applied."""

    def __init__(self, clock: Clock, shards: Shards, post: Post) -> None:
        self._clock = clock
        self._shards = shards
        self._post = post
        self._open: set[int] = set()
        self._fresh = 0
        self.number = 0  # the newest one given out

    @property
    def are_open(self) -> bool:
        """Say whether any frame was logged that nobody applied yet."""
        return bool(self._open)

    @property
    def are_fresh(self) -> bool:
        """Say whether somebody waited for a frame that is committed, and has not gone on yet."""
        return self._fresh > 0

    @property
    def applied_number(self) -> int:
        """Return the number up to which every frame was applied."""
        return min(self._open, default=self.number + 1) - 1

    def frame(self, kind: int, log_id: int, body: bytes, more: bool = False) -> bytes:
        """Return a frame under the next number."""
        self.number += 1
        return encode_control(kind, log_id, self.number, self._clock.time_ns(), body, more)

    def joined(
        self, kind: int, log_id: int, body: bytes, done: Committed
    ) -> tuple[bytes, Committed]:
        """Return control frames to commit with records, and what to call with the outcome.

        They begin the records' batch (MORE), so that no tear leaves one without the other.
        """
        frame = self.frame(kind, log_id, body, more=True)
        self._open.add(self.number)
        return frame * 2, partial(self._settled, self.number, done)

    def log(
        self,
        kind: int,
        log_id: int,
        body: bytes,
        done: Committed,
        sync: bool,
        order: tuple[int, ...] = (),
        tells: tuple[tuple[Key, int], ...] = (),
        can_wait: bool = False,
        apart: bool = False,
    ) -> None:
        """Log a frame on the timeline of its log, and of those in ``order``."""
        committer = self._shards.committer(log_id)
        committer.check()
        frame = self.frame(kind, log_id, body)
        self._open.add(self.number)
        # Nothing else could rebuild them.
        copies = 2 if sync or kind in (DELETE, DERIVE) else 1
        settled = partial(self._settled, self.number, self._told(done) if sync else done)
        submission = Submission(log_id, 0, copies, frame * copies, sync, settled, order=order)
        submission.tells = tells
        submission.can_wait = can_wait
        submission.apart = apart
        committer.submit(submission)

    def _told(self, done: Committed) -> Committed:
        """Return ``done`` for a frame that a task may wait for: it goes on in the loop's next turn.

        Until then the frame counts as applied, and what it says is nowhere that a snapshot looks.
        """

        def told(error: MillstreamError | None) -> None:
            self._fresh += 1
            done(error)
            self._post(self._went_on)  # behind the task, which was woken before

        return told

    def _went_on(self) -> None:
        self._fresh -= 1

    def _settled(self, number: int, done: Committed, error: MillstreamError | None) -> None:
        self._open.discard(number)
        done(error)
