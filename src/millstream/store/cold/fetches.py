"""Fetches: pieces of cold segments on their way back, each fetched once for all who wait for it.

A reader never waits here: it is told to come again, and called when its piece is there, or when the
cold place has not answered for too long.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol, TypeVar

from millstream.clock import Clock
from millstream.errors import ColdUnavailable, MillstreamError, NotHere
from millstream.store.cold.copy import ColdCopy, Key, Pieces
from millstream.store.cold.pool import Pool
from millstream.store.disk.blocks import BlockTable, Raw
from millstream.store.disk.objects import Objects
from millstream.store.segments.files import DataHead

log = logging.getLogger(__name__)

T = TypeVar("T")
Arrived = Callable[[MillstreamError | None], None]


class FetchHost(Protocol):
    """What fetches need of the store."""

    clock: Clock

    def post(self, callback: Callable[[], None]) -> object:
        """Run on the loop, soon."""
        ...


class _Wait:
    def __init__(self, since: float) -> None:
        self.since = since
        self.told: list[Arrived] = []


class PieceCache:
    """Pieces that were fetched lately, bounded; the newest is always kept."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held = 0
        self._pieces: OrderedDict[Key, Raw] = OrderedDict()

    def get(self, key: Key) -> Raw | None:
        """Return a piece."""
        raw = self._pieces.get(key)
        if raw is not None:
            self._pieces.move_to_end(key)
        return raw

    def put(self, pieces: Pieces) -> None:
        """Keep pieces that came together; those not read for longest make room."""
        for key, raw in pieces.items():
            before = self._pieces.pop(key, None)
            self._held += len(raw) - (len(before) if before is not None else 0)
            self._pieces[key] = raw
        while self._held > self._most and len(self._pieces) > len(pieces):
            _, gone = self._pieces.popitem(last=False)
            self._held -= len(gone)

    def forget(self, token: int) -> None:
        """Forget every piece of a copy."""
        for key in [key for key in self._pieces if key[0] == token]:
            self._held -= len(self._pieces.pop(key))


class Fetches:
    """What is here of cold segments, and what is being fetched; all methods run on the loop."""

    def __init__(
        self,
        host: FetchHost,
        objects: Objects | None,
        pool: Pool,
        cache_bytes: int,
        patience: float,
    ) -> None:
        self._host = host
        self.objects = objects
        self._pool = pool
        self._patience = patience  # seconds until a reader is told that the place does not answer
        self._pieces = PieceCache(cache_bytes)
        self._waiting: dict[Key, _Wait] = {}
        self.problem = ""  # why the last fetch failed, in words
        self.fetched = self.failed = 0

    def piece(self, key: Key, fetch: Callable[[], Pieces], next_seq: int) -> Raw:
        """Return a piece, or raise ``NotHere`` and have it fetched."""
        found = self._pieces.get(key)
        if found is None:
            self._fetch(key, fetch, self._pieces.put, next_seq)
            found = self._pieces.get(key)
        assert found is not None
        return found

    def form(self, copy: ColdCopy, next_seq: int) -> None:
        """Have a copy looked at, or raise ``NotHere``."""

        def known(found: tuple[DataHead, BlockTable | None]) -> None:
            copy.known_as(*found)

        self._fetch((copy.token, -1), copy.look, known, next_seq)

    def _fetch(
        self, key: Key, job: Callable[[], T], take: Callable[[T], None], next_seq: int
    ) -> None:
        """Have something fetched; returns if it came at once, else raises ``NotHere``."""
        if self.objects is None:
            raise ColdUnavailable("these records are in cold history: start with --cold PLACE")
        if key not in self._waiting:
            self._waiting[key] = _Wait(self._host.clock.monotonic())
            failed: list[MillstreamError] = []
            self._waiting[key].told.append(lambda error: failed.append(error) if error else None)
            self._pool.run(job, partial(self._fetched, key, take))
            if failed:
                raise failed[0]
        if key in self._waiting:
            raise NotHere(next_seq, partial(self._wait, key))

    def _wait(self, key: Key, arrived: Arrived) -> None:
        wait = self._waiting.get(key)
        if wait is None:
            self._host.post(partial(arrived, None))  # it came meanwhile
        else:
            wait.told.append(arrived)

    def _fetched(
        self, key: Key, take: Callable[[T], None], found: T | None, error: Exception | None
    ) -> None:
        wait = self._waiting.pop(key, None)
        if error is None and found is not None:
            self.fetched += 1
            self.problem = ""
            take(found)
        self._tell(wait.told if wait is not None else [], error)

    def _tell(self, told: Iterable[Arrived], error: Exception | None) -> None:
        answer: MillstreamError | None = None
        if error is not None:
            self.failed += 1
            answer = ColdUnavailable(f"cold history cannot be read: {error}")
            self.problem = answer.message
            log.error(
                "cold history not read place=%s error=%s",
                self.objects.place if self.objects else "",
                error,
            )
            answer = ColdUnavailable("cold history cannot be read now: the server's log says why")
        for arrived in told:
            arrived(answer)

    def end_waits(self) -> None:
        """Tell readers of a place that hangs; the fetch goes on, and may still arrive."""
        late = self._host.clock.monotonic() - self._patience
        for wait in list(self._waiting.values()):
            if wait.since <= late and wait.told:
                told, wait.told = wait.told, []
                self._tell(told, TimeoutError(f"no answer in {self._patience:g} seconds"))

    def forget(self, copy: ColdCopy) -> None:
        """Forget every piece of a copy: its bytes have changed, or it is gone."""
        self._pieces.forget(copy.token)

    def close(self) -> None:
        """Stop the threads; one that hangs is left behind."""
        self._pool.close()
