"""Erase: records overwritten with random bytes in every file that has them.

An erase is logged first, as a delete that must reach the bytes; a start that finds it logged does
it again, and what is erased already is left as it is. The bytes are changed by way of a redo file,
so that a crash in the middle never leaves a neighbour torn: once it is stable, every change in it
is made, now or by the next start, and then it goes.

    meta/erase.redo
    0 8s "MSTRRDO\\0"   8 u32 version   12 u32 0   16 u64 body bytes
   24 u64 XXH3-64 of bytes 0..24 and the body
   32 body (MessagePack): [[[path, offset, bytes], …], [[copy, path], …]]

The first list are bytes to write; the second copies whose bytes a file takes over, in its own
place, as a name could move and leave the old bytes behind. Paths are relative to the data
directory. What is erased of a frame is all that follows its subject; the delete flag is set, so
that nobody takes it for damage.
"""

import logging
import struct
from collections.abc import Iterable, Iterator
from secrets import token_bytes

import msgspec
from xxhash import xxh3_64_intdigest

from millstream.errors import StorageUnusable
from millstream.kernel._frames import DELETED, HEADER, check, scan
from millstream.store.disk import blocks
from millstream.store.disk.files import File, Files, ensure_dir, replace_file, write_all
from millstream.store.disk.keys import KeyRing
from millstream.store.wal import entry
from millstream.store.wal.entry import Damage, WalEntry, scan_entries
from millstream.store.wal.local_engine import HEADER as WAL_HEADER
from millstream.store.wal.local_engine import wal_indexes, wal_name

VERSION = 1
MAGIC = b"MSTRRDO\0"
REDO_HEADER = struct.Struct("<8sIIQQ")
CHECKED = 24
NAME = "erase.redo"
PIECE_BYTES = 1 << 20

log = logging.getLogger(__name__)


class Patch(msgspec.Struct, array_like=True, frozen=True):
    """Bytes to put into a file."""

    path: str
    offset: int
    data: bytes


class ErasedCopy(msgspec.Struct, array_like=True, frozen=True):
    """A whole file to be written over another one; it goes when all is done."""

    copy: str
    path: str


class Redo(msgspec.Struct, array_like=True, frozen=True):
    """Everything that one erase changes."""

    patches: list[Patch]
    copies: list[ErasedCopy]


def erased(frame: bytes | memoryview) -> bytes:
    """Return a frame with its subject and nothing else of what it held, marked as deleted."""
    kept = HEADER + int.from_bytes(frame[10:12], "little")
    return bytes(frame[:kept]) + token_bytes(len(frame) - 1 - kept) + bytes((DELETED,))


def is_erased(frame: bytes | memoryview) -> bool:
    """Say whether a deleted frame no longer holds what its checksum was made of."""
    return frame[-1] == DELETED and not check(bytes(frame[:-1]) + b"\0", 0)


# --- the write-ahead log


def wal_patches(
    files: Files, directory: str, log_id: int, seqs: set[int], ring: KeyRing
) -> Iterator[Patch]:
    """Return what erases the records from every WAL file, also where it no longer counts."""
    wal = f"{directory}/wal"
    for shard in files.listdir(wal) if files.exists(wal) else []:
        for index in wal_indexes(files, f"{wal}/{shard}"):
            path = f"wal/{shard}/{wal_name(index)}"
            file = files.open(f"{directory}/{path}")
            try:
                buffer = file.view(file.size())
            finally:
                file.close()
            for offset, data in _file_patches(buffer, log_id, seqs, ring):
                yield Patch(path, offset, data)


def _file_patches(
    buffer: memoryview, log_id: int, seqs: set[int], ring: KeyRing
) -> Iterator[tuple[int, bytes]]:
    for item in scan_entries(buffer, WAL_HEADER.size, 0):
        if isinstance(item, Damage):
            yield from plain_patches(buffer, item.start, item.end, log_id, seqs)
            yield from block_patches(
                buffer, item.start, item.end, log_id, seqs, entry.BOUND, ring, rising=False
            )
        elif any(_holds(run, log_id, seqs) for run in item.runs):
            yield from _entry_patches(buffer, item, log_id, seqs, ring)


def _holds(run: entry.FrameRun, log_id: int, seqs: set[int]) -> bool:
    if run.stream_id != log_id or not run.first_seq:
        return False
    return any(run.first_seq <= seq < run.first_seq + run.frames for seq in seqs)


def _entry_patches(
    buffer: memoryview, item: WalEntry, log_id: int, seqs: set[int], ring: KeyRing
) -> Iterator[tuple[int, bytes]]:
    """Return the changes to an entry's body, and to the checksums in its header."""
    if item.sealed:
        found = block_patches(
            buffer, item.body, item.end, log_id, seqs, entry.BOUND, ring, rising=False
        )
    else:
        found = plain_patches(buffer, item.body, item.end, log_id, seqs)
    changes = list(found)
    if not changes:
        return
    body = bytearray(buffer[item.body : item.end])
    sound = item.sound(buffer)
    for offset, data in changes:
        body[offset - item.body : offset - item.body + len(data)] = data
        yield offset, data
    if sound:
        yield item.start + entry.BODY_CHECK, entry.checks(buffer, item, bytes(body))


