"""``consumer add`` and ``edit``."""

from typing import Any

import click

from millstream.cli.access.options import connected, force_option, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.consumers.consumer_options import CONSUMER_FIELDS, consumer_options
from millstream.cli.consumers.listing import shown
from millstream.cli.shown.differences import differences
from millstream.cli.shown.output import sure, tell
from millstream.cli.streams.stream_options import check_fields

Json = dict[str, Any]


@command(
    "millstream consumer add ORDERS billing",
    "millstream consumer add ORDERS eu --filter 'orders.eu.>' --max-deliver 5 --backoff 1s,10s,1m",
    "millstream consumer add ORDERS bill --max-deliver 5 --dead-letter ORDERS-DEAD --key token:2",
    "millstream consumer add ORDERS feed --target feed.orders --ack none --deliver new",
)
@click.argument("stream")
@click.argument("name", metavar="CONSUMER")
@consumer_options
@click.option("--ephemeral", is_flag=True, help="Remove it when nobody uses it.")
@click.option("--pull", is_flag=True, hidden=True, help="As without it.")
@click.option("--defaults", is_flag=True, hidden=True, help="As without it: nothing is asked.")
@connected
@json_option
def add(
    stream: str,
    name: str,
    wish: Json,
    ephemeral: bool,
    pull: bool,
    defaults: bool,
    access: ServerAccess,
    as_json: bool,
) -> None:
    """Create CONSUMER of STREAM: clients pull from it, or it pushes to --target.

    Without other options it delivers everything and wants each record acknowledged.
    """
    check_fields(wish, CONSUMER_FIELDS, "a consumer")
    config = {"ack_policy": "explicit", "deliver_policy": "all", **wish, "name": name}
    if not ephemeral:
        config["durable_name"] = name
    with access.jetstream() as js:
        body = {"stream_name": stream, "config": config, "action": "create"}
        consumer = js.about("CONSUMER.CREATE", stream, name, body)
    tell(consumer, as_json, shown(consumer))


@command("millstream consumer edit ORDERS billing --max-pending 5000 --force")
@click.argument("stream")
@click.argument("name", metavar="CONSUMER")
@consumer_options
@click.option("--dry-run", is_flag=True, help="Show the difference, and change nothing.")
@force_option
@connected
@json_option
def edit(
    stream: str,
    name: str,
    wish: Json,
    dry_run: bool,
    force: bool,
    access: ServerAccess,
    as_json: bool,
) -> None:
    """Change CONSUMER of STREAM: what you do not name stays as it is."""
    check_fields(wish, CONSUMER_FIELDS, "a consumer")
    with access.jetstream() as js:
        before = js.consumer(stream, name)["config"]
        after = {**before, **wish}
        changed = differences(before, after)
        if not changed:
            click.echo(f"{name} is like that already", err=True)
            return
        if not as_json or not force:
            click.echo(changed, err=True)
        if dry_run:
            return
        sure(f"Change {name} of {stream}?", force)
        body = {"stream_name": stream, "config": after, "action": "update"}
        consumer = js.about("CONSUMER.CREATE", stream, name, body)
    tell(consumer, as_json, f"changed {name} of {stream}")
