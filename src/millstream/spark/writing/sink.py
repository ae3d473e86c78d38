"""``df.write`` and ``df.writeStream`` with ``format("millstream")``: a batch is there once, or not.

Every task stages its rows at the server under a name of its own; the driver's commit names what
the tasks that counted have staged, and the server appends that in one step and notes the batch. A
task that ran twice, a commit that was sent twice or a query that starts again from its checkpoint
leaves nothing twice, whatever the order of the rows.
"""

import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from xxhash import xxh3_64

from millstream.client.errors import ClientError
from millstream.client.streams import Batch, StagedFile
from millstream.spark.options import Delivery, WriteOptions
from millstream.spark.problems import SparkSourceError
from millstream.spark.worker_errors import in_one_line
from millstream.spark.worker_socket import acknowledge
from millstream.spark.writing import publishing
from millstream.spark.writing.entries import Layout, encode, parts_of, without_gaps

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"


class NoBatchId(SparkSourceError):
    """This Spark does not tell its tasks which batch they write."""


@dataclass
class StagedRows(WriterCommitMessage):
    """What one task staged, for the driver's commit; no file where it had no rows."""

    batch: Batch
    partition: int
    file: StagedFile | None
    records: int
    gaps: int = 0  # rows that stand for lost ranges: not written


class _Writer:
    """What both kinds of write do in a task and on the driver."""

    def __init__(self, options: WriteOptions, schema: "StructType") -> None:
        layout = Layout(options.stream, options.subject, tuple(schema.fieldNames()))
        layout.check()
        if options.delivery is Delivery.AT_LEAST_ONCE:
            publishing.check(options)
        self._options = options
        self._layout = layout

    def _stage(self, batch: Batch, iterator: Iterator["pa.RecordBatch"]) -> StagedRows:
        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.taskAttemptId()
        acknowledge()
        rows = _StreamRecords(iterator)
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            sent = publishing.publish(self._options, self._layout, batch, partition, iter(rows))
            return StagedRows(batch, partition, None, sent, rows.gaps)
        name = f"{partition}-{attempt}-{secrets.token_hex(6)}"
        upload = _Upload(self._options, batch, name)
        for one in rows:
            upload.add(encode(parts_of(one, self._layout)), one.num_rows)
        return StagedRows(batch, partition, upload.finish(), upload.records, rows.gaps)

    def _commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = _staged(messages)
        if gaps := sum(one.gaps for one in staged):
            log.warning(
                "rows of lost ranges are not written stream=%s rows=%d", self._options.stream, gaps
            )
        if not staged or self._options.delivery is Delivery.AT_LEAST_ONCE:
            return
        batches = {one.batch for one in staged}
        if len(batches) != 1:
            raise SparkSourceError(f"tasks of one commit wrote different batches: {batches}")
        files = [one.file for one in sorted(staged, key=lambda s: s.partition) if one.file]
        self._options.server.streams().commit(self._options.stream, batches.pop(), files)

    def _abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget what was staged; what cannot be told to the server now, it sweeps itself."""
        for one in _staged(messages):
            if one.file is not None:
                try:
                    server = self._options.server.streams()
                    server.abort(self._options.stream, one.batch, one.file.id)
                except ClientError:
                    return


class BatchWriter(_Writer, DataSourceArrowWriter):
    """``df.write``: the rows of a job are all there at its end, or none is."""

    def __init__(self, options: WriteOptions, schema: "StructType") -> None:
        super().__init__(options, schema)
        named = options.sink_id is not None
        name = options.sink_id or f"job-{secrets.token_hex(12)}"
        self._batch = Batch(name, options.batch_id, once=not named)

    @in_one_line()
    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Stage the rows of one partition."""
        return self._stage(self._of_query(self._batch), iterator)

    def _of_query(self, batch: Batch) -> Batch:
        """Return the batch of ``foreachBatch`` as its query's; elsewhere there is none."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY_ID)
        if batch.once or query is None:
            return batch
        return Batch(batch.sink, batch.batch, query=query)

    @in_one_line()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows of all partitions visible."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget the rows of all partitions."""
        self._abort(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """``df.writeStream``: each micro-batch is there once."""

    @in_one_line()
    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Stage the rows of one partition of a micro-batch."""
        context = TaskContext.get()
        assert context is not None
        batch_id = context.getLocalProperty(BATCH_ID)
        query = context.getLocalProperty(QUERY_ID)
        if batch_id is None or query is None:
            raise NoBatchId(
                f"Spark sets neither {BATCH_ID} nor {QUERY_ID} in its tasks: without them nothing "
                "tells a batch that is written again from a new one"
            )
        named = self._options.sink_id
        batch = Batch(named, int(batch_id), query=query) if named else Batch(query, int(batch_id))
        return self._stage(batch, iterator)

    @in_one_line()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the micro-batch visible, or do nothing if it is."""
        wrong = [one.batch.batch for one in _staged(messages) if one.batch.batch != batchId]
        if wrong:
            raise SparkSourceError(f"tasks wrote batch {wrong[0]}, Spark commits {batchId}")
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Forget the micro-batch."""
        self._abort(messages)


class _StreamRecords:
    """One task's rows without those that stand for lost ranges, which are counted."""

    def __init__(self, rows: Iterator["pa.RecordBatch"]) -> None:
        self._rows = rows
        self.gaps = 0

    def __iter__(self) -> Iterator["pa.RecordBatch"]:
        for batch in self._rows:
            records = without_gaps(batch)
            self.gaps += batch.num_rows - records.num_rows
            yield records


class _Upload:
    """One task's entries on their way: collected to parts, counted and summed up."""

    def __init__(self, options: WriteOptions, batch: Batch, name: str) -> None:
        self._stream = options.stream
        self._server = options.server.streams()
        self._batch = batch
        self._name = name
        self._part = self._server.part_bytes
        self._waiting = bytearray()
        self._sent = 0
        self._check = xxh3_64()
        self.records = 0

    def add(self, entries: "pa.Buffer", records: int) -> None:
        self._waiting += entries
        self._check.update(entries)
        self.records += records
        while len(self._waiting) >= self._part:
            self._send(self._part)

    def finish(self) -> StagedFile | None:
        if self._waiting:
            self._send(len(self._waiting))
        if not self._sent:
            return None
        return StagedFile(self._name, self._sent, self._check.hexdigest())

    def _send(self, size: int) -> None:
        data = bytes(self._waiting[:size])
        del self._waiting[:size]
        self._server.stage(self._stream, self._batch, self._name, self._sent, data)
        self._sent += size


def _staged(messages: list[WriterCommitMessage | None]) -> list[StagedRows]:
    """Return what tasks told; a task that failed told nothing."""
    return [one for one in messages if isinstance(one, StagedRows)]
