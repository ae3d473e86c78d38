"""The size of a stream as HTTP counts it: data and meta, without subjects, tags or framing.

The log counts whole frames, so the lengths are summed from its index.
"""

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from millstream.kernel._frames import HEADER, TRAILER
from millstream.store.log.file_log import FileLog

if TYPE_CHECKING:
    from millstream.store.log.log import Log
    from millstream.store.segments.segment import Segment
    from millstream.streams.config.config import StreamConfig

_Known = tuple[int, int, int, int]  # start, stop, live entries, their size
_sums: "WeakKeyDictionary[Segment, _Known]" = WeakKeyDictionary()


def data_bytes(log: "Log", name: str, first_seq: int) -> int:
    """Return the size of the committed live records of a stream from ``first_seq`` on."""
    if not isinstance(log, FileLog):
        state = log.state()
        return max(0, state.bytes - state.count * (HEADER + TRAILER + len(name.encode())))
    past = log.state().last_seq + 1
    return sum(_segment_bytes(segment, first_seq, past) for segment in log.segments)


def _segment_bytes(segment: "Segment", first_seq: int, past: int) -> int:
    """Return one segment's share; what did not change since it was last asked is not summed."""
    index = segment.index
    start, stop, live = index.position(first_seq), index.position(past), index.live
    known = _sums.get(segment)
    if known is None:
        size = index.data_bytes(start, stop)
    elif known[:3] == (start, stop, live):
        return known[3]
    elif known[:2] == (start, known[1]) and stop >= known[1] and live - known[2] == stop - known[1]:
        size = known[3] + index.data_bytes(known[1], stop)  # it only grew
    else:
        size = index.data_bytes(start, stop)
    _sums[segment] = (start, stop, live, size)
    return size


def counts_data(config: "StreamConfig") -> bool:
    """Return whether ``max_bytes`` means data and meta: of a topic that takes nothing from NATS."""
    return not (config.subjects or config.mirror or config.sources)
