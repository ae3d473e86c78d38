"""PeerLink: one connection to another server, whatever is at its other end."""

import logging
from typing import TYPE_CHECKING

import msgspec

from millstream.accounts.permissions import Rule
from millstream.accounts.rights import text_of
from millstream.kernel._hub import ALLOWED, DENIED
from millstream.links.announcements import Announcements
from millstream.links.demand import LinkKind, Wish
from millstream.links.held_wishes import HeldWishes
from millstream.nats.transport.closed import SLOW_CONSUMERS, Closed, reason_text
from millstream.wire import errors

if TYPE_CHECKING:
    from millstream.kernel._interest import Interest
    from millstream.links.exchange import Exchange
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.server_link import Judged

log = logging.getLogger(__name__)

_PING = b"PING\r\n"
_INTERNAL = (b"_R_.", b"$JS.ACK.")  # answers pass whatever the rules say


class Remote(msgspec.Struct):
    """What the other server said of itself."""

    id: str = ""
    name: str = ""
    version: str = ""
    cluster: str = ""
    domain: str = ""
    account: str = ""
    go: str = ""
    host: str = ""
    port: int = 0
    peer: str = ""  # its address, as the socket knows it


class LinkRules(msgspec.Struct, frozen=True):
    """Which subjects pass: what we ask for, what may come in, what may go out."""

    asked: Rule = Rule()
    incoming: Rule = Rule()
    outgoing: Rule = Rule()

    @property
    def guards_input(self) -> bool:
        """Whether messages that come in must be looked at."""
        return self.incoming.allow is not None or bool(self.incoming.deny)


class Pulse(msgspec.Struct):
    """Whether the other server is alive, and how far away."""

    deadline: float  # by when it must have said who it is
    started_ns: int
    pinged_at: float = 0.0
    unanswered: int = 0
    rtt_seconds: float = 0.0


class PeerLink:
    """What is told to and heard from one server; subclasses know how it introduces itself."""

    def __init__(
        self, exchange: "Exchange", cid: int, kind: LinkKind, remote: Remote, *, patience: float
    ) -> None:
        self.cid = cid
        self.kind = kind
        self.remote = remote
        self.cluster = b""
        self.isolated = False
        self.is_open = False
        self.rules = LinkRules()
        self.exchange = exchange
        self.hub = exchange.hub
        now = exchange.clock.monotonic()
        self.pulse = Pulse(now + patience, exchange.clock.time_ns(), pinged_at=now)
        self.told = Announcements(kind)
        self.held = HeldWishes(exchange.hub, cid)

    # ---- what it is told and says --------------------------------------------------------------

    def tell(self, account: str, wish: Wish, count: int) -> None:
        """Say how many here want it now, where that makes a difference over there."""
        line = self.told.news(account, wish, count, self.rules.asked)
        if line:
            self.hub.write(self.cid, line)
            self.exchange.flush_soon()

    def join(self, account: str) -> None:
        """Tell all that is wanted in an account, and every change from here on."""
        wished = self.exchange.demand(account).join(self)
        lines = [self.told.news(account, *item, self.rules.asked) for item in wished]
        if lines:
            self.hub.write(self.cid, b"".join(lines))

    def wish(self, account: bytes, wish: Wish, weight: int, origin: bytes) -> None:
        """Take up what the other server wants, its new weight, or (0) that it wants it no more."""
        space = self.space_named(account)
        if space is None:
            return
        if not weight:
            self.held.drop(space, account, wish)
        elif not self.held.take(space, account, wish, weight, self.rules.outgoing, origin):
            self.hub.write(self.cid, errors.err("Invalid Subscription"))
            return
        if (account, wish) in self.held or not weight:
            self.exchange.demand(space.name).set(self.cid, wish, weight)

    def space_named(self, account: bytes) -> "Space | None":
        """Return the account that the other server means."""
        raise NotImplementedError

    def may_publish(self, subject: bytes) -> int:
        """Judge a message that comes in."""
        if subject.startswith(_INTERNAL) or self.rules.incoming.permits(text_of(subject)):
            return ALLOWED
        self.trespass(subject)
        return DENIED

    def mapped(self, subject: bytes) -> bytes:
        """Return where a message goes by the account's mappings."""
        return subject

    def trespass(self, subject: bytes) -> None:
        """Take that the other server sent what it may not send."""

    @property
    def judged(self) -> "Judged | None":
        """Return the rights of the other server, None where it may do everything."""
        return None

    def space_of(self, account: bytes) -> "Interest | None":
        """Return the subjects of an account that messages are for, None to drop them."""
        space = self.space_named(account)
        return None if space is None else space.interest

    # ---- its life ------------------------------------------------------------------------------

    def connect(self, options: bytes) -> None:
        """Take CONNECT."""
        raise NotImplementedError

    def info(self, info: bytes) -> None:
        """Take INFO."""
        raise NotImplementedError

    def err(self, text: str) -> None:
        """Take -ERR."""
        log.error("%s: the other server says %s", self.label, text)

    def refuse(self, code: int) -> None:
        """Say why the kernel closes the link."""
        if not self.is_open:
            self.hub.write(self.cid, errors.err(errors.AUTHORIZATION_VIOLATION))
        log.error("%s: it sent what no server sends (%d)", self.label, code)

    def end(self, text: str, reason: Closed) -> None:
        """Say why, and close."""
        log.error("%s: %s", self.label, text)
        self.hub.write(self.cid, errors.err(text))
        self.hub.close_connection(self.cid, reason)

    def pong(self) -> None:
        """Note that the other server is alive."""
        self.pulse.unanswered = 0
        self.pulse.rtt_seconds = self.exchange.clock.monotonic() - self.pulse.pinged_at

    def ping(self, interval: float, most: int) -> None:
        """Ask whether the other server is alive, if it is time; one that never says so goes."""
        now = self.exchange.clock.monotonic()
        if not self.is_open:
            if now >= self.pulse.deadline:
                self.end(errors.AUTHENTICATION_TIMEOUT, Closed.HANDSHAKE)
            return
        if now - self.pulse.pinged_at < interval:
            return
        if self.hub.take_activity(self.cid):
            self.pulse.unanswered = 0
        if self.pulse.unanswered >= most:
            self.end(errors.STALE_CONNECTION, Closed.STALE)
            return
        self.ask()

    def ask(self) -> None:
        """Send a PING."""
        self.pulse.unanswered += 1
        self.pulse.pinged_at = self.exchange.clock.monotonic()
        self.hub.write(self.cid, _PING)

    def closed(self, reason: int) -> None:
        """Forget all that the other server wanted and was told."""
        kind = "routes" if self.kind is LinkKind.ROUTE else "leafs"
        self.exchange.given_up[f"slow_{kind}"] += reason in SLOW_CONSUMERS
        self.exchange.given_up[f"stale_{kind}"] += reason == Closed.STALE
        self.is_open = False
        for demand in self.exchange.demands():
            demand.leave(self.cid)
        for account in self.held.accounts():
            space = self.space_named(account)
            if space is not None:
                space.leave(self.cid)
        log.info("%s: closed: %s", self.label, reason_text(reason))

    @property
    def label(self) -> str:
        """How the log names it."""
        return f"link {self.cid} to {self.remote.name or self.remote.peer}"
