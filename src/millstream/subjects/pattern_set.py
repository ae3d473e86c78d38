"""Sets of patterns, and what overlaps in them: near-linear, and never for long."""

from collections.abc import Callable, Iterable, Sequence

from millstream.errors import TooMany
from millstream.kernel._patterns import LONGEST, Patterns, TooManySteps

LONGEST_SUBJECT = LONGEST
# A step is a node of the trie that a walk looks at, some 10 to 30 ns: a few milliseconds in all.
MOST_STEPS = 250_000
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
    """Return the place of the first pattern that overlaps with another; all are legal."""
    known, encoded = _known(patterns)
    for at, pattern in enumerate(encoded):
        if _collides(known, pattern, at):
            return at
    return None


def first_covered(patterns: Sequence[str]) -> int | None:
    """Return the place of the first pattern that is a subset of another; all are legal."""
    known, encoded = _known(patterns)
    try:
        for at, pattern in enumerate(encoded):
            if known.is_covered(pattern, at):
                return at
    except TooManySteps:
        raise TooEntangled() from None
    return None


def any_overlap(some: Sequence[str], others: Sequence[str]) -> bool:
    """Tell whether one of ``some`` overlaps with one of ``others``; all are legal."""
    fewer, more = sorted((some, others), key=len)
    known, _ = _known(fewer)
    return any(_collides(known, pattern.encode(), len(fewer)) for pattern in more)


def covering(patterns: Iterable[str]) -> Callable[[bytes], bool]:
    """Return a test for subjects: whether one of these covers it, found without trying each."""
    known = PatternSet()
    known.put(1, tuple(dict.fromkeys(patterns)))
    return known.covers


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


class PatternSet:
    """Patterns of many owners, which come and go; an owner has each of its patterns once."""

    def __init__(self) -> None:
        self._known = Patterns(MOST_STEPS)
        self._of: dict[int, tuple[str, ...]] = {}

    def put(self, owner: int, patterns: tuple[str, ...]) -> None:
        """Let an owner have these patterns, whatever it had before."""
        if self._of.get(owner, ()) == patterns:
            return
        self.drop(owner)
        kept = tuple(p for p in patterns if len(p.encode()) <= LONGEST_SUBJECT)
        for pattern in kept:
            self._known.add(pattern.encode(), owner)
        self._of[owner] = kept

    def drop(self, owner: int) -> None:
        """Forget an owner."""
        for pattern in self._of.pop(owner, ()):
            self._known.remove(pattern.encode(), owner)

    def covers(self, subject: bytes) -> bool:
        """Tell whether a pattern here matches all that ``subject``, a pattern itself, matches."""
        self._known.allow(_UNLIMITED)
        try:
            return self._known.is_covered(subject, 0)
        except ValueError:  # no subject at all
            return False

    def overlaps(self, patterns: Iterable[str], besides: int) -> bool:
        """Tell whether one of these overlaps with a pattern of anybody but one owner."""
        self._known.allow(MOST_STEPS + 4 * len(self._of))
        return any(_collides(self._known, pattern.encode(), besides) for pattern in patterns)
