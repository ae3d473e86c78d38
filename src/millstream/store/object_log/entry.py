"""LogObject: what an object of the log holds, and how it is proven to be ours.

    0 8s "MSTROBJ\\0"   8 u32 version   12 u32 shard   16 u64 position   24 u64 epoch   32 u64 nonce
   40 u64 check of the entry before it   48 u32 kind (1 = records, 2 = epoch)   52 u32 window
   56 u64 bytes of the body   64 u64 XXH3-64 of bytes 0..64 and the body
   72 32s HMAC-SHA256 by the fleet's key of bytes 0..72 and the body   104 body

The check chains each entry to the one before it, and the MAC covers shard, position and epoch: an
object that was copied elsewhere, or made by somebody without the key, is found out (rule 1).
"""

import hmac
import struct

import msgspec
from xxhash import xxh3_64

VERSION = 1
MAGIC = b"MSTROBJ\0"
RECORDS, EPOCH = 1, 2
HEAD = struct.Struct("<8sIIQQQQIIQQ32s")
_CHECKED = 64  # bytes of the head that the check covers
_SIGNED = 72  # and that the MAC covers


class Chain(msgspec.Struct, frozen=True):
    """Where a log goes on: the next position, and what the entry there must say."""

    position: int  # the first one that is not known
    epoch: int  # of the writer
    nonce: int
    check: int  # of the entry before it


START = Chain(1, 0, 0, 0)


class LogObject(msgspec.Struct, frozen=True):
    """One entry of the log."""

    shard: int
    position: int
    epoch: int
    nonce: int
    previous: int
    kind: int
    window: int
    check: int
    body: bytes

    def stamp(self) -> tuple[int, int, int, int]:
        """Return what no two entries share: who wrote what, where."""
        return self.epoch, self.nonce, self.position, self.check

    def after(self) -> Chain:
        """Return how the log goes on behind this entry.

        An epoch entry leaves out the positions that the writer before it may have under way
        (rule 4): whatever stands there is dead.
        """
        ahead = self.window if self.kind == EPOCH else 1
        return Chain(self.position + ahead, self.epoch, self.nonce, self.check)


class Unsound(msgspec.Struct, frozen=True):
    """The bytes are not an entry of this log at this position."""

    why: str


class Codec:
    """Writes and reads the entries of one shard."""

    def __init__(self, shard: int, key: bytes) -> None:
        self.shard = shard
        self._key = key

    def name(self, position: int) -> str:
        """Return the object's name; names sort as positions do."""
        return f"shards/{self.shard}/log/{position:020d}"

    def encode(self, chain: Chain, kind: int, body: bytes, window: int = 0) -> bytes:
        """Return the object of an entry that stands at ``chain.position``."""
        fields = (chain.position, chain.epoch, chain.nonce, chain.check, kind, window, len(body))
        head = HEAD.pack(MAGIC, VERSION, self.shard, *fields, 0, b"")[:_CHECKED]
        signed = head + _check(head, body).to_bytes(8, "little")
        return signed + self._mac(signed, body) + body

    @staticmethod
    def check_of(data: bytes) -> int:
        """Return the check of an object that ``encode`` made."""
        return int.from_bytes(data[_CHECKED:_SIGNED], "little")

    def decode(self, data: bytes, position: int) -> LogObject | Unsound:
        """Return the entry that an object holds, or why it is none of this position."""
        if len(data) < HEAD.size:
            return Unsound("it is too short")
        magic, version, shard, at, epoch, nonce, previous, kind, window, size, check, mac = (
            HEAD.unpack_from(data)
        )
        body = data[HEAD.size :]
        if magic != MAGIC or version != VERSION:
            return Unsound(f"it is no log entry of version {VERSION}")
        if (shard, at, size) != (self.shard, position, len(body)):
            return Unsound("it belongs to another shard or position")
        if _check(data[:_CHECKED], body) != check:
            return Unsound("its checksum does not hold")
        if not hmac.compare_digest(self._mac(data[:_SIGNED], body), mac):
            return Unsound("it was not written with the fleet's key")
        return LogObject(shard, at, epoch, nonce, previous, kind, window, check, body)

    def _mac(self, signed: bytes, body: bytes) -> bytes:
        mac = hmac.new(self._key, signed, "sha256")
        mac.update(body)
        return mac.digest()


def _check(head: bytes, body: bytes) -> int:
    digest = xxh3_64(head)
    digest.update(body)
    return digest.intdigest()
