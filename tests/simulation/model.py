"""What clients were told of one stream, and what must hold of it: the oracle.

The model knows nothing of the server's code. A record is *told* when a client saw its
acknowledgement or read it; told records are kept as far as the durability class of their stream
promises, and whatever is missing of them must be named as lost at the door that is asked.
"""

from collections.abc import Callable  # noqa: TC003
from dataclasses import dataclass, field

from support.fake_disk import Mode

KILLED = (Mode.KEEP, Mode.KILL)  # the process died, not the machine


class Violation(AssertionError):
    """A promise is broken."""


@dataclass
class Attempt:
    """A record that a client tried to store; ``lives`` are those in which it was sent."""

    record: str
    subject: str
    msg_id: str = ""
    lives: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Looked:
    """What a door showed of a whole stream: records by sequence, and what it says is lost."""

    door: str
    records: dict[int, str]
    lost: set[int]
    last_seq: int


class StreamModel:
    """One stream as its clients know it. ``keeps`` is how many records it holds at most."""

    def __init__(self, name: str, durability: str, keeps: int = 0, per_subject: int = 0) -> None:
        self.name = name
        self.durability = durability
        self.keeps = keeps
        self.per_subject = per_subject
        self.attempts: dict[str, Attempt] = {}
        self.batches: list[list[str]] = []  # stored whole or not at all
        self.told: dict[int, str] = {}  # by sequence: there, as far as anybody knows
        self.used: dict[int, str] = {}  # every sequence that a record was ever told under
        self.doubtful: set[int] = set()  # told, and a crash may have taken them
        self.settled: set[int] = set()  # told, and nothing may take them
        self.asked_gone: set[int] = set()  # somebody asked for their removal
        self.gone: set[int] = set()  # and was told that they are gone
        self.settled_gone: set[int] = set()
        self.on_crash: list[Callable[[bool], None]] = []  # with whether all that was told stays
        self.head = 0  # the highest sequence that anybody was told of
        self.lost = 0  # told records that crashes took, and that were reported

    # --- what clients say and hear

    def send(self, record: str, subject: str, life: int, msg_id: str = "") -> Attempt:
        """Take note that a client sends a record, perhaps again."""
        attempt = self.attempts.setdefault(record, Attempt(record, subject, msg_id))
        attempt.lives.add(life)
        return attempt

    def acked(self, record: str, seq: int) -> None:
        """A client was told that its record is stored under a sequence."""
        if self.used.get(seq, record) != record:
            self.broken(f"gave sequence {seq} to {record} after {self.used[seq]}")
        self._tell(seq, record)

    def duplicate(self, record: str, seq: int) -> None:
        """A client was told that its record had been there already."""
        if self.used.get(seq, record) != record:
            self.broken(f"called {record} a duplicate of {seq}, which is {self.used[seq]}")
        self._tell(seq, record)

    def read(self, seq: int, record: str, door: str) -> None:
        """A client read a record."""
        attempt = self.attempts.get(record)
        if attempt is None:
            self.broken(f"{door} shows {record!r} at {seq}, which nobody sent")
        if self.used.get(seq, record) != record:
            self.broken(f"{door} shows {record} at {seq}, which was {self.used[seq]}")
        if seq in self.gone:
            self.broken(f"{door} shows {seq}, which was removed")
        self._tell(seq, record)

    def _tell(self, seq: int, record: str) -> None:
        if seq not in self.asked_gone:
            self.told[seq] = record
        self.used[seq] = record
        self.head = max(self.head, seq)

    def ask_gone(self, seqs: set[int]) -> None:
        """A client asks for the removal of records."""
        self.asked_gone |= seqs

    def confirm_gone(self, seqs: set[int]) -> None:
        """It was told that they are gone."""
        self.gone |= seqs
        for seq in seqs:
            self.told.pop(seq, None)

    # --- what happens to the server

    def settle(self) -> None:
        """All is quiet, and has been for longer than any window: what is told stays."""
        if self.durability != "ephemeral":
            self.settled |= self.told.keys()
            self.settled_gone |= self.gone

    def crash(self, mode: Mode | None) -> None:
        """The server ended; without a mode it was stopped in order."""
        keeps = {
            "fsync": True,
            "disk": mode is None or mode in KILLED,
            "memory": mode is None,
            "ephemeral": False,
        }[self.durability]
        if not keeps:
            self.doubtful |= self.told.keys() - self.settled
            self.gone &= self.settled_gone
        if not keeps and self.durability == "memory":
            self._forget_unsettled()
        for tell in self.on_crash:
            tell(keeps)

    def _forget_unsettled(self) -> None:
        """A ``memory`` stream counts on from its last written record, and names no loss."""
        self.told = {seq: record for seq, record in self.told.items() if seq in self.settled}
        self.used = {seq: record for seq, record in self.used.items() if seq in self.settled}
        self.head = max(self.used, default=0)

    # --- what a look at the whole stream shows

    def check(self, looked: Looked) -> None:
        """Compare what a door shows with what clients know."""
        door, records = looked.door, looked.records
        for seq, record in records.items():
            self.read(seq, record, door)
        if records.keys() & looked.lost:
            self.broken(f"{door} calls {records.keys() & looked.lost} lost and shows them")
        if looked.last_seq < self.head:
            self.broken(f"{door} has its head at {looked.last_seq}, clients know of {self.head}")
        self._check_once(door, records)
        self._check_whole(door, records)
        missing = self.told.keys() - records.keys()
        for seq in sorted(missing):
            if seq in self.asked_gone or self._is_over_limit(seq, records):
                continue
            if seq not in self.doubtful:
                self.broken(f"{door} lacks {seq} ({self.told[seq]}), which was acknowledged")
            if seq not in looked.lost:
                self.broken(f"{door} lacks {seq} and does not say that it is lost")

    def take(self, looked: Looked) -> None:
        """Believe what all doors showed: what is missing stays missing."""
        missing = self.told.keys() - looked.records.keys()
        self.lost += len(missing & self.doubtful & looked.lost)
        for seq in missing:
            self.told.pop(seq)
        self.doubtful.clear()

    def _is_over_limit(self, seq: int, records: dict[int, str]) -> bool:
        newer = [other for other in records if other > seq]
        if self.keeps and len(newer) >= self.keeps:
            return True
        if not self.per_subject:
            return False
        subject = self.attempts[self.told[seq]].subject
        same = [s for s in newer if self.attempts[records[s]].subject == subject]
        return len(same) >= self.per_subject

    def _check_once(self, door: str, records: dict[int, str]) -> None:
        """A record is there once; without an id, once for each life in which it was sent."""
        seen: dict[str, int] = {}
        for record in records.values():
            seen[record] = seen.get(record, 0) + 1
        for record, times in seen.items():
            attempt = self.attempts[record]
            most = 1 if attempt.msg_id else len(attempt.lives)
            if times > most:
                self.broken(f"{door} shows {record} {times} times, at most {most} was sent")

    def _check_whole(self, door: str, records: dict[int, str]) -> None:
        if self.keeps or self.asked_gone:
            return
        there = set(records.values())
        for batch in self.batches:
            found = there.intersection(batch)
            if found and len(found) < len(batch) and not self._was_lost(batch):
                self.broken(f"{door} shows {len(found)} of the {len(batch)} records of a batch")

    def _was_lost(self, batch: list[str]) -> bool:
        """Whether a crash may have taken a part of it, as another look has shown."""
        return any(record in batch for record in self.used.values()) and self.lost > 0

    def broken(self, what: str) -> None:
        """Report a broken promise."""
        raise Violation(f"{self.name} ({self.durability}) {what}")
