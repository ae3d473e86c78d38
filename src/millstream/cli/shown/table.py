"""Tables and lists of facts, plain enough for a pipe and clear on a terminal."""

from collections.abc import Iterable, Sequence

import click

GAP = "   "


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows below their headings; columns of numbers stand to the right."""
    kept = [list(row) for row in rows]
    numeric = [
        bool(kept) and all(isinstance(row[at], int | float) for row in kept)
        for at in range(len(headings))
    ]
    texts = [[_cell(value) for value in row] for row in kept]
    widths = [max(len(row[at]) for row in [list(headings), *texts]) for at in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        placed = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        return GAP.join(placed).rstrip()

    return "\n".join([click.style(line(headings), bold=True), *map(line, texts)])


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def facts(title: str, pairs: Iterable[tuple[str, object]]) -> str:
    """Return a title with what is known below it; what is None or empty is left out."""
    known = [(name, _cell(value)) for name, value in pairs if value not in (None, "", [])]
    width = max((len(name) for name, _ in known), default=0)
    lines = [f"  {name.rjust(width)}  {text}" for name, text in known]
    return "\n".join([click.style(title, bold=True), *lines])
