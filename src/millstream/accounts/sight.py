"""Sight: which records of a stream a credential may read, where it may not read them all."""

from collections.abc import Iterable

import msgspec

from millstream.accounts.permissions import Rule
from millstream.accounts.rights import text_of
from millstream.subjects.pattern_set import any_overlap


class Sight(msgspec.Struct, frozen=True):
    """Judges the subject that a record was stored with; equal where the permissions are."""

    rule: Rule

    def __call__(self, subject: bytes) -> bool:
        """Say whether records of ``subject`` may be read."""
        return self.rule.permits(text_of(subject))


BLIND = Sight(Rule.of(()))


def sees_some(rule: Rule, patterns: Iterable[str]) -> bool:
    """Say whether a stream with these subjects may hold a record that ``rule`` lets pass."""
    if rule.allow is None:
        return True
    allowed = [entry.pattern for entry in rule.allow if not entry.queue]
    return any_overlap(tuple(patterns), allowed)
