"""Consumer: a position in a stream, a ledger of deliveries, and whom to deliver to."""

import logging
import struct
from typing import TYPE_CHECKING, Protocol

import msgspec

from millstream.clock import Clock
from millstream.consumers import acks, requests
from millstream.consumers.config import ConsumerConfig, time_ns
from millstream.consumers.cursor import Cursor
from millstream.consumers.ledger import GiveUp, Ledger
from millstream.consumers.push import PushState
from millstream.consumers.requests import BadPull, PullRequest, WaitingLine
from millstream.delivery.timers import Timer, Timers
from millstream.errors import MillstreamError
from millstream.kernel._batch import Batch
from millstream.store.log import Committed
from millstream.streams.stream import Stream
from millstream.wire.headers import encode_headers, with_extras

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.kernel._frames import Frames
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest

log = logging.getLogger(__name__)

STEP_MESSAGES = 256  # delivered in one turn; whoever wants more waits for the next
STEP_BYTES = 1024 * 1024
RETRY = 0.01  # until a full outbox is looked at again
INTEREST_CHECK = 0.1  # until a silent deliver subject is looked at again
PERSIST_AFTER = 0.05

_SEQ_AND_TIME = struct.Struct("<QQ")  # at 32 of a frame, see ARCHITECTURE.md
_LENGTHS = struct.Struct("<HIH")  # subject, payload, headers; at 10


class Home(Protocol):
    """What a consumer asks of whoever keeps it."""

    def persist(self, consumer: "Consumer", done: Committed, sync: bool) -> None:
        """Write down what changed in the consumer's ledger."""
        ...

    def abandon(self, consumer: "Consumer") -> None:
        """Delete a consumer that nobody has used for its inactive threshold."""
        ...


