"""What can be known before Spark starts: the server answers, and the streams are there."""

import json
from collections.abc import Mapping
from contextlib import closing
from importlib.util import find_spec
from typing import TYPE_CHECKING

from millstream.client.blocking import connect
from millstream.client.streams import StreamReader
from millstream.client.topics import Topics
from millstream.pipelines.document import near
from millstream.pipelines.problems import MissingPackage, PipelineError
from millstream.pipelines.spec import Pipeline, StreamSource, StreamTarget, TableSink, TableSource
from millstream.spark.options import parse as parse_read

if TYPE_CHECKING:
    from millstream.spark.server import Server


_PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}


def preflight(pipeline: Pipeline) -> None:
    """Check the streams that a pipeline names, and create those that it says how to create."""
    _check_packages(pipeline)
    wanted = [one for one in pipeline.sources if isinstance(one, StreamSource)]
    targets = pipeline.targets()
    if not wanted and not targets:
        return
    server = server_now(pipeline.server)
    with closing(server.streams()) as streams:
        for target in targets:
            if target.create:
                ensure_stream(server, streams, target)
        known = streams.names()
    for source in wanted:
        for name in source.streams.split(","):
            _require(name.strip(), known, f"source {source.name!r}")
    for target in targets:
        _require(target.stream, known, "a sink")


def server_now(options: Mapping[str, str]) -> "Server":
    """Return the server that options name, not waited for: who starts something wants to know."""
    return parse_read({"stream": "x", "patience": "0", **options}).server


def _check_packages(pipeline: Pipeline) -> None:
    for one in (*pipeline.sources, *pipeline.sinks):
        if isinstance(one, TableSource | TableSink) and one.format in _PACKAGES:
            package = _PACKAGES[one.format]
            if find_spec(package) is None:
                raise MissingPackage(package, f"{one.name!r}, a table of format {one.format},")


def ensure_stream(server: "Server", streams: StreamReader, target: StreamTarget) -> None:
    """Create a stream that takes the target's subjects, unless there is one of its name."""
    if target.stream in streams.names():
        return
    if server.url.startswith(("http://", "https://")):
        with Topics(server.url, server.login.token or "") as topics:
            topics.topic(target.stream).put()
        return
    config = {"name": target.stream, "subjects": list(target.create)}
    client = connect(server.url, name="millstream pipeline", login=server.login)
    with client:
        subject = f"$JS.API.STREAM.CREATE.{target.stream}"
        answer = json.loads(client.request(subject, json.dumps(config).encode()).payload)
    if "error" in answer:
        raise PipelineError(f"cannot create {target.stream}: {answer['error']['description']}")


def _require(name: str, known: list[str], who: str) -> None:
    if "*" in name or name in known:
        return
    create = "" if who.startswith("source") else "; or let the sink 'create' it with its subjects"
    there = near(name, known) if known else "the server has none"
    raise PipelineError(f"{who}: no stream is named {name!r}; {there}{create}")
