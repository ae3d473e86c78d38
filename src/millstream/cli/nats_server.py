"""``millstream nats-server``: stands in for the nats-server command, with its flags and files."""

import logging
import os
from functools import partial
from typing import TYPE_CHECKING

import click

from millstream.cli.command import command
from millstream.cli.nats_server_help import HELP, TLS_HELP
from millstream.server.command_line.flags import Flags, parse_flags
from millstream.server.facts import ServerFacts
from millstream.server.options.serve_config import ConfigError, is_loopback
from millstream.wire.info import NATS_VERSION

if TYPE_CHECKING:
    from millstream.server.options.loaded import Loaded
    from millstream.server.process.log_output import LogOutput

log = logging.getLogger("nats-server")


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
    try:
        return _follow(parse_flags(arguments))
    except ConfigError as error:
        click.echo(f"nats-server: {error}", err=True)
        return 1


def _follow(flags: Flags) -> int:
    if flags.on("version"):
        click.echo(f"nats-server: v{NATS_VERSION}")
    elif flags.on("help"):
        click.echo(HELP)
    elif flags.on("help_tls"):
        click.echo(TLS_HELP)
    elif flags.text("signal"):
        from millstream.server.process.process_signal import send

        send(flags.text("signal"))
    elif flags.on("check"):
        return _check(flags)
    else:
        return _serve(flags)
    return 0


def _check(flags: Flags) -> int:
    """Say whether the file could be served from; doubtful spellings count as mistakes here."""
    from millstream.server.command_line.options_file import load

    file = flags.text("config")
    if not file:
        raise ConfigError("must specify [-c, --config] option to check configuration file syntax")
    loaded = load(flags, os.environ)
    if loaded.warnings:
        raise ConfigError("\n".join(loaded.warnings))
    click.echo(
        f"nats-server: configuration file {file} is valid ({loaded.options.config_digest})",
        err=True,
    )
    return 0


def _serve(flags: Flags) -> int:
    from millstream.server.command_line.options_file import load
    from millstream.server.process.log_output import LogOutput, level

    loaded = load(flags, os.environ)
    try:
        output = LogOutput(loaded.options.log)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error
    logging.root.addHandler(output)
    logging.root.setLevel(level(loaded.options.log))
    try:
        return _run(loaded, flags, output)
    finally:
        logging.root.removeHandler(output)
        output.close()


def _run(loaded: "Loaded", flags: Flags, output: "LogOutput") -> int:
    from millstream.server.command_line.options_file import load
    from millstream.server.options.unsupported import without_effect
    from millstream.server.server import run

    options = loaded.options
    log.info("Starting nats-server")
    log.info("  Version:  %s", NATS_VERSION)
    if options.config_file:
        log.info("Using configuration file: %s (%s)", options.config_file, options.config_digest)
    for text in (*loaded.warnings, *loaded.notes, *without_effect(options)):
        log.warning("%s", text)
    if not options.credentials and not is_loopback(options.host):
        log.warning("Anyone who can reach %s may read and write: no credentials", options.host)
    again = partial(load, flags, os.environ) if options.config_file else None
    code = run(options, _announce, again, output)
    log.info("Server Exiting..")
    return code


def _announce(facts: ServerFacts) -> None:
    """Log the lines that launchers wait for."""
    log.info("  Name:     %s", facts.server_name)
    log.info("  ID:       %s", facts.server_id)
    if facts.http_url is not None:
        scheme, _, address = facts.http_url.partition("://")
        log.info("Starting %s monitor on %s", scheme, address)
    if facts.durability is not None:
        log.info('  Store Directory: "%s"', facts.data_dir)
    if facts.websocket_url is not None:
        log.info("Listening for websocket clients on %s", facts.websocket_url)
    if facts.proxy_protocol:
        log.info("PROXY protocol enabled for client connections")
    if facts.tls:
        log.info("TLS required for client connections")
    log.info("Listening for client connections on %s", _address(facts.nats_url or ""))
    log.info("Server is ready")


def _address(url: str) -> str:
    return url.partition("://")[2]
