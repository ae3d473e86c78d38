"""The session that all Spark tests share, and a broker that pipelines run against."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline tests need pyspark")
pytest.importorskip("pyarrow", reason="the pipeline tests need pyarrow")
pytest.importorskip("yaml", reason="the pipeline tests need PyYAML")

from pyspark.sql import SparkSession

from millstream.client.blocking import connect
from millstream.client.streams import ReadPlan, open_streams
from millstream.pipelines.file.document import Document
from millstream.pipelines.file.parse import parse
from millstream.pipelines.preflight import preflight
from millstream.pipelines.progress import Done
from millstream.pipelines.run import run
from support.broker import millstream
from support.peers import Peer
from support.spark_session import spark_session
from support.waiting import until


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The same as in tests/spark: Spark has one session a process, whoever comes first."""
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module")
def broker() -> Iterator[Peer]:
    """A whole server; each test names streams of its own."""
    with millstream(extra=["--segment-max-events", "100"]) as peer:
        yield peer


@dataclass(frozen=True)
class Bench:
    """What a test does with streams and pipelines, in one line each."""

    spark: SparkSession
    broker: Peer
    home: Path

    def create(self, name: str, *subjects: str, **config: Any) -> None:
        with connect(self.broker.url) as client:
            body = json.dumps({"name": name, "subjects": list(subjects), **config}).encode()
            answer = json.loads(client.request(f"$JS.API.STREAM.CREATE.{name}", body).payload)
        assert "error" not in answer, answer

    def publish(self, subject: str, *payloads: Any) -> None:
        with connect(self.broker.url) as client:
            for payload in payloads:
                body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
                answer = json.loads(client.request(subject, body).payload)
                assert "seq" in answer, answer

    def run(self, data: dict[str, Any]) -> dict[str, int]:
        """Run a pipeline to its end; returns the rows that each sink took."""
        return {sink: done.rows for sink, done in self.finished(data).items()}

    def finished(self, data: dict[str, Any]) -> dict[str, Done]:
        """Run a pipeline to its end; returns what each sink says at last."""
        document = Document("test", {"name": "test", **data}, self.home)
        pipeline = parse(document, {"url": self.broker.url})
        preflight(pipeline)
        events = list(run(self.spark, pipeline, self.home))
        return {event.sink: event for event in events if isinstance(event, Done)}

    def sealed(self, stream: str) -> ReadPlan:
        """Return the plan once it names a file; sealing happens behind the publishes."""
        with closing(open_streams(self.broker.url)) as streams:
            until(lambda: streams.plan(stream).segments)
            return streams.plan(stream)

    def checkpoint(self, pipeline: str, sink: str) -> Path:
        """Return where a sink remembers how far it is."""
        (found,) = (self.home / ".millstream" / "checkpoints" / pipeline).glob(f"{sink}-????????")
        return found

    def records(self, stream: str) -> list[Any]:
        reader = self.spark.read.format("millstream").option("url", self.broker.url)
        reader = reader.option("includeHeaders", "true").option("payloadFormat", "binary")
        frame = reader.load(stream).orderBy("seq")
        return list(frame.collect())

    def payloads(self, stream: str) -> list[Any]:
        return [json.loads(bytes(row.payload)) for row in self.records(stream)]

    def parquet(self, path: str, *columns: str) -> list[tuple[Any, ...]]:
        frame = self.spark.read.parquet(str(self.home / path)).select(*columns)
        return sorted(tuple(row) for row in frame.collect())


@pytest.fixture
def bench(spark: SparkSession, broker: Peer, tmp_path: Path) -> Bench:
    return Bench(spark, broker, tmp_path)
