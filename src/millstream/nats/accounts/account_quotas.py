"""AccountQuotas: what each account may store, as it is configured now."""

from collections.abc import Callable

from millstream.accounts import stream_quota
from millstream.accounts.account import Account
from millstream.nats.accounts.accounts import Accounts
from millstream.streams.account_quota import Others
from millstream.streams.config.config import StreamConfig


class AccountQuotas:
    """Asked by the catalog, so that what HTTP, restores and imports make is held to it too."""

    def __init__(self, accounts: Accounts, max_memory: int = -1, max_storage: int = -1) -> None:
        """``max_memory`` and ``max_storage`` bound all accounts together; below 0: unbounded."""
        self._accounts = accounts
        self._max_memory = max_memory
        self._max_storage = max_storage

    def _find(self, name: str) -> Account | None:
        space = self._accounts.get(name)
        return None if space is None else space.account

    def most_bytes(self, account: str, storage: str) -> int:
        """Return how much an account may store so, below 0 for any number."""
        found = self._find(account)
        if found is None:
            return -1
        limits = found.stream_limits
        return limits.max_memory if storage == "memory" else limits.max_storage

    def most_bytes_in_all(self, storage: str) -> int:
        """Return how much all accounts may store so, below 0 for any number."""
        return self._max_memory if storage == "memory" else self._max_storage

    def check(self, account: str, config: StreamConfig, others: Others, is_new: bool) -> None:
        """Raise unless the account may have this stream beside its others."""
        found = self._find(account)
        if found is not None:
            stream_quota.check_tiers(dict(found.tiers))
            stream_quota.check_stream(found.stream_limits, config, others, is_new=is_new)

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` when the accounts are configured anew."""
        self._accounts.watch(on_change)
