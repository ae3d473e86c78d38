"""Subject patterns as a stream needs them: valid, overlapping, matching."""

from collections.abc import Callable, Sequence

_BLANKS = frozenset(" \t\r\n\f\0")


def is_valid(pattern: str) -> bool:
    """Whether this is a subject or a pattern: no empty token, no blank, ``>`` only at the end."""
    if not pattern or not _BLANKS.isdisjoint(pattern):
        return False
    tokens = pattern.split(".")
    return all(tokens) and ">" not in tokens[:-1]


def is_literal(pattern: str) -> bool:
    """Whether no token is a wildcard."""
    tokens = pattern.split(".")
    return "*" not in tokens and ">" not in tokens


def overlap(one: str, other: str) -> bool:
    """Whether one literal subject could match both patterns."""
    a, b = one.split("."), other.split(".")
    for left, right in zip(a, b, strict=False):
        if left == ">" or right == ">":
            return True
        if left != right and left != "*" and right != "*":
            return False
    return len(a) == len(b)


def covers(pattern: str, other: str) -> bool:
    """Whether ``pattern`` matches every subject that ``other`` matches."""
    a, b = pattern.split("."), other.split(".")
    for at, token in enumerate(a):
        if at >= len(b):
            return False
        if token == ">":
            return True
        if b[at] == ">" or (token != "*" and token != b[at]):
            return False
    return len(a) == len(b)


def matcher(patterns: Sequence[str]) -> Callable[[bytes], bool] | None:
    """Return a test for literal subjects, or None when the patterns let everything pass."""
    if not patterns or ">" in patterns:
        return None
    literal = frozenset(p.encode() for p in patterns if is_literal(p))
    wild = [_wild(p) for p in patterns if not is_literal(p)]
    if not wild:
        return literal.__contains__
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
