"""A test for literal subjects, made once from a list of patterns."""

from collections.abc import Callable, Sequence

from millstream.subjects.pattern_set import covering
from millstream.subjects.subject import has_wildcard

_FEW = 4  # patterns that are faster tried one by one


def matcher(patterns: Sequence[str]) -> Callable[[bytes], bool] | None:
    """Return a test for literal subjects, or None when the patterns let everything pass."""
    if not patterns or ">" in patterns:
        return None
    literal = frozenset(p.encode() for p in patterns if not has_wildcard(p))
    wildcards = [p for p in patterns if has_wildcard(p)]
    if not wildcards:
        return literal.__contains__
    if len(wildcards) > _FEW:
        test = covering(wildcards)
        return lambda subject: subject in literal or test(subject)
    wild = [_wild(p) for p in wildcards]
    return lambda subject: subject in literal or any(match(subject) for match in wild)


def _wild(pattern: str) -> Callable[[bytes], bool]:
    tokens = pattern.encode().split(b".")
    if tokens[-1] == b">" and b"*" not in tokens:
        prefix = pattern.encode()[:-1]
        return lambda subject: subject.startswith(prefix) and len(subject) > len(prefix)
    return lambda subject: _match(tokens, subject.split(b"."))


def _match(pattern: list[bytes], subject: list[bytes]) -> bool:
    for at, token in enumerate(pattern):
        if at >= len(subject):
            return False
        if token == b">":
            return True
        if token not in (b"*", subject[at]):
            return False
    return len(pattern) == len(subject)
