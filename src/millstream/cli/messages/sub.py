"""``millstream sub``: print messages as they arrive."""

from itertools import islice

import click

from millstream.cli.access.options import connected_for_long, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.messages.shown import show
from millstream.cli.options import raw_option


@command("millstream sub 'orders.>'", "millstream sub 'orders.>' --count 10 --json")
@click.argument("subject")
@connected_for_long
@click.option("--queue", help="Share the messages with other members of this queue group.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many.")
@click.option("--timeout", type=float, help="Stop when nothing arrives for this many seconds.")
@raw_option
@json_option
def sub(
    subject: str,
    access: ServerAccess,
    queue: str | None,
    count: int | None,
    timeout: float | None,
    raw: bool,
    as_json: bool,
) -> None:
    """Print messages on SUBJECT, which may contain the wildcards * and >."""
    with access.nats() as client:
        subscription = client.subscribe(subject, queue)
        client.flush()
        click.echo(f"listening on {subject}", err=True)
        for message in islice(subscription.messages(timeout), count):
            show(message, as_json=as_json, raw=raw)
