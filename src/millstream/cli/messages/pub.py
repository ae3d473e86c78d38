"""``millstream pub``: publish a message, or one per line of input."""

import sys
from collections.abc import Iterator

import click
import msgspec

from millstream.cli.options import (
    header_option,
    json_option,
    open_client,
    parse_headers,
    read_payload,
    server_option,
    subject_argument,
)
from millstream.client import Client, Message
from millstream.client.errors import ClientError, NoResponders


class PubAck(msgspec.Struct, omit_defaults=True):
    """What a stream answers to a stored message."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: dict[str, object] | None = None


@click.command()
@subject_argument
@click.argument("payload", required=False)
@server_option
@header_option
@click.option("--reply", help="Reply subject of the message.")
@click.option("--lines", is_flag=True, help="Publish each line of standard input.")
@click.option("--ack", is_flag=True, help="Wait until a stream has stored the message.")
@click.option("--timeout", default=5.0, show_default=True, help="Seconds to wait for the server.")
@json_option
def pub(
    subject: str,
    payload: str | None,
    url: str | None,
    header_lines: tuple[str, ...],
    reply: str | None,
    lines: bool,
    ack: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Publish PAYLOAD to SUBJECT; without PAYLOAD, or with -, publish standard input."""
    if ack and reply:
        raise click.UsageError("--ack and --reply exclude each other: the ack is the reply")
    headers = parse_headers(header_lines)
    payloads = _input_lines() if lines else iter([read_payload(payload)])
    published = 0
    with open_client(url) as client:
        for body in payloads:
            published += 1
            if ack:
                _show_ack(_store(client, subject, body, headers, timeout), as_json)
            else:
                client.publish(subject, body, headers, reply)
        client.flush(timeout)
    if not ack:
        _show_count(subject, published, as_json)


def _input_lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _store(
    client: Client, subject: str, body: bytes, headers: dict[str, list[str]], timeout: float
) -> PubAck:
    try:
        answer = client.request(subject, body, timeout, headers)
    except NoResponders:
        raise ClientError(f"no stream captures '{subject}', so nothing was stored") from None
    ack = _decode(answer)
    if ack.error is not None:
        raise ClientError(f"not stored: {ack.error.get('description', ack.error)}")
    return ack


def _decode(answer: Message) -> PubAck:
    try:
        return msgspec.json.decode(answer.payload, type=PubAck)
    except msgspec.DecodeError:
        raise ClientError(
            f"the answer on '{answer.subject}' is no ack: a service replied, not a stream"
        ) from None


def _show_ack(ack: PubAck, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode({"stream": ack.stream, "seq": ack.seq}).decode())
    else:
        twice = " (already there)" if ack.duplicate else ""
        click.echo(f"stored in {ack.stream} as seq {ack.seq}{twice}")


def _show_count(subject: str, published: int, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode({"subject": subject, "published": published}).decode())
    else:
        click.echo(f"published {published} to {subject}")
