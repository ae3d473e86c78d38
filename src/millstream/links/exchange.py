"""Exchange: the links of this server by connection, and the demand of each account."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from millstream.clock import Clock
from millstream.kernel._hub import Hub
from millstream.links.demand import HERE, AccountDemand
from millstream.nats.accounts.accounts import Accounts, Space
from millstream.nats.sessions import Sessions

if TYPE_CHECKING:
    from millstream.links.peer_link import PeerLink

log = logging.getLogger(__name__)


class Exchange:
    """What all links share."""

    def __init__(self, sessions: Sessions, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self.sessions = sessions
        self.clock = clock
        self.given_up: Counter[str] = Counter()  # links that were slow or stale, by kind
        self.met = 0  # links since the start
        self._loop = loop
        self._flushes = False
        self._demands: dict[str, AccountDemand] = {}
        self._undo: list[Callable[[], None]] = []
        self.renew()

    @property
    def hub(self) -> Hub:
        """The hub that carries the links' messages."""
        return self.sessions.hub

    @property
    def accounts(self) -> Accounts:
        """Every account by name."""
        return self.sessions.reception.accounts

    def renew(self) -> None:
        """Take up accounts that came since."""
        system = self.accounts.system
        for space in self.accounts:
            if space.name not in self._demands:
                demand = AccountDemand(space.name, is_system=space is system)
                self._demands[space.name] = demand
                self._undo.append(space.interest.observe(partial(_changed, demand)))

    def demand(self, account: str) -> AccountDemand:
        """Return who wants what in an account that there is."""
        return self._demands[account]

    def demands(self) -> Iterator[AccountDemand]:
        """Return those of all accounts."""
        return iter(list(self._demands.values()))

    def space(self, account: str) -> Space | None:
        """Return an account's space, None when we do not know it."""
        return self.accounts.get(account) if account in self._demands else None

    def flush_soon(self) -> None:
        """Have what was told to links leave in this turn of the loop."""
        if not self._flushes:
            self._flushes = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushes = False
        self.hub.flush()

    def add(self, link: "PeerLink") -> None:
        """Have what happens to a connection go to its link."""
        self.sessions.links[link.cid] = link
        self.met += 1

    def all(self) -> "list[PeerLink]":
        """Return every link."""
        from millstream.links.peer_link import PeerLink

        return [link for link in self.sessions.links.values() if isinstance(link, PeerLink)]

    def close(self) -> None:
        """Hear of nothing any more."""
        while self._undo:
            self._undo.pop()()


def _changed(demand: AccountDemand, change: tuple[bytes, bytes, int]) -> None:
    subject, queue, step = change
    demand.change(HERE, (subject, queue), step)
