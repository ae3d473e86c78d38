"""Durations as NATS configurations write them: ``"1h30m"``, ``"250ms"``, ``"-1.5s"``."""

import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)([a-zµμ]+)")
_LONGEST = 2**63 / 1e9


def parse_duration(text: str) -> float:
    """Return seconds; raises ``ValueError`` with a reason."""
    sign = -1.0 if text.startswith("-") else 1.0
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0.0
    seconds = _sum(rest) if rest else None
    if seconds is None or seconds > _LONGEST:
        raise ValueError(f"{text!r} is not a duration: write it like '10s', '2m' or '1h30m'")
    return sign * seconds


def _sum(text: str) -> float | None:
    seconds, at = 0.0, 0
    for part in _PART.finditer(text):
        if part.start() != at or part[2] not in _UNITS:
            return None
        seconds += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    return seconds if at == len(text) else None
