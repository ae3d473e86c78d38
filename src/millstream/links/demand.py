"""Demand: who wants what in one account, and what each link is told of it. It only decides.

Wishes have a source: 0 is this server (its clients, streams and services), any other number is a
link. What a link hears depends on what is at its other end:

- a route hears of this server and of the leafs that came to us: every member tells the others of
  its own, and nobody passes on what a route said;
- our hub hears of this server and of the leafs that came to us;
- a leaf hears of everybody but itself and the other servers of its own cluster.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Protocol, TypeAlias

LOOP_PREFIX = b"$LDS."
HERE = 0

Wish: TypeAlias = tuple[bytes, bytes]  # subject, queue


class LinkKind(IntEnum):
    """What is at the other end, in the kernel's numbers."""

    SPOKE = 1  # our hub: we are the spoke
    HUB = 2  # a leaf: we are its hub
    ROUTE = 3


class Hearer(Protocol):
    """A link, as far as this module knows it."""

    cid: int
    kind: LinkKind
    cluster: bytes
    isolated: bool

    def tell(self, account: str, wish: Wish, count: int) -> None:
        """Say how many want it now."""
        ...


class AccountDemand:
    """The wishes of one account by source."""

    def __init__(self, account: str, *, is_system: bool = False) -> None:
        self.account = account
        self._is_system = is_system
        self._counts: dict[Wish, dict[int, int]] = {}
        self._links: dict[int, Hearer] = {}

    def join(self, link: Hearer) -> Iterator[tuple[Wish, int]]:
        """Have a link hear of changes; return what it is told at once."""
        self._links[link.cid] = link
        return ((wish, count) for wish in self._counts if (count := self._told(link, wish)))

    def leave(self, cid: int) -> None:
        """Forget a link, and all that it wants."""
        self._links.pop(cid, None)
        for wish in [wish for wish, sources in self._counts.items() if cid in sources]:
            self.change(cid, wish, -self._counts[wish][cid])

    def change(self, source: int, wish: Wish, step: int) -> None:
        """Count more or fewer, and tell whoever hears of it."""
        if source == HERE and not self._is_told(wish[0]):
            return
        sources = self._counts.setdefault(wish, {})
        sources[source] = sources.get(source, 0) + step
        if sources[source] <= 0:
            del sources[source]
        if not sources:
            del self._counts[wish]
        for link in self._links.values():
            if link.cid != source:
                link.tell(self.account, wish, self._told(link, wish))

    def set(self, source: int, wish: Wish, count: int) -> None:
        """Have a source want it so often."""
        before = self._counts.get(wish, {}).get(source, 0)
        if count != before:
            self.change(source, wish, count - before)

    def _is_told(self, subject: bytes) -> bool:
        """Whether others hear of it: the API of this server is for its own clients."""
        if subject.startswith((b"$JS.API.", b"$MILLSTREAM.", b"$MS.")):
            return False
        return self._is_system or not subject.startswith(b"$SYS.")

    def _told(self, link: Hearer, wish: Wish) -> int:
        sources = self._counts.get(wish)
        if sources is None:
            return 0
        return sum(n for source, n in sources.items() if self._hears(link, source, wish))

    def _hears(self, link: Hearer, source: int, wish: Wish) -> bool:
        if source == HERE:
            return True
        if source == link.cid:
            return False
        other = self._links.get(source)
        if other is None:
            return False
        if other.cluster and other.cluster == link.cluster:
            return False
        is_loop_mark = wish[0].startswith(LOOP_PREFIX)
        if link.kind is LinkKind.ROUTE:
            return other.kind is LinkKind.HUB
        if link.kind is LinkKind.SPOKE:
            return other.kind is LinkKind.HUB or is_loop_mark
        return is_loop_mark or not link.isolated or other.kind is LinkKind.ROUTE
