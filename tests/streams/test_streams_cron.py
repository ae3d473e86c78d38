from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from millstream.streams.schedules.cron import BadPattern, Cron

START = "2026-03-10T12:34:56"  # a Tuesday


def next_of(pattern: str, start: str = START, zone: str = "UTC") -> str | None:
    at = int(datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone)).timestamp())
    found = Cron.parse(pattern).next_after(at, ZoneInfo(zone))
    return None if found is None else f"{datetime.fromtimestamp(found, ZoneInfo(zone)):%FT%T%z}"


@pytest.mark.parametrize(
    ("pattern", "following"),
    [
        ("* * * * * *", "2026-03-10T12:34:57+0000"),
        ("0 * * * * *", "2026-03-10T12:35:00+0000"),
        ("*/20 * * * * *", "2026-03-10T12:35:00+0000"),
        ("10/20 * * * * *", "2026-03-10T12:35:10+0000"),
        ("0 30 12 * * *", "2026-03-11T12:30:00+0000"),
        ("0 0 0 1 * *", "2026-04-01T00:00:00+0000"),
        ("0 0 9 * * mon-fri", "2026-03-11T09:00:00+0000"),
        ("0 0 9 * * SUN", "2026-03-15T09:00:00+0000"),
        ("0 0 0 13 * 5", "2026-03-13T00:00:00+0000"),
        ("0 0 0 20 * 4", "2026-03-12T00:00:00+0000"),  # either one is enough
        ("0 0 0 ? feb *", "2027-02-01T00:00:00+0000"),
        ("0 0 0 29 2 *", "2028-02-29T00:00:00+0000"),
        ("0 15,45 12-14 * * *", "2026-03-10T12:45:00+0000"),
        ("@hourly", "2026-03-10T13:00:00+0000"),
        ("@daily", "2026-03-11T00:00:00+0000"),
        ("@weekly", "2026-03-15T00:00:00+0000"),
        ("@monthly", "2026-04-01T00:00:00+0000"),
        ("@yearly", "2027-01-01T00:00:00+0000"),
        ("0 0 0 31 2 *", None),
    ],
)
def test_a_pattern_comes_true_next_when_its_fields_say(pattern, following):
    assert next_of(pattern) == following


@pytest.mark.parametrize(
    "pattern",
    [
        "", "* * * * *", "* * * * * * *", "60 * * * * *", "* * 24 * * *", "* * * 0 * *",
        "* * * * 13 *", "* * * * * 7", "5-1 * * * * *", "1-2-3 * * * * *", "*/0 * * * * *",
        "1/2/3 * * * * *", "x * * * * *", "@never",
    ],
)  # fmt: skip
def test_what_is_no_pattern_is_refused(pattern):
    with pytest.raises(BadPattern):
        Cron.parse(pattern)


def test_an_hour_that_a_zone_skips_never_comes_true():
    found = next_of("0 30 2 * * *", "2026-03-28T12:00:00", "Europe/Berlin")
    assert found == "2026-03-30T02:30:00+0200"


def test_an_hour_that_a_zone_repeats_comes_true_twice():
    zone = ZoneInfo("Europe/Berlin")
    cron = Cron.parse("0 30 2 * * *")
    first = cron.next_after(int(datetime(2026, 10, 25, tzinfo=zone).timestamp()), zone)
    assert first is not None
    assert cron.next_after(first, zone) == first + 3600


def test_midnight_in_a_zone_is_its_own():
    assert next_of("@daily", START, "Asia/Kolkata") == "2026-03-11T00:00:00+0530"
    assert Cron.parse("@daily").next_after(0, UTC) == 86_400
