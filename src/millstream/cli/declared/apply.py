"""``millstream apply``: make a server as a file describes it."""

from pathlib import Path
from typing import Any

import click

from millstream.cli.access.options import json_option, over_both
from millstream.cli.access.server import ServerAccess
from millstream.cli.command import command
from millstream.cli.shown.output import as_text, sure

Json = dict[str, Any]


@command(
    "millstream apply -f server.yaml",
    "millstream apply -f server.yaml --dry-run",
    "millstream apply -f server.yaml --prune --yes",
)
@click.option("-f", "--file", required=True, help="YAML or JSON file; - for standard input.")
@click.option("--prune", is_flag=True, help="Remove what the sections of the file do not name.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    envvar="MILLSTREAM_DATA_DIR",
    default=Path("millstream-data"),
    show_default=True,
    help="The server's directory; only for users.",
)
@over_both
@json_option
def apply(
    file: str,
    prune: bool,
    dry_run: bool,
    yes: bool,
    data_dir: Path,
    access: ServerAccess,
    as_json: bool,
) -> None:
    """Make a server as FILE describes it: streams, consumers, topics, queues, routers, kv, users.

    It shows what it would create, change and remove, then asks. A field that the file does not
    name stays as it is; --prune removes what a section of the file does not name.
    """
    from millstream.cli.declared.carry_out import Hands
    from millstream.cli.declared.document import read_document
    from millstream.cli.declared.live import Live
    from millstream.cli.declared.plan import planned

    wanted = read_document(file)
    with access.jetstream() as js:
        live = Live(js, access)
        known = {name: live.section(name) for name in wanted if name != "users"}
        if "users" in wanted:
            known["users"] = _users(data_dir)
        steps = planned(wanted, known, prune)
        for step in steps:
            click.echo(as_text(step.shown()) if as_json else step.text())
        if not steps:
            click.echo("nothing to do: the server is like that", err=True)
        if dry_run or not steps:
            return
        sure(f"Carry out {len(steps)} steps?", yes)
        hands = Hands(js, access, data_dir)
        for done, step in enumerate(steps):
            try:
                hands.do(step)
            except Exception:
                click.echo(f"stopped: {done} of {len(steps)} steps are done", err=True)
                raise
    click.echo(f"done: {len(steps)} steps", err=True)


def _users(data_dir: Path) -> dict[str, Json]:
    from millstream.server.access.user_file import UserFile

    return {each["user"]: each for each in UserFile(data_dir).read()}
