"""Cron: the six fields of a calendar pattern, and when it next comes true. Pure.

``second minute hour day month weekday``; a field is a list of values, ranges and steps. When both
day and weekday are restricted, either one is enough.
"""

from datetime import UTC, datetime, tzinfo
from itertools import chain

import msgspec

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_NAMED = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_YEARS_AHEAD = 5


class BadPattern(ValueError):
    """Text that is no calendar pattern."""


class _Field(msgspec.Struct, frozen=True):
    values: frozenset[int]
    is_open: bool  # an unrestricted one, by a star without a step


class Cron(msgspec.Struct, frozen=True):
    """A calendar pattern."""

    seconds: _Field
    minutes: _Field
    hours: _Field
    days: _Field
    months: _Field
    weekdays: _Field

    @classmethod
    def parse(cls, pattern: str) -> "Cron":
        """Read six fields, or one of the names such as ``@hourly``; raises BadPattern."""
        fields = _NAMED.get(pattern, pattern).split()
        if len(fields) != 6:
            raise BadPattern(f"a pattern has 6 fields, not {len(fields)}")
        months = {name: at for at, name in enumerate(_MONTHS, 1)}
        days = {name: at for at, name in enumerate(_DAYS)}
        return cls(
            _field(fields[0], 0, 59, {}),
            _field(fields[1], 0, 59, {}),
            _field(fields[2], 0, 23, {}),
            _field(fields[3], 1, 31, {}),
            _field(fields[4], 1, 12, months),
            _field(fields[5], 0, 6, days),
        )

    def next_after(self, after: int, zone: tzinfo = UTC) -> int | None:
        """Return the first second after ``after`` that matches, None within five years.

        Steps are taken on the absolute time: an hour that a zone skips never comes true, one that
        it repeats comes true twice.
        """
        at = after + 1
        last_year = datetime.fromtimestamp(at, zone).year + _YEARS_AHEAD
        while True:
            now = datetime.fromtimestamp(at, zone)
            if now.year > last_year:
                return None
            further = self._skip(now, at)
            if further is None:
                return at
            at = max(further, at + 1)

    def _skip(self, now: datetime, at: int) -> int | None:
        """Return a later time to look at, None when this one matches."""
        if now.month not in self.months.values:
            year, month = divmod(now.year * 12 + now.month, 12)
            return _start(year, month + 1, 1, now)
        if not self._is_day(now):
            return _next_day(now)
        if now.hour not in self.hours.values:
            return at - now.minute * 60 - now.second + 3600
        if now.minute not in self.minutes.values:
            return at - now.second + 60
        return None if now.second in self.seconds.values else at + 1

    def _is_day(self, now: datetime) -> bool:
        by_day = now.day in self.days.values
        by_weekday = now.isoweekday() % 7 in self.weekdays.values
        if self.days.is_open or self.weekdays.is_open:
            return by_day and by_weekday
        return by_day or by_weekday


def _start(year: int, month: int, day: int, like: datetime) -> int:
    return int(datetime(year, month, day, tzinfo=like.tzinfo).timestamp())


def _next_day(now: datetime) -> int:
    following = datetime.fromordinal(now.toordinal() + 1)
    return _start(following.year, following.month, following.day, now)


def _field(text: str, low: int, high: int, names: dict[str, int]) -> _Field:
    parts = [_range(part, low, high, names) for part in text.split(",") if part]
    values = frozenset(chain.from_iterable(part.values for part in parts))
    return _Field(values, any(part.is_open for part in parts))


def _range(text: str, low: int, high: int, names: dict[str, int]) -> _Field:
    """Read ``*``, ``5``, ``mon-fri``, ``10/5`` or ``0-30/10``."""
    span, *steps = text.split("/")
    if len(steps) > 1:
        raise BadPattern(f"too many slashes: {text}")
    step = _number(steps[0], {}) if steps else 1
    first, *rest = span.split("-")
    is_star = first in ("*", "?")
    if is_star:
        start, end = low, high
    elif len(rest) > 1:
        raise BadPattern(f"too many hyphens: {text}")
    else:
        start = _number(first, names)
        end = _number(rest[0], names) if rest else start
        if steps and not rest:
            end = high
    if step == 0 or not low <= start <= end <= high:
        raise BadPattern(f"out of range: {text}")
    return _Field(frozenset(range(start, end + 1, step)), is_star and step == 1)


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    digits = text.removeprefix("+")
    if not digits.isascii() or not digits.isdigit():
        raise BadPattern(f"no number: {text}")
    return int(digits)
