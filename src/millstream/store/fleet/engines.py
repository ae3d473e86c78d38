"""FleetEngines: puts the log of a fleet under a store, at the last moment of its recovery."""

from collections.abc import Callable

from millstream.errors import MillstreamError
from millstream.store.fleet.cache import BOOT
from millstream.store.fleet.manifest import FileManifest
from millstream.store.fleet.shared_log import SharedLog
from millstream.store.fleet.uploads import SnapshotUploads
from millstream.store.log.log import Durability
from millstream.store.object_log.object_engine import ObjectEngine, Start
from millstream.store.object_log.requests import ObjectPlace
from millstream.store.object_log.take_over import Read, Won
from millstream.store.recovery.replay import Replay
from millstream.store.wal.commit import CommitEngine

TAIL_ENTRIES = 1000  # that no snapshot covers before one is due (rule 10)


class LogTaken(MillstreamError):
    """Another member was faster; this one goes on standing by."""

    code = "log_taken"


class FleetEngines:
    """Keeps ``Engines``: recover first, the epoch entry last (rule 13)."""

    def __init__(
        self,
        shared: SharedLog,
        puts: ObjectPlace,
        found: tuple[Read, FileManifest],
        card: bytes,
        uploads: SnapshotUploads,
        start: Start,
        owned: Callable[[int], None],
        fenced: Callable[[str], None],
    ) -> None:
        """``found`` is what the directory was filled with; ``owned`` hears of our epoch."""
        self._shared = shared
        self._puts = puts  # asked without patience: the committer has its own
        self._found = found
        self._card = card
        self._uploads = uploads
        self._start = start
        self._owned = owned
        self._fenced = fenced
        self._engine: ObjectEngine | None = None

    def boot_id(self) -> str:
        """Return the same for all machines: no crash takes away what the store has."""
        return BOOT

    def kept_as(self, durability: Durability) -> Durability:
        """Every class but the ephemeral one is acknowledged after the put (rule 6)."""
        return durability if durability is Durability.EPHEMERAL else Durability.FSYNC

    @property
    def is_snapshot_due(self) -> bool:
        """Say whether the next start would have to read many entries one by one."""
        return self._engine is not None and self._engine.uncovered >= TAIL_ENTRIES

    @property
    def engine(self) -> ObjectEngine | None:
        """Return the engine, once the log is ours."""
        return self._engine

    def open(self, replay: Replay, epoch: int, nonce: int) -> CommitEngine:
        """Put the epoch entry exactly where what was recovered ends."""
        read, manifest = self._found
        won = self._shared.claim(read, nonce, self._card)
        if not isinstance(won, Won):
            raise LogTaken("another member took the log over while this one recovered it")
        self._owned(won.epoch)
        self._engine = engine = ObjectEngine(
            self._puts, self._shared.codec, won.chain, self._shared.window, self._start,
            lambda position: self._uploads.want(), self._fenced,
        )  # fmt: skip
        self._uploads.begin(engine, won, manifest)
        return engine
