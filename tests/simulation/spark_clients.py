"""Spark without its JVM: planner, reader and sink are called as its workers would call them."""

import os
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from millstream.client.errors import ClientError, ConnectionLost
from millstream.client.streams import NatsStreams, ReadPlan
from millstream.spark.options import ReadOptions, WriteOptions
from millstream.spark.server import Server
from millstream.spark.source import BatchReader
from millstream.spark.writing.sink import StreamWriter
from simulation.model import Looked, StreamModel
from simulation.nats_clients import NatsClient, as_record
from simulation.world import BrokerEnded, World

SCHEMA = StructType([StructField("subject", StringType()), StructField("payload", StringType())])


class Connection:
    """Stands for the blocking client: a request lets the world go on until it is answered."""

    address = "the simulated broker"
    info = SimpleNamespace(max_payload=2048)  # so that a task sends its rows in several parts

    def __init__(self, client: NatsClient) -> None:
        self._client = client

    def request(self, subject: str, payload: bytes, timeout: float) -> Any:
        try:
            return SimpleNamespace(payload=self._client.ask(subject, payload=payload))
        except BrokerEnded:
            raise ConnectionLost("the broker has ended") from None

    def close(self) -> None:
        pass


class SimulatedStreams(NatsStreams):
    """Requests over the simulated network; segment files are copied from the disk in memory."""

    def __init__(self, world: World, client: NatsClient) -> None:
        super().__init__("nats://simulated", connected=lambda: Connection(client))  # type: ignore[arg-type,return-value]
        self._world = world

    def plan(self, *args: Any, **named: Any) -> ReadPlan:
        """Return the plan, with files where the reader can open them."""
        plan = super().plan(*args, **named)
        changed = [
            type(each)(
                self._copied(each.path), self._copied(each.idx_path),
                each.base_seq, each.last_seq, each.bytes,
            )
            for each in plan.segments
        ]  # fmt: skip
        import msgspec

        return msgspec.structs.replace(plan, segments=changed)

    def _copied(self, path: str) -> str:
        node = self._world.disk.names.get(path)
        copy = os.path.join(self._world.copies(), path.replace("/", "-"))
        if node is not None:
            with open(copy, "wb") as file:
                file.write(node.data)
        return copy


class SimulatedServer(Server):
    """A server that is always reachable: by the world."""

    def __init__(self, streams: NatsStreams) -> None:
        super().__init__("nats://simulated")
        object.__setattr__(self, "_simulated", streams)

    def reach(self) -> None:
        pass

    def streams(self) -> NatsStreams:
        return self._simulated  # type: ignore[attr-defined, no-any-return]


class Spark(NatsClient):
    """Reads whole streams, and writes micro-batches that it repeats until they are committed."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "spark")
        self._server = SimulatedServer(SimulatedStreams(world, self))
        self.sinks: list[StreamModel] = []
        self._batch = 0
        self._rows: list[str] = []  # of the batch that is not committed yet
        self.committed = 0
        self.repeated = 0

    def act(self) -> None:
        """Write a micro-batch, or the last one again."""
        if not self.sinks:
            return
        if not self._rows:
            size = self.world.random.choice((1, 3, 8))
            self._rows = [f"spark-{self._batch}-{row}" for row in range(size)]
            self.sinks[0].batches.append(list(self._rows))
        try:
            self._write(self.sinks[0])
        except ClientError as error:
            self.repeated += 1
            self.world.note("spark", type(error).__name__)
            return
        self.committed += 1
        if self.world.random.random() < 0.8:  # else: the checkpoint did not say so, once more
            self._batch += 1
            self._rows = []

    def _write(self, model: StreamModel) -> None:
        for row in self._rows:
            model.send(row, "out.spark", self.world.life, msg_id="by its batch")
        self.world.note("spark", "batch", self._batch, len(self._rows))
        writer = StreamWriter(WriteOptions(model.name, self._server), SCHEMA)
        half = len(self._rows) // 2
        told = []
        for partition, rows in enumerate((self._rows[:half], self._rows[half:])):
            with_task(partition, self._batch)
            told.append(writer.write(iter([_arrow(rows)])))
        writer.commit(told, self._batch)

    def look(self, stream: str) -> Looked:
        """Read a whole stream, as a batch read with gap rows."""
        options = ReadOptions((stream,), self._server, start_seq=1, fail_on_data_loss=False)
        reader = BatchReader(options, options.table_columns())
        records: dict[int, str] = {}
        lost: set[int] = set()
        last = 0
        for partition in reader.partitions():
            for batch in reader.read(partition):
                for row in batch.to_pylist():
                    if row["gap_from"] is not None:
                        lost |= set(range(row["gap_from"], row["gap_to"] + 1))
                    else:
                        records[row["seq"]] = as_record(row["payload"].encode())
        last = self._server.streams().plan(stream).last_seq
        return Looked("Spark", records, lost - records.keys(), last)


def _arrow(rows: list[str]) -> pa.RecordBatch:
    payloads = [f'"{row}"' for row in rows]
    return pa.RecordBatch.from_pydict({"subject": ["out.spark"] * len(rows), "payload": payloads})


def with_task(partition: int, batch: int) -> None:
    """Have Spark's task context say which task this is."""
    context = TaskContext._getOrCreate()
    context._partitionId = partition
    context._taskAttemptId = partition
    context._localProperties = {
        "streaming.sql.batchId": str(batch),
        "sql.streaming.queryId": "the-query",
    }
