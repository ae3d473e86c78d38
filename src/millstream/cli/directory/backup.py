"""``millstream backup`` and ``millstream restore``."""

import re
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from millstream.backup.moment import Moment, moments
from millstream.backup.restore import restore as restore_files
from millstream.backup.take import prune, take
from millstream.cli.command import command
from millstream.cli.directory.key_files import key_file_option, key_ring
from millstream.cli.directory.watched_files import size_of
from millstream.cli.shown.progress import ProgressLine
from millstream.clock import SystemClock
from millstream.store.disk.files import OsFiles
from millstream.store.disk.objects import open_objects


@command("millstream backup ./millstream-data /mnt/backups --keep 7")
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("target")
@click.option("--keep", type=click.IntRange(min=1), help="Remove all but the newest N backups.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def backup(directory: Path, target: str, keep: int | None, as_json: bool) -> None:
    """Add a backup of the data DIRECTORY to TARGET, a directory or a URL (s3://bucket/prefix).

    The server may run. A backup stores only what earlier backups at the target do not have. One
    backup at a time may use a target.
    """
    place = open_objects(target, OsFiles())
    with ProgressLine("reading", size_of(directory), in_bytes=True) as line:
        taken = take(directory.resolve(), place, SystemClock(), line.add)
    removed = prune(place, keep) if keep else 0
    if as_json:
        shown = {
            "moment": _time(taken.moment.started_ns),
            "files": len(taken.moment.files),
            "read_bytes": taken.read_bytes,
            "stored_bytes": taken.stored_bytes,
            "removed": removed,
        }
        click.echo(msgspec.json.encode(shown))
        return
    click.echo(
        f"backup of {_time(taken.moment.started_ns)}: {len(taken.moment.files)} files, "
        f"{_mib(taken.read_bytes)} read, {_mib(taken.stored_bytes)} stored"
    )
    if removed:
        click.echo(f"removed {removed} older")


@command("millstream restore /mnt/backups ./restored --at 2026-11-16T12:30:00Z")
@click.argument("target")
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@click.option("--at", "moment", help="Restore this moment, such as 2026-11-16T12:30:00Z.")
@key_file_option
@click.option("--list", "only_list", is_flag=True, help="List the backups at TARGET.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def restore(
    target: str,
    directory: Path | None,
    moment: str | None,
    key_file: tuple[str, ...],
    only_list: bool,
    as_json: bool,
) -> None:
    """Restore a backup at TARGET into the new data DIRECTORY.

    Without --at it is the newest backup. With --at every change up to then is in it, which needs a
    backup before that time and one after it, and the key where the directory is encrypted.
    """
    place = open_objects(target, OsFiles())
    if only_list or directory is None:
        _list(moments(place), as_json)
        return
    at_ns = _parsed(moment) if moment else None
    with ProgressLine("restoring", None, in_bytes=True) as line:
        used = restore_files(*(place, directory.resolve(), at_ns, key_ring(key_file)), line.add_of)
    if as_json:
        click.echo(msgspec.json.encode({"directory": str(directory), "moment": used.started_ns}))
        return
    shown = moment or _time(used.started_ns)
    click.echo(f"restored {directory} as of {shown}; try: millstream serve --data-dir {directory}")


def _list(known: list[Moment], as_json: bool) -> None:
    for moment in known:
        size = sum(file.size for file in moment.files)
        if as_json:
            click.echo(msgspec.json.encode({"moment": _time(moment.started_ns), "bytes": size}))
        else:
            click.echo(f"{_time(moment.started_ns)}  {len(moment.files)} files  {_mib(size)}")
    if not known and not as_json:
        click.echo("no backups here")


def _parsed(text: str) -> int:
    """Return nanoseconds: a listed moment is finer than what a datetime holds."""
    found = re.fullmatch(r"(.+:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", text)
    try:
        moment = datetime.fromisoformat(found[1] + found[3]) if found else None
    except ValueError:
        moment = None
    if found is None or moment is None:
        raise click.BadParameter(
            f"{text!r} is no time with its zone, such as 2026-11-16T12:30:00Z", param_hint="--at"
        )
    return int(moment.timestamp()) * 1_000_000_000 + int((found[2] or "").ljust(9, "0"))


def _time(ns: int) -> str:
    moment = datetime.fromtimestamp(ns // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ns % 1_000_000_000:09d}Z"


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
