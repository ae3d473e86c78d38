"""Where a stream's records are, for readers that take the files themselves.

    {"stream", "incarnation", "identity", "first_seq", "last_seq", "gaps": [[from, to, reason]],
     "segments": [{"path", "idx_path", "base_seq", "last_seq", "bytes"}],
     "tail": {"from_seq", "to_seq"}, "next_from_seq"?, "time_seq"?, "until_seq"?,
     "cold"?: [{"path", "base_seq", "last_seq"}], "cold_deleted"?: [[from, to]]}

Sealed segments never change but for delete flags, so a reader with the files needs no server. The
tail is what is not sealed yet: the server reads it out as ranges of frames. A page lists at most
``MAX_SEGMENTS``; with more, ``next_from_seq`` says where the next page starts.

``incarnation`` is what files and frames carry, and starts at 1 in each data directory; ``identity``
tells the stream from those of other directories too.

Files hold everything: who may read only some subjects gets a plan without them (``"whole": false``)
and ranges that leave out the rest.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from millstream.errors import BadRequest, NotHere
from millstream.store.log.log import Durability
from millstream.streams.config.source import identity_of, short_hash

if TYPE_CHECKING:
    from millstream.kernel._frames import Frames
    from millstream.kernel._index import SegmentIndex
    from millstream.store.log.log import LogState
    from millstream.streams.reading.views import View
    from millstream.streams.stream import Stream

MAX_SEGMENTS = 2_000  # about 300 bytes each: a page stays below the smallest usual max_payload
RETENTION = "retention"  # the log knows how far its limits have trimmed, not which limit did
READ_RECORDS = 65_536
READ_BYTES = 1 << 20


class SealedSegment(Protocol):
    """What a plan tells about a sealed segment; the store's ``SegmentPlan`` is one."""

    @property
    def path(self) -> str:
        """Return the path of the records."""
        ...

    @property
    def idx_path(self) -> str:
        """Return the path of the index."""
        ...

    @property
    def base_seq(self) -> int:
        """Return the first sequence the segment can hold."""
        ...

    @property
    def last_seq(self) -> int:
        """Return the last sequence in it."""
        ...

    @property
    def bytes(self) -> int:
        """Return the size of the records' file."""
        ...


class PlannedColdFile(Protocol):
    """A segment's Parquet twin; the store's ``ColdPlan`` is one."""

    @property
    def path(self) -> str:
        """Return where it is: a path, or a URL."""
        ...

    @property
    def base_seq(self) -> int:
        """Return the first sequence it can hold."""
        ...

    @property
    def last_seq(self) -> int:
        """Return the last sequence in it."""
        ...


# Twins of the oldest segments, and ranges of sequences in them that do not count.
Cold = tuple[Sequence[PlannedColdFile], list[tuple[int, int]]]


class PlanRequest(msgspec.Struct, frozen=True):
    """A request for a plan, or for the page of it that starts at ``from_seq``."""

    from_seq: int = 0
    at_ns: int = 0  # ask for the first sequence at or after this time
    max_bytes: int = 0  # ask how far so many bytes from ``from_seq`` on reach


class RangeRequest(msgspec.Struct, frozen=True):
    """A request for the records ``from_seq..to_seq`` as raw frames."""

    from_seq: int
    to_seq: int
    max_bytes: int = READ_BYTES


def plan_for(
    stream: "Stream",
    segments: Sequence[SealedSegment],
    asked: PlanRequest | None = None,
    *,
    whole: bool = True,
    cold: Cold | None = None,
) -> dict[str, Any]:
    """Return the plan of a stream, given the sealed segments of its log, and its cold files.

    No file is named to whoever may not read the ``whole`` of it.
    """
    segments = segments if whole else ()
    asked = asked or PlanRequest()
    from_seq = asked.from_seq
    state = stream.log.state()
    sealed = [s for s in segments if state.first_seq <= s.last_seq <= state.last_seq]
    tail_from = max([s.last_seq + 1 for s in sealed], default=state.first_seq)
    page = [s for s in sealed if s.last_seq >= from_seq]
    plan: dict[str, Any] = {
        "stream": stream.name,
        "incarnation": stream.incarnation,
        "identity": _identity(stream),
        "first_seq": state.first_seq,
        "last_seq": state.last_seq,
        "gaps": _gaps(state),
        "segments": [_segment(s) for s in page[:MAX_SEGMENTS]],
        "tail": {"from_seq": max(tail_from, state.first_seq), "to_seq": state.last_seq},
    }
    if not whole:
        plan["whole"] = False
    elif cold is not None and cold[0]:
        files, plan["cold_deleted"] = cold
        plan["cold"] = [
            {"path": f.path, "base_seq": f.base_seq, "last_seq": f.last_seq}
            for f in files[:MAX_SEGMENTS]
        ]
    if len(page) > MAX_SEGMENTS:
        plan["next_from_seq"] = page[MAX_SEGMENTS].base_seq
    if asked.at_ns > 0:
        plan["time_seq"] = stream.log.seek_time(asked.at_ns)
    if asked.max_bytes > 0:
        plan["until_seq"] = reach(stream, from_seq, asked.max_bytes)
    return plan


