"""``topic pub``, ``view``, ``tail`` and ``purge``."""

import json
import sys
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.access.options import force_option, json_option, over_http
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.options import read_payload
from millstream.cli.shown.figures import DURATION
from millstream.cli.shown.output import as_text, sure, tell

if TYPE_CHECKING:
    from millstream.client.topic_values import Record

Json = dict[str, Any]
BATCH = 1000


@command(
    'millstream topic pub clicks \'{"page":"/"}\'',
    "millstream topic pub clicks --lines < clicks.ndjson",
    "millstream queue pub jobs '{\"id\":1}' --delay 10m",
)
@click.argument("name", metavar="TOPIC")
@click.argument("data", required=False)
@click.option("--lines", is_flag=True, help="Write each line of standard input.")
@click.option("--tag", help="Tag of the records.")
@click.option("--key", help="Idempotency key: a second write with it does nothing.")
@click.option("--delay", type=DURATION, help="Show the records only after so long.")
@click.option("--create/--no-create", default=None, help="Create a missing topic, or fail.")
@over_http
@json_option
def pub(
    name: str,
    data: str | None,
    lines: bool,
    tag: str | None,
    key: str | None,
    delay: int | None,
    create: bool | None,
    access: ServerAccess,
    as_json: bool,
) -> None:
    """Write DATA to TOPIC, as JSON if it is JSON, else as text; - or nothing: standard input."""
    records = [_value(line) for line in sys.stdin.buffer] if lines else [_value(read_payload(data))]
    fields: Json = {"tag": tag, "key": key, "create": create}
    if delay:
        fields["delay_ms"] = delay // 1_000_000
    first = last = count = 0
    with access.topics() as topics:
        topic = topics.topic(name)
        for at in range(0, len(records), BATCH):
            done = topic.append(*records[at : at + BATCH], **fields)
            first, last, count = first or done.first_seq, done.last_seq, count + done.count
    told = {"topic": name, "first_seq": first, "last_seq": last, "count": count}
    when = f", to appear in {delay / 1e9:g} s" if delay else ""
    seqs = f"seq {first:,}" if count == 1 else f"seq {first:,} to {last:,}"
    tell(told, as_json, f"stored {count:,} in {name} as {seqs}{when}")


def _value(line: bytes) -> object:
    line = line.rstrip(b"\r\n")
    try:
        return json.loads(line)
    except ValueError:
        try:
            return line.decode()
        except UnicodeDecodeError:
            return line


@command(
    "millstream topic view clicks",
    "millstream queue view jobs",
    "millstream topic view clicks --after 100 --count 5 --json",
)
@click.argument("name", metavar="TOPIC")
@click.option("--after", default=0, type=click.IntRange(min=0), help="Begin behind this sequence.")
@click.option("--count", default=20, show_default=True, type=click.IntRange(min=1))
@click.option("--tag", help="Only records with this tag; it may end in *.")
@over_http
@json_option
def view(
    name: str, after: int, count: int, tag: str | None, access: ServerAccess, as_json: bool
) -> None:
    """Show records of TOPIC, without consuming them."""
    wishes: Json = {"filter": {"tag": tag}} if tag else {}
    with access.topics() as topics:
        found = topics.topic(name).diff(after, on_gap=_gap, **wishes)
        for record in islice(found, count):
            _show(record, as_json)


def _gap(gap: Any) -> None:
    click.echo(f"records {gap.gap_from} to {gap.gap_to} are gone ({gap.reason})", err=True)


def _show(record: "Record", as_json: bool) -> None:
    data = record.data
    if as_json:
        shown = data if not isinstance(data, bytes) else {"$base64": data.hex()}
        line = as_text({"seq": record.seq, "ts": record.ts, "tag": record.tag or "", "data": shown})
    else:
        when = datetime.fromtimestamp(record.ts / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        tag = f"  {record.tag}" if record.tag else ""
        line = f"[{record.seq}] {when}{tag}\n  {bytes(record.text).decode('utf-8', 'replace')}"
    click.echo(line)
    sys.stdout.flush()


@command("millstream topic tail clicks", "millstream topic tail clicks --after 0 --json")
@click.argument("name", metavar="TOPIC")
@click.option("--after", type=click.IntRange(min=0), help="Begin behind this sequence.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many.")
@over_http
@json_option
def tail(
    name: str, after: int | None, count: int | None, access: ServerAccess, as_json: bool
) -> None:
    """Print records of TOPIC as they come; --after N begins with the record behind N."""
    with access.topics() as topics:
        topic = topics.topic(name)
        start = topic.state().head_seq if after is None else after
        click.echo(f"listening to {name}", err=True)
        for record in islice(topic.diff(start, follow=True, on_gap=_gap), count):
            _show(record, as_json)


@command(
    "millstream topic purge clicks --before 1000", "millstream topic purge clicks --tag 'test*'"
)
@click.argument("name", metavar="TOPIC")
@click.option("--before", type=click.IntRange(min=1), help="Records below this sequence.")
@click.option("--tag", "tags", multiple=True, help="Records with this tag; it may end in *.")
@force_option
@over_http
@json_option
def purge(
    name: str,
    before: int | None,
    tags: tuple[str, ...],
    force: bool,
    access: ServerAccess,
    as_json: bool,
) -> None:
    """Remove records of TOPIC for good: below a sequence, or by tag."""
    if before is None and not tags:
        raise click.UsageError("say which: --before SEQ, or --tag TAG")
    sure(f"Remove records of {name}?", force)
    with access.topics() as topics:
        gone = topics.topic(name).delete_records(before_seq=before, match=list(tags) or None)
    tell({"topic": name, "deleted": gone}, as_json, f"removed {gone:,} records of {name}")
