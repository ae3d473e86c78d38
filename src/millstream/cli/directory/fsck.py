"""``millstream fsck``: check a data directory without changing it."""

from pathlib import Path

import click
import msgspec

from millstream.cli.command import command
from millstream.cli.directory.key_files import key_file_option, key_ring
from millstream.cli.directory.watched_files import WatchedFiles, size_of
from millstream.cli.shown.progress import ProgressLine
from millstream.store.log.log import UNSYNCED
from millstream.store.upkeep.inspect import Report, check_directory


@command("millstream fsck ./millstream-data", "millstream fsck ./millstream-data --json")
@click.argument("directory", type=click.Path(path_type=Path))
@key_file_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def fsck(directory: Path, key_file: tuple[str, ...], as_json: bool) -> int:
    """Read every record in DIRECTORY and report damage; changes nothing.

    Exits with 0 when all is well, 3 when it found damage, 4 when the directory
    cannot be used. Run it while no server uses the directory.
    """
    with ProgressLine("checking", size_of(directory), in_bytes=True) as line:
        report = check_directory(str(directory.resolve()), WatchedFiles(line), key_ring(key_file))
    if as_json:
        click.echo(msgspec.json.encode(report.plain()))
    else:
        _print(report)
    return report.status


def _print(report: Report) -> None:
    if report.error:
        click.echo(f"unusable: {report.error}")
        return
    for line in report.findings:
        click.echo(line)
    for lost in report.lost:
        known = " at most" if lost.reason == UNSYNCED else ""
        known += " recorded" if lost.recorded else ""
        click.echo(
            f"lost log={lost.log_id} seq={lost.first}-{lost.last} reason={lost.reason}{known}"
        )
    verdict = "damaged" if report.status else "clean"
    click.echo(f"{verdict}: {report.logs} logs, {report.records} records")
