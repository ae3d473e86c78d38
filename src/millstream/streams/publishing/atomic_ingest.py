"""Atomic ingest: messages that are stored together or not at all, on their way into the stream."""

from collections.abc import Callable

import msgspec

from millstream.clock import Clock
from millstream.errors import MillstreamError, RecordTooLarge
from millstream.kernel._batch import Batch
from millstream.streams.config import extras
from millstream.streams.config.size import record_size
from millstream.streams.publishing import counter
from millstream.streams.publishing.atomic_batch import (
    Abandoned,
    Ahead,
    AtomicBatches,
    BatchPart,
    check_expectations,
    check_rollup,
)
from millstream.streams.publishing.room import StreamRoom
from millstream.streams.publishing.stored_form import (
    MAX_HEADERS,
    add_stored,
    completed,
    headers_too_large,
)
from millstream.streams.reading.contents import Contents
from millstream.streams.refusals import StreamSealed
from millstream.streams.writing import preconditions
from millstream.streams.writing.batch_limits import BatchLimits
from millstream.streams.writing.preconditions import PublishRefused
from millstream.streams.writing.run import Demand, Run
from millstream.streams.writing.writes import Writes


class AtomicIngest:
    """Keeps the messages of atomic batches; the one that commits stores them all.

    ``count_of`` knows what a counter stands at. ``on_abandoned`` hears of each batch that is given
    up: its id, and why.
    """

    def __init__(
        self,
        contents: Contents,
        writes: Writes,
        room: StreamRoom,
        clock: Clock,
        limits: BatchLimits,
        count_of: Callable[[bytes], counter.Count],
        on_abandoned: Callable[[bytes, str], None],
    ) -> None:
        self.batches = AtomicBatches(limits)
        self._contents = contents
        self._writes = writes
        self._room = room
        self._clock = clock
        self._count_of = count_of
        self._on_abandoned = on_abandoned

    def take(self, reply: bytes, part: BatchPart) -> None:
        """Keep a message of an atomic batch; the one that commits stores them all."""
        config, acks = self._contents.config, self._writes.acks
        try:
            if config.sealed:
                raise StreamSealed()
            if 0 < config.max_msg_size < len(part.headers) + len(part.payload):
                raise RecordTooLarge()
            self._room.check_account(record_size(config, part.subject, part.headers, part.payload))
            if not config.allow_atomic:
                raise PublishRefused(400, 10174, "atomic publish is disabled")
            whole = self.batches.take(part, self._clock.time_ns())
            if whole is None:
                acks.send(reply, b"")  # it is kept, and no more than that
                return
            run = self._run_of(whole, reply)
        except Abandoned as error:
            self._on_abandoned(error.batch_id, error.reason)
            acks.refuse(reply, error)
            return
        except MillstreamError as error:
            acks.refuse(reply, error)
            return
        batch_id = msgspec.json.encode(
            part.values[preconditions.BATCH_ID].decode("utf-8", "replace")
        )
        run.ack_suffix = b',"batch":%s,"count":%d}' % (batch_id, len(whole))
        self._writes.append(run)

    def _run_of(self, parts: list[BatchPart], reply: bytes) -> Run:
        """Return a whole atomic batch as one run, each message checked as if it came behind."""
        batch, ahead, size = Batch(), Ahead(self._writes, by_pattern=False), 0
        counts: dict[bytes, counter.Count] = {}
        run = Run(batch, 0, len(parts))
        for at, part in enumerate(parts):
            self._check_part(part, ahead)
            part = self._counted(part, counts)
            headers = completed(self._contents.config, part.headers, part.values)
            stored, tag, node, meta = extras.take_extras(headers)
            size += record_size(self._contents.config, part.subject, stored, part.payload)
            self._room.check_part(part, ahead.count_of(part.subject), at + 1, size)
            answered = reply if at == len(parts) - 1 else b""
            add_stored(batch, part.subject, answered, stored, part.payload, tag, node, meta)
            run.demands.append(Demand.of(at, part.values))
        return run

    def _counted(self, part: BatchPart, counts: dict[bytes, counter.Count]) -> BatchPart:
        """Return a message of a batch with the sum that it makes of its counter."""
        config = self._contents.config
        added = counter.increment(part.values, part.payload, allowed=config.allow_msg_counter)
        if added is None:
            if config.allow_msg_counter:
                raise counter.missing()
            return part
        count = counts.get(part.subject) or self._count_of(part.subject)
        counts[part.subject] = count = count._replace(total=count.total + added)
        headers = count.with_sources(part.headers)
        return part._replace(headers=headers, payload=counter.stored(count.total))

    def _check_part(self, part: BatchPart, ahead: Ahead) -> None:
        if preconditions.EXPECTED_LAST_MSG_ID in part.values:
            raise PublishRefused(
                400, 10177, "atomic publish unsupported header used: Nats-Expected-Last-Msg-Id"
            )
        if len(part.headers) > MAX_HEADERS:
            raise headers_too_large()
        config, window, now = self._contents.config, self._writes.window, self._clock.time_ns()
        try:
            check_expectations(part.values, part.subject, ahead)
            preconditions.check(config, part.subject, part.values, ahead, window, now)
            check_rollup(part.values, part.subject, ahead)
            ahead.add(part.subject, part.values.get(preconditions.MSG_ID, b""))
        except preconditions.Duplicate:
            raise PublishRefused(
                400, 10201, "atomic publish batch contains duplicate message id"
            ) from None

    def expire(self, now_ns: int) -> None:
        """Give up batches that were left alone too long."""
        for batch_id in self.batches.expire(now_ns):
            self._on_abandoned(batch_id, "timeout")
