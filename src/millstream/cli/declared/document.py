"""The file: sections of named things, read with every mistake named by its place."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.consumers.consumer_options import CONSUMER_FIELDS
from millstream.cli.shown.figures import read_duration, read_size, read_time
from millstream.cli.shown.near import hint
from millstream.cli.streams.stream_options import STREAM_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]
DURATIONS = frozenset(
    [
        "max_age",
        "duplicate_window",
        "ack_wait",
        "idle_heartbeat",
        "inactive_threshold",
        "ttl",
        "max_expires",
        "priority_timeout",
        "subject_delete_marker_ttl",
    ]
)
SIZES = frozenset(["max_bytes", "max_msg_size", "max_value_size", "max_bucket_size", "cap_bytes"])
TOPIC_FIELDS = frozenset(
    [
        "ttl_ms",
        "cap_records",
        "cap_bytes",
        "discard",
        "durability",
        "priority",
        "auto_priority",
        "auto_create",
        "idempotency_window_ms",
        "dedupe_node",
        "subjects",
        "durable",
    ]
)
QUEUE_FIELDS = TOPIC_FIELDS | {
    *("lease_ms", "claim_jitter_ms", "max_deliveries", "dead_letter", "leases_durable", "key")
}
BUCKET_FIELDS = frozenset(
    ["history", "ttl", "max_value_size", "max_bucket_size", "description", "storage", "replicas"]
)
ROUTER_FIELDS = frozenset(
    [
        "source",
        "dest",
        "filter",
        "preserve_node",
        "preserve_tag",
        "create_dest",
        "allow_cycle",
        "guarantee",
    ]
)
USER_FIELDS = frozenset(["password", "permissions"])
SECTIONS: dict[str, frozenset[str]] = {
    "streams": STREAM_FIELDS - {"name"},
    "consumers": CONSUMER_FIELDS - {"name", "durable_name"},
    "kv": BUCKET_FIELDS,
    "topics": TOPIC_FIELDS,
    "queues": QUEUE_FIELDS,
    "routers": ROUTER_FIELDS,
    "users": USER_FIELDS,
}


def read_document(file: str) -> dict[str, dict[str, Json]]:
    """Return the sections of a file; consumers go by STREAM/CONSUMER."""
    text = sys.stdin.read() if file == "-" else _text(Path(file))
    told = _parsed(text, file)
    if not isinstance(told, dict):
        raise click.UsageError(f"{file}: a mapping with {', '.join(SECTIONS)} is expected")
    sections: dict[str, dict[str, Json]] = {}
    for section, named in told.items():
        if section not in SECTIONS:
            raise click.UsageError(f"{file}: no section {section!r}{hint(section, SECTIONS)}")
        if not isinstance(named, dict):
            raise click.UsageError(f"{file}: {section} must map names to settings")
        if section == "consumers":
            named = {
                f"{stream}/{name}": fields
                for stream, inner in named.items()
                for name, fields in (inner or {}).items()
            }
        sections[section] = {
            str(name): _checked(fields or {}, section, f"{file}: {section}.{name}")
            for name, fields in named.items()
        }
    return sections


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from error


def _parsed(text: str, file: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        pass
    yaml = yaml_module()
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise click.UsageError(f"{file}: {' '.join(str(error).split())}") from error


def yaml_module() -> Any:
    """Return what reads and writes YAML, or say how to get it."""
    try:
        import yaml
    except ImportError:
        raise click.ClickException(
            "YAML needs a package: pip install pyyaml; or use JSON"
        ) from None
    return yaml


def _checked(fields: object, section: str, where: str) -> Json:
    if not isinstance(fields, dict):
        raise click.UsageError(f"{where}: a mapping of settings is expected")
    known = SECTIONS[section]
    made: Json = {}
    for field, value in fields.items():
        if field not in known:
            raise click.UsageError(f"{where}: no field {field!r}{hint(str(field), known)}")
        made[field] = _value(field, value, f"{where}.{field}")
    return made


def _value(field: str, value: object, where: str) -> object:
    """Return a value as the API takes it: 7d, 10GB and such are numbers there."""
    read: Callable[[str], object] | None = None
    if field in DURATIONS:
        read = read_duration
    elif field in SIZES:
        read = read_size
    elif field in ("opt_start_time", "pause_until"):
        read = read_time
    try:
        if field == "backoff" and isinstance(value, list):
            return [read_duration(each) if isinstance(each, str) else each for each in value]
        if field == "mirror" and isinstance(value, str):
            return {"name": value}
        if field == "sources" and isinstance(value, list):
            return [{"name": each} if isinstance(each, str) else each for each in value]
        if read is not None and isinstance(value, str):
            return read(value)
        if field == "subjects" and isinstance(value, str):
            return [value]
    except ValueError as error:
        raise click.UsageError(f"{where}: {error}") from error
    return value
