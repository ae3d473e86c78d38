"""Times as JetStream writes them: RFC 3339 with nanoseconds."""

import re
from datetime import datetime

from millstream.streams.config.config import InvalidJson
from millstream.wire import times

ZERO_TIME = "0001-01-01T00:00:00Z"
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


def rfc3339(ts_ns: int) -> str:
    """Return a time with as many fractional digits as it needs; zero is the zero time."""
    return times.rfc3339(ts_ns) if ts_ns > 0 else ZERO_TIME


def time_ns(text: str) -> int:
    """Return the nanoseconds of a time, 0 for the zero time; raises InvalidJson if it is none."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise InvalidJson(f"{text!r} is no RFC 3339 time")
    try:
        whole = datetime.fromisoformat(found[1].replace("0000-", "0004-", 1) + "+00:00")
    except ValueError as error:
        raise InvalidJson(f"{text!r} is no RFC 3339 time") from error
    seconds = int(whole.timestamp()) - _offset(found[3])  # which may be a day: Go allows it
    if seconds < 0:
        return 0
    return seconds * 10**9 + int((found[2] or "0").ljust(9, "0"))


def _offset(zone: str) -> int:
    """Return the seconds that a zone is ahead."""
    if zone == "Z":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[4:6])
    return (-60 if zone[0] == "-" else 60) * minutes


def go_text(ns: int) -> str:
    """Return a duration as Go writes it: 1m30s, 50ms."""
    for unit, size in (("ns", 1), ("µs", 1000), ("ms", 10**6)):
        if ns < size * 1000 and ns < 10**9:
            return f"{ns / size:g}{unit}"
    minutes, rest = divmod(ns, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1e9:.9f}".rstrip("0").rstrip(".") + "s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text
