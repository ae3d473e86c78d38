"""``stream ls``, ``info`` and ``report``: what streams there are, and what they hold."""

from typing import Any

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown import figures
from millstream.cli.shown.output import tell, tell_rows
from millstream.cli.shown.table import facts

Json = dict[str, Any]


@command("millstream stream ls", "millstream stream ls 'orders.>' --json")
@click.argument("subject", required=False, default="")
@connected
@click.option("-n", "--names", is_flag=True, help="Print names only.")
@json_option
def ls(subject: str, access: ServerAccess, names: bool, as_json: bool) -> None:
    """List the streams, or those that capture SUBJECT."""
    with access.jetstream() as js:
        if names:
            click.echo("\n".join(sorted(js.stream_names(subject))))
            return
        streams = js.streams(subject)
    tell_rows(
        streams,
        as_json,
        ("NAME", "SUBJECTS", "MESSAGES", "SIZE", "LAST MESSAGE"),
        [_row(each) for each in streams],
        "no streams yet: create one with `millstream stream add NAME --subjects 'orders.>'`"
        if not subject
        else f"no stream captures '{subject}'",
    )


def _row(stream: Json) -> tuple[object, ...]:
    state = stream["state"]
    return (
        stream["config"]["name"],
        subjects_of(stream["config"]),
        state["messages"],
        figures.size(state["bytes"]),
        figures.since(state["last_ts"]) if state["last_seq"] else "never",
    )


def subjects_of(config: Json, most: int = 40) -> str:
    """Return what a stream captures, cut where it is long."""
    if config.get("mirror"):
        return f"(mirror of {config['mirror']['name']})"
    text = ", ".join(config.get("subjects") or ())
    if not text and config.get("sources"):
        text = f"(sources {', '.join(each['name'] for each in config['sources'])})"
    return text if len(text) <= most else text[: most - 1] + "…"


@command("millstream stream info ORDERS", "millstream stream info ORDERS --json | jq .state")
@click.argument("name", metavar="STREAM")
@connected
@json_option
def info(name: str, access: ServerAccess, as_json: bool) -> None:
    """Show the configuration and state of STREAM."""
    with access.jetstream() as js:
        stream = js.stream(name)
    tell(stream, as_json, shown(stream))


def shown(stream: Json) -> str:
    """Return a stream as people read it."""
    config, state = stream["config"], stream["state"]
    lost = state.get("lost") or {}
    held = facts(
        "State",
        [
            ("messages", state["messages"]),
            ("size", figures.size(state["bytes"])),
            ("first", _end(state, "first")),
            ("last", _end(state, "last")),
            ("subjects", state.get("num_subjects")),
            ("deleted inside", state.get("num_deleted")),
            ("lost to damage", len(lost.get("msgs") or ()) or None),
            ("consumers", state["consumer_count"]),
        ],
    )
    return f"{facts('Stream ' + config['name'], _terms(stream))}\n{held}"


def _terms(stream: Json) -> list[tuple[str, object]]:
    config = stream["config"]
    flags = [
        name.replace("_", " ")
        for name in ("sealed", "deny_delete", "deny_purge", "allow_rollup_hdrs", "allow_direct",
                     "allow_msg_ttl", "allow_msg_counter", "allow_atomic", "allow_msg_schedules")
        if config.get(name)
    ]  # fmt: skip
    return [
        ("description", config.get("description")),
        ("subjects", ", ".join(config.get("subjects") or ())),
        ("mirror of", (config.get("mirror") or {}).get("name")),
        ("sources", ", ".join(each["name"] for each in config.get("sources") or ())),
        ("storage", config["storage"]),
        ("durability", durability(config)),
        ("retention", f"{config['retention']}, discard {config['discard']}"),
        ("limits", limits(config)),
        ("duplicate window", figures.duration(config.get("duplicate_window", 0))),
        ("replicas", config.get("num_replicas")),
        ("compression", config.get("compression", "none")),
        ("allows", ", ".join(flags)),
        ("metadata", metadata(config)),
        ("created", figures.moment(stream.get("created"))),
    ]


def durability(config: Json) -> str | None:
    """Return what an acknowledgement of this stream promises, where the server says so."""
    told = (config.get("metadata") or {}).get("millstream.durability")
    if config["storage"] == "memory":
        return "memory: gone when the server stops"
    return {
        "fsync": "fsync before ack",
        "disk": "disk: acknowledged before it is synced",
        "memory": "memory: gone when the server stops",
    }.get(told or "")


def metadata(config: Json) -> str:
    """Return metadata as pairs, without what servers add themselves."""
    pairs = (config.get("metadata") or {}).items()
    return ", ".join(f"{name}={value}" for name, value in pairs if not name.startswith("_nats."))


def limits(config: Json) -> str:
    """Return the limits that hold, in words."""
    parts = []
    for field, text in (
        ("max_msgs", "{:,} messages"),
        ("max_msgs_per_subject", "{:,} per subject"),
        ("max_consumers", "{:,} consumers"),
    ):
        if config.get(field, -1) > 0:
            parts.append(text.format(config[field]))
    if config.get("max_bytes", -1) > 0:
        parts.append(figures.size(config["max_bytes"]))
    if config.get("max_age", 0) > 0:
        parts.append(figures.duration(config["max_age"]))
    if config.get("max_msg_size", -1) > 0:
        parts.append(f"{figures.size(config['max_msg_size'])} per message")
    return ", ".join(parts) or "none"


def _end(state: Json, which: str) -> str | None:
    if not state["last_seq"]:
        return None
    return f"seq {state[f'{which}_seq']:,}, {figures.moment(state[f'{which}_ts'])}"


@command("millstream stream report", "millstream stream report --json")
@connected
@json_option
def report(access: ServerAccess, as_json: bool) -> None:
    """Show for each stream how much it holds, what is gone from it, and who reads it."""
    with access.jetstream() as js:
        streams = js.streams()
    streams.sort(key=lambda each: -int(each["state"]["bytes"]))
    rows = [
        (
            each["config"]["name"],
            each["config"]["storage"],
            each["config"]["retention"],
            each["state"]["messages"],
            figures.size(each["state"]["bytes"]),
            each["state"]["first_seq"],
            each["state"]["last_seq"],
            each["state"].get("num_deleted", 0),
            len((each["state"].get("lost") or {}).get("msgs") or ()),
            each["state"]["consumer_count"],
        )
        for each in streams
    ]
    headings = ["STREAM", "STORAGE", "RETENTION", "MESSAGES", "SIZE", "FIRST", "LAST"]
    headings += ["DELETED", "LOST", "CONSUMERS"]
    tell_rows(streams, as_json, headings, rows, "no streams yet")
