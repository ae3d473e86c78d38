"""PushDesk: delivers to a fixed subject, with heartbeats and flow control."""

import secrets

from millstream.clock import Clock
from millstream.consumers.config import ConsumerConfig
from millstream.consumers.dispatch import Dispatch
from millstream.consumers.outlet import Fields, Outlet
from millstream.consumers.reading.feed import PAGE_BYTES, Feed

MAX_WINDOW = 32 * 1024 * 1024
FIRST_WINDOW = MAX_WINDOW // 16
FOREVER = float("inf")
RETRY = 0.01  # until a full outbox is looked at again


class PushState:
    """How much was sent since the client last said that it keeps up. Pure: callers pass ``now``."""

    def __init__(self, config: ConsumerConfig) -> None:
        self.subject = config.deliver_subject.encode()
        self.stalled_on = b""  # the flow-control subject that an answer is awaited on
        self._heartbeat = config.idle_heartbeat / 1e9
        self._heartbeat_at = 0.0
        self._flow_control = config.flow_control
        self._window = FIRST_WINDOW
        self._outstanding = 0
        self._asked_at = 0  # outstanding bytes when the answer was asked for

    @property
    def may_send(self) -> bool:
        """Whether the window is open."""
        return not self._flow_control or self._outstanding <= self._window

    @property
    def stretch(self) -> int:
        """Return how many bytes may go at once: what comes behind them is to be looked at.

        Up to where an answer is asked for, or else to the end of the window, and a byte more, so
        that the message that goes over it is the last.
        """
        if not self._flow_control:
            return PAGE_BYTES
        end = self._window if self.stalled_on else self._window // 2
        return max(end - self._outstanding, 0) + 1

    def sent(self, size: int, now: float) -> None:
        """Note a delivery, which also is a sign of life."""
        self._outstanding += size
        self.beat(now)

    def flow_token(self, *, wanted: bool = False) -> str:
        """Return the token of a flow-control request when one is due, else an empty string.

        ``wanted``: an answer is needed, however little was sent.
        """
        if not self._flow_control or self.stalled_on:
            return ""
        if not wanted and self._outstanding <= self._window // 2:
            return ""
        self._asked_at = self._outstanding
        return secrets.token_hex(2)

    def open_window(self) -> None:
        """Open the window again, and wider."""
        self.stalled_on = b""
        self._outstanding -= self._asked_at
        self._window = min(2 * self._window, MAX_WINDOW)

    def beat(self, now: float) -> None:
        """Start the silence anew."""
        if self._heartbeat:
            self._heartbeat_at = now + self._heartbeat

    def heartbeat_due(self, now: float) -> bool:
        """Whether the client has heard nothing for too long."""
        return 0 < self._heartbeat_at <= now

    def next_heartbeat(self, now: float) -> float:
        """Return when a heartbeat is due, infinity when never."""
        if not self._heartbeat:
            return FOREVER
        if not self._heartbeat_at:
            self.beat(now)
        return self._heartbeat_at


class PushDesk:
    """Sends one feed to one subject for as long as somebody listens there."""

    def __init__(
        self,
        config: ConsumerConfig,
        feed: Feed,
        dispatch: Dispatch,
        outlet: Outlet,
        clock: Clock,
    ) -> None:
        self.state = PushState(config)
        self.retry_at = FOREVER
        self._feed = feed
        self._dispatch = dispatch
        self._outlet = outlet
        self._clock = clock
        self._group = config.deliver_group.encode()
        self._acks_by_flow = config.ack_policy == "flow_control"
        self._flow_prefix = f"$JS.FC.{feed.stream.name}.{feed.name}."

    @property
    def waiting(self) -> int:
        """Return how many pull requests wait: nobody asks here."""
        return 0

    @property
    def is_bound(self) -> bool:
        """Whether someone listens."""
        return self._outlet.is_bound(self.state.subject, self._group)

    @property
    def is_heard(self) -> bool:
        """Whether someone listens, in whichever queue group."""
        return self._outlet.is_heard(self.state.subject)

    def has_clients(self) -> bool:
        """Whether somebody waits for messages."""
        return self.is_bound

    def take_on(self, config: ConsumerConfig) -> None:
        """Deliver to another subject or queue group from now on."""
        self.state.subject = config.deliver_subject.encode()
        self._group = config.deliver_group.encode()
        self._dispatch.take_on(config)

    def request(self, reply: bytes, body: bytes) -> None:
        """Refuse a pull request."""
        self._outlet.status(reply, "409 Consumer is push based")

    def serve(self, budget: int) -> int:
        """Deliver up to ``budget`` messages; returns how many went."""
        state, sent, self.retry_at = self.state, 0, FOREVER
        if not self.is_bound:
            return 0
        while sent < budget and state.may_send:
            room = self._outlet.room(state.subject)
            if room <= 1:
                self.retry_at = self._clock.monotonic() + RETRY
                break
            most = min(room // 2, PAGE_BYTES, state.stretch)
            count = min(budget - sent, self._outlet.heard_for(state.subject))
            parcel = self._feed.next(count, most)
            if parcel is None:
                if self._feed.is_blocked and self._acks_by_flow:
                    self._ask_for_flow(wanted=True)
                break
            if not self._dispatch.fits(parcel, room):
                self._feed.put_back(parcel)
                self.retry_at = self._clock.monotonic() + RETRY
                break
            size = self._dispatch.send([state.subject] * parcel.page.count, parcel)
            state.sent(size, self._clock.monotonic())
            sent += parcel.page.count
            self._ask_for_flow()
        return sent

    def _ask_for_flow(self, *, wanted: bool = False) -> None:
        token = self.state.flow_token(wanted=wanted)
        if token:
            self.state.stalled_on = (self._flow_prefix + token).encode()
            self._outlet.status(
                self.state.subject, "100 FlowControl Request", (), self.state.stalled_on
            )

    def open_window(self, subject: bytes) -> bool:
        """Open the window: the client has seen everything up to the request."""
        if subject != self.state.stalled_on:
            return False
        self.state.open_window()
        return True

    def beat(self, now: float, positions: Fields) -> None:
        """Send the heartbeat that is due."""
        if not self.state.heartbeat_due(now):
            return
        if self.is_bound:
            if self.state.stalled_on:
                positions += ((b"Nats-Consumer-Stalled", self.state.stalled_on),)
            self._outlet.status(self.state.subject, "100 Idle Heartbeat", positions)
            if self._acks_by_flow and len(self._feed.ledger.pending):
                self._ask_for_flow(wanted=True)  # what came since the last answer
        self.state.beat(now)

    def next_deadline(self, now: float) -> float:
        """Return when ``beat`` or ``serve`` is due, infinity when never."""
        return min(self.state.next_heartbeat(now), self.retry_at)

    def close(self, description: str) -> None:
        """Nobody waits for a push consumer."""
