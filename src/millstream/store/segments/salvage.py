"""Frames found in damaged bytes: each vouches for itself by magic and checksums."""

from collections.abc import Iterator

import msgspec

from millstream.kernel._frames import DELETED, MORE, RECORD, check, scan


class Frame(msgspec.Struct, frozen=True):
    """A sound frame and where it was found."""

    kind: int
    flags: int
    stream_id: int
    seq: int
    start: int
    end: int
    data: bytes

    @property
    def more(self) -> bool:
        """Say whether its batch goes on in the next frame."""
        return bool(self.flags & MORE)

    @property
    def is_erased(self) -> bool:
        """Say whether only the header vouches for it: its body was erased, or just looks so."""
        return self.data[-1] == DELETED


def frames_in(buffer: memoryview, start: int, end: int) -> list[Frame]:
    """Return the sound frames in ``start..end``, as live ones unless they were erased.

    Whether they were deleted is for the log to say: the flag is outside the checksums.
    """
    frames, _ = scan(buffer, start, end)
    return [
        Frame(kind, flags, stream_id, seq, at, at + size, _live(buffer[at : at + size], deleted))
        for kind, flags, stream_id, seq, _ts, at, size, deleted in frames
    ]


def _live(frame: memoryview, deleted: bool) -> bytes:
    live = bytes(frame[:-1]) + b"\0"
    return bytes(frame) if deleted and not check(live, 0) else live


def batches(frames: list[Frame]) -> Iterator[list[Frame]]:
    """Yield the frames batch by batch."""
    batch: list[Frame] = []
    for frame in frames:
        batch.append(frame)
        if not frame.more:
            yield batch
            batch = []


def whole_batches(frames: list[Frame], start: int) -> list[Frame]:
    """Return the frames of complete batches; ``start`` is where a batch is known to begin.

    Only the end of a batch is marked, so what follows a hole up to the next end may lack its
    beginning and is left out. What is erased was logged and stable before: where it was not,
    garbage has met the one value that the delete flag has, and the batch is torn there.
    """
    whole: list[Frame] = []
    batch: list[Frame] = []
    sure = True
    end = start
    for frame in frames:
        if frame.start != end:
            batch, sure = [], frame.kind != RECORD
        batch.append(frame)
        sure = sure and not frame.is_erased
        end = frame.end
        if not frame.more:
            whole += batch if sure else []
            batch, sure = [], True
    return whole
