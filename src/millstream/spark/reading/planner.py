"""Which task reads what: a read plan and a range in, parts out. Pure, and the same each time.

Every sequence of the range falls into exactly one part; where a part is read from may change
between two attempts (a tail seals, a file goes), its rows may not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from millstream.client.streams import ColdFile, PlannedSegment, ReadPlan
from millstream.spark.options import Access

# A sequence that was never acknowledged to anybody is not lost.
HARMLESS = frozenset({"void", "delete"})
TAIL_RECORDS = 250_000  # what one task reads through the server unless the user says otherwise
TASK_BYTES = 256 << 20  # what one task reads of files at most, unless a single one is larger
LEAST_BYTES = 4 << 20  # of less it is not worth to make two tasks
UNEVEN_BYTES = 1 << 20  # by which one task may have more to do than another
GUESSED_BYTES = 200  # a record that only the server has

Lost: TypeAlias = tuple[int, int, str]
_Other = TypeVar("_Other")


@dataclass(frozen=True, slots=True)
class FileRange:
    """Records ``from_seq..to_seq`` of a sealed segment."""

    path: str
    idx_path: str
    from_seq: int
    to_seq: int
    bytes: int = 0  # about


@dataclass(frozen=True, slots=True)
class ColdRange:
    """Records ``from_seq..to_seq`` of a cold Parquet file, but for those deleted since."""

    path: str
    from_seq: int
    to_seq: int
    deleted: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ServerRange:
    """Records ``from_seq..to_seq`` that the server reads for us."""

    from_seq: int
    to_seq: int


@dataclass(frozen=True, slots=True)
class LostRanges:
    """Ranges that nobody can read any more, each with its reason."""

    gaps: tuple[Lost, ...]


Part: TypeAlias = FileRange | ColdRange | ServerRange | LostRanges


def parts(
    plan: ReadPlan, from_seq: int, to_seq: int, access: Access, max_records: int
) -> list[Part]:
    """Cut ``from_seq..to_seq`` at segment boundaries, and further at ``max_records`` if not 0."""
    ranges: list[Part] = []
    position = max(from_seq, plan.first_seq)
    last = min(to_seq, plan.last_seq)
    if access is not Access.BROKER:
        files: list[ColdFile | PlannedSegment] = [*_reachable(plan.cold), *plan.segments]
        for file in sorted(files, key=lambda f: f.base_seq):
            # What lies between two files is for the server to answer: it knows why.
            before = min(file.base_seq - 1, last)
            ranges += _server(position, before, max_records)
            first = max(position, file.base_seq)
            if isinstance(file, ColdFile):
                ranges += _cold(file, first, last, max_records, plan.cold_deleted)
            else:
                ranges += _file(file, first, last, max_records)
            position = max(position, file.last_seq + 1)
    ranges += _server(position, last, max_records)
    return ranges


def at_least(parts: Sequence[Part], count: int) -> list[Part]:
    """Cut the longest parts further until there are about ``count``, where records allow it."""
    total = sum(_length(part) for part in parts)
    if len(parts) >= count or not total:
        return list(parts)
    size = -(-total // count)
    return [piece for part in parts for piece in _pieces(part, size)]


def packed(pieces: Sequence[tuple[Part, _Other]], cores: int) -> list[list[tuple[Part, _Other]]]:
    """Share parts out to tasks, neighbours together: a start costs as much as some megabytes.

    There are as many tasks as cores where the bytes are worth it, each with about as much to do,
    as with Spark's own reader of files: what is too long for one goes on in the next. What belongs
    to a part, such as its stream, goes with it.
    """
    total = sum(_weight(part) for part, _ in pieces)
    most = min(TASK_BYTES, max(LEAST_BYTES, total // max(cores, 1) + UNEVEN_BYTES))
    tasks: list[list[tuple[Part, _Other]]] = []
    room = 0
    for part, other in pieces:
        for piece in _cut_for(part, room, most):
            weight = _weight(piece)
            if not tasks or weight > room:
                tasks.append([])
                room = most
            tasks[-1].append((piece, other))
            room -= weight
    return tasks


def _cut_for(part: Part, room: int, most: int) -> Iterator[Part]:
    """Cut a part where tasks end: behind the ``room`` of the last one, then behind each ``most``.

    Not in a cold file: who starts within a group of rows decodes all of it.
    """
    if isinstance(part, ColdRange | LostRanges):
        yield part
        return
    each = _weight(part) / _length(part)
    reach = room if room >= LEAST_BYTES else most
    first = part.from_seq
    while (part.to_seq - first) * each + each > reach:
        last = first + max(int(reach / each), 1) - 1
        yield _between(part, first, last)
        first, reach = last + 1, most
    if first <= part.to_seq:
        yield _between(part, first, part.to_seq)


def _between(part: FileRange | ServerRange, first: int, last: int) -> Part:
    if isinstance(part, ServerRange):
        return ServerRange(first, last)
    share = (last - first + 1) / _length(part)
    return replace(part, from_seq=first, to_seq=last, bytes=round(part.bytes * share))


def _weight(part: Part) -> int:
    known = part.bytes if isinstance(part, FileRange) else 0
    return known or _length(part) * GUESSED_BYTES


def _length(part: Part) -> int:
    return 0 if isinstance(part, LostRanges) else part.to_seq - part.from_seq + 1


def _pieces(part: Part, size: int) -> list[Part]:
    if isinstance(part, LostRanges):
        return [part]
    cuts = _cut(part.from_seq, part.to_seq, size)
    return [replace(part, from_seq=low, to_seq=high) for low, high in cuts]


def lost(plan: ReadPlan, from_seq: int, to_seq: int) -> tuple[Lost, ...]:
    """Return the lost ranges inside ``from_seq..to_seq``, clipped to it, in order."""
    return tuple(
        (max(first, from_seq), min(last, to_seq), reason)
        for first, last, reason in sorted(plan.gaps)
        if reason not in HARMLESS and first <= to_seq and last >= from_seq
    )


def newly_lost(now: Sequence[Lost], known: Sequence[Lost]) -> tuple[Lost, ...]:
    """Return what is lost now and was not known to be when the read was planned."""
    fresh: list[Lost] = []
    for first, last, reason in now:
        position = first
        for known_first, known_last, _ in sorted(known):
            if known_last < position or known_first > last:
                continue
            if known_first > position:
                fresh.append((position, known_first - 1, reason))
            position = known_last + 1
        if position <= last:
            fresh.append((position, last, reason))
    return tuple(fresh)


def describe(gaps: Sequence[Lost]) -> str:
    """Return lost ranges in words, the first few of many."""
    shown = [f"{first}..{last} ({reason})" for first, last, reason in gaps[:5]]
    more = f" and {len(gaps) - 5} more" if len(gaps) > 5 else ""
    return ", ".join(shown) + more


def _file(segment: PlannedSegment, first: int, last: int, max_records: int) -> Iterator[Part]:
    each = segment.bytes / (segment.last_seq - segment.base_seq + 1)
    for low, high in _cut(first, min(last, segment.last_seq), max_records):
        size = round(each * (high - low + 1))
        yield FileRange(segment.path, segment.idx_path, low, high, size)


def _reachable(files: Sequence[ColdFile]) -> list[ColdFile]:
    """Return cold files in a directory; an object store is read by the server."""
    return [file for file in files if "://" not in file.path]


def _cold(
    file: ColdFile, first: int, last: int, max_records: int, deleted: Sequence[tuple[int, int]]
) -> Iterator[Part]:
    for low, high in _cut(first, min(last, file.last_seq), max_records):
        gone = tuple((max(a, low), min(b, high)) for a, b in deleted if a <= high and b >= low)
        yield ColdRange(file.path, low, high, gone)


def _server(first: int, last: int, max_records: int) -> Iterator[Part]:
    for low, high in _cut(first, last, max_records or TAIL_RECORDS):
        yield ServerRange(low, high)


def _cut(first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    step = size or max(last - first + 1, 1)
    for low in range(first, last + 1, step):
        yield low, min(low + step - 1, last)
