"""The ``millstream`` command: its parts, and how it reports a failure."""

import os
import sys
from collections.abc import Sequence

import click

from millstream import __version__
from millstream.cli.lazy import LazyGroup

DEBUG = "MILLSTREAM_DEBUG"
KERNEL = "millstream.kernel."
NO_KERNEL = (
    "this command needs the compiled kernel, and this installation has none. The kernel needs "
    "Linux, gcc and Python's headers (Debian: apt-get install gcc python3-dev); with those, "
    "install millstream again"
)

cli = LazyGroup(
    purpose="A durable message broker: one log for NATS clients, HTTP and Spark.",
    places={
        "serve": ("millstream.cli.serve:serve", "Run the server."),
        "pub": ("millstream.cli.messages.pub:pub", "Publish a message, or one per line of input."),
        "sub": ("millstream.cli.messages.sub:sub", "Print messages as they arrive."),
        "request": (
            "millstream.cli.messages.request:request",
            "Send a request and print the answer.",
        ),
        "reply": ("millstream.cli.messages.reply:reply", "Answer requests."),
        "bench": ("millstream.cli.messages.bench:bench", "Measure a NATS server."),
        "work": ("millstream.cli.work:work", "Run a command for each job of a queue."),
        "dlq": ("millstream.cli.dlq:dlq", "List dead letters, and send them back."),
        "consumer": (
            "millstream.cli.consumer:consumer",
            "Say why a consumer delivers, or does not.",
        ),
        "key": ("millstream.cli.key:key", "Create, list and revoke API keys for HTTP."),
        "pipeline": ("millstream.cli.pipeline.command:pipeline", "Transform streams with Spark."),
        "nats-server": (
            "millstream.cli.nats_server:nats_server",
            "Run as the nats-server command does.",
        ),
        "fsck": ("millstream.cli.directory.fsck:fsck", "Check a data directory; changes nothing."),
        "scrub": (
            "millstream.cli.directory.scrub:scrub",
            "Check a data directory; mends its cold history.",
        ),
        "repair": (
            "millstream.cli.directory.repair:repair",
            "Repair a damaged data directory.",
        ),
        "dump": (
            "millstream.cli.directory.dump:dump",
            "Print what the files of a data directory hold.",
        ),
        "backup": (
            "millstream.cli.directory.backup:backup",
            "Back up a data directory, also while in use.",
        ),
        "restore": (
            "millstream.cli.directory.backup:restore",
            "Restore a backup, to any moment.",
        ),
        "version": ("millstream.cli.version:version", "Print the version."),
    },
)
click.version_option(__version__, message="%(prog)s %(version)s")(cli)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; a failure is one line, never a traceback."""
    try:
        result = cli.main(list(arguments), prog_name="millstream", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 130
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        click.echo(f"millstream: {_explain(error)}", err=True)
        return 1


def _explain(error: Exception) -> str:
    if _is_meant_for_people(error):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith(KERNEL):
        return NO_KERNEL
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error} (set {DEBUG}=1 to see where)"


def _is_meant_for_people(error: Exception) -> bool:
    # Imported here: a command that succeeds never pays for the classes of its failures.
    from millstream.client.errors import ClientError
    from millstream.errors import MillstreamError
    from millstream.server.options.serve_config import ConfigError

    return isinstance(error, ClientError | MillstreamError | ConfigError)
