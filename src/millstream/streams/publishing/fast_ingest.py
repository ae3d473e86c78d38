"""Fast ingest: what comes in by fast batches, on its way into the stream.

Neighbours that need no look of their own go to the log as one run, straight from the batch that
they came in.
"""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from millstream.clock import Clock
from millstream.errors import MillstreamError, RecordTooLarge
from millstream.kernel._batch import Batch
from millstream.streams.config import extras
from millstream.streams.config.config import StreamConfig
from millstream.streams.publishing.fast_batch import FastBatches, FastMessage, read
from millstream.streams.refusals import StreamSealed
from millstream.streams.writing import preconditions
from millstream.streams.writing.batch_limits import BatchLimits
from millstream.streams.writing.preconditions import PublishRefused
from millstream.streams.writing.run import Run
from millstream.streams.writing.writes import Writes

if TYPE_CHECKING:
    from millstream.streams.writing.run import OnEnd


class Checking(Protocol):
    """What tells which messages may be stored, and how."""

    def needs_no_look(self, headers: bytes, payload: bytes) -> bool:
        """Whether a message can be stored as it is."""
        ...

    def prepared(
        self, subject: bytes, headers: bytes, payload: bytes, on_end: "OnEnd | None"
    ) -> Run:
        """Return a message as a run of its own; raises what turns it away, or Duplicate."""
        ...


class _WaitingBatch(NamedTuple):
    message: FastMessage
    reply: bytes


class FastIngest:
    """Takes messages of fast batches, answers them, and writes what they bring."""

    def __init__(
        self, config: StreamConfig, checks: Checking, writes: Writes, clock: Clock,
        limits: BatchLimits,
    ) -> None:  # fmt: skip
        self.batches = FastBatches(config.name, limits, writes.acks.send)
        self._config = config
        self._checks = checks
        self._writes = writes
        self._clock = clock
        self._run: Run | None = None
        self._waiting: list[_WaitingBatch] = []

    def configure(self, config: StreamConfig) -> None:
        """Follow a configuration; one that allows no fast batches ends those there are."""
        self._config = config
        if not config.allow_batched:
            self.batches.clear()

    def take(self, batch: Batch, at: int) -> None:
        """Take one message; it may wait until ``flush`` for more to go with it."""
        subject, reply, headers, payload, _ = batch.message(at)
        try:
            message = self._admitted(reply, headers, payload)
            if preconditions.LEVEL in headers:
                headers = self._without_level(message, headers)
            if not self.batches.arrived(message, reply, self._clock.time_ns()):
                return
        except MillstreamError as error:
            self._writes.acks.refuse(reply, error)
            return
        if not extras.is_special(headers) and self._checks.needs_no_look(headers, payload):
            self._join(batch, at, _WaitingBatch(message, reply))
        else:
            self._store_alone(_WaitingBatch(message, reply), subject, headers, payload)

    def flush(self) -> None:
        """Write what waits."""
        run, self._run = self._run, None
        if run is not None:
            self._writes.append(run)

    def _admitted(self, reply: bytes, headers: bytes, payload: bytes) -> FastMessage:
        if self._config.sealed:
            raise StreamSealed()
        if 0 < self._config.max_msg_size < len(headers) + len(payload):
            raise RecordTooLarge()
        if not self._config.allow_batched:
            raise PublishRefused(400, 10205, "batch publish is disabled")
        return read(reply)

    def _without_level(self, message: FastMessage, headers: bytes) -> bytes:
        try:
            return preconditions.without_level(headers)
        except MillstreamError:
            self.batches.forget(message.batch_id)
            raise

    def _join(self, batch: Batch, at: int, one: _WaitingBatch) -> None:
        run = self._run
        if run is None or run.batch is not batch or run.start + run.count != at:
            self.flush()
            self._waiting = []
            run = self._run = Run(batch, at, 0, partial(self._on_end, self._waiting))
        run.count += 1
        self._waiting.append(one)
        self.batches.accepted(one.message)

    def _store_alone(
        self, one: _WaitingBatch, subject: bytes, headers: bytes, payload: bytes
    ) -> None:  # fmt: skip
        self.flush()  # what came before is counted in by the checks
        try:
            run = self._checks.prepared(subject, headers, payload, partial(self._on_end, [one]))
        except preconditions.Duplicate as seen:
            self.batches.skipped(one.message, one.reply, seen.seq)
            return
        except MillstreamError as error:
            if self.batches.refused(one.message, one.reply, error):
                self._writes.acks.refuse(one.reply, error)
            return
        self.batches.accepted(one.message)
        self._writes.append(run)

    def _on_end(
        self, waiting: list[_WaitingBatch], run: Run, error: MillstreamError | None
    ) -> None:
        for at, one in enumerate(waiting):
            if error is None:
                self.batches.stored(one.message, one.reply, run.seq_of(at))
            else:
                self.batches.forget(one.message.batch_id)
        if error is not None:
            self._writes.acks.refuse(waiting[-1].reply, error)
