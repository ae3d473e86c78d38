"""``stream rm``, ``purge`` and ``rmm``: what takes records away for good."""

from typing import Any

import click

from millstream.cli.access.options import connected, force_option, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown.output import sure, tell


@command("millstream stream rm ORDERS", "millstream stream rm ORDERS --force")
@click.argument("name", metavar="STREAM")
@force_option
@connected
@json_option
def rm(name: str, force: bool, access: ServerAccess, as_json: bool) -> None:
    """Remove STREAM with its records and consumers."""
    with access.jetstream() as js:
        state = js.stream(name)["state"]
        held = f"{state['messages']:,} records and {state['consumer_count']:,} consumers"
        sure(f"Remove {name} with its {held}?", force)
        answer = js.about("STREAM.DELETE", name)
    tell(answer, as_json, f"removed {name} ({held})")


@command(
    "millstream stream purge ORDERS",
    "millstream stream purge ORDERS --subject orders.test --force",
    "millstream stream purge ORDERS --keep 100",
)
@click.argument("name", metavar="STREAM")
@click.option("--subject", help="Only records of these subjects.")
@click.option("--seq", type=click.IntRange(min=1), help="Only records below this sequence.")
@click.option("--keep", type=click.IntRange(min=1), help="All but the last so many.")
@force_option
@connected
@json_option
def purge(
    name: str,
    subject: str | None,
    seq: int | None,
    keep: int | None,
    force: bool,
    access: ServerAccess,
    as_json: bool,
) -> None:
    """Remove records of STREAM, all or some; the stream and its consumers stay."""
    if seq and keep:
        raise click.UsageError("--seq and --keep exclude each other")
    wish: dict[str, Any] = {"filter": subject, "seq": seq, "keep": keep}
    wish = {field: value for field, value in wish.items() if value}
    with access.jetstream() as js:
        held = js.stream(name)["state"]["messages"]
        what = " ".join(f"{field} {value}" for field, value in wish.items()) or "all"
        sure(f"Purge {name} ({what} of {held:,} records)?", force)
        answer = js.about("STREAM.PURGE", name, body=wish or None)
    tell(answer, as_json, f"purged {answer.get('purged', 0):,} records of {name}")


@command("millstream stream rmm ORDERS 57", "millstream stream rmm ORDERS 57 --force --no-erase")
@click.argument("name", metavar="STREAM")
@click.argument("seq", type=click.IntRange(min=1))
@click.option("--no-erase", is_flag=True, help="Remove it without overwriting its bytes on disk.")
@force_option
@connected
@json_option
def rmm(
    name: str, seq: int, no_erase: bool, force: bool, access: ServerAccess, as_json: bool
) -> None:
    """Remove the record of STREAM with sequence SEQ."""
    with access.jetstream() as js:
        sure(f"Remove record {seq} of {name}?", force)
        answer = js.about("STREAM.MSG.DELETE", name, body={"seq": seq, "no_erase": no_erase})
    tell(answer, as_json, f"removed record {seq} of {name}")
