"""Admission: which messages a stream takes in, and as which runs."""

from typing import TYPE_CHECKING

from millstream.clock import Clock
from millstream.delivery.timers import Timer, Timers
from millstream.errors import MillstreamError, RecordTooLarge
from millstream.kernel._batch import Batch
from millstream.store.log.log import Note
from millstream.streams.account_quota import AccountRoom
from millstream.streams.config import extras
from millstream.streams.config.config import StreamConfig
from millstream.streams.config.feature_rules import transform_of
from millstream.streams.config.size import counted_size, record_size
from millstream.streams.publishing import counter
from millstream.streams.publishing.atomic_batch import Ahead, BatchPart
from millstream.streams.publishing.atomic_ingest import AtomicIngest
from millstream.streams.publishing.fast_batch import SUFFIX as FAST
from millstream.streams.publishing.fast_ingest import FastIngest
from millstream.streams.publishing.room import StreamRoom
from millstream.streams.publishing.stored_form import (
    MAX_HEADERS,
    add_stored,
    completed,
    headers_too_large,
)
from millstream.streams.reading.contents import Contents
from millstream.streams.refusals import MirrorWritten, StreamFull, StreamSealed
from millstream.streams.writing import preconditions
from millstream.streams.writing.batch_limits import BatchLimits
from millstream.streams.writing.preconditions import PublishRefused
from millstream.streams.writing.run import Demand, Run
from millstream.streams.writing.writes import Writes
from millstream.subjects.transform import SubjectTransform

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.streams.writing.run import OnEnd

_NO_EXTRAS = (b"", b"", b"")


