"""Figures as people read and write them: counts, sizes, durations and moments."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import click

NANOSECOND = 1_000_000_000
_UNITS = {"ns": 1, "us": 1000, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_UNITS |= {"d": 24 * _UNITS["h"], "w": 7 * 24 * _UNITS["h"], "y": 365 * 24 * _UNITS["h"]}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h|d|w|y)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_FRACTION = re.compile(r"\.(\d{6})\d+")


def count(number: int | None) -> str:
    """Return a number with its thousands apart; nothing for one that is not known."""
    return "" if number is None else f"{number:,}"


def size(number: int) -> str:
    """Return bytes in the unit that needs fewest digits."""
    amount = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def duration(nanoseconds: int) -> str:
    """Return a length of time in its two largest units."""
    if nanoseconds < NANOSECOND:
        return f"{nanoseconds / 1_000_000:.4g}ms" if nanoseconds else "0s"
    left, parts = nanoseconds // NANOSECOND, []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= length:
            parts.append(f"{left // length}{unit}")
            left %= length
    return "".join(parts[:2])


def moment(text: str | None) -> str:
    """Return an RFC 3339 time as people read it, to the second."""
    if not text or text.startswith("0001-01-01"):
        return "never"
    return read_moment(text).strftime("%Y-%m-%d %H:%M:%S")


def since(text: str | None) -> str:
    """Return how long ago an RFC 3339 time was."""
    if not text or text.startswith("0001-01-01"):
        return "never"
    passed = datetime.now(UTC) - read_moment(text)
    return duration(max(int(passed.total_seconds()), 0) * NANOSECOND) + " ago"


def read_moment(text: str) -> datetime:
    """Return the moment that an RFC 3339 text names."""
    return datetime.fromisoformat(_FRACTION.sub(r".\1", text))


def read_duration(text: str) -> int:
    """Return the nanoseconds that ``90s``, ``1h30m`` or ``2d`` stand for; 0 means none."""
    if text.strip() in ("0", "-1", "never", "none", "unlimited"):
        return 0
    found = _PARTS.findall(text)
    if not found or "".join(number + unit for number, unit in found) != text:
        raise ValueError(f"{text!r} is no length of time: write 90s, 15m, 1h30m or 2d")
    return int(sum(float(number) * _UNITS[unit] for number, unit in found))


def read_size(text: str) -> int:
    """Return the bytes that ``512``, ``64KB`` or ``1.5GiB`` stand for; -1 means no limit."""
    if text.strip() in ("-1", "unlimited", "none"):
        return -1
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no size: write 512, 64KB, 10MB or 1.5GB")
    return int(float(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " "))


def read_time(text: str) -> str:
    """Return the RFC 3339 moment of a time, or of a length of time before now."""
    try:
        when = datetime.now(UTC) - timedelta(microseconds=read_duration(text) / 1000)
    except ValueError:
        try:
            when = read_moment(text)
        except ValueError:
            raise ValueError(
                f"{text!r} is no time: write 2026-11-16T12:30:00Z, or 15m for that long ago"
            ) from None
        when = when if when.tzinfo else when.astimezone()
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")


class Reader(click.ParamType[object]):
    """A kind of option that one of the functions above reads."""

    def __init__(self, name: str, read: Callable[[str], object]) -> None:
        self.name = name
        self._read = read

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Return the value, or say what is wrong with it."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            return self.fail(str(error), param, ctx)


DURATION = Reader("DURATION", read_duration)
SIZE = Reader("SIZE", read_size)
TIME = Reader("TIME", read_time)
