"""A commit engine in memory that is slow, forgets, answers late, twice, or out of order."""

from collections.abc import Callable, Iterable, Sequence

from millstream.errors import ShardReadOnly
from millstream.store.wal.commit import OK, UNKNOWN, Completed, Outcome, Taken

AT_ONCE = "stored, and that is returned"
CALLED = "stored and answered by a call, before this one returns"
LATE = "stored, answered later"
SLOW = "stored and answered later"
FORGOTTEN = "neither stored nor answered"
LOST = "not stored, and unknown"
LANDED = "stored, and unknown"
TWICE = "stored, which is returned, and answered once more later"
DOUBTED = "stored, answered later, and unknown after that"
TAKEN = "another writer was first"
FAULTS = (CALLED, LATE, SLOW, FORGOTTEN, LOST, LANDED, TWICE, DOUBTED)
OTHER_NONCE = 99


class ScriptedEngine:
    """Keeps ``CommitEngine``; each submission goes as the next word of the script, then at once."""

    def __init__(self, script: Iterable[str] = (), ahead: int = 4, position: int = 1) -> None:
        self.script = list(script)
        self.entries: dict[int, bytes] = {}
        self.asked: list[int] = []
        self.position = position
        self.ahead = ahead
        self.synced_position = position - 1
        self.written = 0
        self.room = 1 << 20
        self.wants_sync = False
        self.is_prepared = True
        self.syncs = 0
        self._answered: set[int] = set()
        self._later: list[Callable[[], None]] = []
        self._is_closed = False

    @property
    def confirmed(self) -> int:
        """Return up to where every position was answered for."""
        return self.position - 1

    def refuse(self, why: str) -> ShardReadOnly:
        """Take nothing more."""
        self._is_closed = True
        return ShardReadOnly(why)

    def append_at(self, position: int, entry: Sequence[bytes], done: Completed) -> Outcome | None:
        """Store, or not, and answer, or not, as the script says."""
        if self._is_closed:
            raise ShardReadOnly("closed")
        assert position <= self.confirmed + self.ahead, "sent too far ahead"
        data = b"".join(entry)
        self.asked.append(position)
        word = self.script.pop(0) if self.script else AT_ONCE
        if word == TAKEN:
            self.entries[position] = b"another writer's"
        if word in (AT_ONCE, LATE, LANDED, TWICE, DOUBTED):
            self._store(position, data)
        if word in (LOST, LANDED):
            self._later.append(lambda: done(position, UNKNOWN))
        if word in (LATE, TWICE, DOUBTED):
            self._later.append(lambda: self._answer(position, data, done))
        if word == SLOW:
            self._later.append(lambda: self._land(position, data, done))
        if word == DOUBTED:
            self._later.append(lambda: done(position, UNKNOWN))
        if word in (AT_ONCE, TWICE, TAKEN):
            return self._outcome(position, data)
        if word == CALLED:
            self._store(position, data)
            self._answer(position, data, done)
        return None

    def answer_one(self, at: int = 0) -> bool:
        """Let one answer that is on its way arrive; False when there is none."""
        if not self._later:
            return False
        self._later.pop(at % len(self._later))()
        return True

    def _store(self, position: int, data: bytes) -> None:
        if position not in self.entries:
            self.entries[position] = data
            self.written += len(data)

    def _land(self, position: int, data: bytes, done: Completed) -> None:
        self._store(position, data)
        self._answer(position, data, done)

    def _answer(self, position: int, data: bytes, done: Completed) -> None:
        done(position, self._outcome(position, data))

    def _outcome(self, position: int, data: bytes) -> Outcome:
        if self.entries[position] != data:
            return Taken(OTHER_NONCE)
        self._answered.add(position)
        while self.position in self._answered:
            self.position += 1
        return OK

    def sync(self) -> None:
        """Make what was answered for stable."""
        if self._is_closed:
            raise ShardReadOnly("closed")
        self.syncs += 1
        self.synced_position = self.confirmed

    def prepare(self, now: float) -> None:
        """There is nothing to prepare."""

    def begin(self, entries: Sequence[Sequence[bytes]]) -> None:
        """Put entries in place of what an earlier writer left."""
        for position in [at for at in self.entries if at >= self.position]:
            del self.entries[position]
        for entry in entries:
            self._store(self.position, b"".join(entry))
            self.position += 1
        self.sync()

    def drop_below(self, position: int) -> None:
        """Let go of what stands up to ``position``."""
        self.entries = {at: data for at, data in self.entries.items() if at > position}

    def drop_before_begin(self) -> None:
        """Keep everything."""

    def retire(self) -> None:
        """Take nothing any more."""
        self.close()

    def come_to_rest(self) -> None:
        """Leave everything as it is."""

    def close(self) -> None:
        """Take nothing any more."""
        self._is_closed = True
