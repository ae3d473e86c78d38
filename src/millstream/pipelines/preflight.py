"""What can be known before Spark starts: the server answers, and the streams are there."""

import json
import re
from collections.abc import Mapping
from contextlib import closing
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import quote

from millstream.client.blocking import connect
from millstream.client.streams import StreamReader
from millstream.client.topics import Topics
from millstream.pipelines.file.document import near
from millstream.pipelines.file.spec import (
    SERVER_OPTIONS,
    Pipeline,
    StreamSink,
    StreamSource,
    StreamTarget,
    TableSink,
    TableSource,
)
from millstream.pipelines.problems import MissingPackage, PipelineError
from millstream.pipelines.tables.parquet_table import local_path
from millstream.pipelines.tables.tables import iceberg_catalog, is_delta
from millstream.spark.options import parse as parse_read

if TYPE_CHECKING:
    from millstream.spark.server import Server


MOST_SAMPLED = 5  # streams that a pattern stands for
_NATS_NAME = re.compile(r"[^\s.*>/\\]+")
_PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}


def preflight(pipeline: Pipeline, *, local: bool = True) -> None:
    """Check the streams that a pipeline names, and create those that it says how to create.

    All is looked at before anything is created, each at the server that the source or sink names.
    Tables in directories are looked for where Spark is ``local``: elsewhere they are others'.
    """
    _check_packages(pipeline)
    sources = [one for one in pipeline.sources if isinstance(one, StreamSource)]
    read = [(server_now({**pipeline.server, **_server(one.options)}), one) for one in sources]
    written = _targets(pipeline)
    there: dict[Server, list[str]] = {}
    for server in dict.fromkeys([*(one for one, _ in read), *(one for one, _ in written)]):
        with closing(server.streams()) as streams:
            there[server] = streams.names()
    to_be = {(server, target.stream) for server, target in written if target.create}
    for server, source in read:
        for name in (part.strip() for part in source.streams.split(",")):
            if (server, name) not in to_be:
                _require_source(name, there[server], source.name, pipeline.schedule.once)
    for server, target in written:
        if (server, target.stream) not in to_be:
            _require(target.stream, there[server], "a sink")
    for one in (*pipeline.sources, *pipeline.sinks):
        if isinstance(one, TableSource | TableSink) and one.format == "iceberg":
            _check_iceberg(one)
        elif isinstance(one, TableSource) and local:
            _check_table(one)
    for server, target in written:
        if target.create:
            with closing(server.streams()) as streams:
                ensure_stream(server, streams, target)


def sampled_fields(pipeline: Pipeline, source: StreamSource) -> list[str]:
    """Return the fields that the JSON of a source's newest records has."""
    from millstream.spark.reading.partitions import stream_names
    from millstream.spark.reading.sample import sample

    given = {"stream": source.streams, "patience": "0", **pipeline.server, **source.options}
    asked = parse_read(given)
    with closing(asked.server.streams()):
        samples = [sample(asked, name) for name in stream_names(asked)[:MOST_SAMPLED]]
    return list(dict.fromkeys(name for one in samples for name in one.fields))


def _targets(pipeline: Pipeline) -> "list[tuple[Server, StreamTarget]]":
    """Return each stream that is written, with the server that has it."""
    found = []
    for sink in pipeline.sinks:
        if isinstance(sink, StreamSink):
            options = {**pipeline.server, **_server(sink.options)}
            found.append((server_now(options), sink.target))
    sources = (one for one in pipeline.sources if isinstance(one, StreamSource))
    bad = (one.quarantine for one in sources if one.quarantine is not None)
    return found + [(server_now(pipeline.server), target) for target in bad]


def _server(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that say which server it is, and as whom."""
    known = {name.lower() for name in SERVER_OPTIONS}
    return {name: value for name, value in options.items() if name.lower() in known}


def server_now(options: Mapping[str, str]) -> "Server":
    """Return the server that options name, not waited for: who starts something wants to know."""
    return parse_read({"stream": "x", "patience": "0", **options}).server


def _check_packages(pipeline: Pipeline) -> None:
    for one in (*pipeline.sources, *pipeline.sinks):
        if isinstance(one, TableSource | TableSink) and one.format in _PACKAGES:
            package = _PACKAGES[one.format]
            if find_spec(package) is None:
                raise MissingPackage(package, f"{one.name!r}, a table of format {one.format},")


def _check_table(source: TableSource) -> None:
    path = local_path(source.place)
    if path is None or any(letter in source.place for letter in "*?[{"):  # Spark takes patterns
        return
    if not path.exists():
        raise PipelineError(f"source {source.name!r}: there is no table at {path}")
    if (source.format == "delta") != is_delta(source.place):
        kind = "no Delta table" if source.format == "delta" else "a Delta table: read it as delta"
        raise PipelineError(f"source {source.name!r}: {path} is {kind}")


def _check_iceberg(one: TableSource | TableSink) -> None:
    """Open the catalog, which needs no Spark; a table to be read has to be there."""
    try:
        catalog = iceberg_catalog(one.catalog)
        there = isinstance(one, TableSink) or catalog.table_exists(one.place)
    except Exception as error:  # whatever the library raises: its words are what there is
        text = str(error).strip().split("\n")[0]
        raise PipelineError(f"{one.name!r}: the Iceberg catalog does not open: {text}") from error
    if not there:
        raise PipelineError(f"source {one.name!r}: the catalog has no table {one.place}")


def ensure_stream(server: "Server", streams: StreamReader, target: StreamTarget) -> None:
    """Create a stream that takes the target's subjects, unless there is one of its name."""
    if target.stream in streams.names():
        return
    if server.url.startswith(("http://", "https://")):
        with _topics(server) as topics:
            topics.topic(target.stream).put(subjects=list(target.create))
        return
    if not _NATS_NAME.fullmatch(target.stream):
        raise PipelineError(
            f"cannot create {target.stream!r}: the name of a stream may not contain "
            "blanks, dots, slashes, * or >"
        )
    config = {"name": target.stream, "subjects": list(target.create)}
    client = connect(server.url, name="millstream pipeline", login=server.login)
    with client:
        subject = f"$JS.API.STREAM.CREATE.{target.stream}"
        answer = json.loads(client.request(subject, json.dumps(config).encode()).payload)
    if "error" in answer:
        raise PipelineError(f"cannot create {target.stream}: {answer['error']['description']}")


def _topics(server: "Server") -> Topics:
    """Return the server's HTTP API, asked as the server's login says."""
    login, url = server.login, server.url
    if login.user is not None and "@" not in url:
        pair = f"{quote(login.user, safe='')}:{quote(login.password or '', safe='')}@"
        url = url.replace("://", f"://{pair}", 1)
    tls = login.tls() if url.startswith("https://") else None
    return Topics(url, login.token or "", timeout=server.timeout, tls=tls)


def _require_source(name: str, known: list[str], source: str, once: bool) -> None:
    """A pattern has to fit something too, unless the pipeline goes on and streams may come."""
    if "*" not in name:
        _require(name, known, f"source {source!r}")
    elif once and not any(fnmatchcase(one, name) for one in known):
        there = f"there are {', '.join(known[:20])}" if known else "the server has none"
        raise PipelineError(f"source {source!r}: no stream matches {name!r}; {there}")


def _require(name: str, known: list[str], who: str) -> None:
    if name in known:
        return
    create = (
        "" if who.startswith("source") else "; make it first, or in a file let the sink 'create' it"
    )
    there = near(name, known) if known else "the server has none"
    raise PipelineError(f"{who}: no stream is named {name!r}; {there}{create}")
