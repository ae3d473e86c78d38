"""Pump: delivers whenever something happens that lets a consumer's records go."""

from functools import partial
from typing import TYPE_CHECKING, Protocol

from millstream.clock import Clock
from millstream.consumers.config import ConsumerConfig
from millstream.consumers.idleness import Idleness
from millstream.consumers.ledger import FOREVER
from millstream.consumers.outlet import Fields, Outlet
from millstream.consumers.reading.claim import ConsumerClaim
from millstream.consumers.reading.feed import Feed
from millstream.consumers.state import StateWriter, log_failure
from millstream.delivery.timers import Timer, Timers
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_MESSAGES = 1024  # delivered in one turn; whoever wants more waits for the next


class Desk(Protocol):
    """Whom a consumer delivers to: the clients that ask, or a subject."""

    def has_clients(self) -> bool:
        """Whether somebody waits for messages."""
        ...

    def take_on(self, config: ConsumerConfig) -> None:
        """Adopt a configuration."""
        ...

    def request(self, reply: bytes, body: bytes) -> None:
        """Take a pull request, or refuse it."""
        ...

    def open_window(self, subject: bytes) -> bool:
        """Take an answer to flow control; whether it was awaited."""
        ...

    def serve(self, budget: int) -> int:
        """Deliver up to ``budget`` messages; returns how many went."""
        ...

    def beat(self, now: float, positions: Fields) -> None:
        """Do what is due by now: heartbeats, and the end of requests."""
        ...

    def next_deadline(self, now: float) -> float:
        """Return when ``beat`` or ``serve`` is due, infinity when never."""
        ...

    def close(self, description: str) -> None:
        """Send everybody away."""
        ...


