"""``millstream dump``: print what the files of a data directory hold."""

from pathlib import Path

import click
import msgspec

from millstream.cli.command import command
from millstream.cli.directory.key_files import key_file_option, key_ring
from millstream.store.disk.files import OsFiles
from millstream.store.upkeep.dump import dump_directory


@command("millstream dump ./millstream-data --json")
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@key_file_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def dump(directory: Path, key_file: tuple[str, ...], as_json: bool) -> None:
    """Print WAL entries, frames, segments and snapshots of DIRECTORY, without payloads."""
    for item in dump_directory(str(directory.resolve()), OsFiles(), key_ring(key_file)):
        if as_json:
            click.echo(msgspec.json.encode(item))
        else:
            rest = " ".join(f"{k}={v}" for k, v in item.items() if k != "kind" and v is not None)
            click.echo(f"{item['kind']:<9} {rest}")
