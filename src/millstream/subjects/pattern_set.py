"""Sets of patterns, and what overlaps in them: near-linear, and never for long."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, takewhile

from millstream.errors import TooMany
from millstream.kernel._interest import covers as is_covering
from millstream.kernel._patterns import LONGEST, Patterns, TooManySteps
from millstream.subjects.subject import is_pattern, is_subset, overlap

LONGEST_SUBJECT = LONGEST
# A step is a node of the trie that a walk looks at, some 10 to 30 ns: a few milliseconds in all.
MOST_STEPS = 250_000
FEW = 64  # patterns that are soon compared one by one
_UNLIMITED = 2**62  # one subject is looked up: never more than the nodes there are


class TooEntangled(TooMany):
    """Wildcards before many different tokens, on both sides: comparing them takes too long."""

    err_code = 19004

    def __init__(self) -> None:
        super().__init__(
            "these subjects take too long to compare with each other: use fewer patterns that "
            "have a wildcard before another token"
        )


def first_overlapping(patterns: Sequence[str]) -> int | None:
    """Return the place of the first pattern that overlaps with another."""
    if _all_literal(patterns):
        return _first_repeated(patterns)
    return _first(patterns, overlap, covering=False)


def first_covered(patterns: Sequence[str]) -> int | None:
    """Return the place of the first pattern that is a subset of another."""
    if _all_literal(patterns):
        return _first_repeated(patterns)
    return _first(patterns, is_subset, covering=True)


def _all_literal(patterns: Sequence[str]) -> bool:
    """Whether no wildcard is in them; empty tokens make a subset of nothing."""
    text = ".".join(patterns)
    return "*" not in text and ">" not in text and ".." not in text and text[:1] != "."


def _first_repeated(patterns: Sequence[str]) -> int | None:
    """Return the first place of something that comes again: literals overlap with nothing else."""
    if len(set(patterns)) == len(patterns):
        return None
    counts = Counter(patterns)
    return next(at for at, pattern in enumerate(patterns) if counts[pattern] > 1)


def _first(
    patterns: Sequence[str], compare: Callable[[str, str], bool], *, covering: bool
) -> int | None:
    """Return the first place where a walk through a trie finds another that ``compare`` would.

    Those that are no patterns fit into no trie. Callers refuse them, but what they find first may
    be what they overlap with, as at the reference: of a few, each is compared with each.
    """
    encoded = [pattern.encode() for pattern in patterns]
    known = Patterns(MOST_STEPS + sum(map(len, encoded)))
    try:
        found = known.first(encoded, covering)
    except TooManySteps:
        raise TooEntangled() from None
    except ValueError:
        return _first_beside_others(patterns, compare, covering=covering)
    return found if found >= 0 else None


def _first_beside_others(
    patterns: Sequence[str], compare: Callable[[str, str], bool], *, covering: bool
) -> int | None:
    if len(patterns) <= FEW:
        return _first_of_few(patterns, compare)
    places = [at for at, pattern in enumerate(patterns) if is_pattern(pattern)]
    found = _first([patterns[at] for at in places], compare, covering=covering)
    return places[found] if found is not None else None


def _first_of_few(patterns: Sequence[str], compare: Callable[[str, str], bool]) -> int | None:
    for at, one in enumerate(patterns):
        if any(compare(one, other) for i, other in enumerate(patterns) if i != at):
            return at
    return None


def covers(wide: str, narrow: str) -> bool:
    """Tell what ``is_subset(narrow, wide)`` does, of patterns and faster."""
    return is_covering(wide.encode(), narrow.encode()) and "" not in narrow.split(".")


def any_overlap(some: Sequence[str], others: Sequence[str]) -> bool:
    """Tell whether one of ``some`` overlaps with one of ``others``.

    The answer may decide what somebody may read: where the trie cannot tell, each is compared.
    """
    fewer, more = sorted((some, others), key=len)
    if len(fewer) * len(more) <= FEW * FEW:
        return any(overlap(one, other) for one in fewer for other in more)
    if _all_literal(fewer) and _all_literal(more):
        return not set(fewer).isdisjoint(more)
    return _found_in_trie(fewer, more)


def _found_in_trie(fewer: Sequence[str], more: Sequence[str]) -> bool:
    strange = [one for one in fewer if not is_pattern(one)]
    known, _ = _known([one for one in fewer if is_pattern(one)] if strange else fewer)
    for other in more:
        try:
            found = known.collides(other.encode(), len(fewer))
        except (ValueError, TooManySteps):
            found = any(overlap(one, other) for one in fewer)
        if found or any(overlap(one, other) for one in strange):
            return True
    return False


def covering(patterns: Iterable[str]) -> Callable[[bytes], bool]:
    """Return a test for subjects: whether one of these covers it, found without trying each."""
    known = Patterns(_UNLIMITED)
    for pattern in dict.fromkeys(patterns):
        if len(encoded := pattern.encode()) <= LONGEST_SUBJECT:
            known.add(encoded, 1)

    def covers_it(subject: bytes) -> bool:
        known.allow(_UNLIMITED)
        try:
            return known.is_covered(subject, 0)
        except ValueError:  # no subject at all
            return False

    return covers_it


def _known(patterns: Iterable[str]) -> tuple[Patterns, list[bytes]]:
    encoded = [pattern.encode() for pattern in patterns]
    known = Patterns(MOST_STEPS + sum(map(len, encoded)))
    for at, pattern in enumerate(encoded):
        known.add(pattern, at)
    return known, encoded


def _collides(known: Patterns, pattern: bytes, besides: int) -> bool:
    try:
        return known.collides(pattern, besides)
    except TooManySteps:
        raise TooEntangled() from None


def _start_of(pattern: str) -> str:
    """Return the tokens of a pattern before its first wildcard: all, where it has none."""
    if "*" not in pattern and ">" not in pattern:
        return pattern
    start, _, last = pattern.rpartition(".")
    if last in ("*", ">") and "*" not in start and ">" not in start:
        return start
    return ".".join(takewhile(lambda token: token not in ("*", ">"), pattern.split(".")))


class PatternSet:
    """Patterns of many owners, which come and go; an owner has each of its patterns once."""

    def __init__(self) -> None:
        self._known = Patterns(MOST_STEPS)
        self._of: dict[int, tuple[str, ...]] = {}
        self._starts: dict[str, set[int]] = {}  # what is before a wildcard → owners

    def put(self, owner: int, patterns: tuple[str, ...]) -> None:
        """Let an owner have these patterns, whatever it had before."""
        if self._of.get(owner, ()) == patterns:
            return
        self.drop(owner)
        kept = tuple(p for p in patterns if len(p.encode()) <= LONGEST_SUBJECT)
        for pattern in kept:
            self._known.add(pattern.encode(), owner)
        for start in set(map(_start_of, kept)):
            self._starts.setdefault(start, set()).add(owner)
        if kept:
            self._of[owner] = kept

    def drop(self, owner: int) -> None:
        """Forget an owner."""
        kept = self._of.pop(owner, ())
        for pattern in kept:
            self._known.remove(pattern.encode(), owner)
        for start in set(map(_start_of, kept)):
            owners = self._starts[start]
            owners.remove(owner)
            if not owners:
                del self._starts[start]

    def overlapping(self, pattern: str) -> set[int]:
        """Return the owners of patterns that overlap with one.

        A subject without a wildcard is compared with few: those that begin as it does.
        """
        found = set(self._near(pattern))
        return {owner for owner in found if any(overlap(pattern, p) for p in self._of[owner])}

    def _near(self, pattern: str) -> Iterable[int]:
        """Go through the owners of patterns that may overlap with one."""
        if _start_of(pattern) != pattern:
            return self._of
        tokens = pattern.split(".")
        starts = (".".join(tokens[:count]) for count in range(len(tokens) + 1))
        return chain.from_iterable(self._starts.get(start, ()) for start in starts)

    def overlaps(self, patterns: Iterable[str], besides: int) -> bool:
        """Tell whether one of these overlaps with a pattern of anybody but one owner."""
        self._known.allow(MOST_STEPS + 4 * len(self._of))
        return any(_collides(self._known, pattern.encode(), besides) for pattern in patterns)
