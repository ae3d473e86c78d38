"""How a store is run: sizes, times, keys, and where cold history goes."""

from dataclasses import dataclass, field

from millstream.store.cold_tier import ColdOptions
from millstream.store.entry import TARGET_BYTES
from millstream.store.file_log import LogOptions
from millstream.store.keys import KeyRing


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Sizes and times; ``threads`` off drives everything from the caller, for tests."""

    shards: int = 1  # write-ahead logs; a log's id decides which one it goes into
    wal_file_bytes: int = 64 << 20
    entry_bytes: int = TARGET_BYTES  # a commit is cut into entries of about this size
    dirty_age: float = 0.05
    high_water: int = 32 << 20
    checkpoint_bytes: int = 64 << 20
    threads: bool = True
    nonce: int = 0  # 0: random
    block_cache_bytes: int = 8 << 20  # plain bytes of blocks that were read
    ring: KeyRing = field(default_factory=KeyRing)
    cold: ColdOptions = field(default_factory=ColdOptions)
    log: LogOptions = field(default_factory=LogOptions)
