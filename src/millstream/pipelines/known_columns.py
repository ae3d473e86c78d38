"""Columns that a pipeline names and nothing has, as far as that is seen without Spark.

The columns of a stream are known, and from there on those of windows, joins and distinct rows. What
SQL and Python make is not, and whatever comes after them is left to Spark.
"""

import csv
from collections.abc import Callable, Iterable

from millstream.pipelines.file.document import near
from millstream.pipelines.file.expectation import ddl_names, unknown_columns
from millstream.pipelines.file.spec import (
    DistinctStep,
    JoinStep,
    Pipeline,
    Step,
    StreamSink,
    StreamSource,
    TableSink,
    TableSource,
    WindowStep,
)
from millstream.pipelines.problems import PipelineError
from millstream.pipelines.tables.parquet_table import local_path
from millstream.spark.columns import shown
from millstream.spark.options import parse as parse_read
from millstream.spark.writing.entries import Layout

Columns = tuple[str, ...]
Fields = Callable[[StreamSource], Iterable[str]]


def check_columns(pipeline: Pipeline, fields_of: Fields = lambda _: ()) -> None:
    """Raise ``PipelineError`` for a column that there is not.

    ``fields_of`` looks into a source's records: a field of their JSON that the source does not name
    is the usual mistake.
    """
    known: dict[str, Columns | None] = {}
    hidden: dict[str, StreamSource] = {}
    for source in pipeline.sources:
        known[source.name] = _source(source) if isinstance(source, StreamSource) else _table(source)
        if isinstance(source, StreamSource):
            hidden[source.name] = source
    for step in pipeline.steps:
        for frame, names in _used(step):
            _require(names, known.get(frame), f"step {step.name!r}", hidden.get(frame), fields_of)
        known[step.name] = _made(step, known)
    for sink in pipeline.sinks:
        who, read = f"sink {sink.name!r}", hidden.get(sink.input)
        _require(_written(sink), known.get(sink.input), who, read, fields_of)


def _source(source: StreamSource) -> Columns | None:
    given = {"stream": "x", "payloadFormat": "binary", **source.options}
    names = tuple(map(shown, parse_read(given).table_columns()))
    if source.json is None:
        return names
    fields = ddl_names(source.json)
    if fields is None:
        return None
    return (*fields, *(name for name in names if name != "payload"))


def _table(source: TableSource) -> Columns | None:
    """Return the columns of files that the pipeline names, or that the first line of a CSV does."""
    if source.schema is not None:
        fields = ddl_names(source.schema)
        return None if fields is None else tuple(fields)
    path = local_path(source.place)
    if source.format != "csv" or source.options or path is None or not path.is_file():
        return None
    with path.open(newline="", encoding="utf-8", errors="replace") as lines:
        return tuple(next(csv.reader(lines), ())) or None


def _used(step: Step) -> list[tuple[str, list[str]]]:
    """Return the columns that a step takes, by the frame that must have them."""
    match step:
        case WindowStep():
            return [(step.input, [step.column, *step.by, *_marked(step)])]
        case JoinStep():
            return [(step.left, list(step.on)), (step.right, list(step.on))]
        case DistinctStep():
            return [(step.input, [*step.keys, *_marked(step)])]
    return []


def _marked(step: WindowStep | DistinctStep) -> list[str]:
    return [] if step.watermark is None else [step.watermark.column]


def _made(step: Step, known: dict[str, Columns | None]) -> Columns | None:
    match step:
        case WindowStep():
            _check_aggregates(step, known.get(step.input))
            return ("window_start", "window_end", *step.by, *step.aggregates)
        case DistinctStep():
            return known.get(step.input)
        case JoinStep():
            left, right = known.get(step.left), known.get(step.right)
            if left is None or right is None:
                return None
            return left if step.how in ("left_semi", "left_anti") else (*left, *right)
    return None


def _check_aggregates(step: WindowStep, there: Columns | None) -> None:
    for name, text in step.aggregates.items() if there is not None else ():
        for wrong in unknown_columns(text, there or ()):
            hint = near(wrong, there or ())
            raise PipelineError(
                f"step {step.name!r}: aggregate {name!r} ({text}): there is no column {wrong!r}; "
                f"{hint}"
            )


def _written(sink: StreamSink | TableSink) -> list[str]:
    if isinstance(sink, TableSink):
        return list(sink.partition_by)
    return Layout(sink.target.stream, sink.target.subject, ()).fields()


def _require(
    names: Iterable[str],
    there: Columns | None,
    who: str,
    source: StreamSource | None,
    fields_of: Fields,
) -> None:
    if there is None:
        return
    lower = {name.lower() for name in there}
    for name in names:
        if name.lower() in lower or "." in name:
            continue
        if source is not None and name in set(fields_of(source)):
            raise PipelineError(
                f"{who}: there is no column {name!r}, but the JSON of {source.streams} has such a "
                f"field: name it in the source, json: {{{name}: …}}"
            )
        raise PipelineError(f"{who}: there is no column {name!r}; {near(name, there)}")
