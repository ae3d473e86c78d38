"""``reader ls``, ``info`` and ``rm``: Spark queries, which show up as consumers."""

from typing import TYPE_CHECKING, Any

import click

from millstream.cli.access.options import connected, force_option, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown import figures
from millstream.cli.shown.output import sure, tell, tell_rows
from millstream.cli.shown.table import facts

if TYPE_CHECKING:
    from millstream.client.jetstream.api import JetStreamApi

Json = dict[str, Any]
MARK = "millstream.reader"


def _is_reader(consumer: Json) -> bool:
    return bool((consumer["config"].get("metadata") or {}).get(MARK))


def _shown(consumer: Json) -> Json:
    delivered = consumer.get("delivered") or {}
    return {
        "stream": consumer["stream_name"],
        "reader": consumer["name"],
        "committed_seq": delivered.get("stream_seq", 0),
        "lag": consumer["num_pending"],
        "last_active": delivered.get("last_active"),
        "created": consumer.get("created"),
    }


@command("millstream reader ls", "millstream reader ls ORDERS --json")
@click.argument("stream", required=False)
@connected
@json_option
def ls(stream: str | None, access: ServerAccess, as_json: bool) -> None:
    """List the Spark queries that read STREAM, or any stream, and how far they are."""
    with access.jetstream() as js:
        names = [stream] if stream else sorted(js.stream_names())
        consumers = [each for name in names for each in js.consumers(name) if _is_reader(each)]
    told = [_shown(each) for each in consumers]
    rows = [
        (each["stream"], each["reader"], each["committed_seq"], each["lag"],
         figures.since(each["last_active"]))
        for each in told
    ]  # fmt: skip
    headings = ("STREAM", "READER", "COMMITTED", "LAG", "LAST SEEN")
    nothing = "no readers: a Spark query shows up here when it names a consumer"
    tell_rows(told, as_json, headings, rows, nothing)


@command("millstream reader info ORDERS nightly")
@click.argument("stream")
@click.argument("name", metavar="READER")
@connected
@json_option
def info(stream: str, name: str, access: ServerAccess, as_json: bool) -> None:
    """Show how far READER of STREAM is."""
    with access.jetstream() as js:
        told = _shown(_found(js, stream, name))
    pairs = [
        ("committed", f"seq {told['committed_seq']:,}"),
        ("lag", told["lag"]),
        ("last seen", figures.since(told["last_active"])),
        ("created", figures.moment(told["created"])),
    ]
    tell(told, as_json, facts(f"Reader {name} of {stream}", pairs))


def _found(js: "JetStreamApi", stream: str, name: str) -> Json:
    consumer = js.consumer(stream, name)
    if not _is_reader(consumer):
        raise click.ClickException(
            f"{name} is a consumer that clients pull from: see `millstream consumer info`"
        )
    return consumer


@command("millstream reader rm ORDERS nightly --force")
@click.argument("stream")
@click.argument("name", metavar="READER")
@force_option
@connected
@json_option
def rm(stream: str, name: str, force: bool, access: ServerAccess, as_json: bool) -> None:
    """Forget READER of STREAM: its position goes, and the stream waits for it no longer."""
    with access.jetstream() as js:
        told = _shown(_found(js, stream, name))
        sure(f"Forget reader {name} of {stream} at seq {told['committed_seq']:,}?", force)
        js.about("CONSUMER.DELETE", stream, name)
    tell(told, as_json, f"forgot reader {name} of {stream}")
