"""LocalEngines: makes the engine of each shard over the files of a directory."""

from millstream.store.disk.files import Files
from millstream.store.log.log import Durability
from millstream.store.options import StoreOptions
from millstream.store.recovery.replay import Replay
from millstream.store.wal.commit import CommitEngine
from millstream.store.wal.local_engine import LocalEngine, shard_directory


class LocalEngines:
    """Goes on in local files where a replay of them ended."""

    def __init__(self, files: Files, directory: str, options: StoreOptions) -> None:
        self._files = files
        self._directory = directory
        self._options = options

    @property
    def is_snapshot_due(self) -> bool:
        """Say no: how much was written tells."""
        return False

    def boot_id(self) -> str:
        """Return the machine's boot, with which its memory began."""
        return self._files.boot_id()

    def kept_as(self, durability: Durability) -> Durability:
        """Keep each class as it is."""
        return durability

    def open(self, replay: Replay, epoch: int, nonce: int) -> CommitEngine:
        """Return the engine of the shard that was replayed."""
        return LocalEngine(
            self._files,
            shard_directory(self._directory, replay.shard),
            replay.shard,
            epoch,
            nonce,
            replay.wal.last_index + 1,
            replay.position + 1,
            self._options.wal_file_bytes,
            [(wal.index, wal.first_position) for wal in replay.wal.files],
            int.from_bytes(self._options.ring.key_id, "little"),
        )
