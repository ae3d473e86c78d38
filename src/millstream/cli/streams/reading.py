"""``stream view`` and ``get``: stored records, without consuming them."""

import base64
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown import figures
from millstream.cli.shown.figures import TIME
from millstream.cli.shown.output import as_text

if TYPE_CHECKING:
    from millstream.client.jetstream.api import JetStreamApi

Json = dict[str, Any]
PAGE = 20


@command(
    "millstream stream view ORDERS",
    "millstream stream view ORDERS --last 5 --json",
    "millstream stream view ORDERS --since 15m --subject 'orders.eu.>'",
)
@click.argument("name", metavar="STREAM")
@click.argument("count", required=False, type=click.IntRange(min=1))
@click.option("--from", "--id", "from_seq", type=click.IntRange(min=1), help="First sequence.")
@click.option("--since", type=TIME, help="Since a time, or 15m for that long ago.")
@click.option("--last", type=click.IntRange(min=1), help="The last so many.")
@click.option("--subject", default="", help="Only records of these subjects.")
@click.option("--all", "everything", is_flag=True, help="Do not stop after COUNT or ask for more.")
@click.option("--raw", is_flag=True, help="Print payloads only.")
@connected
@json_option
def view(
    name: str,
    count: int | None,
    from_seq: int | None,
    since: str | None,
    last: int | None,
    subject: str,
    everything: bool,
    raw: bool,
    access: ServerAccess,
    as_json: bool,
) -> None:
    """Show stored records of STREAM, COUNT at a time (20); a terminal is asked for more.

    Nothing is consumed: it works on a work queue too.
    """
    with access.jetstream() as js:
        state = js.stream(name)["state"]
        start = from_seq or state["first_seq"]
        if last:
            start, count = _nth_last(js, name, state, subject, last), last
        records = stored(js, name, max(start, 1), subject, since)
        page, number = (count or PAGE), 0
        for number, record in enumerate(records, 1):
            show(record, as_json, raw)
            if number % page == 0 and not everything and not _more(last, record, state):
                break
        if not number:
            click.echo("no records there", err=True)


def _more(last: int | None, record: Json, state: Json) -> bool:
    """Whether to go on: a terminal is asked, a pipe has what it asked for."""
    if (
        last
        or record["seq"] >= state["last_seq"]
        or not (sys.stdin.isatty() and sys.stdout.isatty())
    ):
        return False
    return (
        click.prompt("-- Enter for more, q to end", default="", show_default=False, err=True) == ""
    )


def stored(
    js: "JetStreamApi", stream: str, seq: int, subject: str = "", since: str | None = None
) -> Iterator[Json]:
    """Return stored records in order from a sequence or time on."""
    wish: Json = {"seq": seq, "next_by_subj": subject or ">"}
    if since:
        first = first_since(js, stream, since)
        if first is None:
            return
        wish["seq"] = max(seq, first)
    while (record := js.message(stream, **wish)) is not None:
        yield record
        wish["seq"] = record["seq"] + 1


def first_since(js: "JetStreamApi", stream: str, since: str) -> int | None:
    """Return the first sequence since a time, by halving; None where all are older."""
    state = js.stream(stream)["state"]
    low, high = state["first_seq"], state["last_seq"] + 1
    wanted = figures.read_moment(since)
    while low < high:
        middle = (low + high) // 2
        found = js.message(stream, seq=middle, next_by_subj=">")
        if found is None or figures.read_moment(found["time"]) >= wanted:
            high = middle
        else:
            low = int(found["seq"]) + 1
    return low if low <= state["last_seq"] else None


def _nth_last(js: "JetStreamApi", stream: str, state: Json, subject: str, last: int) -> int:
    """Return from where on there are so many records, or more in front where some are gone."""
    span, end = last, state["last_seq"]
    while True:
        start = max(state["first_seq"], end - span + 1)
        found = [each["seq"] for each in stored(js, stream, max(start, 1), subject)]
        if len(found) >= last:
            return int(found[-last])
        if start <= state["first_seq"]:
            return int(start)
        span *= 4


def show(record: Json, as_json: bool, raw: bool) -> None:
    """Print one stored record, at once."""
    payload = base64.b64decode(record.get("data") or "")
    if raw:
        sys.stdout.buffer.write(payload + b"\n")
        sys.stdout.buffer.flush()
        return
    headers = headers_of(record)
    if as_json:
        fields: Json = {"seq": record["seq"], "subject": record["subject"], "time": record["time"]}
        if headers:
            fields["headers"] = headers
        click.echo(as_text(fields | {"payload": plain(payload)}))
        return
    click.echo(f"[{record['seq']}] {record['subject']}  {figures.moment(record['time'])}")
    for header, values in headers.items():
        click.echo("\n".join(f"  {header}: {value}" for value in values))
    click.echo(f"  {text_of(payload)}")


def headers_of(record: Json) -> dict[str, list[str]]:
    """Return the headers of a stored record by name."""
    from millstream.client.headers import decode

    return decode(base64.b64decode(record.get("hdrs") or ""))[1] if record.get("hdrs") else {}


def plain(payload: bytes) -> object:
    """Return a payload as JSON can hold it."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return {"$base64": base64.b64encode(payload).decode()}


def text_of(payload: bytes) -> str:
    """Return a payload as people read it: JSON and text as they are, other bytes as hex."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        shown = payload[:256].hex(" ")
        return f"{shown} … ({len(payload):,} bytes)" if len(payload) > 256 else shown


@command(
    "millstream stream get ORDERS 57",
    "millstream stream get ORDERS --last-for orders.new --raw",
)
@click.argument("name", metavar="STREAM")
@click.argument("seq", required=False, type=click.IntRange(min=1))
@click.option("--last-for", "-S", metavar="SUBJECT", help="The last record of this subject.")
@click.option("--raw", is_flag=True, help="Print the payload only.")
@connected
@json_option
def get(
    name: str, seq: int | None, last_for: str | None, raw: bool, access: ServerAccess, as_json: bool
) -> int:
    """Show the record of STREAM with sequence SEQ, or the last of a subject."""
    if (seq is None) is (last_for is None):
        raise click.UsageError("give either a sequence or --last-for SUBJECT")
    with access.jetstream() as js:
        wish: Json = {"seq": seq} if last_for is None else {"last_by_subj": last_for}
        record = js.message(name, **wish)
        if record is None:
            raise click.ClickException(_absent(js, name, seq, last_for))
    show(record, as_json, raw)
    return 0


def _absent(js: "JetStreamApi", name: str, seq: int | None, subject: str | None) -> str:
    state = js.stream(name, subjects_filter=">")["state"]
    if subject is not None:
        from millstream.cli.shown.near import hint

        known = state.get("subjects") or {}
        return f"{name} has no record of subject {subject!r}{hint(subject, known)}"
    ends = f"{state['first_seq']:,} to {state['last_seq']:,}"
    return f"{name} has no record {seq}: it holds {state['messages']:,}, from {ends}"


def as_json_value(payload: bytes) -> object:
    """Return the JSON in a payload, or its text."""
    try:
        return json.loads(payload)
    except ValueError:
        return plain(payload)
