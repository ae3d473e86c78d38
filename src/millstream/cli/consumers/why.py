"""``consumer why``: what a consumer does or waits for, in one line."""

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown.output import tell


@command("millstream consumer why ORDERS billing", "millstream consumer why ORDERS billing --json")
@click.argument("stream")
@click.argument("name", metavar="CONSUMER")
@connected
@json_option
def why(stream: str, name: str, access: ServerAccess, as_json: bool) -> None:
    """Print in one line why CONSUMER of STREAM delivers nothing, or how far it is.

    Works with any NATS server with JetStream.
    """
    for each in (stream, name):
        if not each or set(each) & set(".*> \t\r\n"):
            raise click.UsageError(f"{each!r} is not a name of a stream or consumer")
    from millstream.client.jetstream.consumer_state import why_of

    with access.jetstream() as js:
        consumer = js.consumer(stream, name)
        captured = list(js.stream(stream)["config"].get("subjects") or ())
    reason = why_of(consumer, captured)
    tell({"stream": stream, "consumer": name, **reason.shown()}, as_json, reason.text())
