"""RequestTurns: who is answered first, once more requests come than are answered at once.

A request that comes alone is served as it is read. What else the same turn of the loop reads waits
until all of it was read, and is then served by bands, as deliveries are: topics of a high priority
first, and each of the others in its weighted turn. After a while the loop goes round, so that a
flood of requests does not keep it from seeing who else has come.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable
from urllib.parse import unquote

from millstream.clock import Clock
from millstream.delivery.ready_set import ReadySet
from millstream.http.request import Request
from millstream.http.turns import Serve

log = logging.getLogger(__name__)

TOGETHER = 15e-6  # seconds, at most, between requests that one turn of the loop has read
LONGEST_MS = 0.2  # that requests are served for before the loop looks who else has come
TOPICS = "/v0/topics/"


class RequestTurns:
    """Serves requests; ``rank`` says a topic's priority, and is asked only for those who wait."""

    def __init__(self, clock: Clock, rank: Callable[[str], int]) -> None:
        self._clock = clock
        self._rank = rank
        self._ready = ReadySet()
        self._serves: dict[Hashable, Serve] = {}
        self._come: list[tuple[str, Serve, float]] = []  # since the last turn, not ranked yet
        self._turning = False  # somebody waits
        self._served_at = float("-inf")
        self._served: object = None  # the client who was served last

    @property
    def waiting(self) -> int:
        """Return how many requests wait for their turn."""
        return len(self._ready) + len(self._come)

    def take(self, request: Request, serve: Serve, at: float, client: object) -> None:
        """Serve a request that was read ``at`` this moment, now or when it is its turn.

        A client is one whose next request comes after the answer to this one.
        """
        if self._comes_alone(at, client):
            self._served = client
            serve()
            self._served_at = self._clock.monotonic()
        else:
            self.wait(request, serve)

    def wait(self, request: Request, serve: Serve) -> None:
        """Serve a request when it is its turn, and not before the loop has gone round."""
        self._add(named_by(request), serve)

    async def turn(self, topic: str) -> None:
        """Return when it is the turn of somebody who wants something of a topic."""
        if self._comes_alone(self._clock.monotonic(), None):
            self._served = None
            self._served_at = self._clock.monotonic()
            return
        come = asyncio.get_running_loop().create_future()
        self._add(topic, lambda: None if come.done() else come.set_result(None))
        await come

    def _comes_alone(self, at: float, client: object) -> bool:
        """Say whether who was read ``at`` a moment has nobody before them in this turn of the loop.

        A loop that reads one socket after another does so within microseconds; one that was asleep
        in between takes longer. To mark its turns would cost each request more than it takes.
        """
        if self._turning:
            return False
        return at - self._served_at > TOGETHER or (client is self._served and client is not None)

    def _add(self, topic: str, serve: Serve) -> None:
        self._come.append((topic, serve, self._now_ms()))
        if not self._turning:
            self._turn_later()

    def _turn_later(self) -> None:
        self._turning = True
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Serve for a while; when nobody waits, the next who comes is served at once."""
        now = self._now_ms()
        end = now + LONGEST_MS
        come, self._come = self._come, []
        try:
            if len(come) == 1 and not len(self._ready):
                come[0][1]()  # nobody to be compared with
                return
            for topic, serve, since_ms in come:
                key = object()
                self._ready.add(key, self._rank_of(topic), since_ms)
                self._serves[key] = serve
            while now < end and (found := self._ready.next(now)) is not None:
                self._serves.pop(found[0])()
                now = self._now_ms()
        finally:
            self._turning = False
            self._served, self._served_at = None, self._clock.monotonic()
            if len(self._ready) or self._come:
                self._turn_later()

    def _rank_of(self, topic: str) -> int:
        """Return a topic's priority; where nobody can tell, the request is served all the same."""
        try:
            return self._rank(topic)
        except Exception:
            log.exception("no priority for a request topic=%r", topic)
            return 0

    def _now_ms(self) -> float:
        return 1000 * self._clock.monotonic()


def named_by(request: Request) -> str:
    """Return the topic that a request's path names, empty where it names none."""
    if not request.path.startswith(TOPICS):
        return ""
    return unquote(request.path[len(TOPICS) :].partition("/")[0])
