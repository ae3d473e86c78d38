"""``millstream serve``: run the server."""

import os
from functools import partial
from pathlib import Path

import click

from millstream.cli.banner import banner
from millstream.cli.command import command
from millstream.server.facts import ServerFacts
from millstream.server.options.serve_config import DURABILITIES, Given, ServeConfig, given

DEFAULTS = ServeConfig()
FILE = click.Path(path_type=Path)


@command(
    "millstream serve",
    "millstream serve --data-dir /var/lib/millstream --host 0.0.0.0 -c server.conf",
)
@click.option(
    "-c",
    "--config",
    type=FILE,
    help="Configuration file in nats-server's form; SIGHUP reads it again.",
)
@click.option("--host", help=f"Address for NATS clients.  [default: {DEFAULTS.host}]")
@click.option(
    "-p",
    "--port",
    type=int,
    help=f"Port for NATS; 0 picks a free port.  [default: {DEFAULTS.port}]",
)
@click.option("--http-host", help=f"Address for HTTP clients.  [default: {DEFAULTS.http_host}]")
@click.option(
    "--http-port",
    type=int,
    help=f"Port for HTTP; 0 picks a free port.  [default: {DEFAULTS.http_port}]",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    callback=lambda context, parameter, given: given or None,
    help="Host name that a proxy uses for HTTP on this machine; repeatable.",
)
@click.option(
    "--http-durability",
    type=click.Choice(DURABILITIES),
    help="What acks of topics made over HTTP promise, unless they say it.  [default: disk]",
)
@click.option(
    "--data-dir", type=FILE, help=f"Directory for all data.  [default: ./{DEFAULTS.data_dir}]"
)
@click.option("--server-name", help="Name of the server.  [default: its id]")
@click.option(
    "--max-payload", type=int, help=f"Largest message, in bytes.  [default: {DEFAULTS.max_payload}]"
)
@click.option(
    "--ports-file-dir", type=FILE, help="Write a file with the ports in use into this directory."
)
@click.option("--segment-max-events", type=int, help="Seal a segment after this many records.")
@click.option("--segment-max-bytes", type=int, help="Seal a segment after this many bytes.")
@click.option("--segment-max-age-ms", type=int, help="Seal a segment at this age.")
@click.option("--wal-shards", type=int, help="Number of write-ahead logs.  [default: 1]")
@click.option("--log-format", help="text, or json: one object a line.  [default: text]")
@click.option("--mask-file", help="File of rules that mask messages in the dashboard.")
@click.option("--cold", help="Place for old segments: a directory, or a URL such as s3://bucket.")
@click.option(
    "--hot-segments", type=int, help="Sealed segments of a stream that stay in the data directory."
)
@click.option("--hot-bytes", type=int, help="Bytes of sealed segments of a stream that stay there.")
@click.option(
    "--fleet", help="Object store that members of a fleet share: s3://bucket/prefix, file:///dir."
)
@click.option("--pid-file", type=FILE, help="Write the process id to this file.")
@click.option(
    "--allow-insecure-no-auth",
    is_flag=True,
    default=None,
    help="Let other machines connect without credentials.",
)
def serve(config: Path | None, **flags: Given) -> int:
    """Run the server until you interrupt it.

    You can also set each option in the environment: --http-port is MILLSTREAM_HTTP_PORT.
    Flags win over the environment, and both win over the configuration file.
    """
    from millstream.server.command_line.serve_options import load_serve

    values = given(flags, os.environ)
    load = partial(load_serve, values, str(config or ""), os.environ)
    loaded = load()
    for text in (*loaded.warnings, *loaded.notes):
        click.echo(f"warning: {text}", err=True)
    # Imported here so that a mistake in the options is answered at once.
    from millstream.server.server import run

    return run(loaded.options, _announce, load)


def _announce(facts: ServerFacts) -> None:
    click.echo(banner(facts, os.environ.get("MILLSTREAM_COMMAND", "millstream")))
