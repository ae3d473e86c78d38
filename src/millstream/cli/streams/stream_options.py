"""Options that describe a stream's configuration, and the configuration that they make."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from millstream.cli.shown.figures import DURATION, SIZE
from millstream.cli.shown.near import hint

Json = dict[str, Any]
Function = Callable[..., Any]

# flag → (field of the configuration, kind, help)
_VALUES: dict[str, tuple[str, Any, str]] = {
    "--description": ("description", str, "What the stream is for."),
    "--storage": ("storage", click.Choice(["file", "memory"]), "Where records are kept."),
    "--retention": (
        "retention",
        click.Choice(["limits", "interest", "work", "workqueue"]),
        "What keeps a record: limits, interest of consumers, or work not yet done.",
    ),
    "--discard": ("discard", click.Choice(["old", "new"]), "What a full stream refuses or drops."),
    "--max-msgs": ("max_msgs", int, "Most records."),
    "--max-msgs-per-subject": ("max_msgs_per_subject", int, "Most records of one subject."),
    "--max-bytes": ("max_bytes", SIZE, "Most bytes, such as 10GB."),
    "--max-age": ("max_age", DURATION, "Oldest record, such as 7d."),
    "--max-msg-size": ("max_msg_size", SIZE, "Largest message."),
    "--max-consumers": ("max_consumers", int, "Most consumers."),
    "--dupe-window": ("duplicate_window", DURATION, "For how long message ids are remembered."),
    "--replicas": ("num_replicas", int, "Copies in a cluster."),
    "--compression": ("compression", click.Choice(["none", "s2"]), "Compression on disk."),
    "--first-seq": ("first_seq", int, "Sequence of the first record."),
}
_SWITCHES = {
    "--allow-rollup/--no-allow-rollup": ("allow_rollup_hdrs", "Let messages replace earlier ones."),
    "--deny-delete/--no-deny-delete": ("deny_delete", "Forbid removing single records."),
    "--deny-purge/--no-deny-purge": ("deny_purge", "Forbid purging."),
    "--allow-direct/--no-allow-direct": ("allow_direct", "Let clients read records directly."),
    "--allow-msg-ttl/--no-allow-msg-ttl": ("allow_msg_ttl", "Let messages say when they expire."),
    "--allow-schedules/--no-allow-schedules": ("allow_msg_schedules", "Let messages be scheduled."),
    "--allow-batch/--no-allow-batch": ("allow_atomic", "Let publishers write atomic batches."),
    "--allow-counter/--no-allow-counter": ("allow_msg_counter", "Let messages be counters."),
    "--ack/--no-ack": ("ack", "Answer publishers (the default)."),
}


def stream_options(function: Function) -> Function:
    """Add every option that describes a stream; the function gets them as ``wish``."""
    decorated = collected(function, _lists)
    for flag, (field, kind, text) in reversed(_VALUES.items()):
        decorated = click.option(flag, f"cfg_{field}", type=kind, help=text)(decorated)
    for flag, (field, text) in reversed(_SWITCHES.items()):
        decorated = click.option(flag, f"cfg_{field}", default=None, help=text)(decorated)
    for words, settings in reversed(_LISTS):
        decorated = click.option(*words, **settings)(decorated)
    return decorated


_LISTS: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (
        ("--subjects", "--subject", "subjects"),
        {"multiple": True, "help": "Subjects to capture; repeatable, or separated by commas."},
    ),
    (("--mirror",), {"help": "Copy this stream, and take no records from anywhere else."}),
    (
        ("--source", "sources"),
        {"multiple": True, "help": "Take a copy of every record of this stream too; repeatable."},
    ),
    (
        ("--republish",),
        {"help": "Publish each stored record again, as 'SOURCE:DESTINATION' subjects."},
    ),
    (
        ("--transform",),
        {"help": "Store records under another subject, as 'SOURCE:DESTINATION'."},
    ),
    (("--metadata",), {"multiple": True, "help": "A pair, as NAME=VALUE; repeatable."}),
    (
        ("--config", "file"),
        {
            "type": click.Path(exists=True, path_type=Path),
            "help": "JSON file with a configuration; the other options change it.",
        },
    ),
]


def collected(function: Function, lists: Callable[[Json, Json], None]) -> Function:
    """Return a function that gets the options of a configuration as one ``wish``.

    ``lists`` moves options that stand for more than one field from the values to the wish.
    """

    @functools.wraps(function)
    def run(**values: Any) -> Any:
        names = [name for name in values if name.startswith("cfg_")]
        wish = {name[4:]: v for name in names if (v := values.pop(name)) is not None}
        wish = {**read_config(values.pop("file")), **wish}
        lists(wish, values)
        return function(wish=wish, **values)

    return run


def _lists(wish: Json, values: Json) -> None:
    subjects = [part.strip() for text in values.pop("subjects") for part in text.split(",")]
    if subjects:
        wish["subjects"] = subjects
    if "ack" in wish:
        wish["no_ack"] = not wish.pop("ack")
    if wish.get("retention") == "work":
        wish["retention"] = "workqueue"
    mirror, sources = values.pop("mirror"), values.pop("sources")
    if mirror:
        wish["mirror"] = {"name": mirror}
    if sources:
        wish["sources"] = [{"name": name} for name in sources]
    for field, name in (("republish", "republish"), ("transform", "subject_transform")):
        if given := values.pop(field):
            source, colon, destination = given.partition(":")
            if not colon:
                raise click.UsageError(f"--{field} is written 'SOURCE:DESTINATION', not {given!r}")
            wish[name] = {"src": source, "dest": destination}
    if pairs := read_pairs(values.pop("metadata")):
        wish["metadata"] = {**wish.get("metadata", {}), **pairs}


def read_pairs(given: tuple[str, ...]) -> dict[str, str]:
    """Return NAME=VALUE words as pairs."""
    pairs = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"metadata is written NAME=VALUE, not {text!r}")
        pairs[name] = value
    return pairs


def read_config(file: Path | None) -> Json:
    """Return the configuration in a JSON file; an info answer counts by its ``config``."""
    if file is None:
        return {}
    try:
        told = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{file} is not JSON: {error}") from error
    if not isinstance(told, dict):
        raise click.UsageError(f"{file} must hold one JSON object")
    config = told.get("config", told)
    assert isinstance(config, dict)
    return config


STREAM_FIELDS = frozenset(
    [field for field, *_ in _VALUES.values()]
    + [field for field, _ in _SWITCHES.values() if field != "ack"]
    + ["name", "subjects", "mirror", "sources", "republish", "subject_transform", "metadata"]
    + ["no_ack", "sealed", "discard_new_per_subject", "placement", "consumer_limits"]
    + ["mirror_direct", "subject_delete_marker_ttl", "allow_batched", "persist_mode"]
    + ["template_owner", "allow_batch_publish", "allow_atomic"]
)


def check_fields(config: Json, known: frozenset[str], where: str) -> None:
    """Refuse a field that servers would pass over, and name the one that is meant."""
    for field in config:
        if field not in known:
            raise click.UsageError(f"{where} has no field {field!r}{hint(field, known)}")
