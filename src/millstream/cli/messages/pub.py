"""``millstream pub``: publish a message, or one per line of input."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.options import header_option, parse_headers, read_payload, subject_argument
from millstream.cli.shown.output import as_text

if TYPE_CHECKING:
    from millstream.client import Client, Message

WINDOW = 500  # messages whose acks may be under way
Headers = dict[str, list[str]]

MOST_LOOKED_AT = 1000  # streams


@command(
    "millstream pub orders.new '{\"id\":1}'",
    "millstream pub orders.new '{\"id\":1}' --create",
    "millstream pub orders.new --lines < orders.ndjson",
    "millstream pub orders.new '{\"id\":1}' --ack -H 'Nats-Msg-Id: 1'",
)
@subject_argument
@click.argument("payload", required=False)
@connected
@header_option
@click.option("--reply", help="Reply subject of the message.")
@click.option("--lines", is_flag=True, help="Publish each line of standard input.")
@click.option("--ack", is_flag=True, help="Fail unless a stream stores the message.")
@click.option("--no-ack", is_flag=True, help="Do not wait for streams, nor look for them.")
@click.option("--create", is_flag=True, help="Create a stream if none captures SUBJECT.")
@json_option
def pub(
    subject: str,
    payload: str | None,
    access: ServerAccess,
    header_lines: tuple[str, ...],
    reply: str | None,
    lines: bool,
    ack: bool,
    no_ack: bool,
    create: bool,
    as_json: bool,
) -> None:
    """Publish PAYLOAD to SUBJECT; without PAYLOAD, or with -, publish standard input.

    If a stream captures SUBJECT, pub waits until it has stored the message, and says where.
    """
    if reply and (ack or create):
        raise click.UsageError("--ack and --reply exclude each other: the ack is the reply")
    if no_ack and (ack or create):
        raise click.UsageError("--no-ack excludes --ack and --create")
    headers = parse_headers(header_lines)
    payloads = _input_lines() if lines else iter([read_payload(payload)])
    with access.nats() as client:
        streams = [] if no_ack or reply else _capturing(client, subject, access.timeout)
        if not streams and create:
            streams = [_created(client, subject, access.timeout)]
        if streams or ack:
            _store(client, subject, payloads, headers, access.timeout, as_json, one=not lines)
            return
        known = None if no_ack or reply or not client.info.jetstream else 0
        published = _publish(client, subject, payloads, headers, reply, access.timeout)
        meant = _meant(client, subject, access.timeout) if known == 0 and not as_json else ""
        _show_count(subject, published, as_json, known, meant)


def _input_lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _publish(
    client: "Client",
    subject: str,
    payloads: Iterable[bytes],
    headers: Headers,
    reply: str | None,
    timeout: float,
) -> int:
    published = 0
    for published, body in enumerate(payloads, 1):  # noqa: B007 - counted
        client.publish(subject, body, headers, reply)
    client.flush(timeout)
    return published


def _capturing(client: "Client", subject: str, timeout: float) -> list[str]:
    """Return the streams that capture a subject; none where nobody may ask."""
    from millstream.client.errors import ClientError
    from millstream.client.jetstream.api import JetStreamApi

    if not client.info.jetstream or subject.startswith("$"):
        return []
    try:
        return JetStreamApi(client, timeout).stream_names(subject)
    except ClientError:
        return []


def _meant(client: "Client", subject: str, timeout: float) -> str:
    """Return the end of a sentence that names a captured subject close to this one, or nothing."""
    from millstream.cli.shown.near import nearest
    from millstream.client.errors import ClientError
    from millstream.client.jetstream.api import JetStreamApi

    try:
        streams = JetStreamApi(client, timeout).streams()
    except ClientError:
        return ""
    captured = {
        _like(pattern, subject): stream["config"]["name"]
        for stream in streams[:MOST_LOOKED_AT]
        for pattern in stream["config"].get("subjects") or ()
    }
    near = nearest(subject, captured)
    if near is None or near == subject:
        return ""
    return f". Did you mean '{near}', which stream {captured[near]} captures?"


def _like(pattern: str, subject: str) -> str:
    """Return the subject of a pattern that has the other's tokens where the pattern is open."""
    given = subject.split(".")
    tokens = pattern.split(".")
    found = [
        given[at] if token == "*" and at < len(given) else token for at, token in enumerate(tokens)
    ]
    if tokens[-1] == ">":
        found[-1:] = given[len(tokens) - 1 :] or ["…"]
    return ".".join(found)


