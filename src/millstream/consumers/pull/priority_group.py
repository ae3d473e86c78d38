"""PriorityGroup: whose turn it is among the clients that ask, by the priority policy."""

from millstream.clock import Clock
from millstream.consumers.advisories import Advisories
from millstream.consumers.config import ConsumerConfig
from millstream.consumers.outlet import Fields
from millstream.consumers.pull.endings import Endings
from millstream.consumers.pull.pin import Pin
from millstream.consumers.pull.requests import PullRequest, WaitingLine
from millstream.consumers.reading.feed import Feed


class PriorityGroup:
    """Chooses a request of the line; keeps the pin where one client gets everything."""

    def __init__(
        self,
        config: ConsumerConfig,
        line: WaitingLine,
        feed: Feed,
        endings: Endings,
        clock: Clock,
        advisories: Advisories,
    ) -> None:
        self.pin = Pin(config.priority_timeout / 1e9)
        self._claimed: PullRequest | None = None  # was pinned just now, and got nothing yet
        self._line = line
        self._feed = feed
        self._endings = endings
        self._clock = clock
        self._advisories = advisories
        self.take_on(config)

    def take_on(self, config: ConsumerConfig) -> None:
        """Adopt a configuration."""
        self._names = config.priority_groups
        self.pin.timeout = config.priority_timeout / 1e9
        self.is_overflow = config.priority_policy == "overflow"
        self.is_pinned = config.priority_policy == "pinned_client"
        self.is_chosen = self.is_overflow or self.is_pinned  # it takes more than the next turn

    def turn(self) -> PullRequest | None:
        """Return whose turn it is, None when nobody's."""
        for request in self._line:
            if self.is_overflow and not self.helps_with(request):
                continue
            if self.is_pinned and not self._is_pinned(request):
                continue
            return request
        return None

    def helps_with(self, request: PullRequest) -> int:
        """Return how many messages there are for this one to help with."""
        return request.helps_with(self._feed.left, self._feed.in_flight)

    # -- the pin -----------------------------------------------------------------------------

    def _is_pinned(self, request: PullRequest) -> bool:
        """Whether this one holds the pin, or gets it now."""
        if self.pin.id and request.pin == self.pin.id:
            return True
        if not self._feed.has_some:
            return False
        if request.pin:
            self._endings.end(request, "423 Nats-Wrong-Pin-Id")
            return False
        if not self.pin.id:
            if not request.group:
                return True  # a request in no group is served, and holds no pin
            request.pin = self.pin.assign(self._clock.monotonic(), self._clock.time_ns())
            self._claimed = request
            fields = {"group": request.group, "pinned_id": self.pin.id}
            self._publish("PINNED", "consumer_group_pinned", **fields)
        return request.pin == self.pin.id

    def mark(self) -> Fields:
        """Return what a delivery tells of the pin, which its holder has used now."""
        self._claimed = None
        return ((b"Nats-Pin-Id", self.pin.id.encode()),)

    def on_refusal(self, request: PullRequest) -> None:
        """Take the pin back from a client that was pinned for a message and gets none."""
        if request is self._claimed:
            self._claimed = None
            self.pin.release()

    def unpin(self, reason: str) -> None:
        """Let another client be pinned."""
        if self.pin.release() or reason == "admin":
            fields = {"group": self._names[0], "reason": reason}
            self._publish("UNPINNED", "consumer_group_unpinned", **fields)

    def _publish(self, kind: str, type_name: str, **fields: str) -> None:
        account = self._feed.stream.account
        self._advisories.publish(kind, type_name, account=account, **fields)
