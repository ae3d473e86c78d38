"""``server reload``, ``drain`` and ``stop``: orders to a server of this machine."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from millstream.cli.access.options import force_option, json_option
from millstream.cli.command import command
from millstream.cli.shown.output import sure, tell

PID_FILE = "millstream.pid"
PATIENCE = 120.0  # seconds for a server to stop


def process_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which process is meant."""
    for option in (
        click.option("--pid", type=int, help="Process id."),
        click.option("--pid-file", type=click.Path(path_type=Path), help="File with the id."),
        click.option(
            "--data-dir",
            type=click.Path(path_type=Path),
            envvar="MILLSTREAM_DATA_DIR",
            default=Path("millstream-data"),
            show_default=True,
            help="The server's directory, which has its pid file.",
        ),
    ):
        function = option(function)
    return function


def found(pid: int | None, pid_file: Path | None, data_dir: Path) -> int:
    """Return the process that is meant, and that it is there."""
    file = pid_file or data_dir / PID_FILE
    if pid is None:
        try:
            pid = int(file.read_text())
        except FileNotFoundError:
            raise click.ClickException(
                f"{file} is not there: does a server use this directory? Name it with --data-dir, "
                "or its process with --pid"
            ) from None
        except ValueError:
            raise click.ClickException(f"{file} holds no process id") from None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        raise click.ClickException(f"no process {pid}: that server does not run any more") from None
    except PermissionError:
        raise click.ClickException(f"process {pid} belongs to another user") from None
    return pid


@command("millstream server reload", "millstream server reload --data-dir /var/lib/millstream")
@process_options
@json_option
def reload(pid: int | None, pid_file: Path | None, data_dir: Path, as_json: bool) -> None:
    """Let a server of this machine read its configuration, users and certificates again.

    Its log says what it took over.
    """
    process = found(pid, pid_file, data_dir)
    os.kill(process, signal.SIGHUP)
    tell({"pid": process, "order": "reload"}, as_json, f"told process {process} to reload")


@command("millstream server drain --force")
@process_options
@force_option
@json_option
def drain(
    pid: int | None, pid_file: Path | None, data_dir: Path, force: bool, as_json: bool
) -> None:
    """Let the clients of a server go to others, little by little; it stops then."""
    process = found(pid, pid_file, data_dir)
    sure(f"Drain and stop the server with process {process}?", force)
    os.kill(process, signal.SIGUSR2)
    tell({"pid": process, "order": "drain"}, as_json, f"told process {process} to drain and stop")


@command("millstream server stop --force")
@process_options
@force_option
@json_option
def stop(
    pid: int | None, pid_file: Path | None, data_dir: Path, force: bool, as_json: bool
) -> None:
    """Stop a server of this machine, and wait until it has."""
    process = found(pid, pid_file, data_dir)
    sure(f"Stop the server with process {process}?", force)
    os.kill(process, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while _runs(process):
        if time.monotonic() > deadline:
            raise click.ClickException(f"process {process} still runs after {PATIENCE:g} s")
        time.sleep(0.05)
    tell({"pid": process, "order": "stop"}, as_json, f"process {process} has stopped")


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
