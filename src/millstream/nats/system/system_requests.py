"""SystemRequests: what the system account may ask of the server, ``$SYS.REQ.…``."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.kernel._batch import Batch
from millstream.nats.system.account_requests import QUESTIONS, AccountRequests, Endpoint
from millstream.nats.system.server_card import ServerCard
from millstream.nats.system.system_query import RequestRefused, answered, wanted_by
from millstream.nats.transport.closed import Closed

if TYPE_CHECKING:
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.sessions import Sessions
    from millstream.nats.system.system_events import SystemEvents

Order = Callable[[], None]

_ORDERS = ("RELOAD", "KICK", "LDM")
_OWN = ("IDZ", "STATSZ")


class SystemRequests:
    """A sink of the system account.

    ``endpoints`` are those of monitoring (VARZ, CONNZ, …); ``orders`` is RELOAD, if the server can
    be told so. What nobody here answers has no subscriber, so that whoever asks hears so at once.
    """

    def __init__(
        self,
        sessions: "Sessions",
        system: "Space",
        card: ServerCard,
        events: "SystemEvents",
        endpoints: Mapping[str, Endpoint],
        accounts: AccountRequests,
        orders: Mapping[str, Order] | None = None,
    ) -> None:
        self._sessions = sessions
        self._system = system
        self._card = card
        self._events = events
        self._endpoints = endpoints
        self._accounts = accounts
        self._orders = orders or {}
        questions = (*_OWN, *endpoints)
        for subject in (
            "$SYS.REQ.SERVER.PING",
            *(f"$SYS.REQ.SERVER.PING.{what}" for what in questions),
            *(f"$SYS.REQ.SERVER.{card.id}.{what}" for what in (*questions, *_ORDERS)),
            *(f"$SYS.REQ.ACCOUNT.*.{what}" for what in QUESTIONS),
        ):
            system.interest.add_sink(subject.encode(), self, costly=True)

    def deliver(self, batch: Batch) -> None:
        """Answer every request that means this server."""
        for at in range(len(batch)):
            subject, reply, _, payload, _ = batch.message(at)
            answer = self._answer(subject.decode("utf-8", "replace"), payload)
            if reply and answer is not None:
                self._sessions.hub.publish(self._system.interest, reply, b"", b"", answer)

    def _answer(self, subject: str, payload: bytes) -> bytes | None:
        """Return the answer, None where silence is one."""
        _, _, kind, *rest = subject.split(".")
        if kind == "ACCOUNT":
            return self._accounts.answer(rest[0], rest[1], payload)
        what = rest[1] if len(rest) > 1 else "STATSZ"
        return answered(self._card, lambda: self._server(what, wanted_by(payload, what)))

    def _server(self, what: str, wanted: dict[str, Any]) -> bytes | None:
        if not self._card.matches(wanted):
            return None
        if what == "STATSZ":
            return self._events.statsz()
        if what == "IDZ":
            return msgspec.json.encode(self._card.short())
        if what in _ORDERS:
            self._order(what, wanted)
            return self._card.answer(None)
        return self._card.answer(self._endpoints[what](wanted))

    def _order(self, what: str, wanted: dict[str, Any]) -> None:
        if what == "KICK":
            self._kick(wanted.get("cid"))
        elif what == "LDM":
            self._send_away(wanted.get("cid"))
        elif what in self._orders:
            self._orders[what]()
        else:
            raise RequestRefused(500, f"this server cannot {what.lower()}")

    def _kick(self, cid: object) -> None:
        if not isinstance(cid, int) or self._sessions.session(cid) is None:
            raise RequestRefused(500, "no such client or leafnode id")
        self._sessions.hub.close_connection(cid, Closed.KICKED)

    def _send_away(self, cid: object) -> None:
        """Tell one client to look for another server."""
        session = self._sessions.session(cid) if isinstance(cid, int) else None
        if session is None:
            raise RequestRefused(500, "no such client id")
        session.announce(ldm=True)
