"""How a member reads the log to its end, and becomes its writer (rules 4 and 5)."""

import msgspec

from millstream.store.object_log.entry import (
    EPOCH,
    RECORDS,
    Chain,
    Codec,
    LogObject,
    Unsound,
)
from millstream.store.object_log.head import HeadCodec, LogHead
from millstream.store.object_log.judgement import Broken, Open, Stored, put
from millstream.store.object_log.requests import Absent, FoundObject, Get, Steps


class BrokenLog(Exception):
    """The log cannot be read on; the text names where and why."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"the log is broken at position {position}: {why}")
        self.position = position


class Read(msgspec.Struct):
    """What was read of a log: from which head, which entries, and where it goes on."""

    head: LogHead
    tag: str | None  # of the head, None where there is none
    chain: Chain
    entries: list[LogObject] = []


class Won(msgspec.Struct, frozen=True):
    """We are the writer from here on."""

    read: Read
    chain: Chain  # where our first entry goes
    epoch: int


def proves(read: Read, now: LogHead) -> bool:
    """Say whether no entry went while we read.

    Otherwise a position may have looked free because its entry was gone, or hold the epoch entry of
    somebody whom that misled: where the log ends is not known then.
    """
    return now.floor < read.head.chain.position


def counts(epoch: int, now: LogHead) -> bool:
    """Say whether an epoch entry holds its position, by a head that was read after it was made.

    At or below the floor a position may be free because its entry is gone (rule 5).
    """
    return now.floor < epoch


class LogReader:
    """Knows how one shard's log is read and taken over."""

    def __init__(self, codec: Codec, heads: HeadCodec, window: int) -> None:
        self._codec = codec
        self._heads = heads
        self._window = window

    def open(self) -> Steps[Read]:
        """Read the head: where to begin."""
        while True:
            answer = yield Get(self._heads.name)
            if isinstance(answer, Absent):
                return Read(LogHead(), None, LogHead().chain, [])
            if isinstance(answer, FoundObject):
                head = self._heads.decode(answer.data)
                if head is None:
                    raise BrokenLog(0, "its head was not written with the fleet's key")
                return Read(head, answer.tag, head.chain, [])

    def read_on(self, read: Read) -> Steps[None]:
        """Go from entry to entry by name up to the first free position; listings are no proof."""
        while True:
            answer = yield Get(self._codec.name(read.chain.position))
            if isinstance(answer, Absent):
                return
            if isinstance(answer, FoundObject):
                entry = self._codec.decode(answer.data, read.chain.position)
                self._take(read, entry)

    def take_over(self, nonce: int) -> Steps[Won]:
        """Read to the end and put an epoch entry exactly there; its position is our epoch."""
        read = yield from self.open()
        while True:
            yield from self.read_on(read)
            claimed = yield from self.claim(read, nonce)
            if isinstance(claimed, Won):
                return claimed
            read = claimed

    def claim(self, read: Read, nonce: int, body: bytes = b"") -> Steps[Won | Read]:
        """Put an epoch entry exactly where a read ended; ``body`` says who we are.

        A read as answer: nothing is ours, and the log is to be read on from there. Entries went
        while we read, or somebody else's came first, which is part of the log then.
        """
        now = yield from self.open()
        if not proves(read, now.head):
            return now
        at = read.chain.position
        epoch = Chain(at, at, nonce, read.chain.check)
        data = self._codec.encode(epoch, EPOCH, body, self._window)
        if not (yield from self._put(data, at)):
            return read
        now = yield from self.open()
        if not counts(at, now.head):
            return now
        self._take(read, self._codec.decode(data, at))
        read.head, read.tag = now.head, now.tag
        return Won(read, read.chain, at)

    def _put(self, data: bytes, at: int) -> Steps[bool]:
        """Put an epoch entry; False where another entry has the position."""
        while True:
            judgement = yield from put(self._codec, data, at)
            if isinstance(judgement, Broken):
                raise BrokenLog(judgement.position, judgement.why)
            if not isinstance(judgement, Open):
                return isinstance(judgement, Stored)

    def _take(self, read: Read, entry: LogObject | Unsound) -> None:
        """Add the next entry, which must go on with the chain or begin a new epoch in it."""
        chain = read.chain
        if isinstance(entry, Unsound):
            raise BrokenLog(chain.position, entry.why)
        if entry.previous != chain.check:
            raise BrokenLog(chain.position, "it does not follow the entry before it")
        if entry.kind == EPOCH:
            if entry.epoch != entry.position:
                raise BrokenLog(chain.position, "its epoch is not its position")
        elif entry.kind != RECORDS or (entry.epoch, entry.nonce) != (chain.epoch, chain.nonce):
            raise BrokenLog(chain.position, "it is not of the writer of its epoch")
        read.entries.append(entry)
        read.chain = entry.after()
