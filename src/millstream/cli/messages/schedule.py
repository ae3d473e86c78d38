"""``millstream schedule``: publish later, or again and again, by the streams themselves."""

import json
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.access.options import connected, force_option, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.lazy import LazyGroup
from millstream.cli.options import header_option, parse_headers, read_payload
from millstream.cli.shown import figures
from millstream.cli.shown.figures import DURATION
from millstream.cli.shown.output import sure, tell, tell_rows

if TYPE_CHECKING:
    from millstream.client.jetstream.api import JetStreamApi

Json = dict[str, Any]
PATTERN, TARGET, TTL = "Nats-Schedule", "Nats-Schedule-Target", "Nats-Schedule-TTL"
PREFIX = "schedule."

schedule = LazyGroup(
    name="schedule",
    purpose="Publish later, or again and again: the stream keeps the schedule.",
    within="millstream.cli.messages",
    also={"list": "ls", "delete": "rm"},
    places={
        "add": ("schedule:add", "Schedule a message."),
        "ls": ("schedule:ls", "List what is scheduled."),
        "rm": ("schedule:rm", "Call a schedule off."),
    },
)


@command(
    "millstream schedule add orders.remind '{\"id\":1}' --in 10m",
    "millstream schedule add reports.daily run --cron '0 0 6 * * *' --name daily",
    "millstream schedule add ticks x --every 30s",
)
@click.argument("target", metavar="SUBJECT")
@click.argument("payload", required=False)
@click.option("--in", "delay", type=DURATION, help="After so long, such as 10m.")
@click.option("--at", help="At a time, such as 2026-12-24T18:00:00Z.")
@click.option("--every", type=DURATION, help="Again and again, such as every 30s.")
@click.option("--cron", help="By a cron line with seconds: 'second minute hour day month weekday'.")
@click.option("--name", help="Name of the schedule; a new one of the same name replaces it.")
@header_option
@connected
@json_option
def add(
    target: str,
    payload: str | None,
    delay: int | None,
    at: str | None,
    every: int | None,
    cron: str | None,
    name: str | None,
    header_lines: tuple[str, ...],
    access: ServerAccess,
    as_json: bool,
) -> None:
    """Publish PAYLOAD to SUBJECT later: --in, --at, --every or --cron says when.

    A stream must capture SUBJECT. It is changed to allow schedules if it does not yet, and keeps
    the schedule under the subject schedule.NAME.
    """
    pattern = _pattern(delay, at, every, cron)
    body = read_payload(payload)
    with access.jetstream() as js:
        stream = _stream_for(js, target)
        named = name or f"{target.replace('.', '-')}-{os.urandom(3).hex()}"
        subject = f"{PREFIX}{stream}.{named}"
        _allow(js, stream)
        headers: dict[str, Any] = {**parse_headers(header_lines), PATTERN: pattern, TARGET: target}
        answer = js.client.request(subject, body, js.timeout, headers)
        told = json.loads(answer.payload)
        if told.get("error"):
            raise click.ClickException(f"not scheduled: {told['error'].get('description')}")
    shown = {"stream": stream, "name": named, "schedule": pattern, "target": target}
    tell(
        {**shown, "seq": told["seq"]},
        as_json,
        f"scheduled {named} in {stream}: {pattern} → {target}",
    )


def _pattern(delay: int | None, at: str | None, every: int | None, cron: str | None) -> str:
    given = [each for each in (delay, at, every, cron) if each is not None]
    if len(given) != 1:
        raise click.UsageError("say when with one of --in, --at, --every and --cron")
    if delay is not None:
        when = datetime.now(UTC) + timedelta(microseconds=delay / 1000)
        return f"@at {when.strftime('%Y-%m-%dT%H:%M:%S.%f')}Z"
    if at is not None:
        try:
            return f"@at {figures.read_time(at)}"
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    if every is not None:
        return f"@every {every / 1e9:g}s"
    assert cron is not None
    return cron


def _stream_for(js: "JetStreamApi", target: str) -> str:
    streams = js.stream_names(target)
    if not streams:
        name = target.split(".")[0].upper()
        raise click.ClickException(
            f"no stream captures '{target}': `millstream stream add {name} --subjects "
            f"'{target.split('.')[0]}.>'` makes one"
        )
    return streams[0]


def _allow(js: "JetStreamApi", stream: str) -> None:
    """Let the stream take schedules, and capture the subjects that they are kept under."""
    config = js.stream(stream)["config"]
    kept = f"{PREFIX}{stream}.>"
    wanted = {**config, "allow_msg_schedules": True}
    if kept not in config["subjects"]:
        wanted["subjects"] = [*config["subjects"], kept]
    if wanted != config:
        js.about("STREAM.UPDATE", stream, body=wanted)
        click.echo(f"{stream} allows schedules now, and keeps them under {kept}", err=True)


@command("millstream schedule ls", "millstream schedule ls ORDERS --json")
@click.argument("stream", required=False)
@connected
@json_option
def ls(stream: str | None, access: ServerAccess, as_json: bool) -> None:
    """List what is scheduled in STREAM, or in every stream."""
    with access.jetstream() as js:
        names = [stream] if stream else sorted(js.stream_names())
        told = [each for name in names for each in _schedules(js, name)]
    rows = [(each["stream"], each["name"], each["schedule"], each["target"]) for each in told]
    headings = ("STREAM", "NAME", "SCHEDULE", "TARGET")
    tell_rows(told, as_json, headings, rows, "nothing is scheduled")


def _schedules(js: "JetStreamApi", stream: str) -> list[Json]:
    from millstream.cli.streams.reading import headers_of

    if not js.stream(stream)["config"].get("allow_msg_schedules"):
        return []
    found = {}
    wish: Json = {"seq": 1, "next_by_subj": f"{PREFIX}{stream}.>"}
    while (record := js.message(stream, **wish)) is not None:
        headers = headers_of(record)
        if PATTERN in headers:
            name = record["subject"].removeprefix(f"{PREFIX}{stream}.")
            found[name] = {
                "stream": stream,
                "name": name,
                "schedule": headers[PATTERN][0],
                "target": headers.get(TARGET, [""])[0],
                "seq": record["seq"],
            }
        wish["seq"] = record["seq"] + 1
    return list(found.values())


@command("millstream schedule rm ORDERS daily --force")
@click.argument("stream")
@click.argument("name")
@force_option
@connected
@json_option
def rm(stream: str, name: str, force: bool, access: ServerAccess, as_json: bool) -> None:
    """Call the schedule NAME of STREAM off."""
    from millstream.cli.shown.near import hint

    with access.jetstream() as js:
        known = {each["name"]: each for each in _schedules(js, stream)}
        if name not in known:
            raise click.ClickException(f"{stream} has no schedule {name!r}{hint(name, known)}")
        sure(f"Call {name} off ({known[name]['schedule']})?", force)
        js.about("STREAM.PURGE", stream, body={"filter": f"{PREFIX}{stream}.{name}"})
    tell(known[name], as_json, f"called {name} of {stream} off")
