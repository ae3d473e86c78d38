"""AccountStreams: JetStream for every account that has it, over one catalog and one store."""

from collections.abc import Callable

from millstream.kernel._interest import Interest
from millstream.nats.accounts.accounts import Accounts, Space
from millstream.nats.jetstream.account_purge import AccountPurge
from millstream.nats.jetstream.endpoint import JetStream
from millstream.nats.jetstream.not_enabled import NotEnabled

Endpoints = Callable[[str, Interest], list[int]]


class AccountStreams:
    """Serves the accounts beside ``first``, with the parts that all of them share.

    ``endpoints`` registers whatever else each account's streams are read through, and returns the
    handles of its sinks.
    """

    def __init__(self, first: JetStream, accounts: Accounts, endpoints: Endpoints) -> None:
        self._first = first
        self._accounts = accounts
        self._endpoints = endpoints
        self._served: dict[str, JetStream] = {}
        self._handles: dict[str, list[int]] = {}
        self._refused: dict[str, NotEnabled] = {}
        self._purge: AccountPurge | None = None

    def all(self) -> list[JetStream]:
        """Return the API of every account that has one."""
        first = self._first
        return [*([first] if first.is_open or first.streams() else ()), *self._served.values()]

    def start(self) -> None:
        """Serve every account that shall have JetStream and has not; again after a reload."""
        system = self._accounts.system
        if system is not None and self._purge is None:
            self._purge = AccountPurge(self._first, system.interest, self._find)
        for space in self._accounts:
            if self._is_served(space.name):
                continue
            if space.account.jetstream and space is not system:
                self._serve(space)
            elif space.name not in self._refused:
                self._refused[space.name] = NotEnabled(
                    self._first.hub, space.interest, space.imports_service
                )

    def _find(self, name: str) -> JetStream | None:
        return self._first if name == self._first.account else self._served.get(name)

    def _is_served(self, name: str) -> bool:
        return name == self._first.account or name in self._served

    def _serve(self, space: Space) -> None:
        refused = self._refused.pop(space.name, None)
        if refused is not None:
            refused.close()
        served = JetStream(self._first.parts, space.name, space.interest, lambda: space.account)
        served.start()
        self._served[space.name] = served
        self._handles[space.name] = self._endpoints(space.name, space.interest)

    async def close(self) -> None:
        """Serve nobody any more; ``first`` is closed by its owner, afterwards."""
        if self._purge is not None:
            self._purge.close()
            self._purge = None
        for name, served in self._served.items():
            for handle in self._handles[name]:
                self._accounts.interests[name].remove_sink(handle)
            await served.finish()
        self._served.clear()
        for refused in self._refused.values():
            refused.close()
        self._refused.clear()