def _identity(stream: "Stream") -> str:
    """Return the word for the stream that these sequences belong to.

    Sequences of a stream in memory alone go on over a restart, but its records are others: who
    remembers bytes or counts by this word must not take those of another process for them.
    """
    if stream.log.durability is Durability.EPHEMERAL:
        return short_hash(f"{identity_of(stream)} {stream.opened_ns}")
    return identity_of(stream)


def reach(stream: "Stream", from_seq: int, max_bytes: int) -> int:
    """Return the last sequence of those from ``from_seq`` on that fit; at least one record does.

    Sizes are those of frames, deleted ones included: by arithmetic on the index alone.
    """
    last = stream.log.committed_seq
    for segment in stream.log.segments:
        index = segment.index
        stop = index.position(last + 1)
        at = index.position(max(from_seq, segment.base_seq))
        if at >= stop:
            continue
        fits = _fitting(index, at, stop, max_bytes)
        if fits < stop:
            return max(index.seq(fits) - 1, from_seq)
        max_bytes -= _end(index, stop - 1) - index.offset(at)
        if max_bytes <= 0:
            return index.seq(stop - 1)
    return last


def _fitting(index: "SegmentIndex", at: int, stop: int, max_bytes: int) -> int:
    """Return the first position whose record, counted from ``at``, does not fit."""
    start = index.offset(at)
    low, high = at, stop
    while low < high:
        middle = (low + high) // 2
        if _end(index, middle) - start <= max_bytes:
            low = middle + 1
        else:
            high = middle
    return low


def _end(index: "SegmentIndex", position: int) -> int:
    return index.offset(position) + index.frame_len(position)


def _gaps(state: "LogState") -> list[list[Any]]:
    """Return every lost range: what the limits took, then what was lost above that."""
    floor = state.evict_floor
    taken: list[list[Any]] = [[1, floor, RETENTION]] if floor else []
    return taken + [
        [max(gap.first, floor + 1), gap.last, gap.reason] for gap in state.gaps if gap.last > floor
    ]


def read_range(
    stream: "Stream", asked: RangeRequest, most: int = READ_BYTES, view: "View | None" = None
) -> bytes:
    """Return raw frames of the range, oldest first, within ``max_bytes`` and ``most``.

    With a ``view`` only those of subjects in it. At least one frame comes back if there is any,
    however large; an empty answer means that nothing is left in the range.
    """
    if asked.from_seq < 1 or asked.max_bytes < 1:
        raise BadRequest("from_seq and max_bytes start at 1")
    room = min(asked.max_bytes, most)
    position, taken = asked.from_seq, bytearray()
    while position <= asked.to_seq and (room > 0 or not taken):
        try:
            frames = _frames_from(stream, position, max(room, 1), view)
        except NotHere:
            if not taken:
                raise
            break  # a short answer now; the rest is on its way here
        count = _within(frames, asked.to_seq)
        if count == 0:
            break
        raw = frames.raw(0, count)
        if taken and len(raw) > room:
            break
        taken += raw
        room -= len(raw)
        position = frames.seq(count - 1) + 1
    return bytes(taken)


def _frames_from(stream: "Stream", position: int, room: int, view: "View | None") -> "Frames":
    if view is None:
        return stream.read(position, READ_RECORDS, room)
    return stream.index.read(view, position, READ_RECORDS, room)


class _Numbered(Protocol):
    def __len__(self) -> int: ...

    def seq(self, i: int, /) -> int: ...


def _within(frames: _Numbered, to_seq: int) -> int:
    """Return how many leading frames are at or below ``to_seq``."""
    low, high = 0, len(frames)
    while low < high:
        middle = (low + high) // 2
        if frames.seq(middle) <= to_seq:
            low = middle + 1
        else:
            high = middle
    return low


def _segment(segment: SealedSegment) -> dict[str, Any]:
    return {
        "path": str(segment.path),
        "idx_path": str(segment.idx_path),
        "base_seq": segment.base_seq,
        "last_seq": segment.last_seq,
        "bytes": segment.bytes,
    }
