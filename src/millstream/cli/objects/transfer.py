"""``object put`` and ``get``: files on their way."""

import sys
from pathlib import Path

import click

from millstream.cli.access.options import connected, force_option, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.objects.object_store import ObjectStore
from millstream.cli.shown import figures
from millstream.cli.shown.output import sure, tell
from millstream.cli.shown.progress import ProgressLine


@command(
    "millstream object put FILES ./logo.png",
    "tar c data | millstream object put FILES - --name data.tar",
)
@click.argument("store")
@click.argument("file", type=click.Path(allow_dash=True, exists=True, dir_okay=False))
@click.option("--name", help="Name of the object.  [default: that of the file]")
@click.option("--description", default="", help="What the object is.")
@force_option
@connected
@json_option
def put(
    store: str,
    file: str,
    name: str | None,
    description: str,
    force: bool,
    access: ServerAccess,
    as_json: bool,
) -> None:
    """Store FILE, or standard input for -, in STORE; it replaces one of the same name."""
    if file == "-" and not name:
        raise click.UsageError("standard input has no name: give one with --name")
    named = name or file
    with access.jetstream() as js:
        known = ObjectStore(js, store)
        known.info()
        if known.find(named) is not None and sys.stdin.isatty():
            sure(f"Replace {named} of {store}?", force)
        total = None if file == "-" else Path(file).stat().st_size
        with (
            click.open_file(file, "rb") as source,
            ProgressLine(f"storing {named}", total, in_bytes=True) as progress,
        ):
            about = known.put(named, source, description, progress.add)
    size = figures.size(about["size"])
    tell(about, as_json, f"stored {named} in {store}: {size} in {about['chunks']} parts")


@command(
    "millstream object get FILES ./logo.png",
    "millstream object get FILES data.tar -O - | tar x",
)
@click.argument("store")
@click.argument("name")
@click.option("-O", "--output", help="Where to write it; - for standard output.")
@force_option
@connected
@json_option
def get(
    store: str, name: str, output: str | None, force: bool, access: ServerAccess, as_json: bool
) -> None:
    """Fetch the object NAME of STORE into a file of that name, or into --output."""
    target = output or Path(name).name
    with access.jetstream() as js:
        known = ObjectStore(js, store)
        about = known.must_find(name)
        if target == "-":
            known.get(about, sys.stdout.buffer, lambda size: None)
            sys.stdout.buffer.flush()
            return
        if Path(target).exists():
            sure(f"Replace the file {target}?", force)
        partial = Path(f"{target}.part")
        with (
            partial.open("wb") as out,
            ProgressLine(f"fetching {name}", about["size"], in_bytes=True) as progress,
        ):
            known.get(about, out, progress.add)
        partial.replace(target)
    tell({**about, "file": target}, as_json, f"wrote {target}: {figures.size(about['size'])}")
