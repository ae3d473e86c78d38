import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.kernel import _patterns
from millstream.kernel.reference import patterns as reference

PLENTY = 1 << 40

tokens = st.sampled_from([b"a", b"b", b"bb", b"*", b">", b"x"])
patterns = st.lists(tokens, min_size=1, max_size=4).map(b".".join)
legal = patterns.filter(lambda pattern: b">" not in pattern.split(b".")[:-1])


@settings(max_examples=400)
@given(st.lists(legal, max_size=12), st.data())
def test_compiled_patterns_agree_with_the_reference(
    known: list[bytes], data: st.DataObject
) -> None:
    compiled, plain = _patterns.Patterns(PLENTY), reference.Patterns(PLENTY)
    for owner, pattern in enumerate(known):
        compiled.add(pattern, owner)
        plain.add(pattern, owner)
    gone = data.draw(st.sets(st.integers(0, len(known) - 1))) if known else set()
    for owner in gone:
        compiled.remove(known[owner], owner)
        plain.remove(known[owner], owner)
    for pattern in (*known, *data.draw(st.lists(legal, max_size=6))):
        for besides in (*range(len(known)), PLENTY):
            assert compiled.collides(pattern, besides) == plain.collides(pattern, besides)
            assert compiled.is_covered(pattern, besides) == plain.is_covered(pattern, besides)


@given(st.lists(legal, max_size=8), st.booleans())
def test_the_first_of_a_list_is_the_reference_s(known: list[bytes], covering: bool) -> None:
    expected = reference.Patterns(PLENTY).first(known, covering)
    assert _patterns.Patterns(PLENTY).first(known, covering) == expected


@pytest.mark.parametrize("pattern", [b"", b".", b"a..b", b">.a", b"a.>.b"])
def test_what_is_no_subject_is_no_pattern(pattern: bytes) -> None:
    for kind in (_patterns.Patterns, reference.Patterns):
        with pytest.raises(ValueError, match="not a subject"):
            kind(PLENTY).add(pattern, 1)


def test_a_pattern_that_was_not_added_cannot_be_removed() -> None:
    known = _patterns.Patterns(PLENTY)
    known.add(b"a.b", 1)
    for pattern in (b"a", b"a.c", b"*", b">"):
        with pytest.raises(KeyError):
            known.remove(pattern, 1)


def test_a_walk_ends_where_its_steps_do() -> None:
    known = _patterns.Patterns(PLENTY)
    for at in range(1000):
        known.add(b"b%d.*.y" % at, at)
    known.allow(100)
    with pytest.raises(_patterns.TooManySteps):
        known.collides(b"*.a.x", PLENTY)
    known.allow(PLENTY)
    assert not known.collides(b"*.a.x", PLENTY)


def test_a_pattern_as_deep_as_may_be_is_walked_and_a_deeper_one_is_refused() -> None:
    known, deepest = _patterns.Patterns(PLENTY), b".".join([b"a"] * 8192)
    known.add(deepest, 1)
    assert known.collides(b">", 2)
    assert known.is_covered(deepest, 2)
    with pytest.raises(ValueError, match="too long"):
        known.add(deepest + b".a", 2)
