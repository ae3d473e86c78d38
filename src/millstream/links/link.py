"""Link: one connection to another server, whatever is at its other end."""

import logging
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from millstream.accounts.permissions import Rule
from millstream.accounts.rights import text_of
from millstream.kernel._hub import ALLOWED, DENIED
from millstream.kernel._interest import Interest
from millstream.links.demand import LOOP_PREFIX, LinkKind, Wish
from millstream.links.narrowing import narrowed
from millstream.nats.transport.closed import Closed, reason_text
from millstream.wire import errors

if TYPE_CHECKING:
    from millstream.links.exchange import Exchange
    from millstream.nats.accounts.accounts import Space

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


class Link:
    """What is told to and heard from one server; subclasses know how it introduces itself."""

    verb = b"LS"

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
        self._told: dict[tuple[str, Wish], int] = {}
        self._asked: dict[tuple[bytes, Wish], tuple[str, ...]] = {}
        self._held: Counter[tuple[bytes, bytes, bytes]] = Counter()

    # ---- what it is told -----------------------------------------------------------------------

    def tell(self, account: str, wish: Wish, count: int) -> None:
        """Say how many here want it now, where that makes a difference over there."""
        line = self._news(account, wish, count)
        if line:
            self.hub.write(self.cid, line)
            self.exchange.flush_soon()

    def _news(self, account: str, wish: Wish, count: int) -> bytes:
        before = self._told.get((account, wish), 0)
        if count == before or not self._may_ask(wish):
            return b""
        if count:
            self._told[account, wish] = count
        else:
            del self._told[account, wish]
        if not wish[1] and bool(before) == bool(count):
            return b""
        return self._line(account, wish, count)

    def _may_ask(self, wish: Wish) -> bool:
        if wish[0].startswith(LOOP_PREFIX):
            return True
        return self.rules.asked.permits(text_of(wish[0]), text_of(wish[1]))

    def _line(self, account: str, wish: Wish, count: int) -> bytes:
        subject, queue = wish
        words = [self.verb + (b"+" if count else b"-"), *self._place(account), subject]
        if queue:
            words.append(queue)
            if count:
                words.append(b"%d" % count)
        return b" ".join(words) + b"\r\n"

    def _place(self, account: str) -> tuple[bytes, ...]:
        """Return how the account is named in a line, if at all."""
        return ()

    def join(self, account: str) -> None:
        """Tell all that is wanted in an account, and every change from here on."""
        wished = self.exchange.demand(account).join(self)
        lines = [self._news(account, wish, count) for wish, count in wished]
        if lines:
            self.hub.write(self.cid, b"".join(lines))

    # ---- what it says --------------------------------------------------------------------------

    def wish(self, account: bytes, wish: Wish, weight: int, origin: bytes) -> None:
        """Take up what the other server wants, its new weight, or (0) that it wants it no more."""
        space = self.space_named(account)
        if space is None:
            return
        if weight:
            self._want(space, account, wish, weight, origin)
        elif (account, wish) in self._asked:
            self._unwant(space, account, wish)

    def space_named(self, account: bytes) -> "Space | None":
        """Return the account that the other server means."""
        raise NotImplementedError

    def _want(self, space: "Space", account: bytes, wish: Wish, weight: int, origin: bytes) -> None:
        subject, queue = wish
        patterns = tuple(narrowed(text_of(subject), self._outgoing(subject)))
        deny = tuple(p.encode("utf-8", "surrogateescape") for p in self.rules.outgoing.filters())
        is_new = (account, wish) not in self._asked
        for pattern in (p.encode("utf-8", "surrogateescape") for p in patterns):
            if not self.hub.wish(
                self.cid, account, space.interest, pattern, queue, weight, deny, origin
            ):
                self.hub.write(self.cid, errors.err("Invalid Subscription"))
                return
            self._held[account, pattern, queue] += is_new
        self._asked[account, wish] = patterns
        self.exchange.demand(space.name).set(self.cid, wish, weight)
        if is_new:
            space.listened(self.cid, _sid(wish), subject)

    def _outgoing(self, subject: bytes) -> Rule:
        return Rule() if subject.startswith(LOOP_PREFIX) else self.rules.outgoing

    def _unwant(self, space: "Space", account: bytes, wish: Wish) -> None:
        for text in self._asked.pop((account, wish)):
            key = (account, text.encode("utf-8", "surrogateescape"), wish[1])
            self._held[key] -= 1
            if self._held[key] <= 0:
                del self._held[key]
                self.hub.unwish(self.cid, *key)
        self.exchange.demand(space.name).set(self.cid, wish, 0)
        space.unlistened(self.cid, _sid(wish))

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
        self.is_open = False
        for demand in self.exchange.demands():
            demand.leave(self.cid)
        for space in {name: None for name, _ in self._asked}:
            known = self.space_named(space)
            if known is not None:
                known.leave(self.cid)
        log.info("%s: closed: %s", self.label, reason_text(reason))

    @property
    def label(self) -> str:
        """How the log names it."""
        return f"link {self.cid} to {self.remote.name or self.remote.peer}"


def _sid(wish: Wish) -> bytes:
    return b" ".join(wish)
