"""Options that several commands share."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from millstream.cli.command import ServerOption

Command = Callable[..., Any]


def server_option(command: Command) -> Command:
    """Add ``-s/--url``: which server to talk to."""
    return click.option(
        "-s",
        "--url",
        cls=ServerOption,
        envvar="NATS_URL",
        help="Server, as nats://[user:password@]host:port.  [default: $NATS_URL or this machine]",
    )(command)


def raw_option(command: Command) -> Command:
    """Add ``--raw``: payloads only."""
    return click.option("--raw", is_flag=True, help="Print payloads only.")(command)


def header_option(command: Command) -> Command:
    """Add ``-H/--header``: a header of the message, repeatable."""
    return click.option(
        "-H", "--header", "header_lines", multiple=True, help="A header, as 'Name: value'."
    )(command)


def subject_argument(command: Command) -> Command:
    """Add SUBJECT, where a message goes: to one place, not to all that fit a pattern."""
    return click.argument("subject", callback=_without_wildcards)(command)


def _without_wildcards(ctx: click.Context, param: click.Parameter, subject: str) -> str:
    if {"*", ">"} & set(subject.split(".")):
        raise click.UsageError(f"messages go to one subject: {subject!r} holds a wildcard", ctx)
    return subject


def parse_headers(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return the headers that ``Name: value`` lines describe."""
    headers: dict[str, list[str]] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise click.UsageError(f"a header is written 'Name: value', not {line!r}")
        headers.setdefault(name.strip(), []).append(value.strip())
    return headers


def read_payload(given: str | None) -> bytes:
    """Return the payload as bytes; ``-`` or nothing means standard input."""
    if given is None or given == "-":
        return sys.stdin.buffer.read()
    return given.encode(errors="surrogateescape")
