"""``stream gaps``: which records are gone, and why."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown.output import tell_rows

if TYPE_CHECKING:
    from millstream.client.jetstream.api import JetStreamApi

Json = dict[str, Any]
REASONS = {
    "retention": "dropped by the limits of the stream (max_msgs, max_bytes, max_age), or purged",
    "cap": "dropped by a limit of the stream (max_msgs, max_bytes)",
    "ttl": "older than the stream keeps (max_age)",
    "source_trim": "gone at the stream that it was copied from",
    "void": "never stored: a write failed",
    "corruption": "lost: the file that held them is damaged",
    "torn": "lost: the end of a file was cut off",
    "unsynced": "perhaps lost: not on disk yet when the power went",
    "restart": "kept in memory only, and the server has restarted",
}


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
    told = _told(js, name)
    return [piece for each in found for piece in _explained(*each, told)]


def _told(js: "JetStreamApi", name: str) -> list[tuple[int, int, str]]:
    """Return the ranges that a millstream server knows a reason of; none from other servers."""
    from millstream.client.errors import ClientError
    from millstream.client.streams import PLAN_SUBJECT

    try:
        answer = js.client.request(PLAN_SUBJECT + name, b"{}", timeout=js.timeout)
        known = json.loads(answer.payload).get("gaps") or []
        return [(int(first), int(last), str(reason)) for first, last, reason in known]
    except (ClientError, ValueError, AttributeError):
        return []


def _explained(
    first: int, last: int, reason: str, told: list[tuple[int, int, str]]
) -> Iterator[tuple[int, int, str]]:
    """Cut a range where the reason changes."""
    for begin, end, why in sorted(told):
        begin, end = max(begin, first), min(end, last)
        if begin > end:
            continue
        if begin > first:
            yield first, begin - 1, reason
        yield begin, end, REASONS.get(why, why)
        first = end + 1
    if first <= last:
        yield first, last, reason
