"""Subjects: tokens joined by dots; ``*`` stands for one token, a last ``>`` for one or more."""

import re
from itertools import zip_longest

_BLANKS = (" ", "\t", "\r", "\n", "\f", "\0")
_TOKENS = re.compile(r"[^. \t\r\n\f\0]+(?:\.[^. \t\r\n\f\0]+)*")


def is_pattern(subject: str) -> bool:
    """Tell whether ``subject`` may be subscribed to."""
    if _TOKENS.fullmatch(subject) is None:
        return False
    return ">." not in subject or not (subject.startswith(">.") or ".>." in subject)


def is_literal(subject: str) -> bool:
    """Tell whether ``subject`` may be published to: a pattern without wildcards."""
    tokens = subject.split(".")
    return _is_clean(subject) and not {"", "*", ">"}.intersection(tokens)


def has_wildcard(subject: str) -> bool:
    """Tell whether a token of ``subject`` is a wildcard; ``a*`` is not one."""
    return not {"*", ">"}.isdisjoint(subject.split("."))


def matches(pattern: str, literal: str) -> bool:
    """Tell whether a publish to ``literal`` reaches a subscription to ``pattern``."""
    return not has_wildcard(literal) and is_subset(literal, pattern)


def is_subset(inner: str, outer: str) -> bool:
    """Tell whether every literal that ``inner`` matches is matched by ``outer`` too."""
    inner_tokens, outer_tokens = inner.split("."), outer.split(".")
    if "" in inner_tokens:
        return False
    for ours, theirs in zip_longest(inner_tokens, outer_tokens):
        if ours is None:
            return False
        if theirs == ">":
            return True
        if ours == ">" or theirs not in ("*", ours):
            return False
    return True


def overlap(a: str, b: str) -> bool:
    """Tell whether some literal subject matches both patterns."""
    for x, y in zip_longest(a.split("."), b.split(".")):
        if x is None or y is None:
            return False
        if ">" in (x, y):
            return True
        if x != y and "*" not in (x, y):
            return False
    return True


def _is_clean(subject: str) -> bool:
    return not any(blank in subject for blank in _BLANKS)
