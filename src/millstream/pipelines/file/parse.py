"""A document becomes a pipeline, or a problem with its line: all that needs no Spark is checked."""

import re
from collections.abc import Mapping
from pathlib import Path

from millstream.pipelines.file.document import Document
from millstream.pipelines.file.parse_sinks import parse_sinks
from millstream.pipelines.file.parse_sources import parse_sources
from millstream.pipelines.file.parse_steps import parse_steps
from millstream.pipelines.file.section import Section
from millstream.pipelines.file.spans import seconds
from millstream.pipelines.file.spec import (
    SERVER_OPTIONS,
    Mode,
    Pipeline,
    Schedule,
    StreamSink,
    TableSink,
)
from millstream.pipelines.problems import PipelineError
from millstream.spark.options import parse as parse_read
from millstream.spark.problems import OptionError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def parse(document: Document, server: Mapping[str, str] | None = None) -> Pipeline:
    """Return the pipeline that a document describes; ``server`` wins over what it says."""
    top = Section(document, (), document.data)
    settings = {key: value for key in SERVER_OPTIONS if (value := top.optional(key)) is not None}
    _check_server(top, settings, server or {})
    settings |= dict(server or {})
    sources = parse_sources(top, settings)
    steps = parse_steps(top, [source.name for source in sources])
    known = [*(source.name for source in sources), *(step.name for step in steps)]
    pipeline = Pipeline(
        name=_name(top),
        sources=sources,
        steps=steps,
        sinks=parse_sinks(top, known, settings),
        server=settings,
        schedule=_schedule(top),
        checkpoint=_checkpoint(top),
        spark=top.texts("spark"),
        home=document.directory,
    )
    top.done()
    _check_kinds(top, pipeline)
    return pipeline


def _check_server(top: Section, given: Mapping[str, str], told: Mapping[str, str]) -> None:
    """Refuse options of the server at their place; what was ``told`` has none in the file."""
    error = _mistake({**given, **told})
    if error is None:
        return
    if any(_mistake({key: value}) for key, value in told.items()):
        raise PipelineError(error)
    wrong = (key for key, value in given.items() if _mistake({key: value}))
    top.fail(error, next(wrong, "url"))


def _mistake(settings: Mapping[str, str]) -> str | None:
    try:
        parse_read({"stream": "x", **settings})
    except OptionError as error:
        return str(error)
    return None


def _name(top: Section) -> str:
    name = top.optional("name") or Path(top.document.name).stem
    if not _NAME.fullmatch(name):
        top.fail("must be letters, digits, '-', '_' and '.', at most 100", "name")
    return name


def _checkpoint(top: Section) -> str | None:
    given = top.optional("checkpoint")
    if given is None or "://" in given:
        return given
    return str((top.document.directory / given).resolve())


def _schedule(top: Section) -> Schedule:
    given = top.take("run")
    if given is None or given == "once":
        return Schedule()
    if given == "continuous":
        return Schedule(continuous=True)
    if not isinstance(given, dict):
        top.fail(f"must be once, continuous or {{every: 30s}}, not {given!r}", "run")
    below = Section(top.document, (*top.key, "run"), given)
    every = below.interval("every")
    below.done()
    if every is None:
        below.fail("'every' is missing: run: {every: 30s}")
    if not seconds(every):
        below.fail("must be more than nothing; all the time is run: continuous", "every")
    return Schedule(every=every)


def _check_kinds(top: Section, pipeline: Pipeline) -> None:
    """What a pipeline with streams may do differs from what one over tables alone may."""
    if not pipeline.streaming and pipeline.schedule.continuous:
        top.fail("needs a source that goes on; a table is read once, or {every: 1h}", "run")
    for at, sink in enumerate(pipeline.sinks):
        allowed = _modes(sink) if pipeline.streaming else _batch_modes(sink)
        if sink.mode not in allowed:
            kind = "streams" if pipeline.streaming else "tables alone"
            top.document.fail(
                ("sinks", at, "mode"),
                f"{sink.mode} does not go with this sink over {kind}: {' or '.join(allowed)}",
            )


def _modes(sink: StreamSink | TableSink) -> tuple[Mode, ...]:
    if isinstance(sink, StreamSink):
        return (Mode.APPEND, Mode.UPDATE)
    if sink.format == "jdbc":
        return (Mode.APPEND, Mode.UPDATE)
    return (Mode.APPEND, Mode.COMPLETE)


def _batch_modes(sink: StreamSink | TableSink) -> tuple[Mode, ...]:
    return (Mode.APPEND,) if isinstance(sink, StreamSink) else (Mode.APPEND, Mode.OVERWRITE)
