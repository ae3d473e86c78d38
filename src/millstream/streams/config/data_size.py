"""The size of a stream as HTTP counts it: data and meta, without subjects, tags or framing.

The log counts whole frames, so the lengths are summed from its index, which holds 32 bytes a
record: payload length in bytes 20 to 23, meta length in 26 and 27, the deleted flag in 31.
"""

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from millstream.kernel._frames import HEADER, TRAILER
from millstream.kernel._index import SegmentIndex
from millstream.store.log.file_log import FileLog

if TYPE_CHECKING:
    from millstream.store.log.log import Log
    from millstream.store.segments.segment import Segment
    from millstream.streams.config.config import StreamConfig

STRIDE = 32
DELETED = 1

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
        size = lengths(index, start, stop)
    elif known[:3] == (start, stop, live):
        return known[3]
    elif known[:2] == (start, known[1]) and stop >= known[1] and live - known[2] == stop - known[1]:
        size = known[3] + lengths(index, known[1], stop)  # it only grew
    else:
        size = lengths(index, start, stop)
    _sums[segment] = (start, stop, live, size)
    return size


def lengths(index: SegmentIndex, start: int, stop: int) -> int:
    """Return payload and meta lengths of the live entries in ``start..stop``."""
    if start >= stop:
        return 0
    entries = memoryview(index.tobytes(start, stop))
    payloads, metas, flags = entries.cast("I")[5::8], entries.cast("H")[13::16], entries[31::STRIDE]
    if not any(flags):
        return sum(payloads) + sum(metas)
    sizes = zip(payloads, metas, flags, strict=True)
    return sum(payload + meta for payload, meta, flag in sizes if not flag & DELETED)


def counts_data(config: "StreamConfig") -> bool:
    """Return whether ``max_bytes`` means data and meta: of a topic that takes nothing from NATS."""
    return not (config.subjects or config.mirror or config.sources)
