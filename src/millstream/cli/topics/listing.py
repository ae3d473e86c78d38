"""``topic ls`` and ``info``."""

from typing import Any

import click

from millstream.cli.access.options import json_option, over_http
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown import figures
from millstream.cli.shown.output import tell, tell_rows
from millstream.cli.shown.table import facts

Json = dict[str, Any]
PROMISES = {
    "fsync": "fsync before ack",
    "disk": "disk: acknowledged before it is synced",
    "memory": "memory: gone when the server stops",
    "ephemeral": "ephemeral: not stored",
}


@command("millstream topic ls", "millstream topic ls --prefix orders --json")
@click.option("--prefix", default="", help="Only topics whose names begin with this.")
@over_http
@json_option
def ls(prefix: str, access: ServerAccess, as_json: bool) -> None:
    """List the topics, with what an acknowledgement of each promises."""
    with access.topics() as topics:
        found = list(topics.list(prefix))
    rows = [
        (
            each["topic"],
            each["count"],
            figures.size(each["bytes"]),
            each["earliest_seq"],
            each["head_seq"],
            "fsync before ack" if each["durable"] else "weaker: see `topic info`",
        )
        for each in found
    ]
    headings = ("TOPIC", "RECORDS", "SIZE", "FIRST", "LAST", "DURABILITY")
    tell_rows(found, as_json, headings, rows, "no topics yet: `millstream topic add NAME`")


@command("millstream topic info ORDERS", "millstream topic info ORDERS --json")
@click.argument("name", metavar="TOPIC")
@over_http
@json_option
def info(name: str, access: ServerAccess, as_json: bool) -> None:
    """Show the state and configuration of TOPIC."""
    told = state_of(access, name)
    tell(told, as_json, shown(told))


def state_of(access: ServerAccess, name: str) -> Json:
    """Return what the server says about a topic."""
    from millstream.client.topic_calls import Call, topic_path

    link = access.link()
    try:
        told: Json = link.call(Call("GET", topic_path(name), dict[str, Any]))
    finally:
        link.close()
    told.pop("performance", None)
    return told


def shown(told: Json) -> str:
    """Return a topic as people read it."""
    config = told["config"]
    queue = told.get("queue") or {}
    known: list[tuple[str, object]] = [
        ("type", told["type"]),
        ("durability", PROMISES.get(config.get("durability", ""), config.get("durability"))),
        ("records", told["count"]),
        ("size", figures.size(told["bytes"])),
        ("sequences", f"{told['earliest_seq']:,} to {told['head_seq']:,}"),
        ("subjects", ", ".join(config.get("subjects") or ())),
        ("most records", config.get("cap_records") or None),
        ("most bytes", config.get("cap_bytes") or None),
        ("lasts", f"{config['ttl_ms']} ms" if config.get("ttl_ms") else None),
        ("discards", config.get("discard")),
        ("idempotency window", f"{config.get('idempotency_window_ms', 0)} ms"),
    ]
    if queue:
        known += [(name.replace("_", " "), value) for name, value in queue.items()]
        known += [
            ("lease", f"{config['lease_ms']} ms"),
            ("most deliveries", config["max_deliveries"] or "no limit"),
            ("one by one for each", config.get("key")),
            ("dead letters to", config["dead_letter"] or "nowhere: failed jobs come again"),
        ]
    return facts(f"{told['type'].capitalize()} {told['topic']}", known)
