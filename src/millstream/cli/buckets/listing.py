"""``kv ls`` and ``info``."""

from typing import Any

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.buckets.bucket import PREFIX, Bucket
from millstream.cli.command import command
from millstream.cli.shown import figures
from millstream.cli.shown.output import as_text, tell, tell_rows
from millstream.cli.shown.table import facts

Json = dict[str, Any]


@command("millstream kv ls", "millstream kv ls CONFIG", "millstream kv ls CONFIG 'app.>'")
@click.argument("bucket", required=False)
@click.argument("pattern", required=False, default=">")
@connected
@json_option
def ls(bucket: str | None, pattern: str, access: ServerAccess, as_json: bool) -> None:
    """List the buckets, or the keys of BUCKET that match PATTERN."""
    with access.jetstream() as js:
        if bucket is not None:
            keys = Bucket(js, bucket).keys(pattern)
        else:
            found = [each for each in js.streams() if each["config"]["name"].startswith(PREFIX)]
    if bucket is not None:
        for key in keys:
            click.echo(as_text({"key": key}) if as_json else key)
        if not keys and not as_json:
            click.echo(f"{bucket} has no keys", err=True)
        return
    tell_rows(
        [shown(each) for each in found],
        as_json,
        ("BUCKET", "VALUES", "SIZE", "HISTORY", "TTL", "LAST CHANGE"),
        [_row(each) for each in found],
        "no buckets yet: `millstream kv add CONFIG` creates one",
    )


def _row(each: Json) -> tuple[object, ...]:
    state, config = each["state"], each["config"]
    return (
        config["name"][3:],
        state["messages"],
        figures.size(state["bytes"]),
        max(config["max_msgs_per_subject"], 1),
        figures.duration(config.get("max_age", 0)) if config.get("max_age") else "none",
        figures.since(state["last_ts"]) if state["last_seq"] else "never",
    )


def shown(each: Json) -> Json:
    """Return a bucket as JSON tells it."""
    state, config = each["state"], each["config"]
    return {
        "bucket": config["name"][3:],
        "values": state["messages"],
        "bytes": state["bytes"],
        "history": config["max_msgs_per_subject"],
        "ttl_ns": config.get("max_age", 0),
        "storage": config["storage"],
        "last_revision": state["last_seq"],
        "description": config.get("description", ""),
    }


@command("millstream kv info CONFIG", "millstream kv info CONFIG --json")
@click.argument("bucket")
@connected
@json_option
def info(bucket: str, access: ServerAccess, as_json: bool) -> None:
    """Show the settings and size of BUCKET."""
    with access.jetstream() as js:
        told = shown(Bucket(js, bucket).info())
    pairs = [
        ("description", told["description"]),
        ("values", told["values"]),
        ("size", figures.size(told["bytes"])),
        ("history", told["history"]),
        ("ttl", figures.duration(told["ttl_ns"]) if told["ttl_ns"] else "none"),
        ("storage", told["storage"]),
        ("last revision", told["last_revision"]),
    ]
    tell(told, as_json, facts(f"Bucket {bucket}", pairs))
