"""Schedules: records that are published again at a time, or time and again. Pure.

A schedule is a record whose header ``Nats-Schedule`` says when: ``@at <time>``, ``@every
<duration>`` or a calendar pattern. What it brings forth goes to its ``Nats-Schedule-Target``.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple, Protocol

from millstream.errors import MillstreamError
from millstream.streams.config import durations, extras
from millstream.streams.config.config import InvalidJson, StreamConfig
from millstream.streams.config.times import rfc3339, time_ns
from millstream.streams.schedules.cron import BadPattern, Cron
from millstream.subjects.subject import has_wildcard, is_pattern, overlap

PATTERN = b"Nats-Schedule"
ZONE = b"Nats-Schedule-Time-Zone"
TTL = b"Nats-Schedule-TTL"
ROLLUP = b"Nats-Schedule-Rollup"
TARGET = b"Nats-Schedule-Target"
SOURCE = b"Nats-Schedule-Source"
SCHEDULER = b"Nats-Scheduler"
NEXT = b"Nats-Schedule-Next"
PURGE = b"purge"

_SECOND = 10**9
_LEFT_OUT = (b"Nats-Schedule", b"Nats-Expected-", b"Nats-Msg-Id:", b"Nats-TTL:", b"Nats-Rollup:")


class ScheduleRefused(MillstreamError):
    """A schedule, or what belongs to one, that makes no sense."""

    status = 400
    http_status = 409
    code = "conflict"

    def __init__(self, err_code: int, message: str) -> None:
        super().__init__(message)
        self.err_code = err_code  # type: ignore[misc]


class Due(NamedTuple):
    """When a schedule comes true next, and what its record says about the time after that."""

    at_ns: int
    repeats: bool
    text: str  # the time as headers show it


class ScheduleFacts(Protocol):
    """What the checks ask about the stream."""

    def last_headers(self, subject: bytes) -> bytes | None:
        """Return the headers of a subject's newest record, None when there is none."""
        ...


def due(values: Mapping[bytes, bytes], after_ns: int, now_ns: int) -> Due | None:
    """Return when a schedule comes true after a time, None for a record that is none.

    What was missed comes true once, not as often as it was missed. Raises ScheduleRefused.
    """
    zone = _zone(values)
    pattern = values.get(PATTERN, b"").decode("utf-8", "replace")
    if not pattern:
        return None
    if pattern.startswith("@at "):
        return _at(pattern[4:], zone)
    if pattern.startswith("@every "):
        return _every(pattern[7:], zone, after_ns, now_ns)
    return _calendar(pattern, zone, after_ns, now_ns)


def _at(text: str, zone: tzinfo | None) -> Due:
    if zone is not None:
        raise _bad_pattern()
    try:
        at_ns = time_ns(text)
    except InvalidJson:
        raise _bad_pattern() from None
    return Due(at_ns, False, rfc3339(at_ns))


def _every(text: str, zone: tzinfo | None, after_ns: int, now_ns: int) -> Due:
    seconds = durations.go_duration(text.encode())
    if zone is not None or seconds is None or seconds < 1:
        raise _bad_pattern()
    interval = round(seconds * _SECOND)
    at_ns = _rounded(after_ns) + interval
    if at_ns < now_ns:
        at_ns = _rounded(now_ns) + interval
    return Due(at_ns, True, rfc3339(at_ns))


