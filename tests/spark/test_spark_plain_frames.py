"""Frames in plain Python say what the kernel says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.kernel.reference.frames import MORE, RECORD, Fields, encode
from millstream.spark.reading import frames, plain_frames

FIELDS = st.builds(
    Fields,
    subject=st.binary(min_size=1, max_size=4),
    payload=st.binary(max_size=20),
    headers=st.binary(max_size=5),
    tag=st.binary(max_size=3),
    meta=st.binary(max_size=3),
)


def run(records: list[Fields]) -> bytes:
    return b"".join(
        encode(RECORD, MORE, 7, 10 + 2 * i, 1_000 + i, fields) for i, fields in enumerate(records)
    )


@given(st.lists(FIELDS, min_size=1, max_size=6))
def test_both_index_the_same_records(records: list[Fields]) -> None:
    data = run(records)
    assert plain_frames.indexed(data, 7) == frames.indexed(data, 7)


@given(st.lists(FIELDS, min_size=1, max_size=4), st.data())
def test_both_stop_at_the_same_damage(records: list[Fields], data: st.DataObject) -> None:
    damaged = bytearray(run(records))
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    first = bytes(damaged)
    assert plain_frames.check(first, 0) == frames.check(first, 0)
    assert plain_frames.indexed(first, 7)[2] == frames.indexed(first, 7)[2]


def test_without_the_kernel_each_record_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    data = run([Fields(b"a", b"payload")])
    monkeypatch.setattr(frames, "HAS_KERNEL", False)
    assert not frames.are_whole(data, b"\0\0\0\0", 10, 10, len(data))
    assert frames.check(data, 0) == len(data)
    assert frames.indexed(data, 7)[2] == len(data)
