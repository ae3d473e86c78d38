"""What every command does with its answer: JSON for programs, words for people."""

import sys
from collections.abc import Iterable, Sequence

import click

from millstream.cli.shown.table import table


def tell(answer: object, as_json: bool, text: str) -> None:
    """Print one answer."""
    click.echo(as_text(answer) if as_json else text)


def tell_rows(
    rows: Sequence[dict[str, object]],
    as_json: bool,
    headings: Sequence[str],
    cells: Iterable[Sequence[object]],
    nothing: str,
) -> None:
    """Print a list: one JSON object a line, a table, or what to say where it is empty."""
    if as_json:
        for row in rows:
            click.echo(as_text(row))
    elif rows:
        click.echo(table(headings, cells))
    else:
        click.echo(nothing)


def as_text(answer: object) -> str:
    """Return an answer as one line of JSON."""
    import json

    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def sure(question: str, force: bool) -> None:
    """Go on where the user agrees, or has done so with ``--force``."""
    if force:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Nobody is here to ask: pass --force to say yes")
    click.confirm(question, abort=True)
