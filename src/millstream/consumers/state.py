"""A consumer's state on disk: what control frames and snapshots hold, and when it is written."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from millstream.consumers.config import ConsumerConfig
from millstream.consumers.ledger import Ledger, LedgerSnapshot
from millstream.consumers.reading.cursor import Cursor
from millstream.delivery.timers import Timer, Timers
from millstream.errors import MillstreamError
from millstream.store.log.log import Committed
from millstream.streams.catalog import CatalogStore
from millstream.streams.stream import settle

log = logging.getLogger(__name__)

CONSUMER_SET = 18
CONSUMER_GONE = 19
CONSUMER_STATE = 20
CONSUMER_KINDS = (CONSUMER_SET, CONSUMER_GONE, CONSUMER_STATE)
WRITE_AFTER = 0.05


class ConsumerEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One consumer as control frames and the snapshot hold it.

    ``gap`` is a loss that no delivery has told of yet: the position is behind it already.
    """

    name: str
    created_ns: int
    config: dict[str, Any] | None = None
    state: LedgerSnapshot | None = None
    position: int = 0
    first: list[int] = []
    gap: tuple[int, int] | None = None


class KeptConsumer(msgspec.Struct, frozen=True):
    """A consumer in an archive of its stream."""

    name: str
    created_ns: int
    config: dict[str, Any]
    state: LedgerSnapshot | None = None
    position: int = 0
    first: list[int] = []
    gap: tuple[int, int] | None = None


class StateWriter:
    """Writes control frames for one consumer; changes of its ledger wait for each other."""

    def __init__(
        self,
        name: str,
        created_ns: int,
        log_id: int,
        ledger: Ledger,
        cursor: Cursor,
        store: CatalogStore,
        timers: Timers,
        *,
        is_persisted: bool,
    ) -> None:
        self.is_persisted = is_persisted  # else it is gone after a restart
        self._name = name
        self._created_ns = created_ns
        self._log_id = log_id
        self._ledger = ledger
        self._cursor = cursor
        self._store = store
        self._timers = timers
        self._timer: Timer | None = None
        self._synced_version = 0  # of the ledger, known to be on disk
        self._is_stopped = False

    # -- the ledger --------------------------------------------------------------------------

    def write_soon(self) -> None:
        """Write what changed in the ledger, together with what changes in the next moment."""
        if not self.is_persisted or not self._ledger.is_dirty or self._is_stopped:
            return
        if self._timer is None or self._timer.callback is None:
            self._timer = self._timers.after(WRITE_AFTER, self.write_changes)

    def write_changes(self) -> None:
        """Write what changed in the ledger, if something did; nobody waits for it."""
        if self.is_persisted and self._ledger.is_dirty:
            self.write(log_failure, sync=False)

    def write(self, done: Committed, *, sync: bool) -> None:
        """Write what changed in the ledger; a failure leaves it to the next write."""
        changes = self._ledger.take_changes()

        def written(error: MillstreamError | None) -> None:
            if error is not None:
                self._ledger.not_written(changes)
            done(error)

        try:
            self._put(CONSUMER_STATE, self._entry(None, changes), written, sync)
        except MillstreamError as error:
            written(error)

    def once_synced(self, then: Callable[[], None]) -> None:
        """Call once a sync has covered what changed in the ledger: then no death takes it back.

        What makes that true: the state is a control frame with ``sync``, which is answered after
        a sync that began when the frame, and all before it in the log, were written. An answer
        that changed nothing may repeat one whose frame is still on its way, or was written
        without a sync: it waits for a sync too.
        """
        version = self._ledger.version + 1

        def safe(error: MillstreamError | None) -> None:
            if error is None:
                self._synced_version = max(self._synced_version, version)
                then()

        if not self.is_persisted:
            then()
        elif self._ledger.is_dirty or self._synced_version < self._ledger.version:
            self.write(safe, sync=True)
        else:
            then()

    def stop(self) -> None:
        """Let later changes be lost."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    # -- the consumer ------------------------------------------------------------------------

    def whole(self, config: ConsumerConfig) -> ConsumerEntry:
        """Return all that is to be kept of the consumer."""
        return self._entry(config, self._ledger.whole())

    def kept(self, config: ConsumerConfig) -> KeptConsumer:
        """Return the consumer as an archive of its stream holds it."""
        whole = self.whole(config)
        return KeptConsumer(
            self._name,
            self._created_ns,
            config.to_request(),
            whole.state,
            whole.position,
            whole.first,
            whole.gap,
        )

    async def create(self, config: ConsumerConfig) -> None:
        """Write down a new consumer; returns once it is on disk."""
        await self._commit(CONSUMER_SET, self.whole(config))

    async def change(self, config: ConsumerConfig) -> None:
        """Write down another configuration; returns once it is on disk."""
        entry = ConsumerEntry(self._name, self._created_ns, config.to_request())
        await self._commit(CONSUMER_SET, entry)

    async def delete(self) -> None:
        """Write down that the consumer is gone; returns once it is on disk."""
        await self._commit(CONSUMER_GONE, ConsumerEntry(self._name, self._created_ns))

    def delete_soon(self) -> None:
        """Write down that the consumer is gone; nobody waits for it."""
        entry = ConsumerEntry(self._name, self._created_ns)
        self._put(CONSUMER_GONE, entry, log_failure, sync=False)

    def _entry(self, config: ConsumerConfig | None, state: LedgerSnapshot) -> ConsumerEntry:
        cursor = self._cursor
        return ConsumerEntry(
            self._name,
            self._created_ns,
            config.to_request() if config is not None else None,
            state,
            cursor.clear_seq,
            cursor.remaining_first,
            cursor.loss.kept_gap,
        )

    async def _commit(self, kind: int, entry: ConsumerEntry) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(kind, entry, partial(settle, done), sync=True)
        await done

    def _put(self, kind: int, entry: ConsumerEntry, done: Committed, sync: bool) -> None:
        self._store.control(kind, self._log_id, msgspec.json.encode(entry), done, sync)


def log_failure(error: MillstreamError | None) -> None:
    """Log that a consumer's state was not written, where nobody waits for it."""
    if error is not None:
        log.warning("consumer state not written error=%s", error)
