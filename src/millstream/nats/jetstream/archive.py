"""The archive of one stream: what a snapshot holds inside its S2 stream, as nats-server has it.

    "NATSARC1", then entries:
    entry   uvarint length of name, varint time (ns), uvarint seq, uvarint length of headers,
            uvarint length of payload, name, headers, payload
    state.json             first: first_seq, last_seq, consumer_count and more
    consumers/<name>       configuration and state, JSON
    <subject>              a record, under its sequence and time
    ""                     all numbers zero: the end

What nats-server does not know travels where it does not look: tag, node and meta of a record in
headers, creation times and positions under ``millstream`` in the JSON. The tar archives of older
servers are read as well:

    meta.inf               configuration and creation time
    msgs/<n>.blk           records: u32 length (bit 31: with headers), u64 seq (bit 63 erased,
                           bit 62 tombstone), u64 ts_ns, u16 subject length, subject,
                           [u32 headers length, headers], payload, 8 bytes of checksum
    obs/<consumer>/        meta.inf and o.dat
"""

import io
import tarfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from millstream.consumers.ledger import ROW, LedgerSnapshot
from millstream.consumers.state import KeptConsumer
from millstream.errors import NotHere
from millstream.nats.jetstream.s2_frames import BadArchive
from millstream.streams.config.times import time_ns
from millstream.streams.stream import Stream
from millstream.wire.headers import with_extras

MAGIC = b"NATSARC1"
PIECE_BYTES = 1024 * 1024
_LONGEST_NAME = 1 << 20
_WITH_HEADERS = 1 << 31
_ERASED, _TOMBSTONE = 1 << 63, 1 << 62


class ArchiveRow(NamedTuple):
    """A record in an archive."""

    seq: int
    ts_ns: int
    subject: bytes
    headers: bytes
    payload: bytes


# -- writing -----------------------------------------------------------------------------------


def pieces(
    stream: Stream, state: dict[str, Any], consumers: list[KeptConsumer]
) -> Iterator[bytes | NotHere]:
    """Yield the archive of a stream up to its state, piece by piece.

    Before a piece that is in cold history comes what to wait for.
    """
    told = {"created_ns": stream.created_ns}
    body = msgspec.json.encode({**state, "consumer_count": len(consumers), "millstream": told})
    yield MAGIC + _entry(b"state.json", stream.created_ns, 0, b"", body)
    for kept in consumers:
        content = msgspec.json.encode(_consumer(kept))
        yield _entry(f"consumers/{kept.name}".encode(), kept.created_ns, 0, b"", content)
    at, last = 1, state["last_seq"]
    while at <= last:
        try:
            frames = stream.read(at, 1 << 20, PIECE_BYTES)
        except NotHere as missing:
            yield missing
            continue
        if not len(frames):
            break
        yield b"".join(
            _entry(subject, ts_ns, seq, _block(headers, tag, node, meta), payload)
            for seq, ts_ns, subject, payload, headers, tag, node, meta in frames
            if seq <= last and seq not in stream.index.hidden.seqs
        )
        at = frames.last_seq + 1
    yield _entry(b"", 0, 0, b"", b"")


def _block(headers: bytes, tag: bytes, node: bytes, meta: bytes) -> bytes:
    return with_extras(headers, tag, node, meta) if tag or node or meta else headers


def _consumer(kept: KeptConsumer) -> dict[str, Any]:
    told = {
        "created_ns": kept.created_ns,
        "position": kept.position,
        "first": kept.first,
        "gap": kept.gap,
    }
    assert kept.state is not None
    state = kept.state
    pending = {
        str(seq): {"Sequence": consumer_seq, "Timestamp": kept.created_ns}
        for seq, consumer_seq, _ in ROW.iter_unpack(state.pending)
    }
    again = {str(seq): count - 1 for seq, count in (state.redelivered or {}).items()}
    shown = {"delivered": _pair(state.delivered), "ack_floor": _pair(state.floor)}
    return {
        "config": kept.config,
        "state": {**shown, "pending": pending, "redelivered": again},
        "millstream": told,
    }


def _pair(pair: tuple[int, int]) -> dict[str, int]:
    return {"consumer_seq": pair[0], "stream_seq": pair[1]}


def _entry(name: bytes, ts_ns: int, seq: int, headers: bytes, payload: bytes) -> bytes:
    numbers = (len(name), ts_ns << 1, seq, len(headers), len(payload))  # the time is signed
    return b"".join([*map(_uvarint, numbers), name, headers, payload])


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# -- reading -----------------------------------------------------------------------------------


