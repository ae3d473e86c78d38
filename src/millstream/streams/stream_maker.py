"""StreamMaker: makes the stream and the log of an entry."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.errors import InvalidStreamConfig
from millstream.store.log.log import Durability, Log
from millstream.streams.account_quota import AccountRoom, Quotas
from millstream.streams.config.config import StreamConfig
from millstream.streams.entries import StreamEntry
from millstream.streams.ephemeral_heads import EphemeralHeads
from millstream.streams.retention.temperature import tell_log
from millstream.streams.stream import Stream
from millstream.streams.stream_parts import Surroundings
from millstream.streams.stream_table import StreamTable
from millstream.streams.writing.batch_limits import BatchLimits

if TYPE_CHECKING:
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest


class MakerStore(Protocol):
    """What making streams asks of the store."""

    def create_log(self, log_id: int, durability: Durability, compressed: bool = False) -> Log:
        """Return the log of this id, made if there is none; an existing one takes the class."""
        ...


class StreamMaker:
    """Gives each stream what it needs of the server, and its share of the account's room."""

    def __init__(
        self,
        store: MakerStore,
        clock: Clock,
        timers: Timers,
        hub: "Hub | None",
        interests: "Mapping[str, Interest]",
        table: StreamTable,
        quotas: Quotas,
        default_durability: Durability,
        batch_limits: BatchLimits,
        on_abandoned: Callable[[Stream, bytes, str], None],
        heads: EphemeralHeads,
        domain: str,
    ) -> None:
        self._store = store
        self._clock = clock
        self._timers = timers
        self._hub = hub
        self._interests = interests
        self._table = table
        self._quotas = quotas
        self._default_durability = default_durability
        self._batch_limits = batch_limits
        self._on_abandoned = on_abandoned
        self._domain = domain
        self._heads = heads
        self._rooms: dict[tuple[str, str], AccountRoom] = {}  # by account and storage
        quotas.watch(self._look_at_rooms)
        self._known: dict[tuple[str, str], Surroundings] = {}  # by account and storage

    def make(self, entry: StreamEntry, config: StreamConfig) -> Stream:
        """Return the stream of an entry over its log, which is made if there is none."""
        log = self.log_of(entry.id, config)
        self._heads.restore(log)
        log.start_at(config.first_seq)  # does nothing to a log that has begun
        around = self._around(entry.account, config.storage)
        made = Stream(config, log, around, created_ns=entry.created_ns, account=entry.account)
        self._heads.follow(made)
        return made

    def log_of(self, log_id: int, config: StreamConfig) -> Log:
        """Return a log as a configuration wants it."""
        durability = config.durability(self._default_durability)
        log = self._store.create_log(log_id, durability, config.is_compressed)
        tell_log(log, config)
        return log

    def check_durability(self, stream: Stream, config: StreamConfig) -> None:
        """Raise when an update would move records between memory and files."""
        wanted, current = config.durability(self._default_durability), stream.log.durability
        if wanted is not current and Durability.EPHEMERAL in (wanted, current):
            where = "in memory only" if current is Durability.EPHEMERAL else "in files"
            raise InvalidStreamConfig(
                f"the durability of {config.name} cannot change from {current} to {wanted}: its "
                f"records are {where} and stay there; create another with {wanted}, copy what is "
                f"to be kept, and delete {config.name}"
            )

    def _around(self, account: str, storage: str) -> Surroundings:
        """Return what all streams of an account share, of those that store so."""
        interest = self._interests.get(account)
        is_bounded = self._quotas.most_bytes_in_all(storage) >= 0
        known = self._known.get((account, storage))
        if (
            known is None
            or known.interest is not interest
            or is_bounded is (known.server_is_full is None)
        ):
            is_full = partial(self._is_server_full, account, storage) if is_bounded else None
            known = self._known[account, storage] = Surroundings(
                self._clock, self._timers, self._hub, interest, self._batch_limits,
                self._room(account, storage), is_full, self._on_abandoned, self._domain,
            )  # fmt: skip
        return known

    def _room(self, account: str, storage: str) -> AccountRoom:
        """Return the room that all streams of an account share, of those that store so."""
        if (account, storage) not in self._rooms:
            self._rooms[account, storage] = AccountRoom(
                partial(self._quotas.most_bytes, account, storage),
                partial(self._table.coming_bytes, account, storage),
                self._clock.monotonic,
            )
        return self._rooms[account, storage]

    def _look_at_rooms(self) -> None:
        """Follow what accounts may store now."""
        for room in self._rooms.values():
            room.look()

    def _is_server_full(self, account: str, storage: str, name: str) -> bool:
        """Whether streams that store so hold more than the server may; a restore goes on."""
        most = self._quotas.most_bytes_in_all(storage)
        if most < 0 or self._table.is_restoring(name, account):
            return False
        return most < self._table.stored_bytes(storage)
