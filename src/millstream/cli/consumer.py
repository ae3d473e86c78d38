"""``millstream consumer``: what a JetStream consumer waits for."""

import click
import msgspec

from millstream.cli.options import open_client, server_option
from millstream.client import ClientError
from millstream.client.consumer_state import INFO_SUBJECT, Answer, ConsumerState
from millstream.client.errors import NoResponders

NO_STREAM, NO_CONSUMER = 10059, 10014


@click.group()
def consumer() -> None:
    """Look at the consumers of streams."""


@consumer.command()
@click.argument("stream")
@click.argument("name", metavar="CONSUMER")
@server_option
@click.option("--timeout", default=5.0, show_default=True, help="Seconds to wait for the answer.")
def why(stream: str, name: str, url: str | None, timeout: float) -> None:
    """Print in one line why CONSUMER of STREAM delivers nothing, or how far it is.

    Works with any NATS server with JetStream.
    """
    for each in (stream, name):
        if not each or set(each) & set(".*> \t\r\n"):
            raise click.UsageError(f"{each!r} is not a name of a stream or consumer")
    with open_client(url) as client:
        try:
            answer = client.request(f"{INFO_SUBJECT}{stream}.{name}", b"", timeout).payload
        except NoResponders:
            raise ClientError("the server has no JetStream: no streams, no consumers") from None
    click.echo(_state(answer, stream, name).why())


def _state(answer: bytes, stream: str, name: str) -> ConsumerState:
    error = msgspec.json.decode(answer, type=Answer).error
    if error is None:
        return msgspec.json.decode(answer, type=ConsumerState)
    if error.err_code == NO_STREAM:
        raise ClientError(f"the server has no stream named {stream!r}")
    if error.err_code == NO_CONSUMER:
        raise ClientError(f"stream {stream!r} has no consumer named {name!r}")
    raise ClientError(f"{error.description} ({error.err_code})")