# What comes of bytes and JSON that say something else than an archive does.
_UNREADABLE = (
    *(tarfile.TarError, msgspec.MsgspecError, ValueError, KeyError),
    *(TypeError, AttributeError, RecursionError),
)


class Archive:
    """An archive that has come in whole; ``rows`` yields its records in order."""

    def __init__(self, data: bytes) -> None:
        self.name = ""  # tar archives name their stream
        self.created_ns = 0
        self.last_seq = 0
        self.consumers: list[KeptConsumer] = []
        self._rows: list[ArchiveRow] = []
        try:
            if data.startswith(MAGIC):
                self._read_entries(data)
            else:
                self._read_tar(data)
        except _UNREADABLE as error:
            raise BadArchive(f"the snapshot is not an archive of a stream: {error}") from error

    def rows(self) -> Iterator[ArchiveRow]:
        """Yield the records in order."""
        return iter(self._rows)

    def _read_entries(self, data: bytes) -> None:
        numbers = _Numbers(data, len(MAGIC))
        while True:
            size, ts_ns, seq = numbers.unsigned(), numbers.signed(), numbers.unsigned()
            headers, payload = numbers.unsigned(), numbers.unsigned()
            if size > _LONGEST_NAME:
                raise BadArchive("an entry of the snapshot has too long a name")
            if not (size or ts_ns or seq or headers or payload):
                return
            name, block = numbers.take(size), numbers.take(headers)
            if not seq:
                _check_path(name.decode("utf-8", "replace"))
            self._take(ArchiveRow(seq, ts_ns, name, block, numbers.take(payload)))

    def _take(self, row: ArchiveRow) -> None:
        if row.seq:
            self._rows.append(row)
        elif row.subject == b"state.json":
            state = msgspec.json.decode(row.payload, type=dict[str, Any])
            self.last_seq = int(state.get("last_seq", 0))
            self.created_ns = int(state.get("millstream", {}).get("created_ns", 0))
        elif row.subject.startswith(b"consumers/"):
            self.consumers.append(_read_consumer(row.subject[10:].decode(), row.payload))
        else:
            raise BadArchive(f"the snapshot holds an entry of unknown kind: {row.subject[:80]!r}")

    def _read_tar(self, data: bytes) -> None:
        blocks: dict[int, bytes] = {}
        consumers: dict[str, dict[str, bytes]] = {}
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                _check_path(member.name)
                content = tar.extractfile(member) if member.isreg() else None
                if content is None:
                    raise BadArchive("the snapshot holds something other than files")
                folder, _, name = member.name.partition("/")
                if member.name == "meta.inf":
                    meta = msgspec.json.decode(content.read(), type=dict[str, Any])
                    self.name, self.created_ns = meta["name"], time_ns(meta["created"])
                elif folder == "msgs" and name.endswith(".blk"):
                    blocks[int(name.removesuffix(".blk"))] = content.read()
                elif folder == "obs" and "/" in name:
                    consumer, _, file = name.partition("/")
                    consumers.setdefault(consumer, {})[file] = content.read()
        if not self.name:
            raise BadArchive("the snapshot names no stream")
        self._rows = list(_rows_of_blocks([blocks[number] for number in sorted(blocks)]))
        self.consumers = [_foreign(name, files) for name, files in consumers.items()]


def _check_path(name: str) -> None:
    """Refuse an entry that means a place outside of the archive, though nothing is put there."""
    parts = name.replace("\\", "/").split("/")
    if not name or parts[0] == "" or ".." in parts or parts[0].endswith(":"):
        raise BadArchive(f"the snapshot holds a path that leads out of it: {name[:80]!r}")


def _read_consumer(name: str, data: bytes) -> KeptConsumer:
    found = msgspec.json.decode(data, type=dict[str, Any])
    state, told = found["state"], found.get("millstream", {})
    delivered = (state["delivered"]["consumer_seq"], state["delivered"]["stream_seq"])
    floor = (state["ack_floor"]["consumer_seq"], state["ack_floor"]["stream_seq"])
    again = {int(seq): count for seq, count in (state.get("redelivered") or {}).items()}
    waiting = {int(seq): one["Sequence"] for seq, one in (state.get("pending") or {}).items()}
    return KeptConsumer(
        name,
        told.get("created_ns", 0),
        found["config"],
        _state(delivered, floor, waiting, again),
        told.get("position", 0) or delivered[1] + 1,
        told.get("first", []),
        msgspec.convert(told.get("gap"), tuple[int, int] | None),
    )


