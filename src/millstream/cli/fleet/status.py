"""``millstream fleet status``: who owns the log of a fleet, and who stands by."""

import time

import click
import msgspec

from millstream.cli.command import command
from millstream.store.fleet.places import open_place
from millstream.store.fleet.status import FleetStatus, look


@command("millstream fleet status s3://my-bucket/fleet", "millstream fleet status file:///mnt/f")
@click.argument("url")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(url: str, as_json: bool) -> int:
    """Show who owns the log of the fleet at URL, and who stands by.

    Looks at the store itself, twice within two seconds, and asks no member. Exits with 0
    when the owner is alive, 2 when it is not.
    """
    found = look(open_place(url), time.sleep)
    if as_json:
        click.echo(msgspec.json.encode(found))
    else:
        _print(found)
    return 0 if any(member.role == "owner" for member in found.members) else 2


def _print(found: FleetStatus) -> None:
    click.echo(f"fleet {found.id}: owner {found.owner or 'nobody'}, epoch {found.epoch}")
    click.echo(
        f"log at position {found.position}, {found.uncovered} entries behind the last snapshot"
    )
    for member in found.members:
        click.echo(f"{member.role:8} {member.name:20} {member.nats:24} {member.http}")
