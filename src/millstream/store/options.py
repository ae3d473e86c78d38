"""How a store is run: sizes, times, keys, and where cold history goes."""

from dataclasses import dataclass, field, replace

from millstream.store.cold.options import ColdOptions
from millstream.store.disk.keys import KeyRing
from millstream.store.disk.open_files import MOST as MOST_OPEN
from millstream.store.log.file_log import LogOptions
from millstream.store.wal.entry import TARGET_BYTES

SOON = 0.1  # seconds; a longer dirty age says that a power cut may take more, for speed
DIRTY_BYTES = 8 << 20  # are synced before their time: whoever waits for a sync waits for less
MOST_DIRTY_BYTES = 256 << 20  # where a sync may be far away: a start logs all of them again
FAR_PROMISE = 1 << 16  # sequences that a log reserves at once then: each promise is a sync
FAR_GROWTH = 16
FAR_QUICK = 2.0  # seconds in which a log should not use up a quarter of them
QUIET = 0.8  # of a dirty age: the store looks once in one
RARELY = 8  # times as far apart are snapshots then: each one syncs what it relies on


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Sizes and times; ``threads`` off drives everything from the caller, for tests."""

    shards: int = 1  # write-ahead logs; a log's id decides which one it goes into
    wal_file_bytes: int = 64 << 20
    entry_bytes: int = TARGET_BYTES  # a commit is cut into entries of about this size
    dirty_age: float = 0.05
    high_water: int = 256 << 20  # of all logs, not written yet, before publishers are held back
    checkpoint_bytes: int = 64 << 20
    threads: bool = True
    nonce: int = 0  # 0: random
    block_cache_bytes: int = 8 << 20  # plain bytes of blocks that were read
    open_files: int = MOST_OPEN  # of segments, read or written lately; a checkpoint opens more
    ring: KeyRing = field(default_factory=KeyRing)
    cold: ColdOptions = field(default_factory=ColdOptions)
    log: LogOptions = field(default_factory=LogOptions)

    def synced_every(self, seconds: float) -> "StoreOptions":
        """Return these with another dirty age, and what goes with it."""
        log = self.log
        if seconds > SOON:
            log = replace(
                log,
                reserve_records=FAR_PROMISE,
                reserve_growth=FAR_GROWTH,
                reserve_quick=FAR_QUICK,
            )
        return replace(self, dirty_age=seconds, log=log)

    @property
    def syncs_soon(self) -> bool:
        """Say whether what is written is stable soon, or as late as it may be."""
        return self.dirty_age <= SOON

    @property
    def quiet_age(self) -> float:
        """Return after how long without a write a log promises no sequences ahead any more."""
        return QUIET * self.dirty_age

    @property
    def dirty_bytes(self) -> int:
        """Return how much of the WAL may wait for its sync."""
        return DIRTY_BYTES if self.syncs_soon else MOST_DIRTY_BYTES

    @property
    def checkpoint_step(self) -> int:
        """Return by how much the WAL grows from snapshot to snapshot."""
        return self.checkpoint_bytes * (1 if self.syncs_soon else RARELY)
