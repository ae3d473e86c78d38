"""PullDesk: serves the clients that ask a consumer for messages."""

from itertools import islice

from millstream.clock import Clock
from millstream.consumers.advisories import Advisories
from millstream.consumers.config import ConsumerConfig
from millstream.consumers.dispatch import Dispatch
from millstream.consumers.ledger import FOREVER
from millstream.consumers.outlet import Fields, Outlet, Routes
from millstream.consumers.pull import requests
from millstream.consumers.pull.endings import Endings
from millstream.consumers.pull.priority_group import PriorityGroup
from millstream.consumers.pull.requests import BadPull, PullRequest, Shares, WaitingLine
from millstream.consumers.reading.feed import PAGE_BYTES, Feed, FeedParcel

RETRY = 0.01  # until a full outbox is looked at again


class PullDesk:
    """A line of requests over one feed; ``wake_at`` says when to look again."""

    def __init__(
        self,
        config: ConsumerConfig,
        feed: Feed,
        dispatch: Dispatch,
        outlet: Outlet,
        clock: Clock,
        advisories: Advisories,
    ) -> None:
        self.config = config
        self.line = WaitingLine(prioritized=config.priority_policy == "prioritized")
        self.retry_at = FOREVER
        self._endings = Endings(self.line, outlet)
        self.group = PriorityGroup(config, self.line, feed, self._endings, clock, advisories)
        self._feed = feed
        self._dispatch = dispatch
        self._outlet = outlet
        self._clock = clock

    def take_on(self, config: ConsumerConfig) -> None:
        """Adopt a configuration."""
        self.config = config
        self.group.take_on(config)
        self._dispatch.take_on(config)

    @property
    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self.line)

    @property
    def is_bound(self) -> bool:
        """Whether someone listens on a push subject: there is none here."""
        return False

    @property
    def is_heard(self) -> bool:
        """Whether someone listens on a push subject: there is none here."""
        return False

    def has_clients(self) -> bool:
        """Whether somebody waits for messages."""
        return len(self.line) > 0

    # -- requests ----------------------------------------------------------------------------

    def request(self, reply: bytes, body: bytes) -> None:
        """Take a request: let it wait, or say why not."""
        now = self._clock.monotonic()
        try:
            request = requests.parse(reply, body, self.config, now)
            self._admit(request, now)
        except BadPull as bad:
            self._outlet.status(reply, f"{bad.code} {bad.description}")

    def _admit(self, request: PullRequest, now: float) -> None:
        pin = self.group.pin
        if pin.id and request.pin:
            if request.pin != pin.id:
                raise BadPull(423, "Nats-Pin-Id mismatch")
            pin.renew(now)
        if len(self.line) >= self.config.max_waiting:
            self._endings.end_unheard()
        if request.no_wait:
            available = self._feed.available()
            if not available and not request.expires_at:
                raise BadPull(404, "No Messages")
            if 0 < available < self.line.wanted():
                raise BadPull(408, "Requests Pending")
        if len(self.line) >= self.config.max_waiting:
            if request.heartbeat:
                return  # a client with heartbeats finds out by itself, and does not ask in a loop
            raise BadPull(409, "Exceeded MaxWaiting")
        self.line.add(request)
        if request.expires_at and request.expires_at <= now:  # a time below zero was asked for
            self._endings.end(request, "408 Request Timeout")

    # -- service -----------------------------------------------------------------------------

    def serve(self, budget: int) -> int:
        """Deliver up to ``budget`` messages; returns how many went."""
        sent, self.retry_at = 0, FOREVER
        if len(self.line) and self._feed.is_paused:
            self._endings.end_impatient()
            return 0
        while sent < budget:
            request = self.group.turn()
            if request is None:
                self._nobodys_turn()
                break
            if not self._outlet.is_heard(request.reply):
                self.line.remove(request)
                continue
            room = self._outlet.room(request.reply)
            if room <= 1:
                self.retry_at = self._clock.monotonic() + RETRY
                break
            most, room = self._reach(request, room)
            parcel = self._feed.next(min(most, budget - sent), self._page_bytes(request, room))
            if parcel is None:
                self._nothing_left()
                break
            if not self._dispatch.fits(parcel, room):
                self._feed.put_back(parcel)
                self.retry_at = self._clock.monotonic() + RETRY
                break
            sent += self._hand_out(request, parcel)
        return sent

    def _reach(self, request: PullRequest, room: int) -> tuple[int, int]:
        """Return how many messages may go before a request needs a look, and the least room."""
        if len(self.line) == 1:
            most = self.group.helps_with(request) if self.group.is_chosen else request.batch
            return min(most, self._outlet.heard_for(request.reply)), room
        if self.group.is_chosen or self._ends_soon(request):
            return 1, room
        available = self._feed.available()
        least = min(map(self._room, islice(self.line, 1, available)), default=room)
        if least <= 1:  # its turn comes, and then it is looked at
            return 1, room
        most = available if 0 < available <= len(self.line) else self.line.wanted()
        return most, min(least, room)

    def _room(self, request: PullRequest) -> int:
        """Return how many bytes a request's listeners take, 0 where each message needs a look."""
        reply = request.reply
        if not self._outlet.is_heard(reply) or self._ends_soon(request):
            return 0
        return self._outlet.room(reply)

    def _ends_soon(self, request: PullRequest) -> bool:
        """Whether its listeners unsubscribe before they have all that it asks for."""
        return self._outlet.heard_for(request.reply) < request.batch

    def _page_bytes(self, request: PullRequest, room: int) -> int:
        """Return how much to read at once: what whoever waits takes, and some for the frames."""
        wanted = self.line.wanted_bytes(PAGE_BYTES) * 2 if request.limited else PAGE_BYTES
        return min(room // 2, wanted, PAGE_BYTES)

    def _hand_out(self, request: PullRequest, parcel: FeedParcel) -> int:
        """Deliver a parcel to whoever's turn it is, message by message; returns how many went.

        Statuses go between the messages, where the requests that they are for have ended.
        """
        shares, went = self._share(request, parcel), 0
        for ended in shares.ended:
            self._send(parcel.part(went, ended.after), shares.routes[went : ended.after])
            went = ended.after
            self.group.on_refusal(ended.request)
            self._endings.tell(ended.request, ended.status)
        count = len(shares.routes)
        self._send(parcel.part(went, count), shares.routes[went:] if went else shares.routes)
        now = self._clock.monotonic()
        for served in shares.served:
            served.note_activity(now)
        if shares.is_refused and count < parcel.page.count:
            self._feed.put_back(parcel.part(count, parcel.page.count))
        return count

    def _share(self, request: PullRequest, parcel: FeedParcel) -> Shares:
        count = parcel.page.count
        if len(self.line) == 1 and not request.limited:
            return self.line.give(request, count)
        if not self.group.is_chosen and self.line.is_even(count):
            return self.line.share_evenly(count)
        return self.line.share(
            self._dispatch.sizes(parcel), request if self.group.is_chosen else None
        )

    def _send(self, parcel: FeedParcel, routes: Routes) -> None:
        if routes:
            self._dispatch.send(routes, parcel, self.group.mark() if self.group.is_pinned else ())

    def _nobodys_turn(self) -> None:
        """Answer those who do not want to wait: what there is goes to others."""
        if len(self.line) and not self._feed.waits_for_acks:
            self._feed.look()
            self._endings.end_impatient()

    def _nothing_left(self) -> None:
        """Answer those who do not want to wait, unless there is something that may not go yet."""
        if not self._feed.is_blocked:
            self._endings.end_impatient()

    # -- time --------------------------------------------------------------------------------

    def beat(self, now: float, positions: Fields) -> None:
        """Send the heartbeats that are due, and end the requests that are over."""
        if self.group.pin.has_ended(now):
            self.group.unpin("timeout")
        if self.line.next_deadline() > now:
            return
        for request in self.line:
            if request.expires_at and request.expires_at <= now:
                self._endings.end(request, "408 Request Timeout")
            elif request.has_enough:  # the reference looks no earlier, where acks are missing
                self._endings.end_empty(request)
            elif request.heartbeat_at and request.heartbeat_at <= now:
                self._outlet.status(request.reply, "100 Idle Heartbeat", positions)
                request.note_activity(now)

    def next_deadline(self, now: float) -> float:
        """Return when ``beat`` or ``serve`` is due, infinity when never."""
        return min(self.line.next_deadline(), self.group.pin.next_deadline, self.retry_at)

    def open_window(self, subject: bytes) -> bool:
        """Refuse an answer to flow control: whoever asks says how much comes."""
        return False

    def close(self, description: str) -> None:
        """Send everybody away."""
        for request in self.line.clear():
            self._outlet.status(request.reply, f"409 {description}")
