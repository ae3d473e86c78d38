"""The ``millstream`` command: how it begins, and how it reports a failure.

Little is imported here: launchers wait for ``nats-server``, which needs no tree of commands.
"""

import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

DEBUG = "MILLSTREAM_DEBUG"
KERNEL = "millstream.kernel."
NO_KERNEL = (
    "this command needs the compiled kernel, and this installation has none. The kernel needs "
    "Linux, gcc and Python's headers (Debian: apt-get install gcc python3-dev); with those, "
    "install millstream again"
)
GARBAGE = 50_000  # new objects before the first look for garbage: most commands end before it
NATS_SERVER = "nats-server"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    gc.disable()  # nothing that is imported becomes garbage; a server looks for it once it serves
    code = run(sys.argv[1:] if arguments is None else arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _left_alone()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; a failure is one line, never a traceback."""
    try:
        if arguments and arguments[0] == NATS_SERVER:
            from millstream.cli.nats_server_run import run_nats_server

            return run_nats_server(arguments[1:])
        return _run_command(arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return _left_alone()
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        print(f"millstream: {_explain(error)}", file=sys.stderr)
        return 1


def _run_command(arguments: Sequence[str]) -> int:
    """Run a command of the tree."""
    import click

    from millstream.cli.commands import cli

    if not gc.isenabled():
        gc.set_threshold(GARBAGE, *gc.get_threshold()[1:])
        gc.enable()
    try:
        result = cli.main(list(arguments), prog_name="millstream", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except click.Abort:
        return 130


def _show(error: "click.ClickException") -> None:
    """Say what is wrong; a mistake of the command line comes with how it is used."""
    import click

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
    config = sys.modules.get("millstream.server.options.config_error")
    return config is not None and isinstance(error, config.ConfigError)