def _created(client: "Client", subject: str, timeout: float) -> str:
    from millstream.client.jetstream.api import JetStreamApi

    name, captured = stream_for(subject)
    JetStreamApi(client, timeout).ask(
        f"STREAM.CREATE.{name}", {"name": name, "subjects": [captured]}
    )
    click.echo(f"created stream {name} for {captured}", err=True)
    return name


def stream_for(subject: str) -> tuple[str, str]:
    """Return the name of a stream that would capture a subject, and what it would capture."""
    first, dot, _ = subject.partition(".")
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in first).upper()
    return name, f"{first}.>" if dot else first


@dataclass(slots=True)
class Acks:
    """What streams have answered so far."""

    as_json: bool
    one: bool
    stored: int = 0
    streams: dict[str, list[int]] = field(default_factory=dict)

    def take(self, answer: "Message", subject: str) -> None:
        """Count an answer; raises what a stream refused."""
        from millstream.client.errors import ClientError

        if answer.status == 503 and not answer.payload:
            raise ClientError(f"no stream captures '{subject}', so nothing was stored")
        ack = _decoded(answer)
        if ack.get("error") is not None:
            error = ack["error"]
            raise ClientError(f"not stored: {error.get('description', error)}")
        self.stored += 1
        self.streams.setdefault(ack["stream"], []).append(ack["seq"])
        if self.one or self.as_json:
            self._show(ack)

    def _show(self, ack: dict[str, Any]) -> None:
        if self.as_json:
            click.echo(as_text({"stream": ack["stream"], "seq": ack["seq"]}))
        else:
            twice = " (already there)" if ack.get("duplicate") else ""
            click.echo(f"stored in {ack['stream']} as seq {ack['seq']}{twice}")

    def sum_up(self) -> None:
        """Say what was stored where, once for many."""
        if self.one or self.as_json:
            return
        for stream, seqs in self.streams.items():
            ends = f"seq {min(seqs):,} to {max(seqs):,}"
            click.echo(f"stored {len(seqs):,} in {stream} as {ends}")


def _store(
    client: "Client",
    subject: str,
    payloads: Iterable[bytes],
    headers: Headers,
    timeout: float,
    as_json: bool,
    *,
    one: bool,
) -> None:
    """Publish and wait for every ack, with some of them under way at a time."""
    from millstream.client.jetstream.inbox import new_inbox

    acks, sent = Acks(as_json, one), 0
    inbox = new_inbox()
    answers = client.subscribe(f"{inbox}.*")
    for sent, body in enumerate(payloads, 1):
        client.publish(subject, body, headers, reply=f"{inbox}.{sent}")
        if sent - acks.stored >= WINDOW:
            acks.take(answers.next(timeout), subject)
    client.flush(timeout)
    while acks.stored < sent:
        acks.take(answers.next(timeout), subject)
    acks.sum_up()


def _decoded(answer: "Message") -> dict[str, Any]:
    from millstream.client.errors import ClientError

    try:
        told = json.loads(answer.payload)
        if isinstance(told, dict) and ("stream" in told or "error" in told):
            return told
    except ValueError:
        pass
    raise ClientError(
        f"the answer on '{answer.subject}' is no ack: a service replied, not a stream"
    )


def _show_count(
    subject: str, published: int, as_json: bool, stored: int | None, meant: str
) -> None:
    if as_json:
        told: dict[str, Any] = {"subject": subject, "published": published}
        click.echo(as_text(told if stored is None else {**told, "stored": stored}))
        return
    click.echo(f"published {published} to {subject}")
    if stored == 0:
        name, captured = stream_for(subject)
        click.echo(
            f"no stream captures '{subject}', so nothing was stored. To store such messages: "
            f"millstream stream add {name} --subjects '{captured}'{meant}",
            err=True,
        )
