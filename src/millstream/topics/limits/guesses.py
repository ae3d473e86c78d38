"""Guesses: how soon an address that offers wrong credentials is answered.

The first ones are answered at once. After that ten a second are, one behind the other, and where
five seconds' worth wait already, nothing more is looked at: who tries many keys at once learns no
more than who tries them in turn. A credential that was right a moment ago is looked at always,
because many clients share the address of a proxy.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable

from millstream.errors import Throttled

FREE = 20  # wrong credentials that are answered at once
INTERVAL = 0.1  # seconds for each one after these
LONGEST = 5.0  # seconds that an answer waits at most
MOST_ADDRESSES = 10_000
MOST_KNOWN = 10_000


class Guesses:
    """Counts wrong credentials by address; nothing is kept of an address that has made up."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._made_up: dict[str, float] = {}  # by address, when all its guesses are made up for
        self._right: OrderedDict[int, None] = OrderedDict()

    def check(self, address: str, offered: Hashable) -> None:
        """Refuse to look at a credential while too many wrong ones of the address wait."""
        if not self._made_up or self._left(address) <= FREE * INTERVAL + LONGEST:
            return
        if hash(offered) not in self._right:
            raise Throttled("wrong_keys_per_second", round(1 / INTERVAL))

    def right(self, offered: Hashable) -> None:
        """Note that a credential is one."""
        if self._made_up:
            self._right[hash(offered)] = None
            if len(self._right) > MOST_KNOWN:
                self._right.popitem(last=False)

    def wrong(self, address: str) -> float:
        """Count a wrong credential; returns how many seconds its answer waits."""
        left = self._left(address) + INTERVAL
        if len(self._made_up) >= MOST_ADDRESSES:
            self._forget()
        self._made_up[address] = self._monotonic() + left
        return max(left - FREE * INTERVAL, 0.0)

    def _left(self, address: str) -> float:
        return max(self._made_up.get(address, 0.0) - self._monotonic(), 0.0)

    def _forget(self) -> None:
        """Forget those that have made up, or who made up first where all are at it."""
        now = self._monotonic()
        kept = {address: at for address, at in self._made_up.items() if at > now}
        if len(kept) >= MOST_ADDRESSES:
            del kept[min(kept, key=kept.__getitem__)]
        self._made_up = kept
        if not kept:
            self._right.clear()
