"""``consumer ls``, ``info`` and ``report``."""

from typing import Any

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown import figures
from millstream.cli.shown.output import tell, tell_rows
from millstream.cli.shown.table import facts
from millstream.cli.streams.listing import metadata

Json = dict[str, Any]


@command("millstream consumer ls ORDERS", "millstream consumer ls ORDERS --json")
@click.argument("stream")
@connected
@click.option("-n", "--names", is_flag=True, help="Print names only.")
@json_option
def ls(stream: str, access: ServerAccess, names: bool, as_json: bool) -> None:
    """List the consumers of STREAM."""
    with access.jetstream() as js:
        consumers = js.consumers(stream)
    if names:
        click.echo("\n".join(each["name"] for each in consumers))
        return
    tell_rows(
        consumers,
        as_json,
        ("NAME", "KIND", "FILTER", "ACKS", "PENDING", "IN FLIGHT", "LAST DELIVERY"),
        [_row(each) for each in consumers],
        f"{stream} has no consumers: `millstream consumer add {stream} NAME` creates one",
    )


def _row(each: Json) -> tuple[object, ...]:
    config = each["config"]
    return (
        each["name"],
        kind_of(config),
        filter_of(config),
        config.get("ack_policy", "none"),
        each["num_pending"],
        each["num_ack_pending"],
        figures.since((each.get("delivered") or {}).get("last_active")),
    )


def kind_of(config: Json) -> str:
    """Return how records get to clients: they pull, or the server pushes."""
    if (config.get("metadata") or {}).get("millstream.reader"):
        return "Spark reader"
    return "push" if config.get("deliver_subject") else "pull"


def filter_of(config: Json) -> str:
    """Return which subjects a consumer wants."""
    several = config.get("filter_subjects") or []
    return ", ".join(several) or config.get("filter_subject", "")


@command(
    "millstream consumer info ORDERS billing", "millstream consumer info ORDERS billing --json"
)
@click.argument("stream")
@click.argument("name", metavar="CONSUMER")
@connected
@json_option
def info(stream: str, name: str, access: ServerAccess, as_json: bool) -> None:
    """Show the configuration and state of CONSUMER of STREAM."""
    with access.jetstream() as js:
        consumer = js.consumer(stream, name)
    tell(consumer, as_json, shown(consumer))


def shown(consumer: Json) -> str:
    """Return a consumer as people read it."""
    title = f"Consumer {consumer['name']} of {consumer['stream_name']}"
    return f"{facts(title, _terms(consumer))}\n{facts('State', _state(consumer))}"


def _terms(consumer: Json) -> list[tuple[str, object]]:
    config = consumer["config"]
    start = config.get("opt_start_seq") or config.get("opt_start_time") or ""
    return [
        ("description", config.get("description")),
        ("kind", kind_of(config)),
        ("durable", bool(config.get("durable_name"))),
        ("deliver to", config.get("deliver_subject")),
        ("deliver group", config.get("deliver_group")),
        ("filter", filter_of(config)),
        ("begins with", f"{config.get('deliver_policy', 'all')} {start}".strip()),
        ("acks", config.get("ack_policy")),
        ("ack wait", figures.duration(config.get("ack_wait", 0))),
        ("backoff", ", ".join(map(figures.duration, config.get("backoff") or ()))),
        ("most deliveries", _limit(config.get("max_deliver"))),
        ("most in flight", _limit(config.get("max_ack_pending"))),
        ("most waiting pulls", config.get("max_waiting")),
        ("replay", config.get("replay_policy")),
        ("priority", config.get("priority_policy")),
        ("groups", ", ".join(config.get("priority_groups") or ())),
        ("goes after", _idle(config)),
        ("metadata", metadata(config)),
        ("created", figures.moment(consumer.get("created"))),
    ]


def _idle(config: Json) -> str | None:
    idle = config.get("inactive_threshold")
    return f"{figures.duration(idle)} without use" if idle else None


def _limit(number: int | None) -> str | None:
    return None if not number or number < 0 else f"{number:,}"


def _state(consumer: Json) -> list[tuple[str, object]]:
    delivered, acked = consumer.get("delivered") or {}, consumer.get("ack_floor") or {}
    from millstream.client.jetstream.consumer_state import why_of

    return [
        ("delivered up to", f"seq {delivered.get('stream_seq', 0):,}"),
        ("acknowledged up to", f"seq {acked.get('stream_seq', 0):,}"),
        ("pending", consumer["num_pending"]),
        ("in flight", consumer["num_ack_pending"]),
        ("redelivered", consumer.get("num_redelivered")),
        ("waiting pulls", consumer.get("num_waiting")),
        ("last delivery", figures.since(delivered.get("last_active"))),
        ("now", why_of(consumer).cause),
    ]


@command("millstream consumer report ORDERS", "millstream consumer report --json")
@click.argument("stream", required=False)
@connected
@json_option
def report(stream: str | None, access: ServerAccess, as_json: bool) -> None:
    """Show how far each consumer of STREAM is, or of every stream, and why it stands there."""
    from millstream.client.jetstream.consumer_state import why_of

    with access.jetstream() as js:
        names = [stream] if stream else sorted(js.stream_names())
        found = [each for name in names for each in js.consumers(name)]
    found.sort(key=lambda each: -int(each["num_pending"]))
    rows = [
        (
            each["stream_name"],
            each["name"],
            (each.get("ack_floor") or {}).get("stream_seq", 0),
            each["num_pending"],
            each["num_ack_pending"],
            each.get("num_redelivered", 0),
            why_of(each).cause,
        )
        for each in found
    ]
    headings = ("STREAM", "CONSUMER", "ACKED TO", "PENDING", "IN FLIGHT", "REDELIVERED", "NOW")
    tell_rows(found, as_json, headings, rows, "no consumers")
