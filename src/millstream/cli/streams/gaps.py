"""``stream gaps``: which records are gone, and why."""

from typing import TYPE_CHECKING, Any

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown.output import tell_rows

if TYPE_CHECKING:
    from millstream.client.jetstream.api import JetStreamApi

Json = dict[str, Any]


@command("millstream stream gaps ORDERS", "millstream stream gaps ORDERS --json")
@click.argument("name", metavar="STREAM")
@connected
@json_option
def gaps(name: str, access: ServerAccess, as_json: bool) -> None:
    """List the ranges of sequences of STREAM that hold no record any more, and why.

    millstream says for each range what took the records; another server lists only which are gone.
    """
    with access.jetstream() as js:
        found = _of(js, name)
    rows = [
        {"from": first, "to": last, "records": last - first + 1, "reason": reason}
        for first, last, reason in found
    ]
    tell_rows(
        rows,
        as_json,
        ("FROM", "TO", "RECORDS", "REASON"),
        [tuple(row.values()) for row in rows],
        f"{name} has no gaps",
    )


def _of(js: "JetStreamApi", name: str) -> list[tuple[int, int, str]]:
    state = js.stream(name, deleted_details=True)["state"]
    found = [] if state["first_seq"] <= 1 else [(1, int(state["first_seq"]) - 1, "removed")]
    lost = {int(seq) for seq in (state.get("lost") or {}).get("msgs") or ()}
    for seq in sorted({int(seq) for seq in state.get("deleted") or ()} | lost):
        reason = "lost to damage" if seq in lost else "deleted"
        if found and found[-1][1] == seq - 1 and found[-1][2] == reason:
            found[-1] = (found[-1][0], seq, reason)
        else:
            found.append((seq, seq, reason))
    return found