class Consumer:
    """Delivers the records of one stream; a sink for its acks and its pull requests."""

    def __init__(
        self,
        name: str,
        config: ConsumerConfig,
        stream: Stream,
        home: Home,
        *,
        created_ns: int,
        clock: Clock,
        timers: Timers,
        hub: "Hub",
        interest: "Interest",
    ) -> None:
        self.name = name
        self.config = config
        self.stream = stream
        self.created_ns = created_ns
        self.line = WaitingLine()
        self.cursor = Cursor(stream, config.filters)
        self.ledger = Ledger(
            config.ack_wait / 1e9, [wait / 1e9 for wait in config.backoff], config.max_deliver
        )
        self.push = PushState(config) if config.is_push else None
        self.last_delivered_ns = 0
        self.last_acked_ns = 0
        self._home = home
        self._clock = clock
        self._timers = timers
        self._hub = hub
        self._interest = interest
        self._handles: list[int] = []
        self._timer: Timer | None = None
        self._persist_timer: Timer | None = None
        self._idle_timer: Timer | None = None
        self._last_used = clock.monotonic()
        self._pumping = False
        self._closed = False
        self._unwatch: Callable[[], None] = lambda: None
        self._ack_prefix = f"$JS.ACK.{stream.name}.{name}.".encode()

    # -- life --------------------------------------------------------------------------------

    def place(self) -> None:
        """Stand where the deliver policy says; for a consumer without a past."""
        config, state = self.config, self.stream.state()
        if config.deliver_policy == "last_per_subject":
            self.cursor.start_at_last_of_each()
        elif config.deliver_policy == "last":
            self.cursor.start_at_last()
        elif config.deliver_policy == "new":
            self.cursor.start(state.last_seq + 1)
        elif config.deliver_policy == "by_start_sequence":
            self.cursor.start(min(config.opt_start_seq, state.last_seq + 1))
        elif config.deliver_policy == "by_start_time":
            self.cursor.start(self.stream.log.seek_time(time_ns(config.opt_start_time)))
        else:
            self.cursor.start(state.first_seq)
        before = self.cursor.position - 1
        self.ledger.delivered = self.ledger.floor = (0, before)

    def open(self) -> None:
        """Take acks and requests from now on."""
        api = f"{self.stream.name}.{self.name}"
        sinks: list[tuple[str, object]] = [(f"$JS.ACK.{api}.>", _Acks(self))]
        sinks.append((f"$JS.API.CONSUMER.MSG.NEXT.{api}", _Pulls(self)))
        if self.config.flow_control:
            sinks.append((f"$JS.FC.{api}.*", _FlowReplies(self)))
        for pattern, sink in sinks:
            self._handles.append(self._interest.add_sink(pattern.encode(), sink))
        self._unwatch = self.stream.watch(self._stream_changed)
        self._arm(self.ledger.next_deadline())
        self._watch_idleness()
        self.pump()

    def close(self, description: str = "Consumer Deleted") -> None:
        """Send everybody away and let go of the stream."""
        self._closed = True
        self._unwatch()
        for handle in self._handles:
            self._interest.remove_sink(handle)
        for request in self.line.clear():
            self._status(request.reply, f"409 {description}", ())
        for timer in (self._timer, self._persist_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._hub.flush()

    def reconfigure(self, config: ConsumerConfig) -> None:
        """Change a serving consumer's configuration."""
        self.take_on(config)
        self._watch_idleness()
        self.pump()

    def take_on(self, config: ConsumerConfig) -> None:
        """Adopt a checked configuration."""
        self.config = config
        self.ledger.ack_wait = config.ack_wait / 1e9
        self.ledger.backoff = [wait / 1e9 for wait in config.backoff]
        self.ledger.max_deliver = config.max_deliver
        self.cursor.refilter(config.filters)
        if self.push is not None:
            self.push.subject = config.deliver_subject.encode()

    @property
    def is_bound(self) -> bool:
        """Whether someone listens on a push consumer's subject."""
        return self.push is not None and self._interest.has_interest(self.push.subject)

    # -- pull requests -----------------------------------------------------------------------

    def request(self, reply: bytes, body: bytes) -> None:
        """Take a pull request: serve it, let it wait, or say why not."""
        self._last_used = now = self._clock.monotonic()
        if self.push is not None:
            self._status(reply, "409 Consumer is push based", ())
            return
        try:
            request = requests.parse(reply, body, self.config, now)
        except BadPull as bad:
            self._status(reply, f"{bad.code} {bad.description}", ())
            return
        self._drop_silent_requests()
        if len(self.line) >= self.config.max_waiting:
            if not request.heartbeat:
                self._status(reply, "409 Exceeded MaxWaiting", ())
            return
        available = self._available() if request.no_wait else 1
        if available and request.no_wait and self.line.wanted() >= available:
            self._status(reply, "408 Requests Pending", ())
            return
        if not available and not request.expires_at:
            self._status(reply, "404 No Messages", ())
            return
        self.line.add(request)
        self._arm(request.next_deadline)

    def _drop_silent_requests(self) -> None:
        if len(self.line) >= self.config.max_waiting:
            for request in self.line:
                if not self._interest.has_interest(request.reply):
                    self.line.remove(request)

    def _available(self) -> int:
        return len(self.ledger.queue) + self.cursor.pending()

    # -- delivery ----------------------------------------------------------------------------

    def pump(self) -> None:
        """Deliver what can be delivered now."""
        if self._pumping or self._closed:
            return
        self._pumping = True
        try:
            sent = self._pump_push() if self.push is not None else self._pump_pull()
        finally:
            self._pumping = False
        if sent:
            self._last_used = self._clock.monotonic()
            self._note_change()
            self._hub.flush()

    def _pump_pull(self) -> int:
        budget = STEP_MESSAGES
        while len(self.line) and budget > 0:
            request = self.line.first
            if not self._interest.has_interest(request.reply):
                self.line.remove(request)
                continue
            if self._hub.room(self._interest, request.reply) <= 0:
                self._arm(self._clock.monotonic() + RETRY)
                break
            most = min(request.batch, budget) if len(self.line) == 1 and not request.limited else 1
            served = self._serve(request, most)
            if served == 0:
                self._nothing_left()
                break
            budget -= max(served, 0)
        if len(self.line) and budget <= 0:
            self._arm(self._clock.monotonic())
        return STEP_MESSAGES - budget

    def _serve(self, request: PullRequest, most: int) -> int:
        """Deliver up to ``most`` messages; 0 when there are none, -1 when the request ended."""
        found = self._next(most)
        if found is None:
            return 0
        frames, count, again = found
        if request.limited and not self._fits(request, frames, again):
            self._end(request, "409 Message Size Exceeds MaxBytes")
            return -1
        size = self._send(request.reply, frames, count, again)
        now = self._clock.monotonic()
        request.note_activity(now)
        request.served += count
        request.batch -= count
        if request.limited:
            request.bytes_left -= size
        if request.batch > 0:
            self.line.rotate()
        elif request.limited and request.bytes_left > 0:
            self._end(request, "409 Batch Completed")
        else:
            self.line.remove(request)
        return count

    def _nothing_left(self) -> None:
        """Answer those who do not want to wait."""
        for request in self.line:
            if not request.no_wait:
                continue
            if not request.expires_at:
                self.line.remove(request)
                self._status(request.reply, "404 No Messages", ())
            elif request.served:
                self._end(request, "408 Request Timeout")
        self._hub.flush()

    def _end(self, request: PullRequest, status: str) -> None:
        self.line.remove(request)
        self._status(
            request.reply,
            status,
            (
                (b"Nats-Pending-Messages", b"%d" % request.batch),
                (b"Nats-Pending-Bytes", b"%d" % max(request.bytes_left, 0)),
            ),
        )

    def _next(self, most: int) -> "tuple[Frames, int, bool] | None":
        """Return what to deliver next: frames, how many of them, and whether they go again."""
        while self.ledger.queue:
            seq = self.ledger.take_redelivery()
            frames = self.stream.read(seq, 1, STEP_BYTES)
            if len(frames) and frames.first_seq == seq:
                return frames, 1, True
            self.ledger.gone([seq])  # deleted meanwhile: nobody has to answer for it
        limit = self.config.max_ack_pending
        if self.config.ack_policy != "none" and limit > 0:
            most = min(most, limit - len(self.ledger.pending))
        if most <= 0:
            return None
        frames = self.cursor.read(most, STEP_BYTES)
        return (frames, min(len(frames), most), False) if len(frames) else None

    def _send(self, route: bytes, frames: "Frames", count: int, again: bool) -> int:
        """Deliver the first ``count`` frames; returns their size as clients count it."""
        now, track = self._clock.monotonic(), self.config.ack_policy != "none"
        pending = self.cursor.pending() - (0 if again else count)
        buffer, offsets = frames.buffer, frames.offsets
        replies, size = [], 0
        for at in range(count):
            seq, ts_ns = _SEQ_AND_TIME.unpack_from(buffer, offsets[at] + 32)
            deliveries, consumer_seq = self.ledger.deliver(seq, now, track=track)
            left = pending + (0 if again else count - 1 - at)
            replies.append(self._reply(deliveries, seq, consumer_seq, ts_ns, left))
            size += self._size(buffer, offsets[at], replies[-1])
        if not again:
            self.cursor.advance(frames, count)
        if track:
            self._arm(now + self.ledger.ack_wait)
        self.last_delivered_ns = self._clock.time_ns()
        if self.config.headers_only:
            self._send_headers(route, frames, count, replies)
        else:
            self._hub.publish_frames(self._interest, route, frames, 0, count, replies)
        return size

    def _reply(self, deliveries: int, seq: int, consumer_seq: int, ts_ns: int, left: int) -> bytes:
        return b"%s%d.%d.%d.%d.%d" % (self._ack_prefix, deliveries, seq, consumer_seq, ts_ns, left)

    def _size(self, buffer: memoryview, offset: int, reply: bytes) -> int:
        subject, payload, headers = _LENGTHS.unpack_from(buffer, offset + 10)
        return int(subject + payload + headers + len(reply))

    def _fits(self, request: PullRequest, frames: "Frames", again: bool) -> bool:
        seq, ts_ns = _SEQ_AND_TIME.unpack_from(frames.buffer, frames.offsets[0] + 32)
        known = self.ledger.pending.get(seq)
        deliveries = known.deliveries + 1 if known is not None else 1
        left = self.cursor.pending() - (0 if again else 1)
        reply = self._reply(deliveries, seq, self.ledger.delivered[0] + 1, ts_ns, left)
        if self._size(frames.buffer, frames.offsets[0], reply) <= request.bytes_left:
            return True
        if again:
            self.ledger.queue.insert(0, seq)
        return False

    def _send_headers(
        self, route: bytes, frames: "Frames", count: int, replies: list[bytes]
    ) -> None:
        for at in range(count):
            _, _, subject, payload, headers, tag, node, meta = frames.record(at)
            block = with_extras(headers, tag, node, meta) or b"NATS/1.0\r\n\r\n"
            block = b"%sNats-Msg-Size: %d\r\n\r\n" % (block[:-2], len(payload))
            self._hub.publish(self._interest, route, replies[at], block, b"", subject)

    def _status(self, reply: bytes, line: str, fields: tuple[tuple[bytes, bytes], ...]) -> None:
        if reply:
            headers = encode_headers(fields, line.encode())
            self._hub.publish(self._interest, reply, b"", headers, b"")

    # -- push --------------------------------------------------------------------------------

    def _pump_push(self) -> int:
        push, sent = self.push, 0
        assert push is not None
        if not self.is_bound:
            self._arm(self._clock.monotonic() + INTEREST_CHECK)
            return 0
        while sent < STEP_MESSAGES and push.may_send:
            if self._hub.room(self._interest, push.subject) <= STEP_BYTES:
                self._arm(self._clock.monotonic() + RETRY)
                break
            found = self._next(STEP_MESSAGES - sent)
            if found is None:
                break
            frames, count, again = found
            push.sent(self._send(push.subject, frames, count, again), self._clock.monotonic())
            sent += count
            self._ask_for_flow()
        if sent >= STEP_MESSAGES:
            self._arm(self._clock.monotonic())
        self._arm(push.next_heartbeat(self._clock.monotonic()))
        return sent

    def _ask_for_flow(self) -> None:
        assert self.push is not None
        token = self.push.flow_token()
        if token:
            subject = f"$JS.FC.{self.stream.name}.{self.name}.{token}".encode()
            self.push.stalled_on = subject
            headers = encode_headers((), b"100 FlowControl Request")
            self._hub.publish(self._interest, self.push.subject, subject, headers, b"")

    def flow_answered(self, subject: bytes) -> None:
        """Open the window: the client has seen everything up to the request."""
        if self.push is not None and subject == self.push.stalled_on:
            self.push.flow_answered()
            self.pump()

    def _positions(self) -> tuple[tuple[bytes, bytes], ...]:
        consumer_seq, stream_seq = self.ledger.delivered
        return (
            (b"Nats-Last-Consumer", b"%d" % consumer_seq),
            (b"Nats-Last-Stream", b"%d" % stream_seq),
        )

    def _beat(self, now: float) -> None:
        """Send the heartbeats that are due, and end the requests that are over."""
        if self.push is not None and self.push.heartbeat_due(now) and self.is_bound:
            fields = self._positions()
            if self.push.stalled_on:
                fields += ((b"Nats-Consumer-Stalled", self.push.stalled_on),)
            self._status(self.push.subject, "100 Idle Heartbeat", fields)
            self.push.beat(now)
        for request in self.line:
            if request.expires_at and request.expires_at <= now:
                self._end(request, "408 Request Timeout")
            elif request.heartbeat_at and request.heartbeat_at <= now:
                self._status(request.reply, "100 Idle Heartbeat", self._positions())
                request.note_activity(now)

    # -- acks --------------------------------------------------------------------------------

    def answered(self, subject: bytes, reply: bytes, body: bytes) -> None:
        """Take one ack message; a reply is confirmed once the answer is safe."""
        seq, answer = acks.stream_seq(subject), acks.parse(body)
        if not seq or answer is None:
            return
        self._last_used = now = self._clock.monotonic()
        match answer:
            case acks.Ack() | acks.Next():
                self._acked(seq)
            case acks.Nak(delay):
                if self.ledger.nak(seq, now, delay):
                    self._advise("MSG_NAKED", "nak", seq)
                    self._arm(now + delay)
            case acks.Progress():
                self.ledger.progress(seq, now)
            case acks.Term(reason):
                if self.ledger.ack(seq):
                    self._advise("MSG_TERMINATED", "terminated", seq, reason=reason)
        if isinstance(answer, acks.Next):
            self._note_change()
            self.request(reply, answer.request)
        else:
            self._confirm(reply)

    def _acked(self, seq: int) -> None:
        if self.config.ack_policy == "all":
            self.ledger.ack_all(seq)
        else:
            self.ledger.ack(seq)
        self.last_acked_ns = self._clock.time_ns()

    def _confirm(self, reply: bytes) -> None:
        if not reply:
            self._note_change()
            return

        def safe(error: MillstreamError | None) -> None:
            if error is None:
                self._hub.publish(self._interest, reply, b"", b"", b"")
                self._hub.flush()

        if self.is_persisted and self.ledger.is_dirty:
            self._home.persist(self, safe, sync=True)
        else:
            safe(None)

    def _advise(self, kind: str, type_name: str, seq: int, **more: object) -> None:
        subject = f"$JS.EVENT.ADVISORY.CONSUMER.{kind}.{self.stream.name}.{self.name}".encode()
        if not self._interest.has_interest(subject):
            return
        known = self.ledger.pending.get(seq)
        body = {
            "type": f"io.nats.jetstream.advisory.v1.{type_name}",
            "id": f"{self._clock.time_ns():x}",
            "timestamp": self._clock.time_ns(),
            "stream": self.stream.name,
            "consumer": self.name,
            "consumer_seq": known.consumer_seq if known is not None else 0,
            "stream_seq": seq,
            "deliveries": known.deliveries if known is not None else 0,
            **more,
        }
        self._hub.publish(self._interest, subject, b"", b"", msgspec.json.encode(body))

    # -- time and the stream -----------------------------------------------------------------

    def _arm(self, deadline: float) -> None:
        """Be called at ``deadline`` at the latest."""
        if self._closed or deadline == float("inf"):
            return
        if self._timer is not None and self._timer.callback is not None:
            if self._timer.deadline <= deadline:
                return
            self._timer.cancel()
        self._timer = self._timers.at(deadline, self._due)

    def _due(self) -> None:
        now = self._clock.monotonic()
        for effect in self.ledger.expire(now):
            if isinstance(effect, GiveUp):
                self._advise(
                    "MAX_DELIVERIES", "max_deliver", effect.seq, deliveries=effect.deliveries
                )
        self._beat(now)
        self.pump()
        self._hub.flush()
        self._arm(min(self.ledger.next_deadline(), self.line.next_deadline()))
        if self.push is not None:
            self._arm(self.push.next_heartbeat(now))

    def _stream_changed(self) -> None:
        if self.cursor.follow():
            first = self.stream.state().first_seq
            self.ledger.gone([seq for seq in self.ledger.pending if seq < first])
        if len(self.line) or self.push is not None:
            self.pump()

    def _watch_idleness(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        threshold = self.config.inactive_threshold / 1e9
        if threshold > 0 and not self._closed:
            self._idle_timer = self._timers.at(self._last_used + threshold, self._check_idleness)

    def _check_idleness(self) -> None:
        now = self._clock.monotonic()
        if self.is_bound or len(self.line):
            self._last_used = now
        if self._last_used + self.config.inactive_threshold / 1e9 <= now:
            self._home.abandon(self)
        else:
            self._watch_idleness()

    # -- persistence -------------------------------------------------------------------------

    @property
    def is_persisted(self) -> bool:
        """Whether the consumer outlives a restart."""
        return not self.config.mem_storage

    def _note_change(self) -> None:
        if not self.is_persisted or not self.ledger.is_dirty or self._closed:
            return
        if self._persist_timer is None or self._persist_timer.callback is None:
            self._persist_timer = self._timers.after(PERSIST_AFTER, self._persist_soon)

    def _persist_soon(self) -> None:
        if self.ledger.is_dirty:
            self._home.persist(self, _log_failure, sync=False)


class _Acks:
    """The sink behind ``$JS.ACK.<stream>.<consumer>.>``."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def deliver(self, batch: Batch) -> None:
        """Take every ack of the batch, then deliver what they made room for."""
        for at in range(len(batch)):
            subject, reply, _, payload, _ = batch.message(at)
            self._consumer.answered(subject, reply, payload)
        self._consumer.pump()


class _Pulls:
    """The sink behind ``$JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>``."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def deliver(self, batch: Batch) -> None:
        """Let every request of the batch stand in line, then serve the line."""
        for at in range(len(batch)):
            _, reply, _, payload, _ = batch.message(at)
            if reply:
                self._consumer.request(reply, payload)
        self._consumer.pump()


class _FlowReplies:
    """The sink behind ``$JS.FC.<stream>.<consumer>.*``."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def deliver(self, batch: Batch) -> None:
        """Open the window for every answer that is awaited."""
        for at in range(len(batch)):
            self._consumer.flow_answered(batch.message(at)[0])


def _log_failure(error: MillstreamError | None) -> None:
    if error is not None:
        log.warning("consumer state not written error=%s", error)