class ConsumerPump:
    """Moves records from the feed to the desk, and sees to it that the rest is not forgotten."""

    def __init__(
        self,
        config: ConsumerConfig,
        feed: Feed,
        desk: Desk,
        outlet: Outlet,
        state: StateWriter,
        claim: ConsumerClaim,
        idleness: Idleness,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self.idleness = idleness
        self.answered_to = 0  # nothing of what was read by then is still to be answered
        self._feed = feed
        self._desk = desk
        self._outlet = outlet
        self._state = state
        self._claim = claim
        self._clock = clock
        self._timers = timers
        self._timer: Timer | None = None
        self._unwatch: Callable[[], None] | None = None
        self._is_running = False
        self._is_asked = False  # by a request that was not looked at yet
        self._is_closed = False
        self._is_counted = self._must_count(config)

    def take_on(self, config: ConsumerConfig) -> None:
        """Adopt a configuration."""
        self._is_counted = self._must_count(config)
        self._feed.take_on(config)
        self._desk.take_on(config)
        if self._unwatch is not None:  # for what the filters were before
            self._unwatch()
            self._unwatch = None
            self._watch()

    def close(self, description: str) -> None:
        """Send everybody away and deliver nothing any more."""
        self._is_closed = True
        self._outlet.release()
        self._desk.close(description)
        self._watch()
        self.idleness.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._outlet.flush()

    # -- delivery ----------------------------------------------------------------------------

    def request(self, reply: bytes, body: bytes) -> None:
        """Take a pull request."""
        self.idleness.used()
        self._is_asked = True
        self._desk.request(reply, body)

    def run(self) -> None:
        """Deliver what can be delivered now, and see to it that the rest is not forgotten."""
        if self._is_running or self._is_closed or self._outlet.is_holding:
            return
        feed, ledger = self._feed, self._feed.ledger
        self._is_asked = False
        counted, sent = self._is_counted, 0
        if counted:
            self._outlet.hold()
        self._is_running = True
        try:
            feed.follow()
            feed.ready_at = FOREVER  # nobody may ask the feed this time
            before = ledger.delivered[1]
            sent = self._desk.serve(STEP_MESSAGES)
            if sent and not feed.tracks and self._claim.is_needed:
                self._claim.let_go(list(feed.cursor.between(before, ledger.delivered[1])))
        finally:
            self._is_running = False
            if counted:
                self._count(sent)
        now = self._clock.monotonic()
        if sent:
            self.idleness.used()
            self._state.write_soon()
            self._outlet.flush()
            if ledger.policy.shortest_wait:
                self.wake_at(now + ledger.policy.shortest_wait)
        self.wake_at(now if sent >= STEP_MESSAGES else feed.ready_at)
        self.wake_at(self._desk.next_deadline(now))
        self._watch()
        if feed.missing is not None:
            self._wait_for_cold()

    def _wait_for_cold(self) -> None:
        """Go on once the records that are missing came from cold history."""

        def arrived(error: MillstreamError | None) -> None:
            self._feed.arrived(error)
            self.run()

        missing = self._feed.take_missing()
        if missing is not None:
            missing.wait(arrived)

    def _must_count(self, config: ConsumerConfig) -> bool:
        """Say whether each delivery is written down before it goes: only so many are allowed."""
        return config.max_deliver > 0 and self._feed.tracks and self._state.is_persisted

    def _count(self, sent: int) -> None:
        """Let what was held back go once it is written down how often it was delivered.

        The process may die at any moment: what it forgot to count it would deliver once more
        than allowed. Written is enough for that; only a power cut asks for a sync.
        """
        if not sent:
            self._outlet.release()
            return

        def counted(error: MillstreamError | None) -> None:
            log_failure(error)  # deliveries go on while nothing can be written
            self._outlet.release()
            self._outlet.flush()
            self.run()

        self._state.write(counted, sync=False)

    def _watch(self) -> None:
        """Hear of new records only while somebody waits for them: idle consumers cost nothing."""
        wanted = not self._is_closed and self._desk.has_clients()
        if wanted and self._unwatch is None:
            filters = self._feed.cursor.filters  # others' records wake nobody here
            self._unwatch = self._feed.stream.watch(self._on_growth, filters)
        elif not wanted and self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    def _on_growth(self) -> None:
        """Deliver what came; that something else came is no look at it."""
        cursor = self._feed.cursor
        cursor.is_woken = True
        self.run()
        cursor.is_woken = False

    # -- answers -----------------------------------------------------------------------------

    @property
    def reached(self) -> int:
        """Return up to where records were delivered, or looked at and left behind."""
        return max(self._feed.ledger.delivered[1], self._feed.cursor.read_to)

    def on_answers(self, replies: list[bytes], *, waits_changed: bool, makes_way: bool) -> None:
        """Confirm to these once the ledger is safe; deliver what the answers made room for."""
        self.idleness.used()
        ledger = self._feed.ledger
        if not len(ledger.pending) and ledger.delivered[0]:
            self.answered_to = self._feed.cursor.read_to
        if replies:
            self._state.once_synced(partial(self._confirm, replies))
        else:
            self._state.write_soon()
        if waits_changed:
            self.wake_at(ledger.pending.next_deadline())
        if makes_way or self._is_asked:  # who waits is not looked at without a reason
            self.run()

    def confirm(self, reply: bytes) -> None:
        """Confirm to this one once the ledger is safe."""
        self._state.once_synced(partial(self._confirm, [reply]))

    def _confirm(self, replies: list[bytes]) -> None:
        for reply in replies:
            self._outlet.reply(reply)
        self._outlet.flush()

    def on_flow_reply(self, subject: bytes, acked_to: int | None) -> None:
        """Go on: the client has seen everything up to the flow-control request."""
        if not self._desk.open_window(subject):
            return
        if acked_to is not None:
            self._claim.let_go(self._feed.ledger.ack_all(acked_to))
            self._state.write_soon()
        self.run()

    def on_removal(self) -> None:
        """Go on after pending deliveries of removed records ended."""
        self._state.write_soon()
        self.run()
        self._outlet.flush()

    # -- time --------------------------------------------------------------------------------

    def on_listener(self, bound: bool) -> None:
        """Deliver to who subscribed to a push consumer's subject, when the loop comes round."""
        self.idleness.used()
        self.wake_soon()

    def wake_soon(self, delay: float = 0.0) -> None:
        """Deliver in a later turn of the loop, after ``delay`` seconds at the latest."""
        self.wake_at(self._clock.monotonic() + delay)

    def wake_at(self, deadline: float) -> None:
        """Look at waits, heartbeats and deliveries at ``deadline`` at the latest."""
        if self._is_closed or deadline == FOREVER:
            return
        if self._timer is not None and self._timer.callback is not None:
            if self._timer.deadline <= deadline:
                return
            self._timer.cancel()
        self._timer = self._timers.at(deadline, self._on_time)

    def _on_time(self) -> None:
        now, ledger = self._clock.monotonic(), self._feed.ledger
        if self._feed.expire(now):
            self._state.write_soon()
        self._desk.beat(now, self._positions())
        self.run()
        self._outlet.flush()
        self.wake_at(min(ledger.pending.next_deadline(), self._desk.next_deadline(now)))

    def _positions(self) -> Fields:
        """Return what heartbeats tell: the last delivery, and up to where the stream was read."""
        return (
            (b"Nats-Last-Consumer", b"%d" % self._feed.ledger.delivered[0]),
            (b"Nats-Last-Stream", b"%d" % self.reached),
        )
