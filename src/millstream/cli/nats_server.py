"""``millstream nats-server``: a stand-in for the nats-server command, with its flags."""

import os
import tempfile
from pathlib import Path

import click

from millstream.server.config import merge
from millstream.server.facts import ServerFacts
from millstream.server.nats_flags import Launch, read_flags

ADVERTISED_VERSION = "2.15.1"


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]},
    name="nats-server",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def nats_server(arguments: tuple[str, ...]) -> int:
    """Serve as the nats-server command would, understanding -p -a -m -n -js -sd -c -P.

    A flag or setting that millstream does not know is refused.
    """
    launch = read_flags(arguments, lambda path: Path(path).read_text())
    if launch.version:
        click.echo(f"nats-server: v{ADVERTISED_VERSION}")
        return 0
    with tempfile.TemporaryDirectory(prefix="millstream-") as scratch:
        return _serve(launch, scratch)


def _serve(launch: Launch, scratch: str) -> int:
    from millstream.server.server import run

    # The defaults of nats-server: open to the network, no monitoring port, no data kept.
    values = {"host": "0.0.0.0", "http_port": 0, "data_dir": scratch, **launch.values}
    config = merge({**values, "allow_insecure_no_auth": True}, {})
    if not config.loopback_only:
        click.echo(f"[WRN] listening on {config.host} without credentials", err=True)
    return run(config, _announce)


def _announce(facts: ServerFacts) -> None:
    """Print the lines that launchers wait for."""
    address = (facts.nats_url or "").removeprefix("nats://")
    click.echo(f"[{os.getpid()}] [INF] Listening for client connections on {address}", err=True)
    click.echo(f"[{os.getpid()}] [INF] Server is ready", err=True)
