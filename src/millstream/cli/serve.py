"""``millstream serve``: run the server."""

import os
from functools import partial
from pathlib import Path

import click

from millstream.cli.banner import banner
from millstream.server.facts import ServerFacts
from millstream.server.options.serve_config import Given, ServeConfig, given

DEFAULTS = ServeConfig()
FILE = click.Path(path_type=Path)


@click.command()
@click.option("-c", "--config", type=FILE, help="A file in nats-server's form; SIGHUP rereads it.")
@click.option("--host", help=f"Where NATS clients connect.  [default: {DEFAULTS.host}]")
@click.option("-p", "--port", type=int, help=f"0: a free one.  [default: {DEFAULTS.port}]")
@click.option("--http-host", help=f"Where HTTP clients connect.  [default: {DEFAULTS.http_host}]")
@click.option("--http-port", type=int, help=f"0: a free one.  [default: {DEFAULTS.http_port}]")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    callback=lambda context, parameter, given: given or None,
    help="A name by which a proxy calls HTTP on this machine; repeatable.",
)
@click.option("--data-dir", type=FILE, help=f"The records.  [default: ./{DEFAULTS.data_dir}]")
@click.option("--server-name", help="What the server calls itself.  [default: its id]")
@click.option("--max-payload", type=int, help=f"In bytes.  [default: {DEFAULTS.max_payload}]")
@click.option("--ports-file-dir", type=FILE, help="Write the ports taken to a file in here.")
@click.option("--segment-max-events", type=int, help="Seal a segment after so many records.")
@click.option("--segment-max-bytes", type=int, help="Seal a segment after so many bytes.")
@click.option("--segment-max-age-ms", type=int, help="Seal a segment after so long.")
@click.option("--wal-shards", type=int, help="Write-ahead logs side by side.  [default: 1]")
@click.option("--cold", help="Where old segments move to: a directory, or a URL as s3://bucket.")
@click.option("--hot-segments", type=int, help="How many sealed segments a stream keeps here.")
@click.option("--hot-bytes", type=int, help="How many bytes of sealed segments it keeps here.")
@click.option("--pid-file", type=FILE, help="Write the process id here.")
@click.option(
    "--allow-insecure-no-auth",
    is_flag=True,
    default=None,
    help="Listen beyond this machine although nobody is asked for credentials.",
)
def serve(config: Path | None, **flags: Given) -> int:
    """Run the server until it is interrupted.

    Each option can also be set by the environment: --http-port is MILLSTREAM_HTTP_PORT.
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

    return run(loaded.options, _announce, load if config is not None else None)


def _announce(facts: ServerFacts) -> None:
    click.echo(banner(facts, os.environ.get("MILLSTREAM_COMMAND", "millstream")))
