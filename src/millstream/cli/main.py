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
    within="millstream.cli",
    places={
        "serve": ("serve:serve", "Run the server."),
        "pub": ("messages.pub:pub", "Publish a message, or one per line of input."),
        "sub": ("messages.sub:sub", "Print messages as they arrive."),
        "request": ("messages.request:request", "Send a request and print the answer."),
        "reply": ("messages.reply:reply", "Answer requests."),
        "stream": ("streams.group:stream", "Look at streams; make, change and remove them."),
        "consumer": ("consumers.group:consumer", "Look at consumers, and say why they wait."),
        "kv": ("buckets.group:kv", "Key-value buckets."),
        "object": ("objects.group:object_", "Object stores."),
        "topic": ("topics.group:topic", "Topics of the HTTP API: streams, over HTTP."),
        "queue": ("topics.group:queue", "Job queues."),
        "work": ("work:work", "Run a command for each job of a queue."),
        "dlq": ("dlq:dlq", "List dead letters, and send them back."),
        "router": ("topics.group:router", "Copy records from topic to topic."),
        "reader": ("topics.group:reader", "Positions of Spark queries."),
        "schedule": ("messages.schedule:schedule", "Publish later, or again and again."),
        "pipeline": ("pipeline.command:pipeline", "Transform streams with Spark."),
        "apply": ("declared.apply:apply", "Make a server as a file describes it."),
        "get": ("declared.get:get", "Write what a server has as such a file."),
        "fleet": ("fleet.group:fleet", "Look at servers that share an object store."),
        "server": ("operator.group:server", "Look at a server; check, reload and drain it."),
        "account": ("operator.group:account", "Show what an account uses and may use."),
        "user": ("operator.group:user", "Add and remove users."),
        "key": ("operator.group:key", "Create, list and revoke API keys for HTTP."),
        "context": ("operator.group:context", "Name servers, and choose one."),
        "top": ("operator.top:top", "Watch rates, streams, consumers and connections."),
        "events": ("operator.events:events", "Print what happens on a server."),
        "rtt": ("messages.rtt:rtt", "Measure the way to a server and back."),
        "latency": ("messages.rtt:latency", "Measure the way from publisher to subscriber."),
        "bench": ("bench.group:bench", "Measure a server."),
        "errors": ("operator.errors:errors", "Look an error code up."),
        "doctor": ("operator.doctor:doctor", "Check machine, settings and data directory."),
        "open": ("operator.open:open_", "Open the dashboard in a browser."),
        "nats-server": ("nats_server:nats_server", "Run as the nats-server command does."),
        "fsck": ("directory.fsck:fsck", "Check a data directory; changes nothing."),
        "scrub": ("directory.scrub:scrub", "Check a data directory; mends its cold history."),
        "repair": ("directory.repair:repair", "Repair a damaged data directory."),
        "dump": ("directory.dump:dump", "Print what the files of a data directory hold."),
        "backup": ("directory.backup:backup", "Back up a data directory, also while in use."),
        "restore": ("directory.backup:restore", "Restore a backup, to any moment."),
        "completion": ("operator.completion:completion", "Print the shell's completion script."),
        "man": ("operator.man:man", "Print the manual page."),
        "version": ("version:version", "Print the version."),
    },
)
click.version_option(__version__, message="%(prog)s %(version)s")(cli)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    code = run(sys.argv[1:] if arguments is None else arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _left_alone()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; a failure is one line, never a traceback."""
    try:
        result = cli.main(list(arguments), prog_name="millstream", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:
        return _left_alone()
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        click.echo(f"millstream: {_explain(error)}", err=True)
        return 1


def _show(error: click.ClickException) -> None:
    """Say what is wrong; a mistake of the command line comes with how it is used."""
    if isinstance(error, click.UsageError):
        error.show()
    else:
        click.echo(f"millstream: {error.format_message()}", err=True)


def _left_alone() -> int:
    """Leave as quietly as the reader of our output did."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


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

    if isinstance(error, ClientError | MillstreamError):
        return True
    config = sys.modules.get("millstream.server.options.serve_config")
    return config is not None and isinstance(error, config.ConfigError)