def _calendar(pattern: str, zone: tzinfo | None, after_ns: int, now_ns: int) -> Due:
    try:
        cron = Cron.parse(pattern)
    except BadPattern:
        raise _bad_pattern() from None
    at = _next(cron, zone, after_ns // _SECOND)
    if at * _SECOND < now_ns:
        at = _next(cron, zone, _rounded(now_ns) // _SECOND)
    text = rfc3339(at * _SECOND)
    if zone is not None:
        text = datetime.fromtimestamp(at, zone).isoformat().replace("+00:00", "Z")
    return Due(at * _SECOND, True, text)


def _next(cron: Cron, zone: tzinfo | None, after: int) -> int:
    at = cron.next_after(after, zone) if zone is not None else cron.next_after(after)
    if at is None:
        raise _bad_pattern()
    return at


def _zone(values: Mapping[bytes, bytes]) -> tzinfo | None:
    if ZONE not in values:
        return None
    if values[ZONE] == b"Local":
        return _zone_of_this_machine()
    from zoneinfo import ZoneInfo  # few schedules name a zone

    try:
        return ZoneInfo(values[ZONE].decode())
    except (ValueError, OSError, KeyError):  # KeyError is how an unknown zone is told
        raise ScheduleRefused(10223, "message schedules time zone is invalid") from None


def _zone_of_this_machine() -> tzinfo:
    """Return the zone that ``TZ`` names, or else the system's; UTC where that is none."""
    from zoneinfo import ZoneInfo

    name = os.environ.get("TZ")
    try:
        if name is not None:
            return ZoneInfo(name.removeprefix(":"))
        with open("/etc/localtime", "rb") as file:
            return ZoneInfo.from_file(file, "Local")
    except (ValueError, OSError, KeyError):
        return UTC


def _rounded(ns: int) -> int:
    return (ns + _SECOND // 2) // _SECOND * _SECOND


def _bad_pattern() -> ScheduleRefused:
    return ScheduleRefused(10189, "message schedules pattern is invalid")


# -- what publishers may ask -----------------------------------------------------------------


def check(
    config: StreamConfig,
    subject: bytes,
    values: Mapping[bytes, bytes],
    facts: ScheduleFacts,
    now_ns: int,
) -> None:
    """Raise when a message is a schedule that cannot be kept, or meddles with one."""
    try:
        found = due(values, now_ns, now_ns)
    except ScheduleRefused:
        if not config.allow_msg_schedules:
            raise _disabled() from None
        raise
    if found is not None:
        if not config.allow_msg_schedules:
            raise _disabled()
        _check_schedule(config, subject, values)
    if values.get(NEXT):
        _check_purge(config, subject, values, facts)
    elif values.get(SCHEDULER):
        raise _bad_scheduler()


def _check_schedule(config: StreamConfig, subject: bytes, values: Mapping[bytes, bytes]) -> None:
    ttl = values.get(TTL, b"")
    if ttl and durations.lifetime(ttl) is None:
        raise ScheduleRefused(10191, "message schedules invalid per-message TTL")
    if values.get(ROLLUP, b"") not in (b"", b"sub"):
        raise _bad_rollup()
    if ttl and not config.allow_msg_ttl:
        raise ScheduleRefused(10166, "per-message TTL is disabled")
    target, source = values.get(TARGET, b""), values.get(SOURCE, b"")
    if not _is_literal(target) or target == subject:
        raise _bad_target()
    if source and (source in (target, subject) or not _is_literal(source)):
        raise _bad_source()
    if not _is_captured(config, target):
        raise _bad_target()
    if source and not _is_captured(config, source):
        raise _bad_source()
    if values.get(b"Nats-Rollup", b"").lower() not in (b"", b"sub"):
        raise _bad_rollup()


def _check_purge(
    config: StreamConfig, subject: bytes, values: Mapping[bytes, bytes], facts: ScheduleFacts
) -> None:
    """Publishers may end a schedule by naming it, and nothing else."""
    scheduler = values.get(SCHEDULER, b"")
    if values[NEXT] != PURGE or scheduler == subject or not _is_literal(scheduler):
        raise _bad_scheduler()
    if not config.allow_msg_schedules:
        raise _disabled()
    headers = facts.last_headers(scheduler)
    if headers is not None and not extras.first_values(headers).get(PATTERN):
        raise _bad_scheduler()


def _is_literal(subject: bytes) -> bool:
    text = subject.decode("utf-8", "surrogateescape")
    return is_pattern(text) and not has_wildcard(text)


def _is_captured(config: StreamConfig, subject: bytes) -> bool:
    text = subject.decode("utf-8", "surrogateescape")
    return any(overlap(captured, text) for captured in config.subjects)


def _disabled() -> ScheduleRefused:
    return ScheduleRefused(10188, "message schedules is disabled")


def _bad_target() -> ScheduleRefused:
    return ScheduleRefused(10190, "message schedules target is invalid")


def _bad_source() -> ScheduleRefused:
    return ScheduleRefused(10203, "message schedules source is invalid")


def _bad_rollup() -> ScheduleRefused:
    return ScheduleRefused(10192, "message schedules invalid rollup")


def _bad_scheduler() -> ScheduleRefused:
    return ScheduleRefused(10212, "message schedules invalid scheduler")


# -- what a schedule brings forth ------------------------------------------------------------


def brought_forth(
    values: Mapping[bytes, bytes], subject: bytes, headers: bytes, following: Due
) -> bytes:
    """Return the headers of a message that a schedule of ``subject`` publishes.

    ``values`` are the schedule's own headers, ``headers`` those of the record that is copied.
    """
    lines = headers.removesuffix(b"\r\n\r\n").split(b"\r\n")[1:] if headers else []
    kept = [line for line in lines if not line.startswith(_LEFT_OUT)]
    kept.append(b"%s: %s" % (SCHEDULER, subject))
    kept.append(b"%s: %s" % (NEXT, following.text.encode() if following.repeats else PURGE))
    if values.get(TTL):
        kept.append(b"Nats-TTL: " + values[TTL])
    if values.get(ROLLUP):
        kept.append(b"Nats-Rollup: " + values[ROLLUP])
    return extras.VERSION + b"\r\n".join(kept) + b"\r\n\r\n"
