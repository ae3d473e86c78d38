"""``millstream scrub``: check a data directory and its cold history, and mend the latter."""

from pathlib import Path

import click
import msgspec

from millstream.cli.command import command
from millstream.cli.directory.key_files import key_file_option, sealing_ring
from millstream.cli.directory.watched_files import WatchedFiles, size_of
from millstream.cli.shown.progress import ProgressLine
from millstream.store.cold.options import ColdOptions
from millstream.store.upkeep.scrub import Scrubbed, scrub_directory


@command("millstream scrub ./millstream-data --cold s3://bucket/history")
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--cold", "place", default="", help="Place of the cold history: a directory or a URL."
)
@key_file_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def scrub(directory: Path, place: str, key_file: tuple[str, ...], as_json: bool) -> int:
    """Read every record of DIRECTORY and every object of its cold history.

    Rebuilds a damaged object of the cold history from the others: a segment from its Parquet twin,
    the twin from the segment, the index from the one in DIRECTORY. Only reports damage in DIRECTORY
    itself: use `millstream repair` for that. Exits with 0 when everything is sound now, 3
    when damage is left or records are lost, 4 when the directory or the cold place cannot be used.
    Stop the server first; a running one scrubs in the background.
    """
    cold = ColdOptions(place=place)
    with ProgressLine("checking", size_of(directory), in_bytes=True) as line:
        files = WatchedFiles(line)
        report = scrub_directory(str(directory.resolve()), files, sealing_ring(key_file), cold)
    if as_json:
        click.echo(msgspec.json.encode(report.plain()))
    else:
        _print(report)
    return report.status


def _print(report: Scrubbed) -> None:
    for line in report.findings:
        click.echo(line)
    for name in report.mended:
        click.echo(f"mended {name}")
    for lost in report.lost:
        click.echo(f"lost log={lost.log_id} seq={lost.first}-{lost.last} reason={lost.reason}")
    if report.error:
        click.echo(f"unusable: {report.error}")
        return
    verdict = "damaged" if report.status else "sound"
    click.echo(
        f"{verdict}: {report.logs} logs, {report.records} records, "
        f"{report.cold_segments} cold segments"
    )
