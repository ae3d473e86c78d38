"""UnreadBudget: the bytes of answers that clients have not taken yet, and may hold at most.

A client that asks and does not read keeps its answers in our memory. While a connection, a key or
all together hold more than their share, no further answer is made for them: they are slowed. When
that lasts, whoever took nothing for a while is closed, and the log says why.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

MOST_BYTES = 128 * 1024 * 1024
MOST_BYTES_PER_KEY = 64 * 1024 * 1024
MOST_BYTES_PER_CONNECTION = 2 * 1024 * 1024
PATIENCE_SECONDS = 2.0  # that a client may take nothing while others wait for what it holds
LOOKED_AT_ONCE = 64
WOKEN_AT_ONCE = 8  # each makes an answer: one turn of the loop is not for all who wait


class Hoarder(Protocol):
    """A connection that may hold answers."""

    def unsent(self) -> int:
        """Return how many bytes wait for the client: fewer than before means that it reads."""
        ...

    def close_for(self, reason: str) -> None:
        """Close the connection; say why where the protocol can."""
        ...


class UnreadBudget:
    """Counts for a server; a cap of 0 is none. Clients without a key share none of their own."""

    def __init__(
        self,
        most: int = MOST_BYTES,
        per_key: int = MOST_BYTES_PER_KEY,
        per_connection: int = MOST_BYTES_PER_CONNECTION,
    ) -> None:
        self.most = most
        self.per_key = per_key
        self.per_connection = per_connection
        self.held = 0
        self.slowed = 0  # answers that had to wait for room
        self.closed = 0  # connections that were closed for what they held
        self._by_key: dict[str, int] = {}
        self._holders: dict[UnreadShare, None] = {}
        self._waiting: deque[tuple[UnreadShare, asyncio.Future[None]]] = deque()

    def share(self, hoarder: Hoarder) -> UnreadShare:
        """Return the share of a connection."""
        return UnreadShare(self, hoarder)

    @property
    def waiting(self) -> int:
        """Return how many answers wait for room now."""
        return len(self._waiting)

    def why_full(self, share: UnreadShare) -> str:
        """Return which cap keeps a connection from more, empty when none does."""
        if self.per_connection and share.held >= self.per_connection:
            return f"max_unread_bytes_per_connection ({self.per_connection})"
        if self.per_key and self._by_key.get(share.key, 0) >= self.per_key:
            return f"max_unread_bytes_per_key ({self.per_key})"
        if self.most and self.held >= self.most:
            return f"max_unread_bytes ({self.most})"
        return ""

    async def room(self, share: UnreadShare) -> None:
        """Wait until a connection may hold more."""
        self.slowed += 1
        while self.why_full(share):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((share, turn))
            await turn

    def change(self, share: UnreadShare, by: int) -> None:
        """Count bytes that a connection holds, or no longer holds."""
        self.held += by
        if share.key:
            left = self._by_key.get(share.key, 0) + by
            if left:
                self._by_key[share.key] = left
            else:
                del self._by_key[share.key]
        if share.held:
            self._holders[share] = None
        else:
            self._holders.pop(share, None)
        if by < 0 and self._waiting:
            self.wake()

    def wake(self) -> None:
        """Let some of those go on who have room now, the first first."""
        woken = 0
        for _ in range(min(len(self._waiting), LOOKED_AT_ONCE)):
            share, turn = self._waiting.popleft()
            if turn.done():
                continue
            if woken >= WOKEN_AT_ONCE or self.why_full(share):
                self._waiting.append((share, turn))
                continue
            turn.set_result(None)
            woken += 1

    def sweep(self, now: float, stall_seconds: float) -> None:
        """Close who took nothing for too long: sooner where others wait for what it holds."""
        for share in list(self._holders):
            idle = share.idle(now)
            if idle < PATIENCE_SECONDS:
                continue
            full = self.why_full(share) if self._waiting else ""
            if full or idle >= stall_seconds:
                self._close(share, full, idle)
        if self._waiting:
            self.wake()

    def _close(self, share: UnreadShare, full: str, idle: float) -> None:
        reason = f"the client left {share.held} bytes unread for {idle:.0f} s"
        if full:
            reason += f", and {full} is reached"
        self.closed += 1
        log.warning("http connection closed: %s", reason)
        share.hoarder.close_for(reason)


class UnreadShare:
    """What one connection holds. It counts for the first key that the connection brought."""

    __slots__ = ("_budget", "_left", "_since", "held", "hoarder", "key")

    def __init__(self, budget: UnreadBudget, hoarder: Hoarder) -> None:
        self._budget = budget
        self.hoarder = hoarder
        self.held = 0
        self.key = ""
        self._left = 0  # bytes unsent when it last took some
        self._since: float | None = None  # when that was; None: not looked at since

    def owned_by(self, key: str) -> None:
        """Count for a key from now on, unless there is one already."""
        if key and not self.key and not self.held:
            self.key = key

    @property
    def is_full(self) -> bool:
        """Say whether no further answer is to be made for now."""
        return bool(self._budget.why_full(self))

    async def room(self) -> None:
        """Wait until a further answer may be made."""
        await self._budget.room(self)

    def hold(self, size: int) -> Callable[[int], None]:
        """Count an answer that waits for its client; returns what takes off the part that left."""
        if size:
            self.held += size
            self._budget.change(self, size)
        return self._release

    def _release(self, size: int) -> None:
        if size:
            self.held -= size
            self._since = None
            self._budget.change(self, -size)

    def idle(self, now: float) -> float:
        """Return for how long the client took nothing, as far as was looked."""
        left = self.hoarder.unsent()
        if self._since is None or left != self._left:
            self._since, self._left = now, left
        return now - self._since
