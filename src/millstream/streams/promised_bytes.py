"""PromisedBytes: what the streams of each account, and of all, may grow to by their limits."""

from collections import Counter

from millstream.streams.config.config import StreamConfig


class PromisedBytes:
    """Kept as streams come, change and go: a stream more is not compared with all others."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], tuple[str, int]] = {}  # account, name → storage, bytes
        self._sums: Counter[tuple[str, str]] = Counter()  # by account and storage
        self._in_all: Counter[str] = Counter()  # by storage

    def put(self, account: str, config: StreamConfig) -> None:
        """Count a stream with what its configuration allows, whatever it was before."""
        self.drop(account, config.name)
        if config.max_bytes > 0:
            self._of[account, config.name] = (config.storage, config.max_bytes)
            self._sums[account, config.storage] += config.max_bytes
            self._in_all[config.storage] += config.max_bytes

    def drop(self, account: str, name: str) -> None:
        """Count a stream no more."""
        storage, size = self._of.pop((account, name), ("", 0))
        if size:
            self._sums[account, storage] -= size
            self._in_all[storage] -= size

    def of(self, account: str, storage: str) -> int:
        """Return what an account's streams of one kind may grow to."""
        return self._sums[account, storage]

    def beside(self, account: str, config: StreamConfig) -> int:
        """Return what the account's others of the stream's kind may grow to."""
        return self._sums[account, config.storage] - self._own(account, config)

    def in_all_beside(self, account: str, config: StreamConfig) -> int:
        """Return what all others of the stream's kind may grow to, in all accounts."""
        return self._in_all[config.storage] - self._own(account, config)

    def _own(self, account: str, config: StreamConfig) -> int:
        storage, size = self._of.get((account, config.name), ("", 0))
        return size if storage == config.storage else 0
