"""``kv get``, ``history`` and ``watch``."""

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.buckets.bucket import OPERATION, Bucket, operation_of, value_of
from millstream.cli.buckets.writing import no_key
from millstream.cli.command import command
from millstream.cli.shown import figures
from millstream.cli.shown.output import as_text, tell_rows
from millstream.cli.streams.reading import plain, text_of
from millstream.client.jetstream.inbox import new_inbox

if TYPE_CHECKING:
    from millstream.client import Message

Json = dict[str, Any]


@command("millstream kv get CONFIG app.color", "millstream kv get CONFIG app.color --json")
@click.argument("bucket")
@click.argument("key")
@click.option("--revision", type=click.IntRange(min=1), help="An earlier value.")
@click.option("--raw", is_flag=True, help="Print the bytes alone, without a line end.")
@connected
@json_option
def get(
    bucket: str, key: str, revision: int | None, raw: bool, access: ServerAccess, as_json: bool
) -> None:
    """Print the value of KEY of BUCKET; exits with 1 when it has none."""
    with access.jetstream() as js:
        known = Bucket(js, bucket)
        subject = known.subject(key)
        record = known.last(key) if revision is None else js.message(known.stream, seq=revision)
        if record is None or operation_of(record) != "put" or record["subject"] != subject:
            if revision is not None:
                raise click.ClickException(f"{key} has no value with revision {revision} any more")
            raise no_key(known, key)
    value = value_of(record)
    if as_json:
        click.echo(as_text(_fields(known, record)))
    else:
        sys.stdout.buffer.write(value if raw else value + b"\n")
        sys.stdout.buffer.flush()


def _fields(bucket: Bucket, record: Json) -> Json:
    return {
        "bucket": bucket.name,
        "key": bucket.key_of(record["subject"]),
        "revision": record["seq"],
        "operation": operation_of(record),
        "time": record["time"],
        "value": plain(value_of(record)),
    }


@command("millstream kv history CONFIG app.color")
@click.argument("bucket")
@click.argument("key")
@connected
@json_option
def history(bucket: str, key: str, access: ServerAccess, as_json: bool) -> None:
    """List the values that KEY of BUCKET has and had, the oldest first."""
    with access.jetstream() as js:
        known = Bucket(js, bucket)
        known.info()
        known.subject(key)
        found = [_fields(known, record) for record in known.records(key)]
        if not found:
            raise no_key(known, key)
    rows = [
        (each["revision"], each["operation"], figures.moment(each["time"]), str(each["value"]))
        for each in found
    ]
    tell_rows(found, as_json, ("REVISION", "OPERATION", "TIME", "VALUE"), rows, "")


@command("millstream kv watch CONFIG", "millstream kv watch CONFIG 'app.>' --json")
@click.argument("bucket")
@click.argument("pattern", required=False, default=">")
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many changes.")
@click.option("--new", "only_new", is_flag=True, help="Leave out the values that are there now.")
@connected
@json_option
def watch(
    bucket: str,
    pattern: str,
    count: int | None,
    only_new: bool,
    access: ServerAccess,
    as_json: bool,
) -> None:
    """Print the values of BUCKET, then every change as it happens."""
    with access.jetstream() as js:
        known = Bucket(js, bucket)
        known.info()
        inbox = new_inbox()
        incoming = js.client.subscribe(inbox)
        config = {
            "deliver_subject": inbox,
            "ack_policy": "none",
            "mem_storage": True,
            "filter_subject": f"$KV.{bucket}.{pattern}",
            "num_replicas": 1,
            "deliver_policy": "new" if only_new else "last_per_subject",
            "inactive_threshold": 60_000_000_000,
            "idle_heartbeat": 5_000_000_000,
        }
        js.ask(f"CONSUMER.CREATE.{known.stream}", {"stream_name": known.stream, "config": config})
        shown = (each for each in incoming if each.status is None)
        for message in islice(shown, count):
            _show(known, message, as_json)


def _show(bucket: Bucket, message: "Message", as_json: bool) -> None:
    from millstream.cli.consumers.taking import where

    told = message.headers.get(OPERATION, ["PUT"])[0].lower()
    operation = "purge" if "Nats-Marker-Reason" in message.headers else told
    key, revision = bucket.key_of(message.subject), where(message.reply or "").get("seq")
    if as_json:
        fields = {"bucket": bucket.name, "key": key, "revision": revision, "operation": operation}
        line = as_text({**fields, "value": plain(message.payload)})
    elif operation == "put":
        line = f"[{revision}] {key} = {text_of(message.payload)}"
    else:
        line = f"[{revision}] {key} {operation}"
    click.echo(line)
    sys.stdout.flush()
