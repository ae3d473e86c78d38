"""The ``sources`` of a pipeline file."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NoReturn

from millstream.pipelines.file.document import Key, near
from millstream.pipelines.file.expectation import ddl_names, unknown_columns
from millstream.pipelines.file.section import Section, checked
from millstream.pipelines.file.spec import (
    DEFAULT_MAX_RECORDS,
    Source,
    StreamSource,
    StreamTarget,
    TableSource,
    Watermark,
)
from millstream.spark.options import check_streaming
from millstream.spark.options import parse as parse_read
from millstream.spark.problems import OptionError

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KINDS = ("stream", "topic", "parquet", "delta", "iceberg", "csv")
_FILES = ("csv", "json")  # files of rows whose columns the pipeline may name
_PLACE = re.compile(r"file:|[a-z][a-z0-9+.-]*://")


def parse_sources(top: Section, server: Mapping[str, str]) -> tuple[Source, ...]:
    """Return the sources in the order of the file."""
    sources = tuple(_source(name, section, server) for name, section in top.named("sources"))
    names: dict[str, str] = {}
    for source in sources:
        other = names.setdefault(source.name.lower(), source.name)
        if other != source.name:
            _same_name(top, ("sources", source.name), source.name, other)
    if not sources:
        top.fail("names nothing to read: sources: {orders: {stream: ORDERS}}", "sources")
    return sources


def _same_name(top: Section, key: Key, name: str, other: str) -> NoReturn:
    top.document.fail(key, f"{name!r} and {other!r} are one name in SQL: name one otherwise")


def _source(name: str, section: Section, server: Mapping[str, str]) -> Source:
    if not IDENTIFIER.fullmatch(name):
        section.fail("a name is letters, digits and '_', as SQL uses it")
    # `json` names the fields of a stream's payload; alone it is a file.
    alone = isinstance(section.take("json"), str) and not any(k in section for k in _KINDS)
    kind = "json" if alone else section.one_of(*_KINDS)
    source = (
        _stream(name, kind, section, server)
        if kind in ("stream", "topic")
        else _table(name, kind, section)
    )
    section.done()
    return source


def _stream(name: str, kind: str, section: Section, server: Mapping[str, str]) -> StreamSource:
    streams = ",".join(section.names(kind))
    options = section.texts("options")
    snapshot = section.truth("snapshot")
    if not snapshot and "maxrecordspertrigger" not in {key.lower() for key in options}:
        options = {**options, "maxRecordsPerTrigger": str(DEFAULT_MAX_RECORDS)}
    given = {**server, **options, "stream": streams}
    checked(section, "options", lambda: _check_options(given, snapshot))
    source = StreamSource(
        name=name,
        streams=streams,
        options=options,
        json=_fields(section, "json"),
        expect=section.optional("expect"),
        quarantine=stream_target(section, "quarantine"),
        watermark=watermark(section),
        snapshot=snapshot,
    )
    columns = [name.partition(":")[0] for name in parse_read(given).table_columns()]
    _check_expectation(section, source, columns)
    if source.quarantine and not (source.json or source.expect):
        section.fail("says where bad records go; say what a good one is: json, expect", "json")
    if source.quarantine and parse_read(given).subject is None:
        _check_quarantine(section, source, source.quarantine.stream)
    if (source.json or source.expect) and "columns" in {key.lower() for key in options}:
        section.fail(
            "columns cannot be chosen where records are judged by json or expect", "options"
        )
    return source


def _check_options(given: Mapping[str, str], snapshot: bool) -> None:
    options = parse_read(given)
    if snapshot:
        return
    try:
        check_streaming(options)
    except OptionError as error:
        raise OptionError(f"{error}: with snapshot: true the source is read so") from error


def _check_quarantine(section: Section, source: StreamSource, target: str) -> None:
    """Refuse to put bad records where they are read, and found to be bad, again."""
    if any(fnmatchcase(target, name.strip()) for name in source.streams.split(",")):
        section.fail(f"{target!r} is read by this source: name another stream", "quarantine")


def _check_expectation(section: Section, source: StreamSource, columns: Sequence[str]) -> None:
    """Refuse a condition about a column that there is not, as far as that is seen without Spark."""
    fields = ddl_names(source.json) if source.json is not None else []
    if source.expect is None or fields is None:
        return
    known = [*fields, *(n for n in columns if n != "payload" or source.json is None)]
    for name in unknown_columns(source.expect, known):
        section.fail(f"there is no column {name!r}; {near(name, known)}", "expect")


def _fields(section: Section, key: str) -> str | None:
    """Return fields and their types as DDL; a file may also list them one by one."""
    if isinstance(section.take(key), dict):
        fields = section.texts(key)
        for field in fields:
            if not IDENTIFIER.fullmatch(field):
                section.fail(f"field {field!r}: a name is letters, digits and '_'", key)
        return ", ".join(f"{field} {kind}" for field, kind in fields.items())
    return section.optional(key)


def stream_target(section: Section, name: str) -> StreamTarget | None:
    """Return a stream to write to: its name, or a mapping with ``subject`` and ``create``."""
    given = section.take(name)
    if given is None:
        return None
    if not isinstance(given, dict):
        return StreamTarget(section.text(name))
    below = Section(section.document, (*section.key, name), given)
    target = StreamTarget(below.text("stream"), below.optional("subject"), below.names("create"))
    below.done()
    return target


def _table(name: str, kind: str, section: Section) -> TableSource:
    catalog = section.texts("catalog") if kind == "iceberg" else {}
    if kind not in _FILES:
        return TableSource(name, kind, place(section, kind), catalog)
    schema, options = _fields(section, "schema"), section.texts("options")
    return TableSource(name, kind, place(section, kind), catalog, schema, options)


def place(section: Section, kind: str) -> str:
    """Return where a table is: a path beside the file, or a url or table name as it is."""
    given = section.text(kind)
    if kind == "iceberg" and "." not in given:
        section.fail(f"must be namespace.table, not {given!r}", kind)
    if kind in ("iceberg", "jdbc") or _PLACE.match(given):
        return given
    return str((section.document.directory / given).resolve())


def watermark(section: Section) -> Watermark | None:
    """Return ``watermark: {column: at, delay: 10m}``."""
    below = section.section("watermark")
    if below is None:
        return None
    column, delay = below.text("column"), below.interval("delay")
    below.done()
    if delay is None:
        below.fail("'delay' is missing: how late a row may come, such as 10m")
    return Watermark(column, delay)
