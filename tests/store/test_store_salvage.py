"""What is taken of frames that a crash may have torn."""

from millstream.kernel._batch import Batch
from millstream.kernel._frames import DELETED, encode_batch
from millstream.store.segments.salvage import frames_in, whole_batches


def frames_of(*payloads: bytes) -> bytes:
    batch = Batch()
    for payload in payloads:
        batch.add(b"a", b"", b"", payload)
    return bytes(encode_batch(batch, 0, len(batch), 7, 1, 1, None, 0, True))


def taken(data: bytes) -> list[int]:
    return [frame.seq for frame in whole_batches(frames_in(memoryview(data), 0, len(data)), 0)]


def test_a_batch_is_taken_whole() -> None:
    assert taken(frames_of(b"one", b"two", b"three")) == [1, 2, 3]


def test_a_batch_whose_end_is_gone_is_not_taken() -> None:
    data = frames_of(b"one", b"two", b"three")
    assert taken(data[:-20]) == []


def test_garbage_that_looks_erased_tears_its_batch() -> None:
    data = bytearray(frames_of(b"one", b"two", b"x" * 600))
    data[-300:-1] = bytes(299)
    data[-1] = DELETED
    assert [frame.is_erased for frame in frames_in(memoryview(data), 0, len(data))] == [
        *(False, False, True)
    ]
    assert taken(bytes(data)) == []
