"""Control lines in plain Python: what ``_scan`` must agree with."""

import re
from datetime import UTC, datetime

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


def time(ts_ns: int) -> bytes:
    """Return a time as RFC 3339 has it, with as many fractional digits as it needs."""
    if not ts_ns:
        return b"0001-01-01T00:00:00Z"
    seconds, fraction = divmod(ts_ns, 10**9)
    whole = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{whole}{digits}Z".encode()
