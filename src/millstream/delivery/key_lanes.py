"""KeyLanes: of all records with one key only one is out at a time; the others wait in line.

Pure: callers tell what they hand out and what is done with. A record that comes back (refused, or
not answered in time) keeps its key, so that no later one of the key overtakes it.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator

import msgspec

MOST_WAITING = 16_384  # records that wait for their keys; then nothing more is looked at


class BlockedKey(msgspec.Struct, frozen=True):
    """A key that others wait for, and the record that has it."""

    key: bytes
    seq: int
    waiting: int


class KeyLanes:
    """Who has which key, and who waits for it, lowest sequence first."""

    __slots__ = ("_holders", "_keys", "_lines", "_offered", "is_on", "most", "waiting")

    def __init__(self) -> None:
        self.is_on = False
        self.most = MOST_WAITING
        self.waiting: set[int] = set()  # looked at, and not handed out yet

    def switch(self, *, on: bool) -> None:
        """Begin anew, without anything known; or keep no order any more."""
        self.is_on = on
        self.waiting = set()
        self._keys: dict[int, bytes] = {}
        self._holders: dict[bytes, list[int]] = {}
        self._lines: dict[bytes, list[int]] = {}
        self._offered: dict[int, bytes] = {}

    @property
    def is_full(self) -> bool:
        """Whether no more may wait."""
        return len(self.waiting) >= self.most

    def is_free(self, key: bytes) -> bool:
        """Whether nobody has the key; no key at all is always free."""
        return not key or key not in self._holders

    def knows(self, seq: int) -> bool:
        """Whether a record has its key, or waits for it."""
        return seq in self._keys

    def offer(self, seqs: dict[int, bytes]) -> None:
        """Name what may be handed out next, with the keys of all."""
        self._offered = seqs

    def take(self, seq: int) -> None:
        """Note that a record is handed out: it has its key from now on, unless it had it."""
        self.waiting.discard(seq)
        key = self._offered.pop(seq, b"")
        if key:
            self.hold(seq, key)

    def hold(self, seq: int, key: bytes) -> None:
        """Give a record its key."""
        if key and seq not in self._keys:
            self._keys[seq] = key
            self._holders.setdefault(key, []).append(seq)

    def park(self, seq: int, key: bytes) -> None:
        """Let a record wait for its key."""
        if seq not in self._keys:
            self._keys[seq] = key
            self.waiting.add(seq)
            heapq.heappush(self._lines.setdefault(key, []), seq)

    def release(self, seq: int) -> int:
        """Forget a record that is done with; returns who has its key now, 0 when nobody waits."""
        self.waiting.discard(seq)
        key = self._keys.pop(seq, b"")
        holders = self._holders.get(key, [])
        if not key or seq not in holders:
            return 0  # it only waited: its place in line is passed over
        holders.remove(seq)
        if holders:
            return 0
        del self._holders[key]
        return self._next(key)

    def pass_on(self, seqs: Iterable[int], go: Callable[[int], None]) -> None:
        """Forget records that are done with, and let whoever waited for their keys go."""
        for seq in seqs:
            if following := self.release(seq):
                go(following)

    def _next(self, key: bytes) -> int:
        line = self._lines.get(key, [])
        while line:
            seq = heapq.heappop(line)
            if seq in self.waiting:
                self._holders[key] = [seq]
                break
        else:
            seq = 0
        if not line:
            self._lines.pop(key, None)
        return seq

    def blocked(self, most: int) -> list[BlockedKey]:
        """Return the keys that most others wait for."""
        return heapq.nlargest(most, self._blocked(), key=lambda each: each.waiting)

    def _blocked(self) -> Iterator[BlockedKey]:
        for key, line in self._lines.items():
            waiting = sum(seq in self.waiting for seq in line)
            if waiting and key in self._holders:
                yield BlockedKey(key, self._holders[key][0], waiting)
