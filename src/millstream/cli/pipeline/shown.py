"""How a running pipeline looks: bars on a terminal, a line of JSON per batch otherwise."""

import sys
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from millstream.pipelines.progress import Done, Progress, as_json

if TYPE_CHECKING:
    from rich.progress import TaskID


def show(events: Iterator[Progress | Done], *, as_lines: bool) -> int:
    """Print what happens until it ends; returns how many rows there were."""
    rows = 0
    if as_lines:
        for event in events:
            click.echo(as_json(event))
            rows += event.rows if isinstance(event, Done) else 0
        return rows
    finished: list[Done] = []
    with Bars() as bars:
        for event in events:
            bars.take(event)
            if isinstance(event, Done):
                finished.append(event)
    print_summary(finished)
    return sum(done.rows for done in finished)


def print_summary(finished: Sequence[Done]) -> None:
    """Say what each sink took and gave; of a quarantine, what it gave is what was bad."""
    if not finished:
        return
    rows = [
        [done.sink, f"{done.rows:,}", _count(done.rows_out), f"{done.late:,}", done.batches]
        for done in finished
    ]
    print_table("done", ["sink", "rows in", "rows out", "late", "batches"], rows)


def _count(rows: int | None) -> str:
    return "?" if rows is None else f"{rows:,}"


def wants_lines(as_json_lines: bool) -> bool:
    """Return whether to print JSON: asked for, or nobody is watching."""
    return as_json_lines or not sys.stdout.isatty()


class Bars:
    """A bar for each sink: how much of what was there is taken."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._bars = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>9,.0f} rows/s  lag {task.fields[lag]:,}"),
        )
        self._tasks: dict[str, tuple[TaskID, int]] = {}  # sink → bar and rows so far

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def take(self, event: Progress | Done) -> None:
        """Move the bar of the sink that the event is about."""
        if event.sink not in self._tasks:
            bar = self._bars.add_task(event.sink, total=None, rate=0.0, lag=0)
            self._tasks[event.sink] = (bar, 0)
        bar, rows = self._tasks[event.sink]
        if isinstance(event, Done):
            self._bars.update(bar, completed=event.rows, total=max(event.rows, 1), lag=0)
            return
        rows += event.rows
        self._tasks[event.sink] = (bar, rows)
        self._bars.update(
            bar,
            completed=rows,
            total=rows + event.lag,
            rate=event.rows_per_second,
            lag=event.lag,
        )


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows below each other, as wide as they are."""
    texts = [[str(value) for value in row] for row in rows]
    lines = [list(columns), *texts]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    click.echo(f"\n{title}")
    for line in lines:
        cells = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        click.echo("  " + "  ".join(cells).rstrip())
