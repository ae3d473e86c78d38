"""``millstream request``: ask a question and print the answer."""

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.messages.shown import show
from millstream.cli.options import (
    header_option,
    parse_headers,
    raw_option,
    read_payload,
    subject_argument,
)


@command("millstream request time.now", "millstream request add '[1,2]' --raw")
@subject_argument
@click.argument("payload", required=False, default="")
@connected
@header_option
@raw_option
@json_option
def request(
    subject: str,
    payload: str,
    access: ServerAccess,
    header_lines: tuple[str, ...],
    raw: bool,
    as_json: bool,
) -> None:
    """Send PAYLOAD (- for standard input) to SUBJECT and print the first answer."""
    headers = parse_headers(header_lines)
    body = read_payload(payload)
    with access.nats() as client:
        show(client.request(subject, body, access.timeout, headers), as_json=as_json, raw=raw)
