"""What the files of a data directory hold, piece by piece, for people and programs. Reads only.

Payloads stay out. What cannot be read is an item too, with the place where it is.
"""

from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from millstream.errors import MillstreamError
from millstream.kernel._frames import RECORD, Frames, body, scan
from millstream.kernel._index import SubjectTable
from millstream.store.cold.copy import SUFFIX
from millstream.store.disk import blocks
from millstream.store.disk.files import Files
from millstream.store.disk.keys import KeyRing
from millstream.store.log import derived
from millstream.store.log.derived import DERIVE
from millstream.store.log.overwrite import NAME as REDO
from millstream.store.log.overwrite import decode_redo
from millstream.store.log.snapshot import decode_snapshot, snapshot_name, snapshot_numbers
from millstream.store.segments.files import (
    HEADER_BYTES,
    binding,
    decode_idx,
    holds_blocks,
    idx_generation,
    read_data_header,
)
from millstream.store.wal.entry import BOUND, Damage, WalEntry, scan_entries
from millstream.store.wal.local_engine import HEADER, decode_header, wal_indexes, wal_name
from millstream.store.wal.marks import RESERVED, SYNCED, is_marks, read_marks

# What a control frame is about, by its kind.
CONTROLS = {
    16: "stream set",
    17: "stream gone",
    18: "consumer set",
    19: "consumer gone",
    20: "consumer state",
    21: "trim",
    22: "delete",
    23: "void",
    24: "reserve",
    25: "leases",
    26: "sink batch",
    27: "source position",
    28: "skip",
    30: "copies",
    31: "router set",
    32: "router gone",
    33: "erase",
}

MARKED = {SYNCED: "synced", RESERVED: "reserved"}

Item = dict[str, object]


def dump_directory(directory: str, files: Files, ring: KeyRing | None = None) -> Iterator[Item]:
    """Yield what the files hold: WAL, segments with their indexes, snapshots, pending erases."""
    ring = ring or KeyRing()
    wal = f"{directory}/wal"
    for shard in _names(files, wal):
        for index in wal_indexes(files, f"{wal}/{shard}"):
            path = f"{wal}/{shard}/{wal_name(index)}"
            yield from _readable(path, partial(_dump_wal, path, files, ring))
    streams = f"{directory}/streams"
    for name in _names(files, streams):
        for file in _names(files, f"{streams}/{name}"):
            path = f"{streams}/{name}/{file}"
            yield from _readable(path, partial(_dump_stream_file, path, files, ring))
    meta = f"{directory}/meta"
    for number in snapshot_numbers(files, meta):
        path = f"{meta}/{snapshot_name(number)}"
        yield from _readable(path, partial(_dump_snapshot, path, files, ring))
    for name in filter(is_marks, _names(files, meta)):
        yield from _readable(f"{meta}/{name}", partial(_dump_marks, f"{meta}/{name}", files))
    if files.exists(f"{meta}/{REDO}"):
        yield from _readable(f"{meta}/{REDO}", partial(_dump_redo, f"{meta}/{REDO}", files))


def _names(files: Files, path: str) -> list[str]:
    return files.listdir(path) if files.exists(path) else []


def _readable(path: str, dump: Callable[[], Iterator[Item]]) -> Iterator[Item]:
    """Go on with the next file where one is of another version or sealed with another key."""
    try:
        yield from dump()
    except MillstreamError as error:
        yield {"kind": "unreadable", "file": path, "error": str(error)}


def _content(path: str, files: Files) -> memoryview:
    file = files.open(path)
    try:
        return file.view(file.size())
    finally:
        file.close()


def _damage(path: str, first: int, last: int) -> Item:
    return {"kind": "damage", "file": path, "offset": first, "end": last}


# --- the write-ahead log


def _dump_wal(path: str, files: Files, ring: KeyRing) -> Iterator[Item]:
    buffer = _content(path, files)
    data = bytes(buffer[: HEADER.size])
    header = decode_header(data, path)
    known = msgspec.structs.asdict(header) if header else None
    yield {"kind": "wal", "file": path, "header": known}
    if header is None and any(data):
        yield _damage(path, 0, HEADER.size)
    for item in scan_entries(buffer, HEADER.size, 0):
        if isinstance(item, Damage):
            yield _damage(path, item.start, item.end)
            yield from _dump_frames(path, buffer, item.start, item.end)
            continue
        yield _dump_entry(path, item, item.sound(buffer))
        if item.sealed:
            yield from _dump_blocks(path, buffer, item.body, BOUND, ring, item.end)
        else:
            yield from _dump_frames(path, buffer, item.body, item.end)


def _dump_entry(path: str, entry: WalEntry, sound: bool) -> Item:
    return {
        "kind": "entry",
        "file": path,
        "offset": entry.start,
        "position": entry.position,
        "durable": entry.durable,
        "commits": entry.commits,
        "continues": entry.continues,
        "sealed": entry.sealed,
        "again": entry.again,
        "sound": sound,
        "runs": [run._asdict() for run in entry.runs],
    }


# --- segments


def _dump_stream_file(path: str, files: Files, ring: KeyRing) -> Iterator[Item]:
    directory, file = path.rsplit("/", 1)
    if not file.startswith("seg-") or not file[4:24].isdigit():
        yield {"kind": "other", "file": path}
        return
    log_id, base_seq = int(directory.rsplit("/", 1)[1], 16), int(file[4:24])
    if file.endswith(".data"):
        yield from _dump_segment(path, log_id, base_seq, files, ring)
    elif file.endswith(".idx"):
        yield _dump_idx(path, log_id, base_seq, files, ring)
    else:
        yield {"kind": "cold" if file.endswith(SUFFIX) else "other", "file": path}


