"""Sourcing: one source that feeds a stream, record by record, each exactly once.

Every record that is taken in says in its headers where it comes from. The newest of them is the
place to go on after a restart, so that position and record are committed together.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.clock import Clock
from millstream.delivery.timers import Timer, Timers
from millstream.errors import MillstreamError, RecordTooLarge, StreamNotFound
from millstream.kernel._batch import Batch
from millstream.streams import extras, preconditions, sources
from millstream.streams.claims import Claim
from millstream.streams.sources import Source
from millstream.streams.stream import Stream
from millstream.streams.times import time_ns

if TYPE_CHECKING:
    from millstream.kernel._frames import Frames
    from millstream.streams.subject_index import Selection

log = logging.getLogger(__name__)

PAGE_RECORDS = 256
PAGE_BYTES = 1024 * 1024
SCAN_RECORDS = 4096
RETRY_AFTER = 1.0


class Sourcing:
    """Takes the records of ``source`` into ``target`` as long as both exist."""

    def __init__(
        self,
        target: Stream,
        source: Source,
        find: Callable[[str], Stream | None],
        clock: Clock,
        timers: Timers,
    ) -> None:
        self.source = source
        self._target = target
        self._find = find
        self._clock = clock
        self._timers = timers
        self._transforms = source.transforms()
        self._holder = f"\0source\0{target.name}\0" + "\0".join(source.identity)
        self._origin: Stream | None = None
        self._chosen: Selection | None = None
        self._unwatch: Callable[[], object] | None = None
        self._timer: Timer | None = None
        self._position = 1
        self._taken = 0
        self._active_ns = 0
        self._careful_until = 0
        self._is_busy = False
        self._is_stopped = False

    # -- life --------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Follow the origin: it may have come, gone or been created anew."""
        origin = self._find(self.source.name)
        if origin is self._origin or self._is_stopped:
            return
        self._let_go()
        self._origin = origin
        if origin is None:
            return
        self._chosen = origin.index.select(self.source.filters)
        self._position = self._resume(origin)
        origin.claim(self._holder, Claim(self.source.filters, self._position, ()))
        self._unwatch = origin.watch(self._pump)
        self._pump()

    def stop(self) -> None:
        """Take nothing in any more."""
        self._is_stopped = True
        self._let_go()

    def _let_go(self) -> None:
        if self._unwatch is not None:
            self._unwatch()
        if self._timer is not None:
            self._timer.cancel()
        if self._origin is not None and not self._origin.is_closed:
            self._origin.unclaim(self._holder)
        self._origin = self._unwatch = None

    def _resume(self, origin: Stream) -> int:
        """Return the origin's sequence to go on at."""
        found = _newest(self._target, self.source.identity)
        if found is not None and found[1] == str(origin.incarnation):
            self._taken = found[0]
            return found[0] + 1
        if found is None and self.source.opt_start_seq:
            return self.source.opt_start_seq
        if found is None and self.source.opt_start_time:
            return origin.log.seek_time(time_ns(self.source.opt_start_time))
        return 1

    # -- taking in ---------------------------------------------------------------------------

    def _pump(self) -> None:
        origin, chosen = self._origin, self._chosen
        if self._is_busy or origin is None or chosen is None or self._is_stopped:
            return
        # A page is taken in whole: what a limit may turn away goes record by record.
        one_by_one = self._target.config.discard == "new" or self._position <= self._careful_until
        most = 1 if one_by_one else PAGE_RECORDS
        frames = origin.index.read(chosen, self._position, most, PAGE_BYTES)
        if not len(frames):
            return
        self._is_busy = True
        count, batch, demands = self._packed(frames, origin.incarnation)
        seqs = [frames.seq(at) for at in range(count)]
        self._target.take_in(batch, demands, partial(self._settled, origin, seqs))

    def _packed(self, frames: "Frames", incarnation: int) -> tuple[int, Batch, dict[bytes, bytes]]:
        """Return how many records fit into one run, the run, and what its records demand.

        A record with demands of its own goes alone.
        """
        batch, name, taken, made = Batch(), *self.source.identity
        for at, (seq, _, subject, payload, headers, tag, node, meta) in enumerate(frames):
            demands = _demands(headers)
            if demands and at:
                return at, batch, {}
            place = f"{name} {seq} {taken} {made} ".encode() + subject + b" %d" % incarnation
            batch.add(
                self._rewritten(subject), b"", sources.marked(headers, place), payload,
                tag, node, meta,
            )  # fmt: skip
            if demands:
                return 1, batch, demands
        return len(frames), batch, {}

    def _rewritten(self, subject: bytes) -> bytes:
        text = subject.decode("utf-8", "surrogateescape")
        for transform in self._transforms:
            if transform.matches(text):
                return transform.apply(text).encode("utf-8", "surrogateescape")
        return subject

    def _settled(self, origin: Stream, seqs: list[int], error: MillstreamError | None) -> None:
        self._is_busy = False
        if self._is_stopped or origin is not self._origin:
            return
        if isinstance(error, RecordTooLarge):
            self._careful_until = max(self._careful_until, seqs[-1])
            if len(seqs) > 1:
                self._timer = self._timers.after(0.0, self._pump)
                return
            log.warning(
                "record too large for its target, left out stream=%s source=%s seq=%d",
                self._target.name, self.source.name, seqs[0],
            )  # fmt: skip
        elif error is not None:
            log.info("source waits stream=%s error=%s", self._target.name, error)
            self._timer = self._timers.after(RETRY_AFTER, self._pump)
            return
        self._taken = seqs[-1]
        self._position = self._taken + 1
        self._active_ns = self._clock.time_ns()
        origin.settled(self._holder, seqs)
        self._timer = self._timers.after(0.0, self._pump)  # not at once: the stack stays flat

    # -- looks -------------------------------------------------------------------------------

    def info(self) -> dict[str, Any]:
        """Return the source as StreamInfo shows it."""
        origin, source = self._origin, self.source
        lag = origin.count_from(self._position, self._chosen) if origin is not None else 0
        shown: dict[str, Any] = {"name": source.name, "lag": lag}
        if self._taken:
            shown["seq"] = self._taken
        shown["active"] = self._clock.time_ns() - self._active_ns if self._active_ns else -1
        if source.filter_subject:
            shown["filter_subject"] = source.filter_subject
        if source.subject_transforms:
            shown["subject_transforms"] = [
                {"src": rewrite.src, "dest": rewrite.dest} for rewrite in source.subject_transforms
            ]
        if origin is None:
            missing = StreamNotFound(source.name, None)
            shown["error"] = {
                "code": missing.status,
                "err_code": missing.err_code,
                "description": "stream not found",
            }
        return shown


