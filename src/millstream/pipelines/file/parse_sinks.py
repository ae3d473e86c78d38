"""The ``sinks`` of a pipeline file."""

import re
from collections.abc import Mapping

from millstream.pipelines.file.parse_sources import place
from millstream.pipelines.file.section import Section, checked, require
from millstream.pipelines.file.spec import Mode, Sink, StreamSink, StreamTarget, TableSink
from millstream.spark.options import parse_write

_KINDS = ("stream", "topic", "parquet", "delta", "iceberg", "jdbc")
_OTHER = re.compile(r"[^A-Za-z0-9_.-]+")


def parse_sinks(top: Section, known: list[str], server: Mapping[str, str]) -> tuple[Sink, ...]:
    """Return the sinks; their names are unlike, as each has a checkpoint of its own."""
    sinks: list[Sink] = []
    for section in top.sections("sinks"):
        sink = _sink(section, known, server)
        section.done()
        if any(sink.name == other.name for other in sinks):
            section.fail(f"two sinks would be called {sink.name!r}: give one a 'name'")
        sinks.append(sink)
    if not sinks:
        top.fail("names nothing to write: sinks: [{from: orders, parquet: lake/orders}]", "sinks")
    return tuple(sinks)


def _sink(section: Section, known: list[str], server: Mapping[str, str]) -> Sink:
    source = require(section.text("from"), known, section, "from")
    kind = section.one_of(*_KINDS)
    mode = section.choice("mode", Mode, Mode.APPEND)
    options = section.texts("options")
    if kind in ("stream", "topic"):
        return _stream(section, kind, source, mode, options, server)
    where = place(section, kind)
    catalog = section.texts("catalog") if kind == "iceberg" else {}
    parts = section.names("partition_by") if kind in ("parquet", "delta") else ()
    if kind == "jdbc" and "dbtable" not in options:
        section.fail("'dbtable' is missing: the table to write to", "options")
    name = (
        section.optional("name")
        or f"{kind}-{_short(where if kind != 'jdbc' else options['dbtable'])}"
    )
    return TableSink(name, source, kind, where, mode, parts, options, catalog)


def _stream(
    section: Section,
    kind: str,
    source: str,
    mode: Mode,
    options: dict[str, str],
    server: Mapping[str, str],
) -> StreamSink:
    target = StreamTarget(section.text(kind), section.optional("subject"), section.names("create"))
    name = section.optional("name") or f"stream-{_short(target.stream)}"
    given = {**server, **options, "stream": target.stream}
    checked(section, "options", lambda: parse_write(given))
    return StreamSink(name, source, target, mode, options)


def _short(where: str) -> str:
    """Return the last part of a place, as a directory may be called."""
    return _OTHER.sub("-", where.rstrip("/").rsplit("/", 1)[-1])
