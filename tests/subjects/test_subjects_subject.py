from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.kernel.reference import interest as reference
from millstream.subjects.subject import (
    has_wildcard,
    is_literal,
    is_pattern,
    is_subset,
    matches,
    overlap,
)

patterns = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3).flatmap(
    lambda tokens: st.sampled_from([".".join(tokens), ".".join([*tokens[:-1], ">"])])
)
LITERALS = [".".join(tokens) for n in range(1, 5) for tokens in product("abc", repeat=n)]


@pytest.mark.parametrize("subject", ["a", "a.b", "*", ">", "a.*.c", "a.>", "a*.b>", "é.ü"])
def test_these_may_be_subscribed_to(subject: str) -> None:
    assert is_pattern(subject)


@pytest.mark.parametrize(
    "subject", ["", ".", "a.", ".a", "a..b", ">.a", "a b", "a\tb", "a\r", "\n"]
)
def test_these_are_no_subjects(subject: str) -> None:
    assert not is_pattern(subject)
    assert not is_literal(subject)


@pytest.mark.parametrize("subject", ["*", ">", "a.*", "a.>"])
def test_wildcards_cannot_be_published_to(subject: str) -> None:
    assert has_wildcard(subject)
    assert not is_literal(subject)


def test_a_star_inside_a_token_is_a_letter() -> None:
    assert is_literal("a*.b>")
    assert not matches("a*", "ab")


@given(patterns, st.sampled_from(LITERALS))
def test_matches_agrees_with_the_reference(pattern: str, literal: str) -> None:
    expected = reference.matches(pattern.encode().split(b"."), literal.encode().split(b"."))
    assert matches(pattern, literal) == expected


@given(patterns, patterns)
def test_overlap_means_that_some_literal_matches_both(a: str, b: str) -> None:
    assert overlap(a, b) == any(matches(a, x) and matches(b, x) for x in LITERALS)


@given(patterns, patterns)
def test_a_subset_is_matched_wherever_it_matches(inner: str, outer: str) -> None:
    covered = all(matches(outer, x) for x in LITERALS if matches(inner, x))
    assert is_subset(inner, outer) == covered


def test_a_wildcard_is_not_published_to_and_matches_nothing() -> None:
    assert not matches("a.*", "a.*")
    assert not matches(">", "a.>")
