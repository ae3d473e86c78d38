"""Times in JSON as Go reads them: RFC 3339, with the liberties that Go takes."""

import re
from calendar import monthrange

_LAYOUT = "2006-01-02T15:04:05Z07:00"
_FRACTION = re.compile(r"[.,]([0-9]+)")
_ZONE = re.compile(r"([+-])([0-9]{2}):([0-9]{2})")


class BadTime(ValueError):
    """It is none; the words are Go's."""


class _Reader:
    """A text that is taken from the front, element by element of the layout."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.rest = text

    def take(self, pattern: str, element: str) -> str:
        """Take what an element of the layout allows; raises BadTime."""
        found = re.match(pattern, self.rest, re.ASCII)
        if found is None:
            raise BadTime(
                f'parsing time {_quoted(self.text)} as "{_LAYOUT}": '
                f'cannot parse {_quoted(self.rest)} as "{element}"'
            )
        self.rest = self.rest[found.end() :]
        return found[0]

    def number(self, pattern: str, element: str, what: str, allowed: range) -> int:
        """Take a number within a range."""
        value = int(self.take(pattern, element))
        self.check(value in allowed, what)
        return value

    def check(self, is_fine: bool, what: str) -> None:
        """Raise BadTime where a number is none of a calendar or clock."""
        if not is_fine:
            raise BadTime(f"parsing time {_quoted(self.text)}: {what} out of range")

    def zone(self) -> tuple[str, int, int]:
        """Take the offset: its sign, hours and minutes."""
        taken = self.take(r"Z|[+-]\d\d:\d\d", "Z07:00")
        found = _ZONE.fullmatch(taken)
        if found is None:
            return "+", 0, 0
        hours, minutes = int(found[2]), int(found[3])
        self.check(hours <= 24, "time zone offset hour")
        self.check(minutes <= 60, "time zone offset minute")
        return found[1], hours, minutes


def canonical(text: str) -> str:
    """Return a time as Go writes the one that it reads here; raises BadTime."""
    reader = _Reader(text)
    year = int(reader.take(r"\d{4}", "2006"))
    reader.take("-", "-")
    month = reader.number(r"\d\d", "01", "month", range(1, 13))
    reader.take("-", "-")
    day = int(reader.take(r"\d\d", "02"))
    reader.take("T", "T")
    hour = reader.number(r"\d\d?", "15", "hour", range(24))
    reader.take(":", ":")
    minute = reader.number(r"\d\d", "04", "minute", range(60))
    reader.take(":", ":")
    second = reader.number(r"\d\d", "05", "second", range(60))
    fraction = _take_fraction(reader)
    sign, hours, minutes = reader.zone()
    if reader.rest:
        raise BadTime(f"parsing time {_quoted(text)}: extra text: {_quoted(reader.rest)}")
    reader.check(1 <= day <= monthrange(year or 4, month)[1], "day")
    shown = f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}"
    hours, minutes = divmod(hours * 60 + minutes, 60)
    return f"{shown}{sign}{hours:02}:{minutes:02}" if hours or minutes else f"{shown}Z"


def _take_fraction(reader: _Reader) -> str:
    found = _FRACTION.match(reader.rest)
    if found is None:
        return ""
    reader.rest = reader.rest[found.end() :]
    digits = found[1][:9].rstrip("0")
    return f".{digits}" if digits else ""


def _quoted(text: str) -> str:
    """Return a text as Go's clock quotes it: what is not ASCII byte by byte."""
    return '"' + "".join(_quoted_byte(byte) for byte in text.encode("utf-8", "replace")) + '"'


def _quoted_byte(byte: int) -> str:
    if byte < 0x20 or byte >= 0x80:
        return f"\\x{byte:02x}"
    return "\\" + chr(byte) if byte in b'"\\' else chr(byte)
