"""``millstream nats-server``: stands in for the nats-server command, with its flags and files."""

import click

from millstream.cli.command import command
from millstream.cli.nats_server_run import run_nats_server


@command(
    "millstream nats-server -c server.conf",
    "millstream nats-server -p 4222 -js -sd ./data",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
    name="nats-server",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def nats_server(arguments: tuple[str, ...]) -> int:
    """Serve as the nats-server command would; -h lists its flags."""
    return run_nats_server(arguments)
