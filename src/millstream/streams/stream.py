"""Stream: a log plus policy. A sink that checks, appends, acknowledges and keeps its limits."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.errors import MillstreamError, RecordNotFound, RecordTooLarge
from millstream.kernel._batch import Batch
from millstream.message import NewRecord, Record
from millstream.store.log import Committed, Log, LogState
from millstream.streams import counter, delete_markers, extras, preconditions, retention
from millstream.streams.atomic_batch import Ahead, AtomicBatches, Part
from millstream.streams.claims import Claim, Claims
from millstream.streams.config import StreamConfig
from millstream.streams.expiry import Expiry
from millstream.streams.feature_rules import transform_of
from millstream.streams.preconditions import DuplicateWindow, PublishRefused
from millstream.streams.pub_acks import PubAcks
from millstream.streams.refusals import OperationDenied, StreamFull, StreamSealed
from millstream.streams.removals import EVERYTHING, Removals
from millstream.streams.republish import Republish
from millstream.streams.run import Demand, Run
from millstream.streams.state import StreamState
from millstream.streams.subject_index import Selection, SubjectIndex
from millstream.subjects.matcher import matcher
from millstream.subjects.subject import has_wildcard
from millstream.subjects.transform import SubjectTransform

if TYPE_CHECKING:
    from millstream.kernel._frames import Frames
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest

log = logging.getLogger(__name__)

BACKLOG_BYTES = 64 * 1024 * 1024  # staged and not yet committed, before publishers are stalled
READ_BYTES = 1024 * 1024
MAX_HEADERS = 65_535


class Feed(Protocol):
    """Something that brings records into a stream by itself."""

    def refresh(self) -> None:
        """Look again for where the records come from."""
        ...

    def stop(self) -> None:
        """Bring nothing any more."""
        ...

    def info(self) -> dict[str, Any]:
        """Return how far it is, as StreamInfo shows it."""
        ...


class _Removal:
    """Records that are on their way out."""

    count = 0


class Stream:
    """One stream of one account; see ``deliver`` for writes from NATS, ``append`` for the rest."""

    def __init__(
        self,
        config: StreamConfig,
        log: Log,
        *,
        created_ns: int,
        clock: Clock,
        timers: Timers,
        hub: "Hub | None" = None,
        interest: "Interest | None" = None,
        account: str = "$G",
    ) -> None:
        self.config = config
        self.account = account
        self.log = log
        self.created_ns = created_ns
        self.index = SubjectIndex(log)
        self._everything = self.index.select(())
        self.removals = Removals()
        self.feeds: Sequence[Feed] = ()
        self._claims = Claims()
        self._clock = clock
        self._hub = hub
        self._interest = interest
        self._handles: list[int] = []
        self._inflight: deque[Run] = deque()
        self._backlog = 0
        self._removing: set[_Removal] = set()  # decided and not yet logged, so not to be counted
        self._paused = False
        self._watchers: dict[object, Callable[[], None]] = {}
        self._batches = AtomicBatches()
        self._window = DuplicateWindow(config.duplicate_window)
        self._last_msg_id = b""
        self._last_staged = log.state().last_seq
        self._expiry = Expiry(self, clock, timers)
        self._acks = PubAcks(config.name, hub, interest)
        self._closed = False
        self._transform = transform_of(config.subject_transform)
        self._republish = Republish.of(config.name, config.republish)
        self._acks.is_silent = config.no_ack
        self._rebuild()

    @property
    def name(self) -> str:
        """Return the stream's name; HTTP calls it the topic's."""
        return self.config.name

    @property
    def incarnation(self) -> int:
        """Return the id that delete and recreate changes."""
        return self.log.log_id

    # -- registration ------------------------------------------------------------------------

    def capture(self) -> None:
        """Register the stream's subjects; called again after they changed."""
        if self._interest is None:
            return
        old, self._handles = self._handles, []
        for handle in old:
            self._interest.remove_sink(handle)
        for subject in self.config.subjects:
            self._handles.append(self._interest.add_sink(subject.encode(), self))

    def reconfigure(self, config: StreamConfig) -> None:
        """Take on a checked configuration; lowered limits act at once."""
        recapture = config.subjects != self.config.subjects
        self.config = config
        self._window.window_ns = config.duplicate_window
        self._acks.is_silent = config.no_ack
        self._transform = transform_of(config.subject_transform)
        self._republish = Republish.of(config.name, config.republish)
        if recapture:
            self.capture()
        self._keep_limits(None)

    def feed_by(self, feeds: Sequence[Feed]) -> None:
        """Be fed by these from now on."""
        old, self.feeds = self.feeds, feeds
        for feed in old:
            feed.stop()
        for feed in feeds:
            feed.refresh()

    @property
    def is_closed(self) -> bool:
        """Whether the stream was deleted, or the server ends."""
        return self._closed

    def close(self) -> None:
        """Stop capturing and forget every deadline; staged writes still answer."""
        self._closed = True
        self.feed_by(())
        for handle in self._handles:
            if self._interest is not None:
                self._interest.remove_sink(handle)
        self._handles = []
        self._expiry.close()
        self._wake()

    # -- writes ------------------------------------------------------------------------------

    def deliver(self, batch: Batch) -> None:
        """Store captured publishes in order; a reply is answered once its record is committed."""
        if self._transform is not None:
            batch = _rewritten(batch, self._transform)
        if self._is_plain(batch):
            self._append(Run(batch, 0, len(batch)))
        else:
            self._deliver_each(batch)

    async def append(self, records: Sequence[NewRecord]) -> tuple[int, int]:
        """Store all records or none; returns the first and last sequence once committed."""
        batch = Batch()
        for record in records:
            batch.add(
                record.subject or self.name.encode(), b"", record.headers, record.payload,
                record.tag, record.node, record.meta,
            )  # fmt: skip
        return await self.append_batch(batch)

    async def append_batch(self, batch: Batch) -> tuple[int, int]:
        """Store a batch laid out already, whole or not at all, as ``append`` does."""
        self._admit_whole(batch)
        run = Run(batch, 0, len(batch))
        run.future = asyncio.get_running_loop().create_future()
        self._append(run)
        return await run.future

    def take_in(self, batch: Batch, demands: dict[bytes, bytes], done: Committed) -> None:
        """Store records of another stream, all or none; ``demands`` are those of a lone record."""
        if self._transform is not None:
            batch = _rewritten(batch, self._transform)
        try:
            self._admit_whole(batch)
        except MillstreamError as error:
            done(error)
            return
        run = Run(batch, 0, len(batch))
        run.done = done
        with contextlib.suppress(PublishRefused):  # its own stream may have had no use for it
            wanted = Demand.of(0, demands)
            rollup = wanted.rollup if self.config.allow_rollup_hdrs else b""
            ttl = wanted.ttl if self.config.allow_msg_ttl else 0.0
            run.demands = [wanted._replace(rollup=rollup, ttl=ttl)]
        self._append(run)

    def _is_plain(self, batch: Batch) -> bool:
        """Whether no message of the batch needs a look of its own."""
        config = self.config
        if config.sealed or config.discard == "new" or config.allow_msg_ttl:
            return False
        if config.allow_msg_counter:
            return False
        if 0 < config.max_msg_size < batch.size:
            return False
        if not batch.any_headers:
            return True
        # One search over the buffer: a payload that looks like a header only costs time.
        buffer = batch.buffer
        return not (b"\nNats-" in buffer or b"\nMillstream-" in buffer or b"NATS/1.0 " in buffer)

    def _deliver_each(self, batch: Batch) -> None:
        start = 0
        for at in range(len(batch)):
            subject, reply, headers, payload, _ = batch.message(at)
            special = bool(headers) and extras.is_special(headers)
            if not special and self._fits(subject, headers, payload, at - start):
                continue
            if at > start:
                self._append(Run(batch, start, at - start))
            start = at + 1
            self._deliver_special(subject, reply, headers, payload)
        if len(batch) > start:
            self._append(Run(batch, start, len(batch) - start))

    def _fits(self, subject: bytes, headers: bytes, payload: bytes, staged: int) -> bool:
        """Whether a message without demands can join the run before it."""
        if self.config.sealed or self.config.discard == "new" or self.config.allow_msg_counter:
            return False
        del subject, staged
        return not 0 < self.config.max_msg_size < len(headers) + len(payload)

    def _deliver_special(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes
    ) -> None:
        """Store one message that carries demands, or that a limit may turn away."""
        headers = extras.without_status(headers)
        values = extras.first_values(headers) if headers else {}
        if preconditions.BATCH_ID in values and self.config.allow_atomic:
            self._deliver_batched(reply, Part(subject, headers, payload, values))
            return
        suffix = b"}"
        try:
            added = counter.increment(values, payload) if self.config.allow_msg_counter else None
            self._check(subject, headers, payload, values)
            if added is not None:
                total = self._total_of(subject) + added
                payload, suffix = counter.stored(total), b',"val":"%d"}' % total
        except preconditions.Duplicate as seen:
            self._acks.duplicate(reply, seen.seq, self._inflight)
            return
        except MillstreamError as error:
            self._acks.refuse(reply, error)
            return
        stored, tag, node, meta = extras.take_extras(headers)
        batch = Batch()
        try:
            batch.add(subject, reply, stored, payload, tag, node, meta)
        except ValueError as error:
            self._acks.refuse(reply, PublishRefused(400, 10003, str(error)))
            return
        run = Run(batch, 0, 1)
        run.demands = [Demand.of(0, values)]
        run.ack_suffix = suffix
        self._append(run)

    def _total_of(self, subject: bytes) -> int:
        """Return what a counter stands at, staged writes included."""
        for run in reversed(self._inflight):
            for at in reversed(range(run.start, run.start + run.count)):
                if run.batch.message(at)[0] == subject:
                    return counter.value_of(run.batch.message(at)[3])
        last = self.last_of_subject(subject)
        return counter.value_of(self.get(last).payload) if last else 0

    def _deliver_batched(self, reply: bytes, part: Part) -> None:
        """Keep a message of an atomic batch; the one that commits stores them all."""
        try:
            if self.config.sealed:
                raise StreamSealed()
            if 0 < self.config.max_msg_size < len(part.headers) + len(part.payload):
                raise RecordTooLarge()
            whole = self._batches.take(part, self._clock.time_ns())
            if whole is None:
                self._acks.send(reply, b"")  # it is kept, and no more than that
                return
            run = self._run_of(whole, reply)
        except MillstreamError as error:
            self._acks.refuse(reply, error)
            return
        batch_id = msgspec.json.encode(
            part.values[preconditions.BATCH_ID].decode("utf-8", "replace")
        )
        run.ack_suffix = b',"batch":%s,"count":%d}' % (batch_id, len(whole))
        self._append(run)

    def _run_of(self, parts: list[Part], reply: bytes) -> Run:
        """Return a whole atomic batch as one run, each message checked as if it came behind."""
        batch, ahead, size = Batch(), Ahead(self), 0
        run = Run(batch, 0, len(parts))
        for at, part in enumerate(parts):
            self._check_part(part, ahead)
            stored, tag, node, meta = extras.take_extras(part.headers)
            size += _size(part.subject, stored, part.payload)
            self._check_room(part.subject, at + 1, size)
            answered = reply if at == len(parts) - 1 else b""
            try:
                batch.add(part.subject, answered, stored, part.payload, tag, node, meta)
            except ValueError as error:
                raise PublishRefused(400, 10003, str(error)) from error
            run.demands.append(Demand.of(at, part.values))
        return run

    def _check_part(self, part: Part, ahead: Ahead) -> None:
        if preconditions.EXPECTED_LAST_MSG_ID in part.values:
            raise PublishRefused(
                400, 10177, "atomic publish unsupported header used: Nats-Expected-Last-Msg-Id"
            )
        if len(part.headers) > MAX_HEADERS:
            raise PublishRefused(400, 10097, "header size exceeds maximum allowed of 64k")
        now = self._clock.time_ns()
        try:
            preconditions.check(self.config, part.subject, part.values, ahead, self._window, now)
            ahead.add(part.subject, part.values.get(preconditions.MSG_ID, b""))
        except preconditions.Duplicate:
            raise PublishRefused(
                400, 10201, "atomic publish batch contains duplicate message id"
            ) from None

    def _check(
        self, subject: bytes, headers: bytes, payload: bytes, values: dict[bytes, bytes]
    ) -> None:
        if self.config.sealed:
            raise StreamSealed()
        now = self._clock.time_ns()
        preconditions.check(self.config, subject, values, self, self._window, now)
        if 0 < self.config.max_msg_size < len(headers) + len(payload):
            raise RecordTooLarge()
        if len(headers) > MAX_HEADERS:
            raise PublishRefused(400, 10097, "header size exceeds maximum allowed of 64k")
        self._check_room(subject, 1, _size(subject, headers, payload))

    def _check_room(self, subject: bytes, messages: int, size: int) -> None:
        """Apply discard new, staged writes counted in."""
        if self.config.discard != "new":
            return
        per_subject = self.config.max_msgs_per_subject
        if per_subject > 0 and self.index.count_of(subject, staged=True) >= per_subject:
            if self.config.discard_new_per_subject:
                why = "maximum messages per subject exceeded"
                raise StreamFull(why, self.config, self.log.state())
            return  # the oldest of this subject makes room
        state = self.log.state()
        staged = sum(run.count for run in self._inflight)
        why_not = retention.refusal(
            self.config, state.count + staged, self._bytes(state) + self._backlog, messages, size
        )
        if why_not is not None:
            raise StreamFull(why_not, self.config, state)

    def _admit_whole(self, batch: Batch) -> None:
        if self.config.sealed:
            raise StreamSealed()
        if self.config.allow_msg_counter:
            raise PublishRefused(400, 10169, "message counter increment is missing")
        config = self.config
        if config.max_msg_size <= 0 and config.discard != "new":
            return
        size = 0
        for at in range(len(batch)):
            subject, _, headers, payload, _ = batch.message(at)
            if 0 < config.max_msg_size < len(headers) + len(payload):
                raise RecordTooLarge()
            size += _size(subject, headers, payload)
        if config.discard != "new":
            return
        if 0 < config.max_msgs < len(batch) or 0 < config.max_bytes < size:
            raise RecordTooLarge()  # could never fit, however empty the stream
        self._check_room(b"", len(batch), size)

    def _append(self, run: Run) -> None:
        if self._republish is not None:
            self._note_previous(run, self._republish)
        self._inflight.append(run)
        try:
            first = self.log.append(
                run.batch, run.start, run.count, self._clock.time_ns(), partial(self._settle, run)
            )
        except MillstreamError as error:
            self._inflight.remove(run)
            self._acks.settle(run, error)
            return
        run.first_seq = first
        self._last_staged = first + run.count - 1
        self._last_msg_id = run.last_msg_id
        for demand in run.demands:
            if demand.msg_id:
                self._window.add(demand.msg_id, first + demand.at, self._clock.time_ns())
        self._backlog += run.batch.size
        if run.settled:  # the log committed at once, before we knew the sequence
            self._finish(run)
        elif self._backlog > BACKLOG_BYTES and not self._paused:
            self._pause(True)

    def _settle(self, run: Run, error: MillstreamError | None) -> None:
        run.settled = True
        run.error = error
        if run.first_seq:
            self._finish(run)

    def _finish(self, run: Run) -> None:
        self._inflight.remove(run)
        self._backlog -= run.batch.size
        if run.error is not None:
            for demand in run.demands:
                self._window.forget(demand.msg_id, run.first_seq + demand.at)
            if not self._inflight:
                self._last_staged = self.log.state().last_seq
        self._acks.settle(run, run.error)
        if run.error is None and self._republish is not None:
            self._publish_again(run, self._republish)
        if run.error is None:
            self._keep_limits(run)
            self._wake()
        if self._paused and self._backlog < BACKLOG_BYTES // 2:
            self._pause(False)

    def _note_previous(self, run: Run, republish: Republish) -> None:
        for at in range(run.start, run.start + run.count):
            subject = run.batch.message(at)[0]
            if subject not in run.previous and republish.wants(subject):
                run.previous[subject] = self.last_of_subject(subject)

    def _publish_again(self, run: Run, republish: Republish) -> None:
        """Publish the committed records of a run under the subjects that republish names."""
        at, last = run.first_seq, run.first_seq + run.count - 1
        while at <= last and run.previous and self._hub is not None and self._interest is not None:
            frames = self.log.read(at, last - at + 1, READ_BYTES)
            if not len(frames):
                break
            for seq, ts_ns, subject, payload, headers, *_ in frames:
                if seq > last or subject not in run.previous:
                    continue
                previous, run.previous[subject] = run.previous[subject], seq
                copy = republish.copy(seq, ts_ns, subject, payload, headers, previous)
                if copy is not None:
                    self._hub.publish(self._interest, copy.subject, b"", copy.headers, copy.payload)
            at = frames.last_seq + 1
        if self._hub is not None:
            self._hub.flush()

    def _pause(self, paused: bool) -> None:
        self._paused = paused
        if self._interest is not None:
            for handle in self._handles:
                self._interest.pause_sink(handle, paused)

    # -- what preconditions ask --------------------------------------------------------------

    def last_seq(self) -> int:
        """Return the newest sequence given out, staged writes included."""
        return self._last_staged

    def last_msg_id(self) -> bytes:
        """Return the message id of the newest write, empty when it had none."""
        return self._last_msg_id

    def last_of_subject(self, pattern: bytes) -> int:
        """Return the newest sequence of a subject or pattern, staged writes included."""
        text = pattern.decode("utf-8", "surrogateescape")
        match = matcher([text])
        for run in reversed(self._inflight):
            staged = run.last_of_subjects()
            if match is None:
                return max(staged.values())
            found = max((seq for subject, seq in staged.items() if match(subject)), default=0)
            if found:
                return found
        return self.index.last_seq(self.index.select([text]))

    # -- reads -------------------------------------------------------------------------------

    def read(self, start_seq: int, max_records: int, max_bytes: int) -> "Frames":
        """Return committed records from ``start_seq`` on, ascending, at least one if any."""
        return self.log.read(start_seq, max_records, max_bytes)

    def get(self, seq: int) -> Record:
        """Return one record; raises RecordNotFound."""
        frames = self.log.read(seq, 1, READ_BYTES) if seq > 0 else None
        if frames is None or not len(frames) or frames.first_seq != seq:
            raise RecordNotFound()
        return as_record(frames, 0)

    def state(self) -> StreamState:
        """Return one consistent look at the stream."""
        state = self.log.state()
        held = state.last_seq - state.first_seq + 1
        return StreamState(
            messages=max(0, state.count - sum(going.count for going in self._removing)),
            bytes=self._bytes(state),
            first_seq=state.first_seq,
            last_seq=state.last_seq,
            synced_seq=state.synced_seq,
            first_ts_ns=state.first_ts_ns,
            last_ts_ns=state.last_ts_ns,
            num_deleted=max(held - state.count, 0),
            evict_floor=state.evict_floor,
            gaps=state.gaps,
            floors=state.floors,
        )

    def _bytes(self, state: LogState) -> int:
        """Return the size as the reference counts it, which frames know all but exactly.

        A frame is 61 bytes around its fields and the reference's file record 30; the four bytes
        that it adds for a header block are not counted here.
        """
        overhead = 45 if self.config.storage == "memory" else 31
        return max(0, state.bytes - overhead * state.count)

    def count_from(self, seq: int, chosen: Selection | None = None) -> int:
        """Return exactly how many live records from ``seq`` on are chosen."""
        state = self.log.state()
        everything = (chosen is None or chosen.is_everything) and not self.index.hides_any
        if everything and state.count == state.last_seq - state.first_seq + 1:
            return max(0, state.last_seq - max(seq, state.first_seq) + 1)
        return self.index.count(chosen or self._everything, seq)

    def subject_counts(self, filters: Sequence[str] = ()) -> dict[bytes, int]:
        """Return how many live records each matching subject has."""
        return self.index.counts(self.index.select(filters))

    def num_subjects(self) -> int:
        """Return how many subjects have a live record."""
        return self.log.subjects.living

    def deleted(self) -> list[int]:
        """Return the sequences between first and last that hold no record."""
        state = self.log.state()
        live = set(self.index.seqs(self._everything))
        return [seq for seq in range(state.first_seq, state.last_seq + 1) if seq not in live]

    def watch(self, grown: Callable[[], None]) -> Callable[[], None]:
        """Call ``grown`` after each commit and removal; returns the undo."""
        key = object()
        self._watchers[key] = grown
        return lambda: self._watchers.pop(key, None) and None

    async def grown(self, after: int) -> None:
        """Return once the stream holds a sequence above ``after``, or was closed."""
        if self.log.state().last_seq > after or self._closed:
            return
        arrived = asyncio.get_running_loop().create_future()

        def look() -> None:
            if not arrived.done() and (self.log.state().last_seq > after or self._closed):
                arrived.set_result(None)

        undo = self.watch(look)
        try:
            await arrived
        finally:
            undo()

    def _wake(self) -> None:
        for grown in list(self._watchers.values()):
            grown()

    # -- removal -----------------------------------------------------------------------------

    def claim(self, holder: str, claim: Claim) -> None:
        """Keep what ``holder`` needs, until it is settled; asked by interest retention alone."""
        self._claims.put(holder, claim)

    def unclaim(self, holder: str) -> None:
        """Let go of what only ``holder`` needed."""
        self._claims.drop(holder)
        self.drop_unclaimed()

    def settled(self, holder: str, seqs: Sequence[int]) -> None:
        """Take note that a consumer is done with records; limits retention keeps them."""
        if self.config.retention == "workqueue":
            self._let_go(list(seqs))
        elif self.config.retention == "interest":
            self._let_go(self._claims.settle(holder, seqs, self.index.subject_of))

    def drop_unclaimed(self) -> None:
        """Drop what nobody needs, where interest retention says so."""
        if self.config.retention != "interest":
            return
        doomed: list[int] = []
        for known in self.log.subjects.ids():
            subject = self.log.subjects.subject(known)
            claims = self._claims.on(subject)
            found = self.index.seqs_of(subject)
            doomed += (seq for seq in found if not any(claim.needs(seq) for claim in claims))
        self._let_go(sorted(doomed))

    def _let_go(self, seqs: list[int]) -> None:
        """Remove records that are done with; a failure leaves them for the next start."""
        if not seqs or self.config.sealed:
            return
        try:
            self._forget(seqs, _log_failure)
        except MillstreamError as error:
            _log_failure(error)

    async def delete(self, seqs: Sequence[int]) -> int:
        """Remove these records for good; returns how many were there, once that is durable."""
        if self.config.sealed:
            raise StreamSealed()
        if self.config.deny_delete:
            raise OperationDenied(10057, "message delete not permitted")
        return await self._remove(list(seqs))

    async def purge(self, subject: str = "", below: int = 0, keep: int = 0) -> int:
        """Remove what matches ``subject``: all, those below a sequence, or all but the newest."""
        if self.config.sealed:
            raise StreamSealed()
        if self.config.deny_purge:
            raise OperationDenied(10110, "stream purge not permitted")
        chosen = self.index.select([subject] if subject else ())
        last = self.log.state().last_seq
        stop = min(below - 1, last) if below else last
        if chosen.is_everything and not keep:
            return await self._trim_and_wait(stop + 1)
        doomed = [s for s in self.index.seqs(chosen) if s <= stop]
        if keep:
            doomed = doomed[:-keep]
        return await self._remove(doomed)

    async def _remove(self, seqs: list[int]) -> int:
        if not seqs:
            return 0
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        removed = self._forget(seqs, partial(settle, done))
        await done
        return removed

    def _forget(self, seqs: list[int], done: Callable[[MillstreamError | None], None]) -> int:
        going = _Removal()

        def settled(error: MillstreamError | None) -> None:
            self._removing.discard(going)
            self.index.reveal(seqs)
            done(error)
            self._removed(max(seqs))

        self._removing.add(going)
        self.index.hide(seqs)
        try:
            going.count = self.log.delete(seqs, settled)
        except MillstreamError:
            self._removing.discard(going)
            self.index.reveal(seqs)
            raise
        self._claims.forget(seqs)
        self._removed(max(seqs))
        return going.count

    async def _trim_and_wait(self, first_kept: int) -> int:
        """Remove everything below ``first_kept`` and return how much once that is durable.

        Removals are logged in order, so that deleting the oldest record behind the trim
        settles after it.
        """
        state = self.log.state()
        if first_kept <= state.first_seq:
            return 0
        doomed = state.count - self.count_from(first_kept, None)
        self._trim_to(first_kept, "delete")
        await self._remove([state.first_seq])
        return doomed

    def _trim_to(self, first_kept: int, reason: str) -> None:
        self.log.trim(first_kept, reason)
        self._claims.forget_below(first_kept)
        self._removed(first_kept - 1)

    def _removed(self, highest: int = EVERYTHING) -> None:
        self.removals.note(highest)
        self._wake()

    # -- limits ------------------------------------------------------------------------------

    def _keep_limits(self, run: Run | None) -> None:
        """Drop what is above the limits; ``run`` is what was committed, None means look at all."""
        for demand in run.demands if run is not None else ():
            assert run is not None
            seq = run.first_seq + demand.at
            if demand.rollup:
                self._roll_up(run.batch.message(run.start + demand.at)[0], seq, demand.rollup)
            if demand.ttl:
                self._expiry.later(seq, self._clock.time_ns(), demand.ttl)
        config = self.config
        if run is not None and config.retention == "interest":
            subjects = (run.batch.message(run.start + at)[0] for at in range(run.count))
            self._let_go(self._claims.unwanted(run.first_seq, subjects))
        if config.max_msgs_per_subject > 0:
            touched = set(run.last_of_subjects()) if run is not None else None
            doomed = self.index.crowded(touched, config.max_msgs_per_subject)
            if doomed:
                self._forget(doomed, _log_failure)
        if config.max_msgs > 0 or config.max_bytes > 0:
            over = retention.excess(config, self.state())
            if over:
                self._trim_to(self._first_kept(over), "cap")
        self._expiry.watch_age()

    def _roll_up(self, subject: bytes, seq: int, what: bytes) -> None:
        if what == b"all":
            self._trim_to(seq, "delete")
            return
        text = subject.decode("utf-8", "surrogateescape")
        found = self.index.seqs_of(subject)
        if has_wildcard(text):  # published to a pattern: replaces all that matches it
            found = self.index.seqs(self.index.select([text]))
        older = [one for one in found if one < seq]
        if older:
            self._forget(older, _log_failure)

    def _first_kept(self, over: retention.Excess) -> int:
        """Walk from the old end until enough has been passed; the newest record always stays."""
        state = self.log.state()
        if over.bytes == 0 and state.count == state.last_seq - state.first_seq + 1:
            return state.first_seq + over.messages
        at, messages, size = state.first_seq, over.messages, over.bytes
        while (messages > 0 or size > 0) and at <= state.last_seq:
            frames = self.log.read(at, 256, READ_BYTES)
            if not len(frames):
                break
            for seq, _, subject, payload, headers, *_ in frames:
                if messages <= 0 and size <= 0:
                    return at
                at = seq + 1
                messages -= 1
                size -= _size(subject, headers, payload)
        return at

    def expire(self, seqs: list[int]) -> None:
        """Drop records whose own lifetime is over."""
        self._leave_markers(seqs)
        self._forget(seqs, _log_failure)

    def expire_below(self, first_kept: int) -> None:
        """Drop everything older, which has outlived max_age."""
        self._leave_markers(self._seqs_below(first_kept))
        self._trim_to(first_kept, "ttl")

    def _seqs_below(self, first_kept: int) -> Iterator[int]:
        found = self.index.seqs(self._everything)
        return takewhile(lambda seq: seq < first_kept, found)

    def _leave_markers(self, doomed: Iterable[int]) -> None:
        """Write a marker for each subject whose newest record is about to expire."""
        ttl_ns = self.config.subject_delete_marker_ttl
        if ttl_ns <= 0 or self.config.sealed:
            return
        for seq in list(doomed):
            subject = self.index.subject_of(seq)
            if subject is None or self.last_of_subject(subject) != seq:
                continue
            if delete_markers.is_marker(self.get(seq).headers):
                continue
            batch = Batch()
            batch.add(subject, b"", delete_markers.headers(ttl_ns), b"")
            run = Run(batch, 0, 1)
            run.demands = [Demand(0, rollup=b"sub", ttl=ttl_ns // 10**9)]
            self._append(run)

    # -- recovery ----------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """Recover message ids, per-message lifetimes and limits from the records themselves."""
        state = self.log.state()
        if state.count:
            oldest = self._clock.time_ns() - self.config.duplicate_window
            start = state.first_seq if self.config.allow_msg_ttl else self.log.seek_time(oldest)
            self._rebuild_from(start, state.last_seq)
        self._keep_limits(None)

    def _rebuild_from(self, at: int, last: int) -> None:
        while at <= last:
            frames = self.log.read(at, 4096, READ_BYTES)
            if not len(frames):
                return
            # One search over the bytes: most records carry no demand and need no look.
            for seq, ts_ns, _, _, headers, *_ in frames if b"\nNats-" in frames.raw() else ():
                self._last_msg_id = b""
                if b"\nNats-" in headers:
                    self._recall(seq, ts_ns, extras.first_values(headers))
            at = frames.last_seq + 1

    def _recall(self, seq: int, ts_ns: int, values: dict[bytes, bytes]) -> None:
        if preconditions.MSG_ID in values:
            self._last_msg_id = values[preconditions.MSG_ID]
            self._window.add(self._last_msg_id, seq, ts_ns)
        if preconditions.TTL in values and self.config.allow_msg_ttl:
            seconds = 0.0
            with contextlib.suppress(PublishRefused):  # came in where lifetimes meant nothing
                seconds = preconditions.ttl_seconds(values[preconditions.TTL])
            if seconds:
                self._expiry.later(seq, ts_ns, seconds)


def settle(done: "asyncio.Future[None]", error: MillstreamError | None) -> None:
    """Resolve a future by the outcome of a commit."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def as_record(frames: "Frames", at: int) -> Record:
    """Return one frame as a value."""
    return Record(*frames.record(at))


def _rewritten(batch: Batch, transform: SubjectTransform) -> Batch:
    """Return the batch under the subjects that the transform makes of those that match."""
    made = Batch()
    for at in range(len(batch)):
        subject, reply, headers, payload, origin = batch.message(at)
        text = subject.decode("utf-8", "surrogateescape")
        if transform.matches(text):
            subject = transform.apply(text).encode("utf-8", "surrogateescape")
        made.add(subject, reply, headers, payload, *batch.extras(at), origin=origin)
    return made


def _size(subject: bytes, headers: bytes, payload: bytes) -> int:
    """Return what a record counts in ``bytes`` and ``max_bytes``, as the reference counts it."""
    return 30 + len(subject) + len(payload) + len(headers)


def _log_failure(error: MillstreamError | None) -> None:
    if error is not None:
        log.error("removal failed, it will be tried again error=%s", error)
