"""StreamRoom: whether a stream, its account and the server have room for what comes."""

from collections import Counter
from collections.abc import Callable

from millstream.kernel._batch import Batch
from millstream.streams.account_quota import AccountRoom, unbounded
from millstream.streams.config.data_size import counts_data
from millstream.streams.config.size import size_of
from millstream.streams.publishing.atomic_batch import BatchPart
from millstream.streams.reading.contents import Contents
from millstream.streams.refusals import AccountLimit, StreamFull
from millstream.streams.retention import rules as retention
from millstream.streams.writing import preconditions
from millstream.streams.writing.preconditions import PublishRefused
from millstream.streams.writing.writes import Writes

_LARGER = 4  # what a record with headers may count above its entry


class StreamRoom:
    """Refuses what does not fit; staged writes are counted in."""

    def __init__(
        self,
        contents: Contents,
        writes: Writes,
        account: AccountRoom | None = None,
        server_is_full: Callable[[], bool] | None = None,
    ) -> None:
        self._contents = contents
        self._writes = writes
        self.account = account or unbounded()
        self.server_is_full = server_is_full  # None: it has no limit

    @property
    def is_bounded(self) -> bool:
        """Whether each message is to be weighed: the account has a limit, or the server is full."""
        return self.account.is_bounded or self._is_server_full()

    def takes_whole(self, batch: Batch) -> bool:
        """Whether there is room for all of a batch; an entry is no smaller than a record."""
        if self._is_server_full():
            return False
        account = self.account
        return not account.is_bounded or account.takes(batch.size + _LARGER * len(batch))

    def _is_server_full(self) -> bool:
        return self.server_is_full is not None and self.server_is_full()

    def check_server(self) -> None:
        """Raise when the server has no room for anything."""
        if self._is_server_full():
            raise PublishRefused(503, 10023, "insufficient resources")

    def check_account(self, size: int, before: int = 0) -> None:
        """Refuse bytes that the account has no room for behind ``before`` that come first."""
        self.check_server()
        if self.account.is_bounded and not self.account.takes(size, before):
            raise AccountLimit(400, 10002, "resource limits exceeded for account", "storage")

    def check_message(
        self, subject: bytes, messages: int, size: int, *, rolls: bool = False
    ) -> None:
        """Apply discard new, staged writes counted in."""
        config, log = self._contents.config, self._contents.log
        if config.discard != "new":
            return
        if 0 < config.max_msgs_per_subject <= self._count_of(subject):
            if config.discard_new_per_subject and not rolls:
                raise StreamFull("maximum messages per subject exceeded", config, log.state())
            return  # the oldest of this subject makes room
        self.check_total(messages, size)

    def check_part(self, part: BatchPart, of_subject: int, messages: int, size: int) -> None:
        """Apply discard new to an atomic batch up to a message, the batch counted in."""
        config = self._contents.config
        if config.discard != "new":
            return
        self.check_total(messages, size)
        if not config.discard_new_per_subject or preconditions.ROLLUP in part.values:
            return
        held = self._count_of(part.subject)
        if 0 < config.max_msgs_per_subject < held + of_subject:
            state = self._contents.log.state()
            raise StreamFull("maximum messages per subject exceeded", config, state)

    def _count_of(self, subject: bytes) -> int:
        """Return how many records of a subject there are, with all that is in flight."""
        staged = self._contents.index.count_of(subject, staged=True)
        return staged + self._writes.unstaged_of(subject)

    def replacing(self, batch: Batch) -> int:
        """Return how many of a batch make older ones of their subject go, or would have to."""
        most = self._contents.config.max_msgs_per_subject
        if most <= 0:
            return 0
        subjects = Counter(batch.message(at)[0] for at in range(len(batch)))
        return sum(
            min(count, max(0, self._count_of(subject) + count - most))
            for subject, count in subjects.items()
        )

    def _leaving(self) -> tuple[int, int]:
        """Return how many records, and how many bytes, are decided to go and still in the log."""
        config, index = self._contents.config, self._contents.index
        if not index.hidden.seqs or counts_data(config):
            return 0, 0
        leaving = index.hidden.sizes()
        return leaving[0], size_of(config, *leaving)

    def check_total(self, messages: int, size: int) -> None:
        """Raise when so much more would be above the stream's limits."""
        config, log = self._contents.config, self._contents.log
        if config.max_msgs <= 0 and config.max_bytes <= 0:
            return
        leaving, leaving_bytes = self._leaving()
        held = log.state().count - leaving + self._writes.staged
        held_bytes = self._contents.stored_bytes() - leaving_bytes + self._writes.staged_size
        why_not = retention.refusal(config, held, held_bytes, messages, size)
        if why_not is not None:
            raise StreamFull(why_not, config, log.state())
