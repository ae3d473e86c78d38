"""WAL shards: which log goes where, and what one shard of a running store consists of."""

import msgspec
from xxhash import xxh3_64_intdigest

from millstream.store.disk.files import Files
from millstream.store.wal.commit import CommitEngine
from millstream.store.wal.committer import Committer


class Shard(msgspec.Struct):
    """One write-ahead log; without a committer it is left over from a run that had more of them.

    A shard that is left over takes nothing any more; its files go once two snapshots cover them.
    """

    number: int
    engine: CommitEngine
    committer: Committer | None = None

    @property
    def applied_position(self) -> int:
        """Return the position up to which the loop has seen everything."""
        committer = self.committer
        return self.engine.position - 1 if committer is None else committer.applied_position

    @property
    def written_position(self) -> int:
        """Return the newest position up to which everything is written."""
        committer = self.committer
        return self.engine.position - 1 if committer is None else committer.positions.confirmed

    @property
    def synced_position(self) -> int:
        """Return the position up to which everything is on stable storage."""
        return self.engine.synced_position


def shard_number(log_id: int, shards: int) -> int:
    """Return where a log's frames go; what belongs to no log goes into shard 0."""
    if shards == 1 or not log_id:
        return 0
    return xxh3_64_intdigest(log_id.to_bytes(8, "little")) % shards


def shards_on_disk(files: Files, directory: str) -> list[int]:
    """Return the numbers of the shards that have a directory, ascending."""
    wal = f"{directory}/wal"
    names = files.listdir(wal) if files.exists(wal) else []
    return sorted(int(name[6:]) for name in names if name.startswith("shard-"))
