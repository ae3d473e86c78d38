"""Patience: how long somebody who follows waits for a server that is away, and how often it looks.

A server that restarts is gone for a moment, then not ready, then there again. A follower goes on
when it is; whoever has never reached it is told at once.
"""

import random
from collections.abc import Callable

from millstream.client.errors import ApiError, CertificateRefused, ClientError, ConnectFailed
from millstream.clock import Clock, SystemClock

FOLLOWERS_PATIENCE = 3600.0  # seconds
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 5.0


class Patience:
    """Pauses that grow while nobody answers, until the patience is over."""

    def __init__(
        self,
        seconds: float = FOLLOWERS_PATIENCE,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._seconds = seconds
        self._clock = clock or SystemClock()
        self._chance = chance
        self._since: float | None = None
        self._next = SHORTEST_PAUSE

    def answered(self) -> None:
        """Begin anew: the server is there."""
        self._since, self._next = None, SHORTEST_PAUSE

    def pause(self, error: ClientError) -> float:
        """Return the seconds to wait before the next try.

        Raises ``error`` itself where waiting does not help, or has lasted for long enough. No two
        followers wait equally long, lest all of them come back at once.
        """
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        left = self._since + self._seconds - now
        if left <= 0 or not is_away(error):
            raise error
        longest, self._next = self._next, min(self._next * 2, LONGEST_PAUSE)
        return min(longest * (0.5 + self._chance() / 2), left)


def is_away(error: ClientError) -> bool:
    """Return whether a server that fails in this way may answer a little later."""
    if isinstance(error, ApiError):
        return error.status in (429, 503)
    return isinstance(error, ConnectFailed) and not isinstance(error, CertificateRefused)