class Admission:
    """Checks what comes in and passes on to ``writes`` what may be stored."""

    def __init__(
        self,
        contents: Contents,
        keeps: "Callable[[bytes], bool]",
        writes: Writes,
        clock: Clock,
        timers: Timers,
        limits: BatchLimits | None = None,
        room: AccountRoom | None = None,
        server_is_full: "Callable[[], bool] | None" = None,
        on_abandoned: "Callable[[bytes, str], None] | None" = None,
    ) -> None:
        """``keeps`` says of which subjects records stay.

        ``on_abandoned`` hears of each atomic batch that is given up: its id, and why.
        """
        limits = limits or BatchLimits()
        self._contents = contents
        self.keeps = keeps
        self._writes = writes
        self._clock = clock
        self._timers = timers
        self._fast = FastIngest(contents.config, self, writes, clock, limits)
        self._idle: Timer | None = None
        self._room = StreamRoom(contents, writes, room, server_is_full)
        self._atomic = AtomicIngest(
            contents, writes, self._room, clock, limits,
            self.count_of, on_abandoned or _nobody_hears,
        )  # fmt: skip
        self._transform: SubjectTransform | None = None
        self._looks_at_each = False
        self.configure(contents.config)

    def configure(self, config: StreamConfig) -> None:
        """Follow what a configuration says about subjects."""
        self._transform = transform_of(config.subject_transform)
        self._looks_at_each = (
            config.sealed or _may_refuse(config) or config.allow_msg_ttl or config.allow_msg_counter
        )
        self._fast.configure(config)
        if not config.allow_atomic:
            self._atomic.batches.clear()

    @property
    def is_idle(self) -> bool:
        """Whether no batch is open."""
        return not len(self._atomic.batches) and not len(self._fast.batches)

    def close(self) -> None:
        """Forget the batches that are open."""
        self._atomic.batches.clear()
        self._fast.batches.clear()
        if self._idle is not None:
            self._idle.cancel()

    # -- whole batches -----------------------------------------------------------------------

    def publish(self, batch: Batch) -> None:
        """Store captured publishes in order; each is answered for itself."""
        if self._transform is not None:
            batch = _rewritten(batch, self._transform, self._writes.acks.refuse)
        if self._is_plain(batch):
            self._writes.append(Run(batch, 0, len(batch)))
        else:
            self._publish_each(batch)

    def admit_whole(self, batch: Batch) -> None:
        """Raise unless all records of a batch may be written here together."""
        config = self._contents.config
        if config.sealed:
            raise StreamSealed()
        if config.mirror is not None:
            raise MirrorWritten()
        if config.allow_msg_counter:
            raise counter.missing()
        self.check_whole(batch)
        if config.discard_new_per_subject and self._room.replacing(batch):
            state = self._contents.log.state()
            raise StreamFull("maximum messages per subject exceeded", config, state)
        self.check_account(batch)

    def check_account(self, batch: Batch) -> None:
        """Raise unless the account may store a batch, and the server has room."""
        if not self._room.is_bounded:
            return
        config, size = self._contents.config, 0
        for at in range(len(batch)):
            subject, _, headers, payload, _ = batch.message(at)
            beside = sum(map(len, batch.extras(at)))
            size += counted_size(config, subject, headers, payload, beside)
        self._room.check_account(size)

    def renamed(self, batch: Batch) -> Batch:
        """Return a batch under the subjects that the stream stores it under."""
        return batch if self._transform is None else _rewritten(batch, self._transform)

    def check_whole(self, batch: Batch) -> None:
        """Raise when a limit turns a batch away."""
        config = self._contents.config
        if config.sealed:
            raise StreamSealed()
        if config.max_msg_size <= 0 and config.discard != "new":
            return
        size = 0
        for at in range(len(batch)):
            subject, _, headers, payload, _ = batch.message(at)
            if 0 < config.max_msg_size < len(headers) + len(payload):
                raise RecordTooLarge()
            size += record_size(config, subject, headers, payload, batch.extras(at)[2])
        if config.discard != "new":
            return
        if 0 < config.max_msgs < len(batch) or 0 < config.max_bytes < size:
            raise RecordTooLarge()  # could never fit, however empty the stream
        coming = len(batch) - self._room.replacing(batch)
        if coming:
            self._room.check_total(coming, size)

    def check_copy(
        self, subject: bytes, headers: bytes, payload: bytes, messages: int, size: int
    ) -> None:
        """Raise when a copy may not follow ``messages`` others, of ``size`` bytes with it."""
        config = self._contents.config
        if config.sealed:
            raise StreamSealed()
        if config.allow_msg_counter:
            raise PublishRefused(400, 10169, "message counter increment is missing")
        if 0 < config.max_msg_size < len(headers) + len(payload):
            raise RecordTooLarge()
        own = record_size(config, subject, headers, payload)
        if self._room.is_bounded:
            self._room.check_account(
                counted_size(config, subject, headers, payload), before=size - own
            )
        if config.discard != "new":
            return
        if 0 < config.max_bytes < own:
            raise RecordTooLarge()  # could never fit, however empty the stream
        self._room.check_message(subject, messages + 1, size)

    def deposited(self, batch: Batch, note: Note, on_end: "OnEnd") -> Run:
        """Return a deposit as one run, without records whose message id is known."""
        if self._transform is not None:
            batch = _rewritten(batch, self._transform)
        self.admit_whole(batch)
        if not batch.any_headers or b"\nNats-" not in batch.buffer:
            return _noted(Run(batch, 0, len(batch), on_end), note)
        kept, ahead = Batch(), Ahead(self._writes)
        run = _noted(Run(kept, 0, 0, on_end), note)
        for at in range(len(batch)):
            subject, _, headers, payload, _ = batch.message(at)
            part = BatchPart(
                subject, headers, payload, extras.first_values(headers) if headers else {}
            )
            if not self._is_new(part, ahead):
                continue
            kept.add(subject, b"", headers, payload, *batch.extras(at))
            run.demands.append(Demand.of(run.count, part.values))
            run.count += 1
        return run

    def _is_new(self, part: BatchPart, ahead: Ahead) -> bool:
        """Whether a record is none that was stored before, or comes twice in one batch."""
        config, window = self._contents.config, self._writes.window
        try:
            preconditions.check(
                config, part.subject, part.values, ahead, window, self._clock.time_ns()
            )
            ahead.add(part.subject, part.values.get(preconditions.MSG_ID, b""))
        except preconditions.Duplicate:
            return False
        return True

    # -- message by message ------------------------------------------------------------------

    def _is_plain(self, batch: Batch) -> bool:
        """Whether no message of the batch needs a look of its own."""
        if self._looks_at_each or batch.any_oversized:
            return False
        if 0 < self._contents.config.max_msg_size < batch.size or batch.replies_end_with(FAST):
            return False
        if batch.any_headers and _has_demands(batch):
            return False
        room = self._room  # most have no limit, and are not asked
        if room.account.is_bounded or room.server_is_full is not None:
            return room.takes_whole(batch)
        return True

    def _publish_each(self, batch: Batch) -> None:
        """Look at each message; neighbours that are stored as they are make one run."""
        for at in range(len(batch)):
            _, reply, headers, payload, _ = message = batch.message(at)
            if reply.endswith(FAST):
                self._fast.take(batch, at)
                continue
            self._fast.flush()
            special = bool(headers) and extras.is_special(headers)
            if not special and self.needs_no_look(headers, payload):
                self._writes.join(batch, at, 1)
            else:
                self._publish_special(batch, at, *message[:4])
        self._fast.flush()
        self._writes.stage_joined()
        self._watch_idle()

    def needs_no_look(self, headers: bytes, payload: bytes) -> bool:
        """Whether a message without demands can join the run before it."""
        config = self._contents.config
        if config.sealed or _may_refuse(config) or config.allow_msg_counter:
            return False
        if len(headers) > MAX_HEADERS or self._room.is_bounded:
            return False
        return not 0 < config.max_msg_size < len(headers) + len(payload)

    def _publish_special(
        self, batch: Batch, at: int, subject: bytes, reply: bytes, headers: bytes, payload: bytes
    ) -> None:
        """Store one message that carries demands, or that a limit may turn away."""
        given = headers
        headers = extras.as_published(headers)
        values = _demands(headers)
        acks = self._writes.acks
        if preconditions.BATCH_ID in values:
            self._atomic.take(reply, BatchPart(subject, headers, payload, values))
            return
        try:
            added = self._check(subject, headers, payload, values)
            if added is None and self._stored_form(headers, dict(values)) == (given, *_NO_EXTRAS):
                demand = Demand.of(0, values) if values else None
                self._writes.join(batch, at, 1, demand)
                return
            run = self._run_of_one(subject, reply, headers, payload, values, added)
        except preconditions.Duplicate as seen:
            acks.duplicate(reply, seen.seq, self._writes.inflight)
            return
        except MillstreamError as error:
            acks.refuse(reply, error)
            return
        self._writes.append(run)

    def prepared(
        self, subject: bytes, headers: bytes, payload: bytes, on_end: "OnEnd | None"
    ) -> Run:
        """Return a message that nobody answers as a run; raises what turns it away."""
        headers = extras.as_published(headers)
        values = _demands(headers)
        added = self._check(subject, headers, payload, values)
        return self._run_of_one(subject, b"", headers, payload, values, added, on_end)

    def _stored_form(
        self, headers: bytes, values: dict[bytes, bytes]
    ) -> tuple[bytes, bytes, bytes, bytes]:
        """Return the headers of a checked message as they are stored, with tag, node and meta."""
        if not headers:
            return b"", *_NO_EXTRAS
        return extras.take_extras(completed(self._contents.config, headers, values))

    def _run_of_one(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes,
        values: dict[bytes, bytes], added: int | None, on_end: "OnEnd | None" = None,
    ) -> Run:  # fmt: skip
        """Return a checked message as a run; ``added`` is what it adds to a counter."""
        suffix = b"}"
        if added is not None:
            count = self.count_of(subject)
            count = count._replace(total=count.total + added)
            headers = count.with_sources(headers)
            payload, suffix = counter.stored(count.total), b',"val":"%d"}' % count.total
        stored, tag, node, meta = self._stored_form(headers, values)
        batch = Batch()
        add_stored(batch, subject, reply, stored, payload, tag, node, meta)
        run = Run(batch, 0, 1, on_end)
        run.demands = [Demand.of(0, values)]
        run.ack_suffix = suffix
        return run

    def knows_id(self, msg_id: bytes) -> bool:
        """Whether the window for duplicates has a message id."""
        return bool(self._writes.window.find(msg_id, self._clock.time_ns()))

    def count_of(self, subject: bytes) -> counter.Count:
        """Return what a counter stands at, staged writes included."""
        for run in reversed(self._writes.inflight):
            for at in reversed(range(run.start, run.start + run.count)):
                staged, _, headers, payload, _ = run.batch.message(at)
                if staged == subject:
                    return counter.count_of(headers, payload)
        last = self._writes.last_of_subject(subject)
        if not last:
            return counter.Count(0, {})
        record = self._contents.get(last)
        return counter.count_of(record.headers, record.payload)

    # -- idle batches ------------------------------------------------------------------------

    def _watch_idle(self) -> None:
        """Look again when the first of the open batches may have been left alone too long."""
        if self._idle is not None:
            return
        waiting = [at for at in (self._atomic.batches.idle_at, self._fast.batches.idle_at) if at]
        if waiting:
            seconds = max(0.0, (min(waiting) - self._clock.time_ns()) / 1e9)
            self._idle = self._timers.after(seconds, self._drop_idle)

    def _drop_idle(self) -> None:
        self._idle = None
        now = self._clock.time_ns()
        self._fast.batches.expire(now)
        self._atomic.expire(now)
        self._watch_idle()

    # -- checks ------------------------------------------------------------------------------

    def _check(
        self, subject: bytes, headers: bytes, payload: bytes, values: dict[bytes, bytes]
    ) -> int | None:
        """Raise unless a message may be stored; returns what it adds to a counter.

        In the reference's order, so that a message with several faults hears of the same one.
        """
        config, window, now = self._contents.config, self._writes.window, self._clock.time_ns()
        if config.sealed:
            raise StreamSealed()
        if 0 < config.max_msg_size < len(headers) + len(payload):
            raise RecordTooLarge()
        if len(headers) > MAX_HEADERS:
            raise headers_too_large()
        added = counter.increment(values, payload, allowed=config.allow_msg_counter)
        preconditions.check(config, subject, values, self._writes, window, now)
        if added is None and config.allow_msg_counter:
            raise counter.missing()
        if not self.keeps(subject):  # it takes its sequence and is gone: it needs no room
            self._room.check_server()
            values.pop(preconditions.TTL, None)
            return added
        size = record_size(config, subject, headers, payload)
        self._room.check_account(size)
        if preconditions.TTL in values:
            preconditions.ttl_seconds(values[preconditions.TTL])
        rolls = values.get(preconditions.ROLLUP, b"").lower() == b"sub"
        self._room.check_message(subject, 1, size, rolls=rolls)
        return added

    @property
    def is_bounded(self) -> bool:
        """Whether each message is to be weighed: the account has a limit, or the server is full."""
        return self._room.is_bounded


