"""``millstream request``: ask a question and print the answer."""

import click

from millstream.cli.messages.shown import show
from millstream.cli.options import (
    header_option,
    json_option,
    open_client,
    parse_headers,
    raw_option,
    read_payload,
    server_option,
    subject_argument,
)


@click.command()
@subject_argument
@click.argument("payload", required=False, default="")
@server_option
@header_option
@click.option("--timeout", default=5.0, show_default=True, help="Seconds to wait for the answer.")
@raw_option
@json_option
def request(
    subject: str,
    payload: str,
    url: str | None,
    header_lines: tuple[str, ...],
    timeout: float,
    raw: bool,
    as_json: bool,
) -> None:
    """Send PAYLOAD (- for standard input) to SUBJECT and print the first answer."""
    headers = parse_headers(header_lines)
    body = read_payload(payload)
    with open_client(url) as client:
        show(client.request(subject, body, timeout, headers), as_json=as_json, raw=raw)