def _state(
    delivered: tuple[int, int],
    floor: tuple[int, int],
    waiting: dict[int, int],
    again: dict[int, int],
) -> LedgerSnapshot:
    """Return a ledger; ``waiting`` is seq → consumer seq, ``again`` seq → redeliveries."""
    rows = b"".join(
        ROW.pack(seq, consumer_seq, again.get(seq, 0) + 1)
        for seq, consumer_seq in sorted(waiting.items())
    )
    redelivered = {seq: count + 1 for seq, count in again.items()}
    return LedgerSnapshot(1, delivered, floor, rows, b"", redelivered)


def _rows_of_blocks(blocks: list[bytes]) -> Iterator[ArchiveRow]:
    """Yield the records of nats-server's message blocks, without those deleted later."""
    found: dict[int, ArchiveRow] = {}
    for block in blocks:
        at = 0
        while at + 22 <= len(block):
            length = int.from_bytes(block[at : at + 4], "little")
            size = length & ~_WITH_HEADERS
            if size < 30 or at + size > len(block):
                raise BadArchive("a message block of the snapshot is damaged")
            _read_record(block, at, size, bool(length & _WITH_HEADERS), found)
            at += size
    for seq in sorted(found):
        yield found[seq]


def _read_record(
    block: bytes, at: int, size: int, with_headers: bool, found: dict[int, ArchiveRow]
) -> None:
    seq = int.from_bytes(block[at + 4 : at + 12], "little")
    if seq & _TOMBSTONE:
        found.pop(seq & ~_TOMBSTONE, None)
        return
    if seq & _ERASED or seq == 0:
        return
    ts_ns = int.from_bytes(block[at + 12 : at + 20], "little")
    body = at + 22 + int.from_bytes(block[at + 20 : at + 22], "little")
    subject, headers, end = block[at + 22 : body], b"", at + size - 8
    if not subject:
        return  # a sequence that was skipped
    if with_headers:
        stop = body + 4 + int.from_bytes(block[body : body + 4], "little")
        headers, body = block[body + 4 : stop], stop
    found[seq] = ArchiveRow(seq, ts_ns, subject, headers, block[body:end])


def _foreign(name: str, files: dict[str, bytes]) -> KeptConsumer:
    if "meta.inf" not in files:
        raise BadArchive(f"the snapshot lacks the configuration of consumer {name}")
    wire = msgspec.json.decode(files["meta.inf"], type=dict[str, Any])
    created = time_ns(wire.pop("created")) if wire.get("created") else 0
    wire.pop("Name", None)
    state = _decode_state(files["o.dat"]) if files.get("o.dat") else None
    position = state.delivered[1] + 1 if state is not None else 0
    return KeptConsumer(name, created, wire, state, position)


def _decode_state(data: bytes) -> LedgerSnapshot:
    """Read nats-server's consumer state: magic, version, then variable-length numbers."""
    version, numbers = data[1], _Numbers(data, 2)
    if data[0] != 22 or version not in (1, 2):
        raise BadArchive("the snapshot holds a consumer state of another version")
    floor = (numbers.unsigned(), numbers.unsigned())
    delivered = (numbers.unsigned(), numbers.unsigned())
    if version == 1:
        delivered = (
            delivered[0] + max(floor[0] - 1, 0),
            delivered[1] + max(floor[1] - 1, 0),
        )
    pending = numbers.unsigned()
    waiting: dict[int, int] = {}
    if pending:
        numbers.signed()
        for _ in range(pending):
            seq = numbers.unsigned() + floor[1]
            waiting[seq] = numbers.unsigned() + floor[0] if version == 2 else 0
            numbers.signed()
    again = {numbers.unsigned() + floor[1]: numbers.unsigned() for _ in range(numbers.unsigned())}
    return _state(delivered, floor, waiting, again)


class _Numbers:
    """Variable-length integers and the bytes between them, one after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def unsigned(self) -> int:
        """Return the next one."""
        value = shift = 0
        while self._at < len(self._data):
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
        raise BadArchive("the snapshot ends too early")

    def take(self, size: int) -> bytes:
        """Return the bytes behind the numbers read so far."""
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise BadArchive("the snapshot ends too early")
        self._at += size
        return taken

    def signed(self) -> int:
        """Return the next one, which may be negative."""
        value = self.unsigned()
        return value >> 1 ^ -(value & 1)
