"""EphemeralHeads: up to where streams in memory alone have counted, so that none counts anew.

Their records go with the process, their sequences do not come again: what a reader has seen, and
what consumers, routers and leases remember, stays true. A frame says ahead how far a stream may
count; only a record that outruns it waits for it, as the first one does. A stop in order writes
the exact head.
"""

import logging
import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from millstream.clock import Clock
from millstream.errors import MillstreamError
from millstream.store.log.log import RESTART, Committed, Log
from millstream.store.log.memory_log import MemoryLog
from millstream.store.recovery.recovery import Control

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

log = logging.getLogger(__name__)

STREAM_HEAD = 34
AHEAD = 16_384  # sequences that a frame allows; the next one is written when half of them are used
MOST_AHEAD = 1 << 20  # and doubles them up to here, while half of them last less than
QUICK = 0.5  # seconds


class KeptHead(msgspec.Struct, frozen=True, array_like=True):
    """No sequence above ``head`` was given out; records from ``first`` on may be missed."""

    first: int
    head: int


class HeadControls(Protocol):
    """What this asks of the store."""

    def control(
        self, kind: int, log_id: int, body: bytes, done: Committed, sync: bool = True
    ) -> None:
        """Write a control frame."""
        ...


class HeadWatch:
    """Looks at one stream after each commit, which must cost next to nothing."""

    __slots__ = ("_ahead", "_clock", "_heads", "_log", "_since", "_stream", "_until")

    def __init__(self, stream: "Stream", heads: "EphemeralHeads", clock: Clock) -> None:
        self._stream = stream
        self._log = stream.log
        self._heads = heads
        self._clock = clock
        self._until = -1  # what is written down suffices to here
        self._ahead = AHEAD
        self._since = float("-inf")

    def look(self) -> None:
        """Have more written down in time."""
        if self._log.committed_seq > self._until:
            now = self._clock.monotonic()
            is_quick = now - self._since < QUICK
            self._ahead = min(2 * self._ahead, MOST_AHEAD) if is_quick else AHEAD
            self._since = now
            self._until = self._heads.allow_more(self._stream, self._ahead)


class EphemeralHeads:
    """Follows the streams that are in memory alone."""

    def __init__(self, store: HeadControls, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._found: dict[int, KeptHead] = {}
        self._allowed: dict[int, int] = {}  # by stream, the highest sequence that is written down
        self._is_settled = False

    def replay(self, saved: dict[int, KeptHead], controls: Iterable[Control]) -> None:
        """Take up what a snapshot says, and the frames after it."""
        self._found = dict(saved)
        for control in controls:
            if control.kind == STREAM_HEAD:
                self._found[control.log_id] = msgspec.json.decode(control.body, type=KeptHead)

    def restore(self, made: Log) -> None:
        """Let a new log go on where the one of an earlier process ended."""
        found = self._found.pop(made.log_id, None)
        if found is not None and isinstance(made, MemoryLog):
            made.begin_after(found.first, found.head)
            self._allowed[made.log_id] = found.head

    def follow(self, stream: "Stream") -> None:
        """Write down how far a stream may count, from now on."""
        if isinstance(stream.log, MemoryLog):
            stream.log.hold_above(stream.log.committed_seq, partial(self._outrun, stream))
            stream.watchers.add_prompt(HeadWatch(stream, self, self._clock).look)

    def forget(self, stream: "Stream") -> None:
        """Forget a stream that is gone."""
        self._allowed.pop(stream.incarnation, None)

    def section(self, streams: Mapping[int, "Stream"]) -> dict[int, KeptHead]:
        """Return what a snapshot holds: of those that have begun to count."""
        return {each: self._kept(streams[each]) for each in self._allowed if each in streams}

    def settle(self, streams: Iterable["Stream"]) -> None:
        """Write down the exact heads: nothing is appended any more."""
        self._is_settled = True
        for stream in streams:
            if stream.log.committed_seq < self._allowed.get(stream.incarnation, 0):
                self._write(stream)

    def _kept(self, stream: "Stream") -> KeptHead:
        state = stream.log.state()
        lost = [gap.first for gap in state.gaps if gap.reason == RESTART]
        allowed = 0 if self._is_settled else self._allowed.get(stream.incarnation, 0)
        return KeptHead(min([state.first_seq, *lost]), max(state.last_seq, allowed))

    def allow_more(self, stream: "Stream", ahead: int) -> int:
        """Write down how far a stream may count from where it is; returns when to ask again."""
        head, allowed = stream.log.committed_seq, self._allowed.get(stream.incarnation, 0)
        if head <= allowed - ahead // 2 or stream.is_closed or self._is_settled:
            return allowed - ahead // 2
        self._allowed[stream.incarnation] = head + ahead
        self._write(stream)
        return head + ahead // 2

    def _outrun(self, stream: "Stream", last_seq: int) -> None:
        """Allow more, as records wait; what is asked for already is on its way."""
        if last_seq > self._allowed.get(stream.incarnation, 0):
            self._allowed[stream.incarnation] = last_seq + AHEAD
            self._write(stream)

    def _write(self, stream: "Stream") -> None:
        kept = self._kept(stream)
        body, written = msgspec.json.encode(kept), partial(_written, stream.log, kept.head)
        try:
            self._store.control(STREAM_HEAD, stream.incarnation, body, written)
        except MillstreamError as error:
            written(error)


def _written(kept: Log, head: int, error: MillstreamError | None) -> None:
    """Let the log go on; memory takes records also while the disk takes none."""
    if error is not None:
        log.warning("head of a stream in memory not written error=%s", error)
    if isinstance(kept, MemoryLog):
        kept.allow(head if error is None else math.inf)
