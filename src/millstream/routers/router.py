"""Router: what it was asked for, and how far it is."""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from millstream.routers.tag_filter import TagFilter
from millstream.store.disk.seq_ranges import SeqRanges
from millstream.store.log.derived import WITHOUT_NODE, WITHOUT_TAG, DerivedPart
from millstream.streams.retention.claims import RecordClaim

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

EXACTLY_ONCE = "exactly_once"
GUARANTEES = ("at_least_once", EXACTLY_ONCE)


class Definition(msgspec.Struct, frozen=True):
    """What a router does; ``version`` counts its changes, the ids are those of the streams."""

    account: str
    name: str
    id: int
    version: int
    source: str
    source_id: int
    dest: str
    dest_id: int
    preserve_node: bool = True
    preserve_tag: bool = True
    filter: tuple[str, str] | None = None  # (op, value)
    allow_cycle: bool = False
    guarantee: str = GUARANTEES[0]

    @property
    def tag_filter(self) -> TagFilter | None:
        """Return which records are taken, None for all."""
        return None if self.filter is None else TagFilter(*self.filter)

    @property
    def bits(self) -> int:
        """Return what copies leave out, as a DERIVE frame says it."""
        return WITHOUT_NODE * (not self.preserve_node) | WITHOUT_TAG * (not self.preserve_tag)

    @property
    def stamp(self) -> str:
        """Return the name that copies carry, empty when they carry none."""
        return self.name if self.guarantee == EXACTLY_ONCE else ""


class RouterProgress(msgspec.Struct, frozen=True):
    """How far a router is: what a snapshot keeps of it."""

    cursor: int  # done with the source's sequences up to here
    forwarded: int = 0
    tail: int = 0  # the destination's newest sequence that is this router's


class Router:
    """A definition between two streams that exist, and its state while the server runs."""

    def __init__(
        self, definition: Definition, source: "Stream", dest: "Stream", progress: RouterProgress
    ) -> None:
        self.definition = definition
        self.tags = definition.tag_filter
        self.source = source
        self.dest = dest
        self.cursor = progress.cursor
        self.forwarded = progress.forwarded
        self.tail = progress.tail
        self.held = SeqRanges()  # source sequences above the cursor that the destination holds
        self.is_busy = False  # copies are on their way
        self.is_blocked = False  # the destination takes nothing now
        self.is_gone = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def progress(self) -> RouterProgress:
        """Return how far it is."""
        return RouterProgress(self.cursor, self.forwarded, self.tail)

    @property
    def is_behind(self) -> bool:
        """Say whether the source holds something that it has not looked at."""
        return self.cursor < self.source.log.committed_seq and not self.is_gone

    @property
    def is_ready(self) -> bool:
        """Say whether it has something to look at and nothing holds it up."""
        return not self.is_busy and not self.is_blocked and self.is_behind

    def claim(self) -> None:
        """Keep what is still to be copied, where the source drops what nobody needs."""
        if self.source.config.retention == "interest" and not self.is_gone:
            claim = RecordClaim((), self.cursor + 1, ())
            self.source.removal.claims.put(self._holder, claim)

    @property
    def _holder(self) -> str:
        return f"router {self.definition.id}"  # no consumer has a blank in its name

    def redefine(self, definition: Definition) -> None:
        """Go on in another way from here on."""
        self.definition = definition
        self.tags = definition.tag_filter

    def advance(self, part: DerivedPart) -> None:
        """Take note of copies that are committed; a step that is known already changes nothing."""
        if part.passed > self.cursor:
            self.cursor = part.passed
            self.forwarded += part.count + part.lost
            self.tail = max(self.tail, part.last)

    def settled(self) -> None:
        """Let go on who waits for the copies that were on their way."""
        self.is_busy = False
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Return once what is on its way has arrived, or failed."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    def end(self) -> None:
        """Forward nothing any more."""
        self.is_gone = True
        if self.source.config.retention == "interest" and not self.source.is_closed:
            self.source.removal.unclaim(self._holder)
        self.settled()
