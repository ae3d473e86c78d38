from collections.abc import Iterator, Sequence
from mmap import mmap
from typing import TypeAlias

from millstream.kernel._batch import Batch
from millstream.kernel._index import SegmentIndex

_Buffer: TypeAlias = bytes | bytearray | memoryview | mmap

HEADER: int  # 52
TRAILER: int  # 9
MAGIC: int
RECORD: int  # frame kind 1; control kinds are 16 and above
MORE: int  # flag bit 1: the batch that this frame belongs to goes on in the next frame
DELETED: int  # 0xD5 in the last byte of a frame

# Why index_frames stopped: at the end, at a frame cut off by it, at damage, at a good frame that is
# no record of this stream, at a record whose sequence does not ascend or does not fit the index.
END: int
TORN: int
DAMAGED: int
FOREIGN: int
DISORDER: int

class Frames:
    """Records in a buffer: what the log hands to readers, as (buffer, offsets, count)."""

    def __init__(self, buffer: _Buffer, offsets: list[int] | bytes) -> None: ...
    @property
    def buffer(self) -> memoryview: ...
    @property
    def offsets(self) -> list[int]: ...
    def __len__(self) -> int: ...
    @property
    def first_seq(self) -> int: ...
    @property
    def last_seq(self) -> int: ...
    @property
    def size(self) -> int: ...
    def seq(self, i: int) -> int: ...
    def deleted(self, i: int) -> bool: ...
    def has_headers(self, i: int) -> bool: ...
    # seq, ts_ns, subject, payload, headers, tag, node, meta: the fields of message.Record in order
    def record(self, i: int) -> tuple[int, int, bytes, bytes, bytes, bytes, bytes, bytes]: ...
    def __iter__(self) -> Iterator[tuple[int, int, bytes, bytes, bytes, bytes, bytes, bytes]]: ...
    def raw(self, start: int = 0, stop: int = -1) -> bytes: ...
    def verified(self) -> int: ...

def encode_batch(
    batch: Batch,
    start: int,
    count: int,
    stream_id: int,
    first_seq: int,
    ts_ns: int,
    index: SegmentIndex | None,
    offset: int,
    whole: bool,
) -> bytes: ...
def encode_exact(
    batch: Batch,
    start: int,
    count: int,
    stream_id: int,
    seqs: Sequence[int],
    times_ns: Sequence[int],
    least_ns: int,
    index: SegmentIndex | None,
    offset: int,
) -> bytes: ...
def encode_control(
    kind: int, stream_id: int, seq: int, ts_ns: int, body: bytes, more: bool = False
) -> bytes: ...
def check(buffer: _Buffer, offset: int) -> int: ...
def check_header(buffer: _Buffer, offset: int) -> int: ...
def body(buffer: _Buffer, offset: int) -> bytes: ...
def cut(buffer: _Buffer, most: int) -> list[tuple[int, int, int]]: ...
def scan(
    buffer: _Buffer, start: int = 0, stop: int = -1
) -> tuple[list[tuple[int, int, int, int, int, int, int, bool]], list[tuple[int, int]]]: ...
def index_frames(
    buffer: _Buffer, start: int, stop: int, stream_id: int, index: SegmentIndex, shift: int = 0
) -> tuple[int, int, int]: ...
