"""Control lines in plain Python: what ``_scan`` must agree with."""

import re

_SIZE = re.compile(rb"[0-9]{1,9}")
_WORD = re.compile(rb"[^ \t]+")
_WORD_AT_CR = re.compile(rb"[^ \t\r]+")


def words(line: bytes, most: int, at_cr: bool = False) -> list[bytes] | None:
    """Return up to ``most`` words of ``line``, or None when there are more."""
    found = (_WORD_AT_CR if at_cr else _WORD).findall(line)
    return found if len(found) <= most else None


def size(text: bytes) -> int:
    """Return the decimal in ``text``, or -1."""
    return int(text) if _SIZE.fullmatch(text) else -1


def decimal(value: int) -> bytes:
    """Return ``value`` as decimal digits."""
    return b"%d" % value
