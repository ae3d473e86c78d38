"""Consumer: a position in a stream, a ledger of deliveries, and whom to deliver to."""

import logging
from typing import TYPE_CHECKING, Any, Protocol

from millstream.clock import Clock
from millstream.consumers.answers import Answers
from millstream.consumers.config import ConsumerConfig, ConsumerRefused
from millstream.consumers.cursor import Cursor
from millstream.consumers.feed import Feed
from millstream.consumers.idleness import Idleness
from millstream.consumers.ledger import FOREVER, GiveUp, Ledger
from millstream.consumers.outlet import Fields, Outlet
from millstream.consumers.pulls import PullDesk
from millstream.consumers.push import PushDesk
from millstream.consumers.sinks import FlowReplies, Pulls
from millstream.delivery.timers import Timer, Timers
from millstream.errors import MillstreamError
from millstream.store.log.log import Committed
from millstream.streams.config.extras import first_values
from millstream.streams.config.times import ZERO_TIME, time_ns
from millstream.streams.retention.claims import RecordClaim
from millstream.streams.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest

log = logging.getLogger(__name__)

STEP_MESSAGES = 1024  # delivered in one turn; whoever wants more waits for the next
PERSIST_AFTER = 0.05


class Home(Protocol):
    """What a consumer asks of whoever keeps it."""

    def persist(self, consumer: "Consumer", done: Committed, sync: bool) -> None:
        """Write down what changed in the consumer's ledger."""
        ...

    def abandon(self, consumer: "Consumer") -> None:
        """Delete a consumer that nobody has used for its inactive threshold."""
        ...


