"""Mapper: where an account's messages really go."""

import random
from collections.abc import Callable, Iterable
from itertools import accumulate

import msgspec

from millstream.accounts.account import Mapping, numbered
from millstream.accounts.rights import text_of
from millstream.subjects.transform import SubjectTransform

_MOST_REMEMBERED = 1024
_ALL = 100

Dice = Callable[[int], int]


class _Route(msgspec.Struct, frozen=True):
    """A mapping made ready: each transform with the first throw that is beyond its share."""

    source: SubjectTransform
    shares: tuple[tuple[SubjectTransform, int], ...]
    steady: bool  # the same subject always goes to the same place

    def pick(self, dice: Dice) -> SubjectTransform | None:
        """Return the destination of one message, None when it is to be lost."""
        throw = dice(_ALL)
        return next((transform for transform, until in self.shares if throw < until), None)


class Mapper:
    """Applies the first mapping that fits; a subject that none fits stays as it is."""

    def __init__(self, mappings: Iterable[Mapping], dice: Dice = random.randrange) -> None:
        """Raises ``BadTransform`` for a mapping that cannot work."""
        self._routes = [_route(mapping) for mapping in mappings]
        self._dice = dice
        self._settled: dict[bytes, bytes] = {}

    def __call__(self, subject: bytes) -> bytes:
        """Return where a message goes; nowhere (empty) where its share is to be lost."""
        known = self._settled.get(subject)
        if known is not None:
            return known
        mapped, is_settled = self._mapped(subject)
        if is_settled:
            if len(self._settled) >= _MOST_REMEMBERED:
                self._settled.clear()
            self._settled[subject] = mapped
        return mapped

    def _mapped(self, subject: bytes) -> tuple[bytes, bool]:
        text = text_of(subject)
        route = next((route for route in self._routes if route.source.matches(text)), None)
        if route is None:
            return subject, True
        transform = route.pick(self._dice)
        made = "" if transform is None else transform.apply(text)
        return made.encode("utf-8", "surrogateescape"), route.steady


def _route(mapping: Mapping) -> _Route:
    """Give what the weights leave over to the source itself, unless that has its own weight."""
    listed = [(to.subject, to.weight) for to in mapping.destinations]
    left = _ALL - sum(weight for _, weight in listed)
    if left > 0 and all(subject != mapping.source for subject, _ in listed):
        listed.append((numbered(mapping.source), left))
    transforms = [SubjectTransform(mapping.source, subject) for subject, _ in listed]
    limits = accumulate(weight for _, weight in listed)
    shares = tuple(zip(transforms, limits, strict=True))
    has_no_choice = len(shares) == 1 and shares[0][1] == _ALL
    return _Route(transforms[0], shares, has_no_choice and not transforms[0].draws_lots)
