"""What ``millstream nats-server`` does, without the library that reads other commands' options."""

import logging
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from millstream.server.command_line.flags import Flags, parse_flags
from millstream.server.options.config_error import ConfigError

if TYPE_CHECKING:
    from socket import socket

    from millstream.server.facts import ServerFacts
    from millstream.server.options.loaded import Loaded
    from millstream.server.options.options import Options
    from millstream.server.process.log_output import LogOutput

log = logging.getLogger("nats-server")
WAL = "wal"  # in a data directory that was used before


def run_nats_server(arguments: Sequence[str]) -> int:
    """Serve as the nats-server command would; -h lists its flags."""
    try:
        return _follow(parse_flags(arguments))
    except ConfigError as error:
        print(f"nats-server: {error}", file=sys.stderr)
        return 1


def _follow(flags: Flags) -> int:
    from millstream.cli.nats_server_help import HELP, TLS_HELP
    from millstream.wire.info import NATS_VERSION

    if flags.on("version"):
        print(f"nats-server: v{NATS_VERSION}")
    elif flags.on("help"):
        print(HELP)
    elif flags.on("help_tls"):
        print(TLS_HELP)
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
    print(
        f"nats-server: configuration file {file} is valid ({loaded.options.config_digest})",
        file=sys.stderr,
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
    from millstream.server.options.addresses import is_loopback
    from millstream.server.options.unsupported import without_effect
    from millstream.wire.info import NATS_VERSION

    options = loaded.options
    ready = _opened_early(options)
    log.info("Starting nats-server")
    log.info("  Version:  %s", NATS_VERSION)
    if options.config_file:
        log.info("Using configuration file: %s (%s)", options.config_file, options.config_digest)
    for text in (*loaded.warnings, *loaded.notes, *without_effect(options)):
        log.warning("%s", text)
    if not options.credentials and not is_loopback(options.host):
        log.warning("Anyone who can reach %s may read and write: no credentials", options.host)
    again = partial(load, flags, os.environ) if options.config_file else None
    from millstream.server.server import run  # most of what a start imports

    code = run(options, _announce, again, output, ready)
    log.info("Server Exiting..")
    return code


def _opened_early(options: "Options") -> "list[socket]":
    """Listen before the rest is imported: who connects meanwhile waits a moment for INFO.

    Launchers try a few times within some tenths of a second. A directory with records is recovered
    first, which may take longer than a client should wait.
    """
    from millstream.listener import opened
    from millstream.server.start_failures import listening

    if options.fleet is not None:  # another member may serve: clients go there, and do not wait
        return []
    if options.jetstream is not None and (options.jetstream.directory / WAL).exists():
        return []
    with listening(options, "nats", options.host, options.port):
        return opened(options.host, options.port)


def _announce(facts: "ServerFacts") -> None:
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
