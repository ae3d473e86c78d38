"""``stream add`` and ``edit``."""

from typing import Any

import click

from millstream.cli.access.options import connected, force_option, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown.differences import differences
from millstream.cli.shown.output import sure, tell
from millstream.cli.streams.listing import shown
from millstream.cli.streams.stream_options import STREAM_FIELDS, check_fields, stream_options

Json = dict[str, Any]


@command(
    "millstream stream add ORDERS --subjects 'orders.>'",
    "millstream stream add LOGS 'logs.>' --max-age 7d --max-bytes 10GB",
    "millstream stream add COPY --mirror ORDERS",
)
@click.argument("name", metavar="STREAM")
@click.argument("more", nargs=-1, metavar="[SUBJECT]...")
@stream_options
@click.option("--defaults", is_flag=True, hidden=True, help="As without it: nothing is asked.")
@connected
@json_option
def add(
    name: str,
    more: tuple[str, ...],
    wish: Json,
    defaults: bool,
    access: ServerAccess,
    as_json: bool,
) -> None:
    """Create STREAM, which captures every SUBJECT.

    A stream that takes its records neither from a mirror nor from sources captures the subject of
    its own name when you name none.
    """
    check_fields(wish, STREAM_FIELDS, "a stream")
    config = {**wish, "name": name}
    if more:
        config["subjects"] = [*wish.get("subjects", ()), *more]
    with access.jetstream() as js:
        stream = js.about("STREAM.CREATE", name, body=config)
    tell(stream, as_json, shown(stream))


@command(
    "millstream stream edit ORDERS --max-age 30d",
    "millstream stream edit ORDERS --subjects 'orders.>,returns.>' --force",
)
@click.argument("name", metavar="STREAM")
@stream_options
@click.option("--dry-run", is_flag=True, help="Show the difference, and change nothing.")
@force_option
@connected
@json_option
def edit(
    name: str, wish: Json, dry_run: bool, force: bool, access: ServerAccess, as_json: bool
) -> None:
    """Change the configuration of STREAM: what you do not name stays as it is."""
    check_fields(wish, STREAM_FIELDS, "a stream")
    with access.jetstream() as js:
        before = js.stream(name)["config"]
        after = {**before, **wish, "name": name}
        changed = differences(before, after)
        if not changed:
            click.echo(f"{name} is like that already", err=True)
            return
        if not as_json or not force:
            click.echo(changed, err=True)
        if dry_run:
            return
        sure(f"Change {name}?", force)
        stream = js.about("STREAM.UPDATE", name, body=after)
    tell(stream, as_json, f"changed {name}")