def _noted(run: Run, note: Note) -> Run:
    run.note = note
    return run


def _may_refuse(config: StreamConfig) -> bool:
    """Whether a stream that is full turns messages away, and has a limit that can fill it."""
    if config.discard != "new":
        return False
    by_subject = config.discard_new_per_subject and config.max_msgs_per_subject > 0
    return by_subject or config.max_msgs > 0 or config.max_bytes > 0


def _has_demands(batch: Batch) -> bool:
    # One search over the buffer: a payload that looks like a header only costs time.
    buffer = batch.buffer
    return b"\nNats-" in buffer or b"\nMillstream-" in buffer or b"NATS/1.0 " in buffer


def _nobody_hears(_batch_id: bytes, _reason: str) -> None:
    """Tell nobody."""


def _demands(headers: bytes) -> dict[bytes, bytes]:
    """Return what a message's headers ask for; an empty value asks for nothing."""
    if not headers:
        return {}
    return {name: value for name, value in extras.first_values(headers).items() if value}


def _raise(_reply: bytes, error: MillstreamError) -> None:
    raise error


def _rewritten(
    batch: Batch,
    transform: SubjectTransform,
    refuse: "Callable[[bytes, MillstreamError], None]" = _raise,
) -> Batch:
    """Return the batch under the subjects that the transform makes of those that match.

    ``refuse`` is told of messages whose subject becomes longer than a subject can be.
    """
    made = Batch()
    for at in range(len(batch)):
        subject, reply, headers, payload, origin = batch.message(at)
        text = subject.decode("utf-8", "surrogateescape")
        if transform.matches(text):
            subject = transform.apply(text).encode("utf-8", "surrogateescape")
        try:
            made.add(subject, reply, headers, payload, *batch.extras(at), origin=origin)
        except ValueError as error:
            refuse(reply, PublishRefused(400, 10003, str(error)))
    return made