class Consumer:
    """Delivers the records of one stream; what it is made of does the work."""

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
        self.cursor = Cursor(stream, config.filters)
        self.ledger = Ledger(
            config.ack_wait / 1e9, [wait / 1e9 for wait in config.backoff], config.max_deliver
        )
        self.outlet = Outlet(hub, interest, clock)
        self.feed = Feed(name, config, stream, self.cursor, self.ledger, self.outlet, clock)
        self.feed.woken = self.pump
        self.feed.gave_up = self._gave_up
        self.pulls: PullDesk | None = None
        self.push: PushDesk | None = None
        if config.is_push:
            self.push = PushDesk(config, self.feed, self.outlet, clock)
        else:
            self.pulls = PullDesk(config, self.feed, self.outlet, clock, self.event)
        prefix = len(f"$JS.ACK.{stream.name}.{name}.".encode())
        self.answers = Answers(config, self.ledger, clock, self, prefix, self.event)
        self._home = home
        self._clock = clock
        self._timers = timers
        self._interest = interest
        self._handles: list[int] = []
        self._timer: Timer | None = None
        self._persist_timer: Timer | None = None
        self._pause_timer: Timer | None = None
        self._idleness = Idleness(timers, clock, self._is_used, self._abandon, self._busy_until)
        self._pumping = False
        self._is_asked = False  # by a request that was not looked at yet
        self._closed = False
        self._answered_to = 0  # nothing of what was read by then is still to be answered
        self._synced_version = 0  # of the ledger, known to be on disk
        self._unwatch: Callable[[], None] | None = None
        self._unlisten: Callable[[], None] | None = None

    @property
    def _desk(self) -> PullDesk | PushDesk:
        desk = self.pulls or self.push
        assert desk is not None
        return desk

    # -- life --------------------------------------------------------------------------------

    def place(self) -> None:
        """Stand where the deliver policy says; for a consumer without a past."""
        config, state = self.config, self.stream.state()
        if config.deliver_policy == "last_per_subject" and not self._is_newest_only:
            self.cursor.start_at_last_of_each()
        elif config.deliver_policy == "last":
            self.cursor.start_at_last()
        elif config.deliver_policy == "new":
            self.cursor.start(state.last_seq + 1, state.first_seq)
        elif config.deliver_policy == "by_start_sequence":
            self.cursor.start(config.opt_start_seq, state.first_seq)
        elif config.deliver_policy == "by_start_time":
            since = self.stream.log.seek_time(time_ns(config.opt_start_time))
            self.cursor.start(since, state.first_seq)
        else:
            self.cursor.start(state.first_seq, state.first_seq)
        before = self.cursor.position - 1
        self.ledger.delivered = self.ledger.floor = (0, before)

    @property
    def _is_newest_only(self) -> bool:
        """Whether the stream holds no more than the newest record of each subject anyway."""
        return self.stream.config.max_msgs_per_subject == 1

    def claim(self) -> None:
        """Tell the stream what this consumer still needs, where retention depends on that."""
        retention = self.stream.config.retention
        self.answers.wants_settled = retention != "limits"
        if retention == "interest":
            done = self.cursor.passed(self.ledger.floor[1] + 1, self.ledger.pending.get)
            claim = RecordClaim(self.config.filters, self.ledger.floor[1] + 1, done)
            self.stream.removal.claims.put(self.name, claim)

    def open(self) -> None:
        """Take answers and requests from now on."""
        api = f"{self.stream.name}.{self.name}"
        sinks: list[tuple[str, object]] = [(f"$JS.API.CONSUMER.MSG.NEXT.{api}", Pulls(self))]
        if self.config.ack_policy not in ("none", "flow_control"):
            sinks.append((f"$JS.ACK.{api}.>", self.answers))
        if self.config.flow_control:
            sinks.append((f"$JS.FC.{api}.*", FlowReplies(self)))
        for pattern, sink in sinks:
            self._handles.append(self._interest.add_sink(pattern.encode(), sink))
        self._listen()
        self._watch_pause()
        self._arm(self.ledger.next_deadline())
        self._idleness.watch(self.config.inactive_threshold / 1e9)
        if self.push is not None:  # nobody has pulled yet; who made it hears of that first
            self._arm(self._clock.monotonic())

    def _listen(self) -> None:
        """Hear of those who subscribe to a push consumer's subject, and of their leaving."""
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None
        if self.push is not None and not self._closed:
            group = self.config.deliver_group.encode()
            self._unlisten = self._interest.watch(self.push.state.subject, group, self._heard)

    def _heard(self, bound: bool) -> None:
        # Called in the middle of a subscription: deliveries wait until the loop comes round.
        self._idleness.used()
        self._arm(self._clock.monotonic())

    def close(self, description: str = "Consumer Deleted") -> None:
        """Send everybody away and let go of the stream."""
        self._closed = True
        self.outlet.release()
        for handle in self._handles:
            self._interest.remove_sink(handle)
        self._desk.close(description)
        self._watch()
        self._listen()
        self._idleness.stop()
        for timer in (self._timer, self._persist_timer, self._pause_timer):
            if timer is not None:
                timer.cancel()
        self.outlet.flush()

    def reconfigure(self, config: ConsumerConfig) -> None:
        """Change a serving consumer's configuration."""
        paused = config.pause_until != self.config.pause_until
        self.take_on(config)
        self.claim()
        self.stream.removal.drop_unclaimed()
        self._listen()
        if paused:
            self.tell_pause()
            self._watch_pause()
        self._idleness.watch(self.config.inactive_threshold / 1e9)
        self._arm(self.ledger.next_deadline())
        # Who waits is not looked at in a pause, nor before the answer to who asked for this.
        self._arm(self._clock.monotonic() + self.feed.pause_left_ns / 1e9)

    def take_on(self, config: ConsumerConfig) -> None:
        """Adopt a checked configuration."""
        if config.filters != self.config.filters:
            self.cursor.refilter(config.filters)
        self.config = config
        self.ledger.change_waits(config.ack_wait / 1e9, [wait / 1e9 for wait in config.backoff])
        self.ledger.max_deliver = config.max_deliver
        self.feed.take_on(config)
        self.answers.take_on(config)
        if self.push is not None:
            self.push.move(config.deliver_subject, config.deliver_group)
        if self.pulls is not None:
            self.pulls.take_on(config)

    def _watch_pause(self) -> None:
        """Tell of the end of a pause too."""
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        if self.feed.pause_left_ns > 0:
            left = self.feed.pause_left_ns / 1e9
            self._pause_timer = self._timers.after(left, self.tell_pause)

    def tell_pause(self) -> None:
        """Say whether deliveries are stopped, and until when."""
        until = self.config.pause_until or ZERO_TIME
        self.event("PAUSE", "consumer_pause", paused=self.feed.pause_left_ns > 0, pause_until=until)

    def reset(self, seq: int) -> int:
        """Deliver anew from ``seq``, or from the ack floor when it is 0; returns where."""
        config = self.config
        if seq == 0:
            seq = max(self.ledger.floor[1], self._answered_to) + 1
        elif config.deliver_policy == "by_start_sequence":
            if seq < config.opt_start_seq:
                raise ConsumerRefused(10204, "invalid reset: below start seq")
        elif config.deliver_policy == "by_start_time":
            if seq < self.stream.log.seek_time(time_ns(config.opt_start_time)):
                raise ConsumerRefused(10204, "invalid reset: below start time")
        elif config.deliver_policy != "all":
            raise ConsumerRefused(10204, "invalid reset: not allowed")
        self.ledger.reset(seq)
        self._answered_to = 0
        self.cursor.resume(seq, [])
        self.feed.last_delivered_ns = self.answers.last_acked_ns = 0
        self.claim()
        self._note_change()
        self._arm(self._clock.monotonic())  # who asked hears of it before anything is delivered
        return seq

    def purged(self, start: int, *, wider: bool) -> None:
        """Stand behind a purge: nothing of this consumer's is left below ``start``.

        ``wider``: it also wants records that the purge left alone.
        """
        self.cursor.follow()
        lost = self.ledger.pending.up_to(start - 1)
        if not wider:
            self.cursor.pass_to(start)
        else:
            pending = self.ledger.pending.up_to(self.ledger.delivered[1])
            lost = [seq for seq in pending if not self.stream.index.is_live(seq)]
        now, position = self._clock.monotonic(), max(start, self.cursor.seen_to + 1)
        acks_all = self.config.ack_policy == "all"
        if self.ledger.purged(lost, start, position, now, acks_all=acks_all):
            self.answers.last_acked_ns = self._clock.time_ns()
        self._arm(self.ledger.next_deadline())
        self._note_change()

    @property
    def is_bound(self) -> bool:
        """Whether someone listens on a push consumer's subject."""
        return self.push is not None and self.push.is_bound

    @property
    def is_heard(self) -> bool:
        """Whether someone listens on a push consumer's subject, in whichever group."""
        return self.push is not None and self.outlet.is_heard(self.push.state.subject)

    @property
    def waiting(self) -> int:
        """Return how many pull requests wait."""
        return len(self.pulls.line) if self.pulls is not None else 0

    def _is_used(self) -> bool:
        return self.is_bound or self.waiting > 0

    def _busy_until(self) -> float:
        """Return until when an answer to what was pulled may come."""
        return self.ledger.last_wait() if self.pulls is not None else 0.0

    def _abandon(self) -> None:
        self._home.abandon(self)

    # -- delivery ----------------------------------------------------------------------------

    def request(self, reply: bytes, body: bytes) -> None:
        """Take a pull request."""
        self._idleness.used()
        self._is_asked = True
        if self.pulls is None:
            self.outlet.status(reply, "409 Consumer is push based")
        else:
            self.pulls.request(reply, body)

    def pump(self) -> None:
        """Deliver what can be delivered now, and see to it that the rest is not forgotten."""
        if self._pumping or self._closed or self.outlet.is_holding:
            return
        self._is_asked = False
        counted, sent = self._is_counted, 0
        if counted:
            self.outlet.hold()
        self._pumping = True
        try:
            self.follow()
            self.feed.ready_at = FOREVER  # nobody may ask the feed this time
            before = self.ledger.delivered[1]
            sent = self._desk.serve(STEP_MESSAGES)
            if sent and self.config.ack_policy == "none" and self.answers.wants_settled:
                self.settled(list(self.cursor.between(before, self.ledger.delivered[1])))
        finally:
            self._pumping = False
            if counted:
                self._count(sent)
        now = self._clock.monotonic()
        if sent:
            self._idleness.used()
            self._note_change()
            self.outlet.flush()
            if self.ledger.shortest_wait:
                self._arm(now + self.ledger.shortest_wait)
        self._arm(now if sent >= STEP_MESSAGES else self.feed.ready_at)
        self._arm(self._desk.next_deadline(now))
        self._watch()

    @property
    def _is_counted(self) -> bool:
        """Whether each delivery is written down before it goes: only so many are allowed."""
        config = self.config
        return config.max_deliver > 0 and config.ack_policy != "none" and self.is_persisted

    def _count(self, sent: int) -> None:
        """Let what was held back go once it is written down how often it was delivered.

        The process may die at any moment: what it forgot to count it would deliver once more
        than allowed. Written is enough for that; only a power cut asks for a sync.
        """
        if not sent:
            self.outlet.release()
            return

        def counted(error: MillstreamError | None) -> None:
            _log_failure(error)  # deliveries go on while nothing can be written
            self.outlet.release()
            self.outlet.flush()
            self.pump()

        self._home.persist(self, counted, sync=False)

    def follow(self, *, closely: bool = False) -> None:
        """Notice removals: nobody has to answer for what is gone.

        Records deleted between others are noticed when they would be delivered again, or when
        asked to look ``closely``.
        """
        changed = self.cursor.follow()
        if changed:
            self.stream.removal.recent.tell_drops()
        if self.stream.removal.recent.purges:
            return  # what becomes of pending deliveries is decided when it is over
        if changed:
            first = self.stream.log.state().first_seq
            if self.ledger.gone(self.ledger.pending.up_to(first - 1)):
                self.answers.last_acked_ns = self._clock.time_ns()
        if closely:
            pending = self.ledger.pending.up_to(self.ledger.delivered[1])
            self.ledger.gone([seq for seq in pending if not self.stream.index.is_live(seq)])

    def dropped(self, below: int, seqs: list[int]) -> None:
        """Nobody answers any more for what was removed: a pending delivery of it is over."""
        pending = self.ledger.pending
        lost = {*pending.up_to(max(below, 1) - 1), *(seq for seq in seqs if seq in pending)}
        for seq in sorted(lost):
            if seq in pending:
                self.settled(self.answers.dropped(seq))
        self.forget(below, seqs)
        if lost:
            self._note_change()
            self.pump()
            self.outlet.flush()

    def forget(self, below: int, seqs: list[int]) -> None:
        """Forget how often removed records were delivered that had been given up."""
        if self.ledger.forget(below, seqs):
            self._note_change()

    def _watch(self) -> None:
        """Hear of new records only while somebody waits for them: idle consumers cost nothing."""
        wanted = not self._closed and (self.waiting > 0 or self.is_bound)
        if wanted and self._unwatch is None:
            self._unwatch = self.stream.watch(self._grown)
        elif not wanted and self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    def _grown(self) -> None:
        """Deliver what came; that something else came is no look at it."""
        self.cursor.is_woken = True
        self.pump()
        self.cursor.is_woken = False

    def flow_answered(self, subject: bytes, headers: bytes) -> None:
        """Go on: the client has seen everything up to the flow-control request.

        Where answers to flow control are the acks, their headers say how far it has come.
        """
        if self.push is None or not self.push.flow_answered(subject):
            return
        if self.config.ack_policy == "flow_control":
            seen = first_values(headers).get(b"Nats-Last-Stream", b"")
            if seen.isdigit():
                self.settled(self.ledger.ack_all(int(seen)))
                self._note_change()
        self.pump()

    # -- answers -----------------------------------------------------------------------------

    @property
    def reached(self) -> int:
        """Return up to where records were delivered, or looked at and left behind."""
        return max(self.ledger.delivered[1], self.cursor.read_to)

    def settled(self, seqs: list[int]) -> None:
        """Let go of records that are done."""
        if self.answers.wants_settled:
            self.stream.removal.release(self.name, seqs)

    def answered(self, replies: list[bytes], *, waits_changed: bool, makes_way: bool) -> None:
        """Confirm to these once the ledger is safe; deliver what the answers made room for."""
        self._idleness.used()
        if not len(self.ledger.pending) and self.ledger.delivered[0]:
            self._answered_to = self.cursor.read_to
        if replies:
            self._confirm(replies)
        else:
            self._note_change()
        if waits_changed:
            self._arm(self.ledger.next_deadline())
        if makes_way or self._is_asked:  # who waits is not looked at without a reason
            self.pump()

    def _confirm(self, replies: list[bytes]) -> None:
        """Confirm once a sync has covered what the answers changed: then no death takes it back.

        What makes that true: the state is a control frame with ``sync``, which is answered after
        a sync that began when the frame, and all before it in the log, were written. An answer
        that changed nothing may repeat one whose frame is still on its way, or was written
        without a sync: it waits for a sync too.
        """
        version = self.ledger.version + 1

        def safe(error: MillstreamError | None) -> None:
            if error is None:
                self._synced_version = max(self._synced_version, version)
                self._tell(replies)

        if not self.is_persisted:
            self._tell(replies)
        elif self.ledger.is_dirty or self._synced_version < self.ledger.version:
            self._home.persist(self, safe, sync=True)
        else:
            self._tell(replies)

    def _tell(self, replies: list[bytes]) -> None:
        for reply in replies:
            self.outlet.reply(reply)
        self.outlet.flush()

    def tell_deleted(self) -> None:
        """Say that the consumer goes without having been asked to."""
        self.event("DELETED", "consumer_action", action="delete")

    def event(self, kind: str, type_name: str, /, **fields: Any) -> None:
        """Publish an advisory of this kind, or the ack metric when there is no kind."""
        place = f"{self.stream.name}.{self.name}"
        about = {"stream": self.stream.name, "consumer": self.name}
        if kind:
            subject = f"$JS.EVENT.ADVISORY.CONSUMER.{kind}.{place}"
            self.outlet.event(subject, f"advisory.v1.{type_name}", **about, **fields)
        else:
            subject = f"$JS.EVENT.METRIC.CONSUMER.ACK.{place}"
            self.outlet.event(subject, f"metric.v1.{type_name}", **about, **fields)

    # -- time --------------------------------------------------------------------------------

    def _arm(self, deadline: float) -> None:
        """Be called at ``deadline`` at the latest."""
        if self._closed or deadline == FOREVER:
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
                self._gave_up(effect)
                self._note_change()
        self._desk.beat(now, self._positions())
        self.pump()
        self.outlet.flush()
        self._arm(min(self.ledger.next_deadline(), self._desk.next_deadline(now)))

    def _gave_up(self, effect: GiveUp) -> None:
        fields = {"stream_seq": effect.seq, "deliveries": effect.deliveries}
        self.event("MAX_DELIVERIES", "max_deliver", **fields)

    def _positions(self) -> Fields:
        """Return what heartbeats tell: the last delivery, and up to where the stream was read."""
        consumer_seq, stream_seq = self.ledger.delivered
        stream_seq = max(self.cursor.read_to, stream_seq)
        return (
            (b"Nats-Last-Consumer", b"%d" % consumer_seq),
            (b"Nats-Last-Stream", b"%d" % stream_seq),
        )

    # -- persistence -------------------------------------------------------------------------

    @property
    def is_persisted(self) -> bool:
        """Whether the consumer outlives a restart."""
        return not self.config.mem_storage and not self.config.direct

    def _note_change(self) -> None:
        if not self.is_persisted or not self.ledger.is_dirty or self._closed:
            return
        if self._persist_timer is None or self._persist_timer.callback is None:
            self._persist_timer = self._timers.after(PERSIST_AFTER, self._persist_soon)

    def _persist_soon(self) -> None:
        if self.ledger.is_dirty:
            self._home.persist(self, _log_failure, sync=False)


def _log_failure(error: MillstreamError | None) -> None:
    if error is not None:
        log.warning("consumer state not written error=%s", error)
