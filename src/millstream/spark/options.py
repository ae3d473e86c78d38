"""The options of the Spark source and sink: text in, checked values out."""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from millstream.spark.columns import check_names, chosen
from millstream.spark.problems import OptionError
from millstream.spark.reading.subject_filter import pattern_of
from millstream.spark.server import LOGIN_OPTIONS, Server, login_from

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


class PayloadFormat(StrEnum):
    """What the column ``payload`` is."""

    TEXT = "text"  # a string; bytes that are no UTF-8 are in payload_binary
    JSON = "json"  # the same, and payload_json
    BINARY = "binary"  # the bytes of every record


class StartFrom(StrEnum):
    """Where a streaming query without a checkpoint and without ``startSeq`` starts."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Delivery(StrEnum):
    """What a sink promises."""

    EXACTLY_ONCE = "exactly-once"  # staged and committed by a millstream server
    AT_LEAST_ONCE = "at-least-once"  # published message by message, to any NATS server


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a reader asked for. Sequences are inclusive; a record at ``end_time`` is left out."""

    streams: tuple[str, ...]
    server: Server = field(default_factory=Server)
    subject: str | None = None
    columns: tuple[str, ...] | None = None
    include_headers: bool = False
    payload_json: bool = False
    payload_format: PayloadFormat = PayloadFormat.TEXT
    start_seq: int | None = None
    end_seq: int | None = None
    start_time: str | None = None
    end_time: str | None = None
    access: Access = Access.AUTO
    max_records_per_partition: int = 0
    max_records_per_trigger: int = 0
    max_bytes_per_trigger: int = 0
    min_partitions: int = 0
    fail_on_data_loss: bool = True
    start_from: StartFrom = StartFrom.EARLIEST
    pushdown: bool = False
    exact_start: bool = True  # what is gone of the range from start_seq on counts as lost
    consumer: str | None = None
    retention_hold: float = 0.0

    def table_columns(self) -> tuple[str, ...]:
        """Return the columns of the table that Spark sees."""
        gaps = not self.fail_on_data_loss
        as_json = self.payload_json or self.payload_format is PayloadFormat.JSON
        as_text = self.payload_format is not PayloadFormat.BINARY
        return chosen(self.columns, self.include_headers, gaps, as_json, as_text)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a writer asked for; without a ``sink_id`` a query is known by its Spark id."""

    stream: str
    server: Server = field(default_factory=Server)
    subject: str | None = None  # a template: orders.{region}
    sink_id: str | None = None
    delivery: Delivery = Delivery.EXACTLY_ONCE
    batch_id: int = 0  # of a job that is one of many, as in foreachBatch


def parse(options: Mapping[str, str]) -> ReadOptions:
    """Return checked options; names are compared without case, as everywhere in Spark."""
    values = _values(options, _READ_OPTIONS, "read")
    if "stream" in values:  # both spellings may be given: they name streams together
        named = (*values.pop("stream"), *values.get("streams", ()))  # type: ignore[misc]
        values["streams"] = tuple(dict.fromkeys(named))
    if "streams" not in values:
        if "subject" not in values:
            raise OptionError(
                'name the stream to read: .option("stream", "ORDERS"); for a table with options, '
                "leave the columns out of CREATE TABLE, because Spark keeps options with them"
            )
        values["streams"] = ("*",)  # whichever holds records of that subject
    if values.get("retention_hold") and "consumer" not in values:
        raise OptionError(
            "option retentionHold needs a consumer, whose records it holds: set option consumer too"
        )
    return ReadOptions(**values)  # type: ignore[arg-type]


def check_streaming(options: ReadOptions) -> None:
    """Refuse what has no meaning for a query without an end, or would change on replay."""
    for name, value in (("endSeq", options.end_seq), ("endTime", options.end_time)):
        if value is not None:
            raise OptionError(f"option {name} belongs to spark.read, not to spark.readStream")
    several = len(options.streams) > 1 or "*" in options.streams[0]
    if options.start_seq is not None and several:
        raise OptionError("startSeq works for one stream: use startTime for several")


def parse_write(options: Mapping[str, str]) -> WriteOptions:
    """Return checked options of a sink."""
    values = _values(options, _WRITE_OPTIONS, "write")
    if "stream" not in values:
        raise OptionError('name the stream to write: .option("stream", "ORDERS")')
    if "batch_id" in values and "sink_id" not in values:
        raise OptionError("option batchId numbers the batches of a sink: set sinkId too")
    return WriteOptions(**values)  # type: ignore[arg-type]


def _values(
    options: Mapping[str, str], known: dict[str, tuple[str, str, "_Parsed"]], verb: str
) -> dict[str, object]:
    given = {name.lower(): value for name, value in options.items()}
    path = given.get("path")  # load("ORDERS"), save("ORDERS")
    if given.get("provider") is not None:  # CREATE TABLE: a place in the warehouse is no stream
        path = None
    if path is not None and given.setdefault("stream", path) != path:
        raise OptionError(
            f"the stream is named twice: {given['stream']!r} by option stream and {path!r} by "
            f"{'load' if verb == 'read' else 'save'}()"
        )
    values: dict[str, object] = {}
    server: dict[str, object] = {}
    for name, value in given.items():
        if name in _SPARK_OPTIONS or name in _LOGIN or name.startswith("option."):
            continue
        if name in _SERVER_OPTIONS:
            spelled, field_name, parsed = _SERVER_OPTIONS[name]
            server[field_name] = parsed(spelled, value)
            continue
        if name not in known:
            raise OptionError(_unknown(name, known, verb))
        spelled, field_name, parsed = known[name]
        values[field_name] = parsed(spelled, value)
    if "patience" in server:
        server["first_patience"] = server["patience"]
    values["server"] = Server(**server, login=login_from(given))  # type: ignore[arg-type]
    return values


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
            f"{text!r} is not a time: use 2026-05-01T12:00:00Z, or -30m, -2h, -7d before now"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000


def _unknown(name: str, known: dict[str, tuple[str, str, "_Parsed"]], verb: str) -> str:
    spellings = {key: spelled for key, (spelled, _, _) in {**known, **_SERVER_OPTIONS}.items()}
    spellings |= _LOGIN
    close = difflib.get_close_matches(name, spellings, n=1)
    hint = (
        f"did you mean {spellings[close[0]]!r}?"
        if close
        else f"known to a {verb}: {', '.join(spellings.values())}"
    )
    return f"unknown option {name!r}; {hint}"


def _text(name: str, value: str) -> str:
    if not value.strip():
        raise OptionError(f"option {name} is empty")
    return value.strip()


def _url(name: str, value: str) -> str:
    """Return where the server is; a scheme that nobody speaks is told before anything is asked."""
    scheme, found, _ = _text(name, value).partition("://")
    if found and scheme not in ("nats", "tls", "http", "https"):
        raise OptionError(
            f"option {name} must begin with nats://, tls://, http:// or https://, not {scheme}://"
        )
    return value.strip()


def _pattern(name: str, value: str) -> str:
    pattern_of(_text(name, value))
    return value.strip()


def _names(name: str, value: str) -> tuple[str, ...]:
    """Return the streams of a list; a name may hold ``*`` for any text."""
    names = tuple(part.strip() for part in value.split(",") if part.strip())
    if not names:
        raise OptionError(f"option {name} is empty")
    return names


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


def _delivery(name: str, value: str) -> Delivery:
    try:
        return Delivery(value.lower())
    except ValueError:
        words = " or ".join(Delivery)
        raise OptionError(f"option {name} must be {words}, not {value!r}") from None


def _consumer(name: str, value: str) -> str:
    if not value or any(c.isspace() or c in ".*>/\\" for c in value) or len(value) > 200:
        raise OptionError(f"option {name} must be a consumer name: no blanks, dots, * or >")
    return value


def _payload_format(name: str, value: str) -> PayloadFormat:
    try:
        return PayloadFormat(value.lower())
    except ValueError:
        raise OptionError(f"option {name} must be text, json or binary, not {value!r}") from None


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


def _hold(name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise OptionError(f"option {name} must be seconds up to 86400, not {value!r}")
    return seconds


def _time(name: str, value: str) -> str:
    time_ns(_text(name, value), 0)
    return value.strip()


_Parsed = Callable[[str, str], object]


def _table(*rows: tuple[str, str, _Parsed]) -> dict[str, tuple[str, str, _Parsed]]:
    return {row[0].lower(): row for row in rows}


_LOGIN = {spelled.lower(): spelled for spelled in LOGIN_OPTIONS}
# What Spark itself adds: to a query, and to a table of its catalog.
_SPARK_OPTIONS = frozenset(
    {"path", "checkpointlocation", "queryname", "outputmode", "provider", "location", "owner"}
    | {"comment", "collation", "external", "is_managed_location", "table_type"}
)
_SERVER_OPTIONS = _table(
    ("url", "url", _url),
    ("timeout", "timeout", _seconds),
    ("patience", "patience", _hold),
)
_READ_OPTIONS = _table(
    ("stream", "stream", _names),
    ("streams", "streams", _names),
    ("subject", "subject", _pattern),
    ("columns", "columns", _columns),
    ("includeHeaders", "include_headers", _truth),
    ("payloadJson", "payload_json", _truth),
    ("payloadFormat", "payload_format", _payload_format),
    ("startSeq", "start_seq", _whole),
    ("endSeq", "end_seq", _whole),
    ("startTime", "start_time", _time),
    ("endTime", "end_time", _time),
    ("access", "access", _access),
    ("maxRecordsPerPartition", "max_records_per_partition", _whole),
    ("maxRecordsPerTrigger", "max_records_per_trigger", _whole),
    ("maxBytesPerTrigger", "max_bytes_per_trigger", _whole),
    ("minPartitions", "min_partitions", _whole),
    ("failOnDataLoss", "fail_on_data_loss", _truth),
    ("startFrom", "start_from", _start_from),
    ("pushdown", "pushdown", _truth),
    ("consumer", "consumer", _consumer),
    ("retentionHold", "retention_hold", _hold),
)
_WRITE_OPTIONS = _table(
    ("stream", "stream", _text),
    ("subject", "subject", _text),
    ("sinkId", "sink_id", _text),
    ("batchId", "batch_id", _whole),
    ("delivery", "delivery", _delivery),
)
