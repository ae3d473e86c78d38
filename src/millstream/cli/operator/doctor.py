"""``millstream doctor``: is this machine, this configuration, this directory fit to serve?"""

import os
import platform
import resource
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from millstream.cli.access.options import json_option
from millstream.cli.command import command
from millstream.cli.shown import figures
from millstream.cli.shown.output import as_text

FINE, WARNING, BAD = "ok", "warning", "bad"
Finding = tuple[str, str, str, str]  # verdict, what was looked at, what was found, what to do
LITTLE_ROOM = 2 << 30
FEW_FILES = 4096
SLOW_SYNC = 0.05


@command(
    "millstream doctor", "millstream doctor --data-dir /var/lib/millstream -c server.conf --json"
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    envvar="MILLSTREAM_DATA_DIR",
    default=Path("millstream-data"),
    show_default=True,
    help="The server's directory.",
)
@click.option("-c", "--config", type=click.Path(path_type=Path), help="Configuration to check.")
@json_option
def doctor(data_dir: Path, config: Path | None, as_json: bool) -> int:
    """Look at machine, configuration and data directory, and explain what is not as it should be.

    Changes nothing. Exits with 0, or with 1 when something is bad.
    """
    worst = 0
    for verdict, what, found, fix in _findings(data_dir, config):
        worst = max(worst, int(verdict == BAD))
        if as_json:
            told = {"verdict": verdict, "check": what, "found": found, "fix": fix}
            click.echo(as_text(told))
        else:
            mark = {FINE: click.style("ok  ", fg="green"), BAD: click.style("BAD ", fg="red")}
            advice = f"\n        → {fix}" if fix else ""
            click.echo(
                f"{mark.get(verdict, click.style('warn', fg='yellow'))}  {what}: {found}{advice}"
            )
    return worst


def _findings(data_dir: Path, config: Path | None) -> Iterator[Finding]:
    looks: list[Callable[[], Finding]] = [_system, _python, _kernel, _files, _clock, _java]
    looks += [lambda: _config(data_dir, config), lambda: _directory(data_dir)]
    looks += [lambda: _room(data_dir), lambda: _sync(data_dir), lambda: _ports(data_dir)]
    for look in looks:
        yield look()


def _system() -> Finding:
    found = f"{platform.system()} {platform.release()}, {os.cpu_count()} processors"
    if platform.system() != "Linux":
        return BAD, "system", found, "the server runs on Linux; client, CLI and Spark run anywhere"
    return FINE, "system", found, ""


def _python() -> Finding:
    return FINE, "python", f"{platform.python_version()} at {sys.executable}", ""


def _kernel() -> Finding:
    try:
        from millstream.kernel import _hub
    except ImportError as error:
        return BAD, "kernel", f"not compiled: {error}", "install gcc and run `make build`"
    return FINE, "kernel", f"compiled, {Path(_hub.__file__ or '').name}", ""


def _files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < FEW_FILES:
        fix = "raise it with `ulimit -Hn 65536` or LimitNOFILE= of the service"
        return WARNING, "open files", f"at most {hard:,}", fix
    return FINE, "open files", f"{soft:,}, at most {hard:,} (the server takes all)", ""


def _clock() -> Finding:
    if time.time() < 1_700_000_000:
        return BAD, "clock", "it is before 2023", "set the clock: ages and times depend on it"
    return FINE, "clock", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()), ""


def _java() -> Finding:
    if shutil.which("java") is None:
        return FINE, "java", "not there; only Spark needs it (17 or newer)", ""
    return FINE, "java", str(shutil.which("java")), ""


def _config(data_dir: Path, config: Path | None) -> Finding:
    from millstream.server.command_line.serve_options import load_serve
    from millstream.server.options.config_error import ConfigError

    what = f"configuration {config}" if config else "configuration"
    try:
        loaded = load_serve({"data_dir": data_dir}, str(config or ""), os.environ)
    except ConfigError as error:
        return BAD, what, str(error), "correct it; the server would not start"
    told = (*loaded.warnings, *loaded.notes)
    if told:
        return WARNING, what, "; ".join(told), ""
    asked = "clients must say who they are" if loaded.options.credentials else "nobody is asked"
    return FINE, what, f"{'sound' if config else 'the defaults'}; {asked}", ""


def _directory(data_dir: Path) -> Finding:
    what = f"directory {data_dir}"
    if not data_dir.exists():
        return FINE, what, "not there yet; the first start creates it", ""
    if not os.access(data_dir, os.R_OK | os.W_OK | os.X_OK):
        return BAD, what, "this user may not read and write it", f"chown or chmod {data_dir}"
    mode = data_dir.stat().st_mode & 0o077
    if mode:
        return (
            WARNING,
            what,
            f"other users may look into it (mode {mode:o})",
            f"chmod 700 {data_dir}",
        )
    return FINE, what, f"{_running(data_dir)}", ""


def _running(data_dir: Path) -> str:
    try:
        process = int((data_dir / "millstream.pid").read_text())
        os.kill(process, 0)
    except (OSError, ValueError):
        return "no server uses it; `millstream fsck` reads every record"
    return f"process {process} serves it"


def _room(data_dir: Path) -> Finding:
    place = data_dir if data_dir.exists() else data_dir.absolute().parent
    while not place.exists():
        place = place.parent
    usage = shutil.disk_usage(place)
    found = f"{figures.size(usage.free)} free of {figures.size(usage.total)}"
    if usage.free < LITTLE_ROOM:
        return WARNING, "disk", found, "a full disk refuses writes: make room"
    return FINE, "disk", found, ""


def _sync(data_dir: Path) -> Finding:
    """Measure how long a small write takes to be safe, where the records will be."""
    place = data_dir if data_dir.exists() else data_dir.absolute().parent
    probe = place / f".doctor-{os.getpid()}"
    taken = []
    try:
        with probe.open("wb", buffering=0) as file:
            for _ in range(10):
                began = time.perf_counter()
                file.write(bytes(4096))
                os.fdatasync(file.fileno())
                taken.append(time.perf_counter() - began)
    except OSError as error:
        return BAD, "sync", f"{error.strerror}", f"{place} must be writable"
    finally:
        probe.unlink(missing_ok=True)
    median = sorted(taken)[len(taken) // 2]
    found = f"{median * 1000:.2f} ms for a small write; every ack waits for one"
    if median > SLOW_SYNC:
        return WARNING, "sync", found, "use a faster disk, or publish many messages at a time"
    return FINE, "sync", found, ""


def _ports(data_dir: Path) -> Finding:
    taken = []
    for port in (4222, 8222):
        with socket.socket() as probe:
            probe.settimeout(0.5)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                taken.append(str(port))
    if not taken:
        return FINE, "ports", "4222 and 8222 are free", ""
    if "serves it" in _running(data_dir):
        return FINE, "ports", f"{' and '.join(taken)} answer", ""
    fix = "stop what listens there, or serve with --port and --http-port"
    return WARNING, "ports", f"{' and '.join(taken)} are taken by another program", fix
