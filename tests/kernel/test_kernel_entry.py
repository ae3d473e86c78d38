"""Entries: the compiled encoder writes what the plain one does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.kernel import _entry
from millstream.kernel.reference import entry as reference

u64, u32 = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)
runs = st.lists(st.tuples(u64, u64, st.integers(0, 1000), u32), max_size=5)


@given(u64, u64, u64, u64, st.integers(0, 2**16 - 1), runs, st.binary(max_size=400))
def test_compiled_entry_agrees_with_the_reference(
    position: int,
    epoch: int,
    nonce: int,
    durable: int,
    flags: int,
    runs: list[tuple[int, int, int, int]],
    body: bytes,
) -> None:
    asked = (position, epoch, nonce, durable, flags, runs, body)
    assert _entry.encode_head(*asked) == reference.encode_head(*asked)


def test_an_entry_names_its_runs_and_sums_their_frames() -> None:
    head = _entry.encode_head(7, 1, 2, 6, 1, [(5, 10, 3, 4), (6, 0, 2, 2)], b"body...")
    assert (head[:4], len(head)) == (b"MWAL", 64 + 2 * 24)
    assert int.from_bytes(head[4:8], "little") == len(head) + 7
    assert int.from_bytes(head[32:36], "little") == 5


def test_more_runs_than_an_entry_can_name_are_refused() -> None:
    with pytest.raises(OverflowError):
        _entry.encode_head(1, 1, 1, 0, 1, [(1, 1, 1, 1)] * 65_536, b"")
