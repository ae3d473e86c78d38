"""``queue ls``, ``info``, ``add``, ``edit`` and ``next``."""

import sys
from typing import Any

import click

from millstream.cli.access.options import force_option, json_option, over_http
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown.output import as_text, tell, tell_rows
from millstream.cli.topics.listing import shown, state_of
from millstream.cli.topics.making import change, create
from millstream.cli.topics.topic_options import queue_options

Json = dict[str, Any]


@command("millstream queue ls", "millstream queue ls --json")
@over_http
@json_option
def ls(access: ServerAccess, as_json: bool) -> None:
    """List the queues, and how much there is to do."""
    with access.topics() as topics:
        names = [each["topic"] for each in topics.list()]
    told = [each for name in names if (each := state_of(access, name))["type"] == "queue"]
    rows = [
        (
            each["topic"],
            each["count"],
            each["queue"].get("ready", 0),
            each["queue"].get("in_flight", each["queue"].get("leased", 0)),
            each["config"]["max_deliveries"] or "no limit",
            each["config"]["dead_letter"] or "nowhere",
        )
        for each in told
    ]
    headings = ("QUEUE", "JOBS", "READY", "LEASED", "TRIES", "DEAD LETTERS TO")
    tell_rows(told, as_json, headings, rows, "no queues yet: `millstream queue add jobs`")


@command("millstream queue info jobs", "millstream queue info jobs --json")
@click.argument("name", metavar="QUEUE")
@over_http
@json_option
def info(name: str, access: ServerAccess, as_json: bool) -> None:
    """Show the jobs, leases and configuration of QUEUE."""
    told = state_of(access, name)
    if told["type"] != "queue":
        raise click.ClickException(f"{name} is a log, not a queue: see `millstream topic info`")
    tell(told, as_json, shown(told))


@command(
    "millstream queue add jobs",
    "millstream queue add jobs --max-deliveries 3 --dead-letter jobs-dead --lease 1m",
    "millstream queue add payments --key tag",
)
@click.argument("name", metavar="QUEUE")
@queue_options
@over_http
@json_option
def add(name: str, wish: Json, access: ServerAccess, as_json: bool) -> None:
    """Create QUEUE."""
    create(access, name, {**wish, "type": "queue"}, as_json)
    if not as_json and not (wish.get("dead_letter") and wish.get("max_deliveries")):
        click.echo(
            "failed jobs come again for ever: --max-deliveries and --dead-letter end that", err=True
        )


@command("millstream queue edit jobs --max-deliveries 5 --force")
@click.argument("name", metavar="QUEUE")
@queue_options
@force_option
@over_http
@json_option
def edit(name: str, wish: Json, force: bool, access: ServerAccess, as_json: bool) -> None:
    """Change QUEUE: what you do not name stays as it is."""
    change(access, name, wish, force, as_json)


@command("millstream queue next jobs", "millstream queue next jobs --count 5 --no-ack --json")
@click.argument("name", metavar="QUEUE")
@click.option("--count", default=1, show_default=True, type=click.IntRange(1, 1000))
@click.option("--ack/--no-ack", default=True, help="Finish what is printed.  [default: ack]")
@click.option("--node", default="millstream-cli", show_default=True, help="Name of this worker.")
@over_http
@json_option
def next_(name: str, count: int, ack: bool, node: str, access: ServerAccess, as_json: bool) -> int:
    """Lease jobs of QUEUE, print them and finish them; exits with 1 when there is none."""
    with access.topics() as topics:
        queue = topics.topic(name)
        jobs = queue.claim(node, count)
        for job in jobs:
            text = job.payload().decode("utf-8", "replace")
            fields = {"seq": job.seq, "deliveries": job.deliveries, "lease_id": job.lease_id}
            click.echo(as_text({**fields, "data": text}) if as_json else f"[{job.seq}] {text}")
        sys.stdout.flush()
        if ack and jobs:
            queue.ack(node, *jobs)
    if not jobs:
        click.echo(f"{name} has no job that could be leased", err=True)
    return 0 if jobs else 1
