"""Who asked: the connection behind a request, for as long as it is being answered."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Protocol

ASKER: ContextVar[int] = ContextVar("asker", default=0)


class Clients(Protocol):
    """What is known of the client behind a connection."""

    def may_deliver(self, cid: int, account: str, subject: str, group: str) -> bool:
        """Say whether a client may have the server deliver to ``subject`` of its account."""
        ...

    def may_copy(
        self,
        cid: int,
        account: str,
        subjects: Sequence[str],
        origins: Sequence[str],
        targets: Sequence[str],
    ) -> bool:
        """Say whether a client may have records of these go out under other subjects.

        ``targets`` are the subjects that they are published to.
        """
        ...

    def client_of(self, cid: int) -> dict[str, Any]:
        """Return what advisories tell of a client, nothing when it is gone."""
        ...


class UnguardedClients:
    """Nobody is guarded, and nothing is known of anybody."""

    def may_deliver(self, cid: int, account: str, subject: str, group: str) -> bool:
        """Deliver wherever it is asked for."""
        return True

    def may_copy(
        self,
        cid: int,
        account: str,
        subjects: Sequence[str],
        origins: Sequence[str],
        targets: Sequence[str],
    ) -> bool:
        """Copy whatever is asked for."""
        return True

    def client_of(self, cid: int) -> dict[str, Any]:
        """Know nothing."""
        return {}
