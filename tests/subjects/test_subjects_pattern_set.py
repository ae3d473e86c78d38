import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.subjects import pattern_set
from millstream.subjects.matcher import matcher
from millstream.subjects.pattern_set import (
    PatternSet,
    TooEntangled,
    any_overlap,
    covers,
    first_covered,
    first_overlapping,
)
from millstream.subjects.subject import is_pattern, is_subset, matches, overlap

tokens = st.sampled_from(["a", "b", "é", "*", ">", "a*"])
legal = st.lists(tokens, min_size=1, max_size=4).map(".".join).filter(is_pattern)
anything = st.lists(st.one_of(tokens, st.sampled_from(["", "x y"])), max_size=4).map(".".join)
literals = st.lists(st.sampled_from(["a", "b", "é", "c"]), min_size=1, max_size=4).map(".".join)


def by_pairs(patterns: list[str], compare: object) -> int | None:
    for at, one in enumerate(patterns):
        others = patterns[:at] + patterns[at + 1 :]
        if any(compare(one, other) for other in others):  # type: ignore[operator]
            return at
    return None


@settings(max_examples=500)
@given(st.lists(st.one_of(legal, anything), max_size=10))
def test_the_first_that_overlaps_is_the_one_that_comparing_pairs_finds(patterns: list[str]) -> None:
    assert first_overlapping(patterns) == by_pairs(patterns, overlap)
    assert first_covered(patterns) == by_pairs(patterns, is_subset)


@given(st.lists(literals, max_size=6))
def test_among_literals_only_repetitions_overlap(patterns: list[str]) -> None:
    assert first_overlapping(patterns) == by_pairs(patterns, overlap)
    assert first_covered(patterns) == by_pairs(patterns, is_subset)


@given(st.lists(st.one_of(legal, anything), max_size=5), st.lists(legal, max_size=5))
def test_two_lists_overlap_where_a_pair_of_them_does(some: list[str], others: list[str]) -> None:
    expected = any(overlap(a, b) for a in some for b in others)
    assert any_overlap(some, others) == any_overlap(others, some) == expected
    # Beside so many that have nothing to do with it, a trie decides.
    crowd = [f"zz.{at}" for at in range(pattern_set.FEW**2)]
    if some and others and not any(overlap(one, no) for one in (*some, *others) for no in crowd):
        assert any_overlap(some, others + crowd) == expected


@given(legal, legal)
def test_covering_is_being_a_superset(wide: str, narrow: str) -> None:
    assert covers(wide, narrow) == is_subset(narrow, wide)


@given(st.lists(legal, min_size=6, max_size=20), literals)
def test_many_wildcards_match_what_each_alone_does(patterns: list[str], subject: str) -> None:
    test = matcher(patterns)
    expected = any(matches(pattern, subject) for pattern in patterns)
    assert (test is None or test(subject.encode())) == expected


@given(st.lists(st.lists(legal, max_size=3, unique=True), max_size=5), st.lists(legal, max_size=3))
def test_an_owner_does_not_overlap_with_itself_and_leaves_nothing_behind(
    owned: list[list[str]], asked: list[str]
) -> None:
    known = PatternSet()
    for owner, patterns in enumerate(owned):
        known.put(owner, ("old.*", "older"))
        known.put(owner, tuple(patterns))
    for besides in range(-1, len(owned)):
        others = [p for owner, patterns in enumerate(owned) if owner != besides for p in patterns]
        expected = any(overlap(one, other) for one in asked for other in others)
        assert known.overlaps(asked, besides if besides >= 0 else 1000) == expected
    for owner in range(len(owned)):
        known.drop(owner)
    assert not known.overlaps(["old.>", "older", *asked], 1000)


def test_patterns_that_would_be_compared_for_too_long_are_refused() -> None:
    half = range(5000)
    patterns = [*(f"*.a{at}.x" for at in half), *(f"b{at}.*.y" for at in half)]
    with pytest.raises(TooEntangled) as caught:
        first_overlapping(patterns)
    assert caught.value.err_code == 19004
