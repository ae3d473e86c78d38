"""``consumer next``: take messages from a pull consumer, and answer for them."""

import sys
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown.figures import DURATION
from millstream.cli.shown.output import as_text
from millstream.cli.streams.reading import plain, text_of

if TYPE_CHECKING:
    from millstream.client import Message
    from millstream.client.jetstream.api import JetStreamApi

Json = dict[str, Any]
ENDS = {404: "no messages", 408: "no message in time", 409: "the server refused"}


@command(
    "millstream consumer next ORDERS billing",
    "millstream consumer next ORDERS billing --count 10 --no-ack --json",
)
@click.argument("stream")
@click.argument("name", metavar="CONSUMER")
@click.option("--count", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--ack/--no-ack", default=True, help="Acknowledge what is printed.  [default: ack]")
@click.option("--nak", is_flag=True, help="Give it back instead.")
@click.option("--term", is_flag=True, help="Give it up instead.")
@click.option("--wait", type=DURATION, default="5s", show_default=True, help="How long to wait.")
@click.option("--raw", is_flag=True, help="Print payloads only.")
@connected
@json_option
def next_(
    stream: str,
    name: str,
    count: int,
    ack: bool,
    nak: bool,
    term: bool,
    wait: int,
    raw: bool,
    access: ServerAccess,
    as_json: bool,
) -> int:
    """Take messages from the pull CONSUMER of STREAM, print them and acknowledge them.

    Exits with 1 when there was none.
    """
    answer = b"-NAK" if nak else b"+TERM" if term else b"+ACK" if ack else b""
    with access.jetstream() as js:
        if js.consumer(stream, name)["config"].get("deliver_subject"):
            raise click.UsageError(f"{name} pushes: `millstream sub` its deliver subject instead")
        taken = 0
        while taken < count:
            message = _next(js, stream, name, wait)
            if message is None:
                break
            _show(message, as_json, raw)
            taken += 1
            if answer and message.reply:
                js.client.request(message.reply, answer, js.timeout)
    if not taken:
        click.echo(f"no messages for {name} within {wait / 1e9:g} s", err=True)
    return 0 if taken else 1


def _next(js: "JetStreamApi", stream: str, name: str, wait: int) -> "Message | None":
    from millstream.client.errors import RequestTimeout
    from millstream.client.jetstream.inbox import new_inbox

    inbox = new_inbox()
    incoming = js.client.subscribe(inbox)  # a record keeps its subject: only the inbox is ours
    wish = {"batch": 1, "expires": wait} if wait else {"batch": 1, "no_wait": True}
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
    js.client.publish(subject, as_text(wish).encode(), reply=inbox)
    try:
        message = incoming.next(wait / 1e9 + js.timeout)
    except RequestTimeout:
        return None
    finally:
        incoming.unsubscribe()
    if message.status in (404, 408):
        return None
    if message.status is not None and not message.payload:
        raise click.ClickException(f"{ENDS.get(message.status, 'refused')}: {message.status}")
    return message


def _show(message: "Message", as_json: bool, raw: bool) -> None:
    if raw:
        sys.stdout.buffer.write(message.payload + b"\n")
        sys.stdout.buffer.flush()
        return
    place = where(message.reply or "")
    if as_json:
        fields: Json = {"subject": message.subject, **place}
        if message.headers:
            fields["headers"] = message.headers
        click.echo(as_text({**fields, "payload": plain(message.payload)}))
        return
    tries = f", delivery {place['deliveries']}" if place.get("deliveries", 1) > 1 else ""
    click.echo(f"[{place.get('seq', '?')}] {message.subject}{tries}, {place.get('pending')} left")
    for header, values in message.headers.items():
        click.echo("\n".join(f"  {header}: {value}" for value in values))
    click.echo(f"  {text_of(message.payload)}")


def where(reply: str) -> Json:
    """Return what the subject of an ack tells: sequence, deliveries and what is left."""
    words = reply.split(".")
    if len(words) >= 11:
        words = [*words[:2], *words[4:]]
    if len(words) < 9:
        return {}
    deliveries, seq, _, _, left = words[4:9]
    return {"seq": int(seq), "deliveries": int(deliveries), "pending": int(left)}
