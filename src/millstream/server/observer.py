"""Observer: the connections of the NATS door as the monitor shows them, past ones included."""

from collections import Counter, deque
from collections.abc import Mapping
from functools import partial

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.monitor.facts import AccountFacts, ConnectionFacts, SubscriptionFacts
from millstream.nats.client_info import user_of
from millstream.nats.session import Session
from millstream.nats.sessions import Sessions
from millstream.nats.system.account_figures import account_figures
from millstream.nats.transport.closed import Closed
from millstream.nats.transport.transport import Kind

CLOSED_KEPT = 10_000
CLOSED_SUBSCRIPTIONS = 32  # a closed connection keeps this many; the count stays exact
_TICK = 0.1

_SUMMED = ("pending_bytes", "subscriptions", "in_msgs", "out_msgs", "in_bytes", "out_bytes")
_NAMES = {reason.value: reason.text for reason in Closed}


class Observer:
    """Looks at sessions and hub when asked; hears of every connection that ends.

    It also keeps the hub's time, with which activity is stamped, to a tenth of a second.
    """

    def __init__(
        self, sessions: Sessions, clock: Clock, timers: Timers, keep: int = CLOSED_KEPT
    ) -> None:
        self._sessions = sessions
        self._clock = clock
        self._timers = timers
        self._closed: deque[ConnectionFacts] = deque(maxlen=keep)
        self._reasons: Counter[str] = Counter()
        sessions.watch_closing(self._closing)
        timers.every(_TICK, "the hub's time", self._tick)

    def connections(self) -> list[ConnectionFacts]:
        """Return every open connection."""
        return [self._look(session) for session in self._sessions.all()]

    def open_totals(self) -> dict[str, int]:
        """Return what all open connections add up to; cheaper than to look at each."""
        hub = self._sessions.hub
        cids = [cid for cid in hub.connections() if cid not in self._sessions.links]
        totals = {"num_connections": len(cids), "total": len(cids), **dict.fromkeys(_SUMMED, 0)}
        for cid in cids:
            stats = hub.connection_stats(cid)
            for name in _SUMMED:
                totals[name] += stats[name]
        return totals

    def subscriptions(self, cid: int, most: int = -1) -> tuple[SubscriptionFacts, ...]:
        """Return the subscriptions of an open connection, the first ``most`` or all of them."""
        session = self._sessions.session(cid)
        if session is None:
            return ()
        account = session.space.name if session.space is not None else ""
        return tuple(
            SubscriptionFacts(account, _text(subject), _text(queue), _text(sid), msgs, limit, cid)
            for subject, queue, sid, msgs, limit in self._sessions.hub.subscriptions(cid, most)
        )

    def closed(self) -> list[ConnectionFacts]:
        """Return the connections that ended last, oldest first."""
        return list(self._closed)

    def closed_by_reason(self) -> Mapping[str, int]:
        """Return how many connections ended for which reason since the start."""
        return dict(self._reasons)

    def accounts(self) -> list[AccountFacts]:
        """Return every account with its subject space."""
        accounts = self._sessions.reception.accounts
        return [
            AccountFacts(
                name=space.name,
                interest=space.interest.stats(),
                figures=partial(account_figures, self._sessions.hub, space),
                is_system=space is accounts.system,
                has_jetstream=space.account.jetstream,
                label=space.account.label,
                mappings=space.account.mappings,
                exports=space.account.exports,
                imports=space.account.imports,
            )
            for space in accounts
        ]

    def _tick(self) -> None:
        self._sessions.hub.now_ns = self._clock.time_ns()

    def _look(self, session: Session) -> ConnectionFacts:
        hub, cid = self._sessions.hub, session.cid
        stats, options = hub.connection_stats(cid), session.options
        transport = session.transport
        account = session.space.account if session.space is not None else None
        return ConnectionFacts(
            cid=cid,
            ip=transport.peer,
            port=transport.port or stats["port"],
            start_ns=session.liveness.started_ns,
            last_activity_ns=max(stats["last_ns"], session.liveness.started_ns),
            in_msgs=stats["in_msgs"],
            out_msgs=stats["out_msgs"],
            in_bytes=stats["in_bytes"],
            out_bytes=stats["out_bytes"],
            stalls=stats["stalls"],
            pending_bytes=stats["pending_bytes"],
            num_subscriptions=stats["subscriptions"],
            type="websocket" if transport.kind is Kind.WEBSOCKET else "nats",
            name=options.name,
            lang=options.lang,
            version=options.version,
            tls=transport.tls,
            tls_version=transport.tls_version,
            tls_cipher=transport.tls_cipher,
            tls_first=transport.tls_first,
            certificate=transport.certificate,
            rtt_ns=round(session.liveness.rtt * 1e9),
            user=user_of(session),
            account=account.name if account is not None else "",
            account_label=account.shown_name if account is not None else "",
        )

    def _closing(self, cid: int, reason: int) -> None:
        session = self._sessions.session(cid)
        text = _NAMES.get(reason, "Unknown State")
        self._reasons[text] += 1
        if session is None:  # turned away before it had one
            return
        last = self._look(session)._replace(
            stop_ns=self._clock.time_ns(),
            reason=text,
            pending_bytes=0,
            subscriptions=self.subscriptions(cid, CLOSED_SUBSCRIPTIONS),
        )
        self._closed.append(last)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
