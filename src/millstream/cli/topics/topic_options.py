"""Options that describe a topic or queue, and the configuration that they make."""

import functools
from collections.abc import Callable
from typing import Any

import click

from millstream.cli.shown.figures import DURATION, SIZE

Json = dict[str, Any]
Function = Callable[..., Any]
_MS = 1_000_000

_COMMON: dict[str, tuple[str, Any, str]] = {
    "--durability": (
        "durability",
        click.Choice(["fsync", "disk", "memory", "ephemeral"]),
        "What an acknowledgement promises.",
    ),
    "--ttl": ("ttl_ms", DURATION, "How long records last, such as 7d."),
    "--cap-records": ("cap_records", int, "Most records."),
    "--cap-bytes": ("cap_bytes", SIZE, "Most bytes, such as 10GB."),
    "--discard": ("discard", click.Choice(["old", "reject"]), "What a full topic does."),
    "--priority": ("priority", int, "Priority among topics."),
    "--idempotency-window": ("idempotency_window_ms", DURATION, "How long keys are remembered."),
}
_QUEUE: dict[str, tuple[str, Any, str]] = {
    "--lease": ("lease_ms", DURATION, "How long a worker may take for a job."),
    "--max-deliveries": ("max_deliveries", int, "Deliveries after which a job is given up."),
    "--dead-letter": ("dead_letter", str, "Topic for jobs that are given up."),
    "--key": ("key", str, "Lease jobs of one key one by one: token:N, header:NAME, tag."),
    "--claim-jitter": ("claim_jitter_ms", DURATION, "How long claims are gathered."),
}


def topic_options(function: Function) -> Function:
    """Add the options of a topic; the function gets them as ``wish``."""
    return _with(function, _COMMON)


def queue_options(function: Function) -> Function:
    """Add the options of a queue; the function gets them as ``wish``."""
    return _with(function, {**_QUEUE, **_COMMON})


def _with(function: Function, flags: dict[str, tuple[str, Any, str]]) -> Function:
    @functools.wraps(function)
    def run(**values: Any) -> Any:
        names = [name for name in values if name.startswith("cfg_")]
        wish = {name[4:]: v for name in names if (v := values.pop(name)) is not None}
        for field in [field for field in wish if field.endswith("_ms")]:
            wish[field] //= _MS
        if subjects := values.pop("subjects"):
            wish["subjects"] = [part for text in subjects for part in text.split(",")]
        return function(wish=wish, **values)

    decorated: Function = click.option(
        "--subjects", multiple=True, help="Subjects to capture from NATS; repeatable."
    )(run)
    for flag, (field, kind, text) in reversed(flags.items()):
        decorated = click.option(flag, f"cfg_{field}", type=kind, help=text)(decorated)
    return decorated
