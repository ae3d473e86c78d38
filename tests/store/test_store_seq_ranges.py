"""A set of ranges behaves like a set of numbers."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from millstream.store.disk.seq_ranges import SeqRanges

ranges = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=12)
number = st.integers(1, 45)


def numbers(kept: list[tuple[int, int]]) -> set[int]:
    return {n for first, last in kept for n in range(first, last + 1)}


@given(ranges, number, number)
def test_ranges_agree_with_a_plain_set(added: list[tuple[int, int]], a: int, b: int) -> None:
    kept, model = SeqRanges(added), numbers(added)
    assert numbers(list(kept)) == model
    assert len(kept) == len(model)
    assert (a in kept) == (a in model)
    assert kept.after(a) == next(n for n in range(a, 99) if n not in model)
    assert numbers(kept.missing(a, b)) == set(range(a, b + 1)) - model
    kept.cut_below(a)
    kept.cut_above(b)
    assert numbers(list(kept)) == {n for n in model if a <= n <= b}


@given(ranges)
def test_neighbours_are_one_range(added: list[tuple[int, int]]) -> None:
    kept = list(SeqRanges(added))
    assert all(before[1] + 1 < after[0] for before, after in pairwise(kept))
