"""ObjectEngine: commits entries as objects, several of them under way at once."""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from millstream.errors import ShardReadOnly
from millstream.store.object_log.chain_marks import ChainMarks
from millstream.store.object_log.entry import RECORDS, Chain, Codec
from millstream.store.object_log.judgement import (
    Broken,
    Judgement,
    Older,
    Open,
    Stored,
    TakenBy,
    put,
)
from millstream.store.object_log.requests import ObjectPlace, carried_out
from millstream.store.wal.commit import OK, UNKNOWN, Completed, Outcome, Taken

log = logging.getLogger(__name__)

Start: TypeAlias = Callable[[Callable[[], None]], None]
"""Runs a call on another thread, or in tests at once."""

ROOM = 1 << 30  # an object store takes what comes; the window bounds what is under way


class ObjectEngine:
    """Keeps ``CommitEngine``: the writer of one epoch, from its first position on.

    An entry that was sent is never changed and its position never given to another one (rule 3): a
    position that is asked for again gets the same bytes. An entry that is there is durable, so a
    sync has nothing to do.
    """

    def __init__(
        self,
        place: ObjectPlace,
        codec: Codec,
        chain: Chain,
        window: int,
        start: Start,
        dropped: Callable[[int], None],
        fenced: Callable[[str], None] = lambda why: None,
    ) -> None:
        """``dropped`` hears of snapshots; ``fenced`` that another writer has the log, at once."""
        self._place = place
        self._codec = codec
        self._next = chain  # where the next new entry goes
        self._start = start
        self._dropped = dropped
        self._fenced = fenced
        self._marks = ChainMarks(chain)
        self._lock = threading.Lock()
        self._sent: dict[int, tuple[bytes, bytes]] = {}  # what was asked, and its object
        self._there: set[int] = set()  # confirmed, with a gap before them
        self._broken = ""
        self.ahead = window
        self.position = chain.position  # the first one that is not confirmed
        self.written = 0

    @property
    def room(self) -> int:
        """Return that there is room: the window bounds what is under way."""
        return ROOM

    @property
    def wants_sync(self) -> bool:
        """Say no: there is nothing to sync."""
        return False

    @property
    def is_prepared(self) -> bool:
        """Say yes: there is nothing to prepare."""
        return True

    @property
    def synced_position(self) -> int:
        """Return up to where every entry is there, which is durable."""
        return self.position - 1

    def append_at(self, position: int, entry: Sequence[bytes], done: Completed) -> Outcome | None:
        """Send the entry to its position; ``done`` says what became of it."""
        if self._broken:
            raise ShardReadOnly(self._broken)
        body = b"".join(entry)
        with self._lock:
            if position == self._next.position:
                self._sent[position] = (body, self._made(body))
            sent = self._sent.get(position)
            if sent is None or sent[0] != body:
                return OK if sent is None and position < self.position else Taken(self._next.nonce)
        self._start(partial(self._send, position, sent[1], done))
        return None

    def _made(self, body: bytes) -> bytes:
        """Return the object of a new entry, and go on behind it."""
        data = self._codec.encode(self._next, RECORDS, body)
        now, check = self._next, self._codec.check_of(data)
        self._marks.add(now.position, check)
        self._next = Chain(now.position + 1, now.epoch, now.nonce, check)
        self.written += len(body)
        return data

    def _send(self, position: int, data: bytes, done: Completed) -> None:
        steps = put(self._codec, data, position)
        done(position, self._outcome(position, carried_out(steps, self._place)))

    def _outcome(self, position: int, judgement: Judgement) -> Outcome:
        match judgement:
            case Stored():
                self._confirm(position)
                return OK
            case Open():
                return UNKNOWN
            case TakenBy(epoch, nonce):
                # Before anybody is answered: to say that a write failed could be a lie (rule 14).
                self._fenced(f"epoch {epoch} has the log from position {position} on")
                return Taken(nonce)
            case Older(entry):
                return self._break(position, f"an entry of the older epoch {entry.epoch}")
            case Broken(_, why):
                return self._break(position, why)

    def _break(self, position: int, why: str) -> Outcome:
        """Stop the shard: what stands there, no writer of this log could have made."""
        log.error("log is broken position=%d reason=%s", position, why)
        self.refuse(f"the log is broken at position {position}: {why}")
        return Taken(0)

    def _confirm(self, position: int) -> None:
        with self._lock:
            self._there.add(position)
            while self.position in self._there:
                self._there.remove(self.position)
                self._sent.pop(self.position - self.ahead, None)
                self.position += 1

    def chain_at(self, position: int) -> Chain | None:
        """Return how the log goes on behind a position of ours, None where that is not known."""
        with self._lock:
            return self._marks.at(position)

    def covered(self, position: int) -> None:
        """Forget what only a head up to ``position`` could ask for."""
        with self._lock:
            self._marks.cover(position)

    @property
    def is_waiting(self) -> bool:
        """Say whether an entry was sent and is not confirmed."""
        return self._next.position > self.position

    @property
    def uncovered(self) -> int:
        """Return how many of our entries no head covers."""
        return len(self._marks)

    def sync(self) -> None:
        """An entry that is there is durable."""
        if self._broken:
            raise ShardReadOnly(self._broken)

    def prepare(self, now: float) -> None:
        """There is nothing to prepare."""

    def begin(self, entries: Sequence[Sequence[bytes]]) -> None:
        """Write entries one after the other, before anything else is under way."""
        for entry in entries:
            while (outcome := self._ask(entry)) == UNKNOWN:
                pass
            if outcome != OK:
                raise self.refuse(f"another writer has the log ({outcome})")

    def _ask(self, entry: Sequence[bytes]) -> Outcome:
        """Send an entry to the first free position and wait for what becomes of it."""
        answers: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        at_once = self.append_at(self.position, entry, lambda _, outcome: answers.put(outcome))
        return at_once if at_once is not None else answers.get()

    def drop_below(self, position: int) -> None:
        """Have the head rise and older entries go; see ``trim``."""
        self._dropped(position)

    def drop_before_begin(self) -> None:
        """Nothing stands before: entries of other epochs go as the head rises."""

    def refuse(self, why: str) -> ShardReadOnly:
        """Take nothing more."""
        self._broken = self._broken or f"shard {self._codec.shard} is read-only: {why}"
        return ShardReadOnly(self._broken)

    def retire(self) -> None:
        """Take nothing any more."""
        self.close()

    def come_to_rest(self) -> None:
        """Nothing is left untidy."""

    def close(self) -> None:
        """Take nothing any more; says nothing about what is under way."""
        self._broken = self._broken or "the log is closed"
