"""``millstream reply``: answer requests."""

from itertools import islice

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.messages.shown import show


@command("millstream reply time.now noon", "millstream reply echo --echo")
@click.argument("subject")
@click.argument("payload", required=False)
@connected
@click.option("--echo", is_flag=True, help="Answer with the payload of the request.")
@click.option("--queue", default="millstream-reply", show_default=True, help="Queue group.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many.")
@json_option
def reply(
    subject: str,
    payload: str | None,
    access: ServerAccess,
    echo: bool,
    queue: str,
    count: int | None,
    as_json: bool,
) -> None:
    """Answer every request on SUBJECT with PAYLOAD, and print the requests."""
    if echo is (payload is not None):
        raise click.UsageError("give either an answer or --echo")
    with access.nats() as client:
        questions = client.subscribe(subject, queue)
        client.flush()
        click.echo(f"answering on {subject}", err=True)
        for question in islice((q for q in questions if q.reply), count):
            answer = question.payload if payload is None else payload.encode()
            client.publish(question.reply or "", answer)
            client.flush()
            show(question, as_json=as_json, raw=False)
