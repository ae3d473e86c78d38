"""The options of the Spark source: text in, checked values out."""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from millstream.spark.columns import check_names, chosen
from millstream.spark.problems import OptionError

DEFAULT_URL = "nats://127.0.0.1:4222"
_UNITS_NS = {
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
_RELATIVE = re.compile(r"-(\d+)(ms|s|m|h|d)")


class Access(StrEnum):
    """How sealed segments are read; the tail always comes from the server."""

    AUTO = "auto"  # files, and the server for those that cannot be reached from here
    FILES = "files"  # files or a failure
    BROKER = "broker"  # the server alone


class StartFrom(StrEnum):
    """Where a streaming query without a checkpoint and without ``startSeq`` starts."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a reader asked for. Sequences are inclusive; a record at ``end_time`` is left out."""

    stream: str
    url: str = DEFAULT_URL
    subject: str | None = None
    columns: tuple[str, ...] | None = None
    include_headers: bool = False
    start_seq: int | None = None
    end_seq: int | None = None
    start_time: str | None = None
    end_time: str | None = None
    access: Access = Access.AUTO
    max_records_per_partition: int = 0
    max_records_per_trigger: int = 0
    fail_on_data_loss: bool = True
    timeout: float = 10.0
    start_from: StartFrom = StartFrom.EARLIEST

    def table_columns(self) -> tuple[str, ...]:
        """Return the columns of the table that Spark sees."""
        return chosen(self.columns, self.include_headers, gaps=not self.fail_on_data_loss)


def parse(options: Mapping[str, str]) -> ReadOptions:
    """Return checked options; names are compared without case, as everywhere in Spark."""
    given = {name.lower(): value for name, value in options.items()}
    if "path" in given:  # load("ORDERS")
        given.setdefault("stream", given["path"])
        del given["path"]
    values: dict[str, object] = {}
    for name, value in given.items():
        if name not in _OPTIONS:
            raise OptionError(_unknown(name))
        spelled, field, parsed = _OPTIONS[name]
        values[field] = parsed(spelled, value)
    if "stream" not in values:
        raise OptionError('name the stream to read: .option("stream", "ORDERS")')
    return ReadOptions(**values)  # type: ignore[arg-type]


def time_ns(text: str, now_ns: int) -> int:
    """Return a time as nanoseconds: ISO 8601 (UTC unless it says otherwise), or such as ``-2h``."""
    if text == "now":
        return now_ns
    if relative := _RELATIVE.fullmatch(text):
        return now_ns - int(relative[1]) * _UNITS_NS[relative[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"{text!r} is no time: use 2026-05-01T12:00:00Z, or -30m, -2h, -7d before now"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000


def _unknown(name: str) -> str:
    spellings = {key: spelled for key, (spelled, _, _) in _OPTIONS.items()}
    close = difflib.get_close_matches(name, spellings, n=1)
    hint = (
        f"did you mean {spellings[close[0]]!r}?"
        if close
        else f"known: {', '.join(spellings.values())}"
    )
    return f"unknown option {name!r}; {hint}"


def _text(name: str, value: str) -> str:
    if not value.strip():
        raise OptionError(f"option {name} is empty")
    return value.strip()


def _whole(name: str, value: str) -> int:
    if not value.strip().isdecimal():
        raise OptionError(f"option {name} must be a whole number from 0, not {value!r}")
    return int(value)


def _truth(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise OptionError(f"option {name} must be true or false, not {value!r}")
    return value.lower() == "true"


def _access(name: str, value: str) -> Access:
    try:
        return Access(value.lower())
    except ValueError:
        raise OptionError(f"option {name} must be auto, files or broker, not {value!r}") from None


def _start_from(name: str, value: str) -> StartFrom:
    try:
        return StartFrom(value.lower())
    except ValueError:
        raise OptionError(f"option {name} must be earliest or latest, not {value!r}") from None


def _columns(_name: str, value: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in value.split(",") if part.strip())
    check_names(names)
    return names


def _seconds(name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise OptionError(f"option {name} must be seconds up to 3600, not {value!r}")
    return seconds


def _time(name: str, value: str) -> str:
    time_ns(_text(name, value), 0)
    return value.strip()


_Parsed = Callable[[str, str], object]
_OPTIONS: dict[str, tuple[str, str, _Parsed]] = {
    spelled.lower(): (spelled, field, parsed)
    for spelled, field, parsed in (
        ("stream", "stream", _text),
        ("url", "url", _text),
        ("subject", "subject", _text),
        ("columns", "columns", _columns),
        ("includeHeaders", "include_headers", _truth),
        ("startSeq", "start_seq", _whole),
        ("endSeq", "end_seq", _whole),
        ("startTime", "start_time", _time),
        ("endTime", "end_time", _time),
        ("access", "access", _access),
        ("maxRecordsPerPartition", "max_records_per_partition", _whole),
        ("maxRecordsPerTrigger", "max_records_per_trigger", _whole),
        ("failOnDataLoss", "fail_on_data_loss", _truth),
        ("timeout", "timeout", _seconds),
        ("startFrom", "start_from", _start_from),
    )
}
