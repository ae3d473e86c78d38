"""``topic add``, ``edit`` and ``rm``; queues use them too."""

from typing import Any

import click

from millstream.cli.access.options import force_option, json_option, over_http
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown.differences import differences
from millstream.cli.shown.output import sure, tell
from millstream.cli.topics.listing import state_of
from millstream.cli.topics.topic_options import topic_options

Json = dict[str, Any]


@command(
    "millstream topic add audit --durability fsync",
    "millstream topic add clicks --ttl 1d --cap-bytes 1GB",
)
@click.argument("name", metavar="TOPIC")
@topic_options
@over_http
@json_option
def add(name: str, wish: Json, access: ServerAccess, as_json: bool) -> None:
    """Create TOPIC."""
    create(access, name, {"type": "log", **wish}, as_json)


def create(access: ServerAccess, name: str, wish: Json, as_json: bool) -> None:
    """Create a topic that must not exist yet, and say what it promises."""
    with access.topics() as topics:
        if name in {each["topic"] for each in topics.list(name)}:
            raise click.UsageError(f"there is a topic named {name!r}: change it with `edit`")
        config = topics.topic(name).put(**wish)
    promise = f"durability {config['durability']}"
    tell({"topic": name, "config": config}, as_json, f"created {config['type']} {name}, {promise}")


@command("millstream topic edit clicks --ttl 2d --force")
@click.argument("name", metavar="TOPIC")
@topic_options
@force_option
@over_http
@json_option
def edit(name: str, wish: Json, force: bool, access: ServerAccess, as_json: bool) -> None:
    """Change TOPIC: what you do not name stays as it is."""
    change(access, name, wish, force, as_json)


def change(access: ServerAccess, name: str, wish: Json, force: bool, as_json: bool) -> None:
    """Show what changes, ask, and change a topic."""
    before = state_of(access, name)["config"]
    after = {**before, **wish}
    changed = differences(before, after)
    if not changed:
        click.echo(f"{name} is like that already", err=True)
        return
    click.echo(changed, err=True)
    sure(f"Change {name}?", force)
    with access.topics() as topics:
        config = topics.topic(name).put(**after)
    tell({"topic": name, "config": config}, as_json, f"changed {name}")


@command("millstream topic rm clicks", "millstream queue rm jobs --force")
@click.argument("name", metavar="TOPIC")
@force_option
@over_http
@json_option
def rm(name: str, force: bool, access: ServerAccess, as_json: bool) -> None:
    """Remove TOPIC with everything in it."""
    held = state_of(access, name)["count"]
    sure(f"Remove {name} with its {held:,} records?", force)
    with access.topics() as topics:
        done = topics.topic(name).delete()
    tell({"topic": name, "deleted": done}, as_json, f"removed {name} ({held:,} records)")
