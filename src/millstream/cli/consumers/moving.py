"""``consumer rm``, ``pause``, ``resume``, ``reset`` and ``unpin``."""

from datetime import UTC, datetime, timedelta

import click

from millstream.cli.access.options import connected, force_option, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown import figures
from millstream.cli.shown.output import sure, tell


@command("millstream consumer rm ORDERS billing", "millstream consumer rm ORDERS billing --force")
@click.argument("stream")
@click.argument("name", metavar="CONSUMER")
@force_option
@connected
@json_option
def rm(stream: str, name: str, force: bool, access: ServerAccess, as_json: bool) -> None:
    """Remove CONSUMER of STREAM, and with it how far it was."""
    with access.jetstream() as js:
        at = (js.consumer(stream, name).get("ack_floor") or {}).get("stream_seq", 0)
        sure(f"Remove {name} of {stream}, which has acknowledged up to seq {at:,}?", force)
        answer = js.about("CONSUMER.DELETE", stream, name)
    tell(answer, as_json, f"removed {name} of {stream}")


@command(
    "millstream consumer pause ORDERS billing 1h",
    "millstream consumer pause ORDERS billing 2026-12-24T00:00:00Z",
)
@click.argument("stream")
@click.argument("name", metavar="CONSUMER")
@click.argument("until")
@connected
@json_option
def pause(stream: str, name: str, until: str, access: ServerAccess, as_json: bool) -> None:
    """Let CONSUMER of STREAM deliver nothing UNTIL a time, or for 1h from now."""
    try:
        ahead = timedelta(microseconds=figures.read_duration(until) / 1000)
        when = (datetime.now(UTC) + ahead).isoformat().replace("+00:00", "Z")
    except ValueError:
        try:
            when = figures.read_time(until)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    with access.jetstream() as js:
        answer = js.about("CONSUMER.PAUSE", stream, name, {"pause_until": when})
    tell(answer, as_json, f"{name} of {stream} pauses until {figures.moment(when)} UTC")


@command("millstream consumer resume ORDERS billing")
@click.argument("stream")
@click.argument("name", metavar="CONSUMER")
@connected
@json_option
def resume(stream: str, name: str, access: ServerAccess, as_json: bool) -> None:
    """Let CONSUMER of STREAM deliver again."""
    with access.jetstream() as js:
        was = js.consumer(stream, name).get("paused", False)
        answer = js.about("CONSUMER.PAUSE", stream, name)
    text = f"{name} of {stream} delivers again" if was else f"{name} of {stream} was not paused"
    tell(answer, as_json, text)


@command(
    "millstream consumer reset ORDERS billing --seq 1000",
    "millstream consumer reset ORDERS billing",
)
@click.argument("stream")
@click.argument("name", metavar="CONSUMER")
@click.option("--seq", type=click.IntRange(min=1), help="Deliver this record next.")
@force_option
@connected
@json_option
def reset(
    stream: str, name: str, seq: int | None, force: bool, access: ServerAccess, as_json: bool
) -> None:
    """Let CONSUMER of STREAM go on at a sequence, or deliver again what was not acknowledged."""
    with access.jetstream() as js:
        at = (js.consumer(stream, name).get("ack_floor") or {}).get("stream_seq", 0)
        sure(f"Move {name} of {stream}, which has acknowledged up to seq {at:,}?", force)
        answer = js.about("CONSUMER.RESET", stream, name, {"seq": seq} if seq else None)
    now = answer.get("reset_seq") or seq or at + 1
    tell(answer, as_json, f"{name} of {stream} delivers seq {now:,} next")


@command("millstream consumer unpin ORDERS billing jobs")
@click.argument("stream")
@click.argument("name", metavar="CONSUMER")
@click.argument("group")
@connected
@json_option
def unpin(stream: str, name: str, group: str, access: ServerAccess, as_json: bool) -> None:
    """Let another client of priority GROUP have the pinned CONSUMER of STREAM."""
    with access.jetstream() as js:
        answer = js.about("CONSUMER.UNPIN", stream, name, {"group": group})
    tell(answer, as_json, f"group {group} of {name} is free for another client")
