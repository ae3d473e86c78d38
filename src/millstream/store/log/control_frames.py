"""Control frames that the store itself understands: their kinds and their bodies."""

import msgspec

from millstream.kernel._frames import encode_control

TRIM, DELETE, VOID, RESERVE, SKIP, ERASE = 21, 22, 23, 24, 28, 33


class Trimmed(msgspec.Struct, array_like=True):
    """Body of a TRIM frame."""

    first_kept: int
    reason: str


class Voided(msgspec.Struct, array_like=True):
    """Body of a VOID frame: sequences that hold nothing, and why."""

    first: int
    last: int
    reason: str


class Skipped(msgspec.Struct, array_like=True):
    """Body of a SKIP frame: sequences that never held anything, so that nobody misses them."""

    ranges: list[tuple[int, int]]
    next_seq: int = 0  # where the log goes on; 0: the records that tell follow in the same batch


def skip_frames(log_id: int, skipped: Skipped) -> bytes:
    """Return a SKIP twice, without a number: replaying it again changes nothing."""
    more = not skipped.next_seq  # it begins the batch that tells where the log goes on
    return encode_control(SKIP, log_id, 0, 0, msgspec.json.encode(skipped), more) * 2