def _demands(headers: bytes) -> dict[bytes, bytes]:
    """Return the headers that make a stream do something about a record."""
    if b"\nNats-TTL:" not in headers and b"\nNats-Rollup:" not in headers:
        return {}
    values = extras.first_values(headers)
    return {k: values[k] for k in (preconditions.TTL, preconditions.ROLLUP) if k in values}


def _newest(stream: Stream, identity: tuple[str, str, str]) -> tuple[int, str] | None:
    """Return (origin's sequence, origin's incarnation) of the newest record from a source."""
    state = stream.log.state()
    stop = state.last_seq + 1
    while stop > state.first_seq:
        start = max(stop - SCAN_RECORDS, state.first_seq)
        found = _newest_in(stream, identity, start, stop)
        if found is not None:
            return found
        stop = start
    return None


def _newest_in(
    stream: Stream, identity: tuple[str, str, str], at: int, stop: int
) -> tuple[int, str] | None:
    found = None
    while at < stop:
        frames = stream.log.read(at, stop - at, PAGE_BYTES)
        if not len(frames):
            break
        for seq, _, _, _, headers, *_ in frames if sources.HEADER in frames.raw() else ():
            if seq < stop and sources.HEADER in headers:
                found = sources.origin_of(headers, identity) or found
        at = frames.last_seq + 1
    return found
