"""KeyOrder: what workers see of records with keys, and whether their order was kept."""

import random
from collections import defaultdict


class KeyOrder:
    """Watches over all workers at once; every fault that it finds is a sentence in ``faults``."""

    def __init__(self, keys: int, each: int) -> None:
        self.each = each
        self.keys = [f"k{n}" for n in range(keys)]
        self.faults: list[str] = []
        self.deliveries = self.again = 0
        self._out: dict[str, tuple[str, int]] = {}
        self._done: dict[str, int] = defaultdict(int)  # key → records that were answered, in order
        self._finished = 0

    def plan(self) -> list[tuple[str, int]]:
        """Return (key, number) of all records: keys mixed, the numbers of each key in order."""
        mixed = [key for key in self.keys for _ in range(self.each)]
        random.shuffle(mixed)
        seen: dict[str, int] = defaultdict(int)
        found = []
        for key in mixed:
            found.append((key, seen[key]))
            seen[key] += 1
        return found

    def begin(self, worker: str, key: str, number: int) -> None:
        """Note that a worker has a record now."""
        self.deliveries += 1
        if key in self._out:
            self.faults.append(f"{worker} got {key}/{number} while it was out: {self._out[key]}")
        if number > self._done[key]:
            self.faults.append(f"{worker} got {key}/{number} before {key}/{self._done[key]}")
        self.again += number < self._done[key]
        self._out[key] = worker, number

    def leave(self, key: str) -> None:
        """Note that nobody works on a record any more, whatever becomes of it."""
        self._out.pop(key, None)

    def finish(self, key: str, number: int) -> None:
        """Note that a worker is done with a record, and is about to say so."""
        self.leave(key)
        if number == self._done[key]:
            self._done[key] += 1
            self._finished += 1

    def lose(self, worker: str) -> None:
        """Note that a worker is gone, with all that it had."""
        for key, (who, _) in list(self._out.items()):
            if who == worker:
                del self._out[key]

    @property
    def is_complete(self) -> bool:
        """Whether every record was answered."""
        return self._finished == len(self.keys) * self.each

    def __str__(self) -> str:
        return (
            f"{len(self.keys)} keys, {self._finished} of {len(self.keys) * self.each} done, "
            f"{self.deliveries} deliveries, {self.again} of what was done before, "
            f"{len(self.faults)} faults"
        )
