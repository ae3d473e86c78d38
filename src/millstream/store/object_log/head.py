"""LogHead: where a start begins to read, and below which position entries may be gone (rule 5).

The one object of a log that is replaced. A replacement names the tag of the object it replaces, and
no field of it ever falls.
"""

import hmac

import msgspec
from msgspec.structs import replace

from millstream.store.object_log.entry import START, Chain

_MAC = 32


class LogHead(msgspec.Struct, frozen=True):
    """What the log's newest snapshot covers, and how far entries were let go."""

    chain: Chain = START  # where the snapshot ends, and the log goes on
    snapshot: str = ""  # the object's name
    floor: int = 0  # entries up to here may be gone
    swept: int = 0  # entries up to here are gone, but for epoch entries
    epochs: tuple[int, ...] = ()  # positions up to the chain's that hold epoch entries


def joined(mine: LogHead, theirs: LogHead) -> LogHead:
    """Return the head that is as far as each of two in everything."""
    is_ours = mine.chain.position >= theirs.chain.position
    further, other = (mine, theirs) if is_ours else (theirs, mine)
    return replace(
        further, floor=max(mine.floor, theirs.floor), swept=max(further.swept, other.swept)
    )


class HeadCodec:
    """Writes and reads the head of one shard."""

    def __init__(self, shard: int, key: bytes) -> None:
        self.name = f"shards/{shard}/head"
        self._key = key + self.name.encode()

    def encode(self, head: LogHead) -> bytes:
        """Return the object: a MAC, and the head as JSON for people."""
        body = msgspec.json.encode(head)
        return self._mac(body) + body

    def decode(self, data: bytes) -> LogHead | None:
        """Return the head, None where these bytes are not one of ours."""
        if not hmac.compare_digest(data[:_MAC], self._mac(data[_MAC:])):
            return None
        return msgspec.json.decode(data[_MAC:], type=LogHead)

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, "sha256")
