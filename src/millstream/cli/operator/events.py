"""``millstream events``: what happens on a server, as it happens."""

import json
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown import figures
from millstream.cli.shown.output import as_text

if TYPE_CHECKING:
    from millstream.client import Message

STREAMS, SYSTEM = "$JS.EVENT.>", "$SYS.>"
Json = dict[str, Any]


@command("millstream events", "millstream events --all --json | jq .type")
@click.option("--all", "everything", is_flag=True, help="Requests to the API too.")
@click.option("--system", is_flag=True, help="Connections and logins; needs the system account.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many.")
@click.option("--timeout-idle", type=float, help="Stop when nothing happens for so many seconds.")
@connected
@json_option
def events(
    everything: bool,
    system: bool,
    count: int | None,
    timeout_idle: float | None,
    access: ServerAccess,
    as_json: bool,
) -> None:
    """Print what happens to streams and consumers: made, removed, given up, out of limits.

    With --system, and a login of the system account: connections, logins and servers instead.
    """
    with access.nats() as client:
        subscription = client.subscribe(SYSTEM if system else STREAMS)
        client.flush()
        click.echo("listening for events", err=True)
        told = (
            each for each in subscription.messages(timeout_idle) if everything or _matters(each)
        )
        for message in islice(told, count):
            click.echo(_json(message) if as_json else _line(message))
            sys.stdout.flush()


def _matters(message: "Message") -> bool:
    return not message.subject.startswith("$JS.EVENT.ADVISORY.API")


def _body(message: "Message") -> Json:
    try:
        told = json.loads(message.payload)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _json(message: "Message") -> str:
    return as_text({"subject": message.subject, **_body(message)})


def _line(message: "Message") -> str:
    told = _body(message)
    what = str(told.get("type", "")).rpartition(".")[2].replace("_", " ") or message.subject
    named = [
        f"{field} {told[field]}"
        for field in (
            "action",
            "stream",
            "consumer",
            "stream_seq",
            "deliveries",
            "reason",
            "subject",
        )
        if told.get(field)
    ]
    client = (told.get("client") or {}).get("name")
    who = f"  by {client}" if client else ""
    return f"{figures.moment(told.get('timestamp'))}  {what}  {', '.join(named)}{who}"
