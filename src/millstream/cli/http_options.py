"""Options of the commands that talk to a server over HTTP."""

import click

from millstream.cli.options import Command
from millstream.client.http_link import TLS_CA, trusting
from millstream.client.patience import FOLLOWERS_PATIENCE
from millstream.client.topics import Topics


def http_option(command: Command) -> Command:
    """Add ``--http-url`` and ``--tls-ca``: which server to talk to over HTTP, and whom to trust."""
    trust = click.option(
        "--tls-ca",
        envvar=TLS_CA,
        help="With https://: PEM file of the authority that signed the server's certificate.",
    )
    return click.option(
        "--http-url",
        envvar="MILLSTREAM_HTTP_URL",
        help="Server, as http://host:port.  [default: port 8222 of this machine]",
    )(trust(command))


def token_option(command: Command) -> Command:
    """Add ``--token``: the API key to use over HTTP."""
    return click.option("--token", envvar="MILLSTREAM_TOKEN", default="", help="API key.")(command)


def open_topics(
    http_url: str | None, token: str, tls_ca: str | None, patience: float = FOLLOWERS_PATIENCE
) -> Topics:
    """Return the HTTP API of a server, as the command line."""
    tls = None if tls_ca is None else trusting(tls_ca)
    return Topics(http_url, token, tls=tls, patience=patience)