def _dump_segment(
    path: str, log_id: int, base_seq: int, files: Files, ring: KeyRing
) -> Iterator[Item]:
    buffer = _content(path, files)
    bound = binding(log_id, base_seq)
    head = read_data_header(bytes(buffer[:HEADER_BYTES]), log_id, base_seq, path)
    in_blocks = head.in_blocks if head else holds_blocks(buffer, bound)
    yield {
        "kind": "segment",
        "file": path,
        "log_id": f"{log_id:016x}",
        "base_seq": base_seq,
        "in_blocks": in_blocks,
        "generation": head.generation if head else None,
        "key_id": head.key_id.hex() if head else None,
    }
    if head is None:
        yield _damage(path, 0, HEADER_BYTES)
    if in_blocks:
        yield from _dump_blocks(path, buffer, HEADER_BYTES, bound, ring)
    else:
        yield from _dump_frames(path, buffer, HEADER_BYTES)


def _dump_idx(path: str, log_id: int, base_seq: int, files: Files, ring: KeyRing) -> Item:
    data = bytes(_content(path, files))
    subjects = SubjectTable()
    index = decode_idx(data, log_id, base_seq, 1 << 62, subjects, path, ring)
    if index is None:
        return _damage(path, 0, len(data))
    return {
        "kind": "index",
        "file": path,
        "log_id": f"{log_id:016x}",
        "base_seq": base_seq,
        "entries": len(index),
        "live": index.live,
        "last_seq": index.seq(len(index) - 1) if len(index) else base_seq - 1,
        "data_bytes": int.from_bytes(data[32:40], "little"),
        "generation": idx_generation(data),
    }


def _dump_blocks(
    path: str, buffer: memoryview, start: int, bound: bytes, ring: KeyRing, end: int = -1
) -> Iterator[Item]:
    """Yield blocks and the frames in them; offsets of frames are those in the plain form."""
    end = len(buffer) if end < 0 else end
    found, damaged = blocks.find_blocks(buffer, start, end, bound)
    for ref in found:
        raw = blocks.decode_block(buffer, ref, bound, ring)
        yield {
            "kind": "block",
            "file": path,
            "offset": ref.at,
            "bytes": ref.after - ref.at,
            "plain_offset": ref.offset,
            "plain_bytes": ref.size,
            "sound": raw is not None,
        }
        if raw is not None:
            yield from _dump_frames(path, memoryview(raw), 0)
    for first, last in damaged:
        yield _damage(path, first, last)


# --- frames


def _dump_frames(path: str, buffer: memoryview, start: int, end: int = -1) -> Iterator[Item]:
    frames, damaged = scan(buffer, start, len(buffer) if end < 0 else end)
    for kind, flags, stream_id, seq, ts_ns, at, size, deleted in frames:
        item: Item = {
            "kind": "record" if kind == RECORD else "control",
            "file": path,
            "offset": at,
            "bytes": size,
            "type": kind,
            "more": bool(flags & 1),
            "log_id": f"{stream_id:016x}",
            "seq": seq,
            "ts_ns": ts_ns,
            "deleted": bool(deleted),
        }
        if kind == RECORD:
            _, _, subject, payload, _, tag, _, _ = Frames(buffer, [at]).record(0)
            item |= {
                "subject": subject.decode(errors="replace"),
                "tag": tag.decode(errors="replace") if not deleted and tag else None,
                "payload_bytes": len(payload),
            }
        else:
            item |= {"name": CONTROLS.get(kind, "unknown"), "body": _body(kind, body(buffer, at))}
        yield item
    for first, last in (place[:2] for place in damaged):
        yield _damage(path, first, last)


def _body(kind: int, content: bytes) -> object:
    """Return what a control frame says."""
    try:
        if kind == DERIVE:
            return msgspec.to_builtins(derived.decode(content))
        return msgspec.json.decode(content)
    except msgspec.MsgspecError:
        return bytes(content).decode(errors="replace")


# --- meta


def _dump_snapshot(path: str, files: Files, ring: KeyRing) -> Iterator[Item]:
    data = bytes(_content(path, files))
    snapshot = decode_snapshot(data, path, ring)
    if snapshot is None:
        yield _damage(path, 0, len(data))
        return
    yield {
        "kind": "snapshot",
        "file": path,
        "number": snapshot.number,
        "positions": {str(shard): at for shard, at in snapshot.positions.items()},
        "control_number": snapshot.control_number,
        "logs": len(snapshot.logs),
        "dropped": [f"{log_id:016x}" for log_id in snapshot.dropped],
        "sections": {name: len(section) for name, section in snapshot.sections.items()},
    }
    for each in snapshot.logs:
        fields = {name: getattr(each, name) for name in each.__struct_fields__}
        fields |= {
            "log_id": f"{each.log_id:016x}",
            "segments": [msgspec.structs.asdict(state) for state in each.segments],
        }
        yield {"kind": "log", "file": path, **fields}


def _dump_marks(path: str, files: Files) -> Iterator[Item]:
    marks: dict[str, dict[str, int]] = {}
    for (kind, log_id), seq in sorted(read_marks(files, path).items()):
        marks.setdefault(f"{log_id:016x}", {})[MARKED.get(kind, str(kind))] = seq
    yield {"kind": "marks", "file": path, "logs": marks}


def _dump_redo(path: str, files: Files) -> Iterator[Item]:
    data = bytes(_content(path, files))
    redo = decode_redo(data, path)
    if redo is None:
        yield _damage(path, 0, len(data))
        return
    yield {
        "kind": "erase",
        "file": path,
        "patches": [[each.path, each.offset, len(each.data)] for each in redo.patches],
        "copies": [[each.copy, each.path] for each in redo.copies],
    }