def plain_patches(
    buffer: memoryview, start: int, end: int, log_id: int, seqs: set[int]
) -> Iterator[tuple[int, bytes]]:
    """Return what erases records from bytes that are frames."""
    for _kind, _flags, stream_id, seq, _ts, at, size, _deleted in scan(buffer, start, end)[0]:
        if stream_id == log_id and seq in seqs and _kind == 1:
            frame = buffer[at : at + size]
            if not is_erased(frame):
                yield at, erased(frame)


def block_patches(
    buffer: memoryview,
    start: int,
    end: int,
    log_id: int,
    seqs: set[int],
    bound: bytes,
    ring: KeyRing,
    rising: bool = True,
) -> Iterator[tuple[int, bytes]]:
    """Return what erases records from blocks that are not compressed: the new ones fit."""
    for ref in blocks.find_blocks(buffer, start, end, bound, rising)[0]:
        raw = blocks.decode_block(buffer, ref, bound, ring)
        if raw is None:
            continue
        plain = bytearray(raw)
        changes = list(plain_patches(memoryview(bytes(raw)), 0, len(plain), log_id, seqs))
        for offset, data in changes:
            plain[offset : offset + len(data)] = data
        if changes:
            fresh = blocks.encode_block(bytes(plain), ref.offset, blocks.PLAIN, ring, bound)
            if len(fresh) == blocks.HEAD.size + ref.stored:
                yield ref.at, fresh


# --- the redo file


def carry_out(files: Files, directory: str, redo: Redo) -> None:
    """Make every change, so that a crash anywhere leaves it to be made again."""
    if not redo.patches and not redo.copies:
        return
    body = msgspec.msgpack.encode(redo)
    head = REDO_HEADER.pack(MAGIC, VERSION, 0, len(body), 0)[:CHECKED]
    check_sum = xxh3_64_intdigest(head + body).to_bytes(8, "little")
    ensure_dir(files, f"{directory}/meta")  # there is none before the first snapshot
    replace_file(files, f"{directory}/meta", NAME, head + check_sum + body)
    _apply(files, directory, redo)


def finish_last(files: Files, directory: str) -> None:
    """Make the changes that a crash has interrupted, before anything is read."""
    path = f"{directory}/meta/{NAME}"
    if not files.exists(path):
        return
    file = files.open(path)
    try:
        data = file.pread(file.size(), 0)
    finally:
        file.close()
    redo = decode_redo(data, path)
    if redo is not None:
        _apply(files, directory, redo)
    else:
        log.error("damaged list of erases, done again from the wal file=%s offset=0", path)
        files.unlink(path)


def decode_redo(data: bytes, path: str) -> Redo | None:
    """Return what an erase changes, None when the file is damaged."""
    if len(data) < REDO_HEADER.size or data[:8] != MAGIC:
        return None
    _, version, _, size, check_sum = REDO_HEADER.unpack_from(data)
    body = data[REDO_HEADER.size :]
    if len(body) != size or xxh3_64_intdigest(data[:CHECKED] + body) != check_sum:
        return None
    if version != VERSION:
        raise StorageUnusable(
            f"{path} has format version {version}, this millstream knows version {VERSION}: "
            "start the newer millstream that wrote it"
        )
    return msgspec.msgpack.decode(body, type=Redo)


def _apply(files: Files, directory: str, redo: Redo) -> None:
    for path in sorted({patch.path for patch in redo.patches}):
        if files.exists(f"{directory}/{path}"):
            mine = [(p.offset, p.data) for p in redo.patches if p.path == path]
            _write_into(files.open(f"{directory}/{path}"), mine)
    for each in redo.copies:
        copy, path = f"{directory}/{each.copy}", f"{directory}/{each.path}"
        if files.exists(copy) and files.exists(path):
            _write_over(files, copy, path)
    files.unlink(f"{directory}/meta/{NAME}")
    files.sync_dir(f"{directory}/meta")
    for each in redo.copies:
        if files.exists(f"{directory}/{each.copy}"):
            files.unlink(f"{directory}/{each.copy}")


def _write_over(files: Files, copy: str, path: str) -> None:
    """Give a file the bytes of another one; what it had behind them is overwritten and cut."""
    source, file = files.open(copy), files.open(path)
    try:
        size, before = source.size(), file.size()
        for at in range(0, size, PIECE_BYTES):
            write_all(file, source.pread(PIECE_BYTES, at), at)
        for at in range(size, before, PIECE_BYTES):
            write_all(file, token_bytes(min(PIECE_BYTES, before - at)), at)
        file.sync()
        file.truncate(size)
        file.sync()
    finally:
        source.close()
        file.close()


def _write_into(file: File, changes: Iterable[tuple[int, bytes]]) -> None:
    try:
        for offset, data in changes:
            write_all(file, data, offset)
        file.sync()
    finally:
        file.close()
