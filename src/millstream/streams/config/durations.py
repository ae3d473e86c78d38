"""Durations as publishers write them: Go's ``1h30m``, and lifetimes in seconds."""

import re

_UNITS = {b"h": 3600.0, b"m": 60.0, b"s": 1.0, b"ms": 1e-3, b"us": 1e-6, b"ns": 1e-9}
_UNITS |= {"µs".encode(): 1e-6, "μs".encode(): 1e-6}
_UNIT = b"h|ms|us|ns|m|s|" + "µs".encode() + b"|" + "μs".encode()
_PART = re.compile(rb"([0-9]+\.?[0-9]*|\.[0-9]+)(" + _UNIT + rb")")
_WHOLE = re.compile(rb"([+-]?)((?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:" + _UNIT + rb"))+)")
_LONGEST = 2**63 / 1e9  # seconds that Go can count in nanoseconds


def go_duration(text: bytes) -> float | None:
    """Return the seconds of a Go duration such as ``1h30m``, None when it is none."""
    if text in (b"0", b"+0", b"-0"):
        return 0.0
    found = _WHOLE.fullmatch(text)
    if found is None:
        return None
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(found[2]))
    if seconds >= _LONGEST:
        return None
    return -seconds if found[1] == b"-" else seconds


def lifetime(text: bytes) -> int | None:
    """Return the whole seconds of a lifetime, 0 for ``never``, None when it is none."""
    if text.lower() == b"never":
        return 0
    seconds = go_duration(text)
    if seconds is None and text.isdigit() and int(text) < 2**63:
        seconds = float(text)
    return int(seconds) if seconds is not None and seconds >= 1 else None
