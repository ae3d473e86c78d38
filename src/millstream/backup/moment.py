"""What one backup holds: a list of files, each a list of pieces that backups share.

    moments/<20 digits: start in ns since 1970>.json   {"check": XXH3-64, "moment": {…}}
    pieces/<XXH3-128 of the bytes, 32 hex>             zstd

A piece is named after its content, so a file that did not change costs nothing in the next backup
and a file that grew costs its last piece. A moment is written after all its pieces: a backup
that was cut leaves pieces that nobody names, never a moment that lacks one.
"""

import cramjam
import msgspec
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from millstream.errors import BackupFailed
from millstream.store.disk.objects import Objects

MOMENTS = "moments"
PIECES = "pieces"
PIECE_BYTES = 8 << 20
VERSION = 1


class Kept(msgspec.Struct, frozen=True):
    """One file as it was: its bytes in pieces, then zeros up to ``size``."""

    path: str  # within the data directory
    size: int
    mtime_ns: int
    pieces: list[str]


class Moment(msgspec.Struct, frozen=True):
    """One backup; every acknowledged change before ``started_ns`` is in it."""

    version: int
    started_ns: int
    ended_ns: int
    files: list[Kept]

    @property
    def name(self) -> str:
        """Return the object that holds this moment."""
        return f"{MOMENTS}/{self.started_ns:020d}.json"


class _Sealed(msgspec.Struct, frozen=True):
    check: str
    moment: msgspec.Raw


def moments(target: Objects) -> list[Moment]:
    """Return every backup of a target, oldest first."""
    return [_decode(target, f"{MOMENTS}/{leaf}") for leaf in target.names(MOMENTS)]


def put_moment(target: Objects, moment: Moment) -> None:
    """Make the backup known."""
    body = msgspec.json.encode(moment)
    sealed = _Sealed(f"{xxh3_64_intdigest(body):016x}", msgspec.Raw(body))
    target.put(moment.name, msgspec.json.encode(sealed))


def _decode(target: Objects, name: str) -> Moment:
    try:
        sealed = msgspec.json.decode(target.get(name), type=_Sealed)
        body = bytes(sealed.moment)
        moment = msgspec.json.decode(body, type=Moment)
    except msgspec.MsgspecError:
        raise BackupFailed(f"{name} is damaged: restore another moment, or remove it") from None
    if sealed.check != f"{xxh3_64_intdigest(body):016x}":
        raise BackupFailed(f"{name} is damaged: restore another moment, or remove it")
    if moment.version != VERSION:
        raise BackupFailed(
            f"{name} has format version {moment.version}, this millstream knows version {VERSION}"
        )
    return moment


def piece_name(data: bytes) -> str:
    """Return what a piece with this content is called."""
    return xxh3_128_hexdigest(data)


def put_piece(target: Objects, name: str, data: bytes) -> int:
    """Store a piece; returns how many bytes that took."""
    packed = bytes(cramjam.zstd.compress(data, level=1))
    target.put(_place(name), packed)
    return len(packed)


def get_piece(target: Objects, name: str) -> bytes:
    """Return a piece, as it was when it was stored."""
    packed = target.get(_place(name))
    try:
        data = bytes(cramjam.zstd.decompress(packed))
    except cramjam.DecompressionError:
        data = b""
    if piece_name(data) != name:
        raise BackupFailed(f"{_place(name)} is damaged: what it held cannot be restored from here")
    return data


def known_pieces(target: Objects) -> set[str]:
    """Return the names of all pieces that are there."""
    return set(target.names(PIECES))


def remove_piece(target: Objects, name: str) -> None:
    """Remove a piece that no moment names."""
    target.remove(_place(name))


def _place(name: str) -> str:
    return f"{PIECES}/{name}"
