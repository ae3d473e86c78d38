"""Options that describe a consumer's configuration, and the configuration that they make."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from millstream.cli.shown.figures import DURATION, TIME, read_duration, read_time
from millstream.cli.streams.stream_options import collected, read_pairs

Json = dict[str, Any]
Function = Callable[..., Any]
DEAD_LETTER, KEY = "millstream.dead_letter", "millstream.key"

_VALUES: dict[str, tuple[str, Any, str]] = {
    "--description": ("description", str, "What the consumer is for."),
    "--ack": ("ack_policy", click.Choice(["explicit", "none", "all"]), "What clients acknowledge."),
    "--wait": ("ack_wait", DURATION, "How long an acknowledgement may take."),
    "--max-deliver": ("max_deliver", int, "Most deliveries of a record."),
    "--max-pending": ("max_ack_pending", int, "Most records in flight."),
    "--max-waiting": ("max_waiting", int, "Most pull requests that wait."),
    "--max-batch": ("max_batch", int, "Largest batch of a pull request."),
    "--replay": ("replay_policy", click.Choice(["instant", "original"]), "How fast."),
    "--sample": ("sample_freq", str, "Share of acknowledgements to sample, such as 10%."),
    "--target": ("deliver_subject", str, "Push records to this subject."),
    "--deliver-group": ("deliver_group", str, "Share pushed records among this queue group."),
    "--heartbeat": ("idle_heartbeat", DURATION, "Pause after which a push consumer gives a sign."),
    "--rate-limit": ("rate_limit_bps", int, "Most bits a second of a push consumer."),
    "--inactive-threshold": ("inactive_threshold", DURATION, "Remove it when unused for so long."),
    "--replicas": ("num_replicas", int, "Copies in a cluster."),
    "--pause-until": ("pause_until", TIME, "Deliver nothing until this time."),
    "--priority-policy": (
        "priority_policy",
        click.Choice(["none", "overflow", "pinned_client", "prioritized"]),
        "Who of the clients that pull is served.",
    ),
    "--pinned-ttl": ("priority_timeout", DURATION, "How long a pinned client may be silent."),
}
_SWITCHES = {
    "--flow-control/--no-flow-control": ("flow_control", "Pace a push consumer by its client."),
    "--headers-only/--no-headers-only": ("headers_only", "Deliver headers and sizes only."),
    "--memory/--no-memory": ("mem_storage", "Keep its state in memory."),
}
CONSUMER_FIELDS = frozenset(
    [field for field, *_ in _VALUES.values()]
    + [field for field, _ in _SWITCHES.values()]
    + ["name", "durable_name", "deliver_policy", "opt_start_seq", "opt_start_time", "backoff"]
    + ["filter_subject", "filter_subjects", "metadata", "priority_groups", "direct"]
    + ["max_expires", "max_bytes"]
)


def consumer_options(function: Function) -> Function:
    """Add every option that describes a consumer; the function gets them as ``wish``."""
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
        ("--filter", "filters"),
        {"multiple": True, "help": "Only records of these subjects; repeatable."},
    ),
    (
        ("--deliver",),
        {"help": "Where to begin: all, new, last, subject, a sequence, a time, or 1h ago."},
    ),
    (("--backoff",), {"help": "Waits before redeliveries, such as 1s,10s,1m."}),
    (("--group", "groups"), {"multiple": True, "help": "A priority group; repeatable."}),
    (
        ("--dead-letter",),
        {
            "metavar": "STREAM",
            "help": "Copy records here that are given up (--max-deliver) or terminated.",
        },
    ),
    (
        ("--key",),
        {
            "metavar": "token:N|header:NAME|tag",
            "help": "Deliver records of one key one by one, in order; other keys flow beside it.",
        },
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


def _lists(wish: Json, values: Json) -> None:
    filters, groups = values.pop("filters"), values.pop("groups")
    if len(filters) == 1:
        wish["filter_subject"] = filters[0]
        wish.pop("filter_subjects", None)
    elif filters:
        wish["filter_subjects"] = list(filters)
        wish.pop("filter_subject", None)
    if groups:
        wish["priority_groups"] = list(groups)
    if backoff := values.pop("backoff"):
        try:
            wish["backoff"] = [read_duration(part.strip()) for part in backoff.split(",")]
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    pairs = read_pairs(values.pop("metadata"))
    own = {DEAD_LETTER: values.pop("dead_letter"), KEY: values.pop("key")}
    pairs |= {name: value for name, value in own.items() if value is not None}
    if pairs:
        wish["metadata"] = {**wish.get("metadata", {}), **pairs}
    if deliver := values.pop("deliver"):
        wish.update(_start(deliver))


def _start(deliver: str) -> Json:
    named = {"all": "all", "new": "new", "last": "last", "subject": "last_per_subject"}
    if deliver in named:
        return {"deliver_policy": named[deliver]}
    if deliver.isdecimal():
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": int(deliver)}
    try:
        return {"deliver_policy": "by_start_time", "opt_start_time": read_time(deliver)}
    except ValueError:
        raise click.UsageError(
            f"--deliver takes all, new, last, subject, a sequence or a time, not {deliver!r}"
        ) from None
