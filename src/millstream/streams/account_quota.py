"""AccountRoom: how many bytes an account may store, over all of its streams of one kind."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from millstream.streams.config.config import StreamConfig

LONGEST_SECONDS = 1.0  # after this what went, and what came by other ways, is counted too


class Others(NamedTuple):
    """What an account has beside a stream."""

    streams: int
    promised: int  # bytes that those of the stream's kind may grow to


class Quotas(Protocol):
    """What each account may use; whoever knows accounts says it."""

    def most_bytes(self, account: str, storage: str) -> int:
        """Return how much an account may store so, below 0 for any number."""
        ...

    def most_bytes_in_all(self, storage: str) -> int:
        """Return how much the streams of all accounts may store so, below 0 for any number."""
        ...

    def check(self, account: str, config: "StreamConfig", others: Others, is_new: bool) -> None:
        """Raise unless the account may have this stream beside its others."""
        ...

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` when an account may use more or less than before."""
        ...


class NoQuotas:
    """Everybody may have everything."""

    def most_bytes(self, account: str, storage: str) -> int:
        """Return that any number of bytes is fine."""
        return -1

    def most_bytes_in_all(self, storage: str) -> int:
        """Return that any number of bytes is fine."""
        return -1

    def check(self, account: str, config: "StreamConfig", others: Others, is_new: bool) -> None:
        """Refuse nothing."""

    def watch(self, on_change: Callable[[], None]) -> None:
        """Nothing changes."""


class AccountRoom:
    """Shared by the streams of an account, so that none of them takes the room of another.

    What is held is counted anew only when it seems too much or a second has passed; in between it
    is taken to be what it was and all that was let in since. ``is_bounded`` says whether a record
    must be weighed at all; every batch reads it, so it is an attribute that ``look`` brings up to
    date.
    """

    def __init__(
        self, most: Callable[[], int], held: Callable[[], int], monotonic: Callable[[], float]
    ) -> None:
        self._most = most
        self._count = held
        self._monotonic = monotonic
        self._held = 0
        self._counted_at = float("-inf")
        self.is_bounded = most() >= 0

    def look(self) -> None:
        """Note whether there is a limit now."""
        self.is_bounded = self._most() >= 0

    def takes(self, size: int, before: int = 0) -> bool:
        """Let bytes in where they fit behind ``before`` that come first and are not yet counted."""
        most = self._most()
        if most < 0:
            return True
        now = self._monotonic()
        if now - self._counted_at > LONGEST_SECONDS or self._held + before + size > most:
            self._held, self._counted_at = self._count(), now
            if self._held + before + size > most:
                return False
        self._held += size
        return True


def unbounded() -> AccountRoom:
    """Return the room of an account without a limit."""
    return AccountRoom(lambda: -1, lambda: 0, lambda: 0.0)
