"""SystemEvents: what the server tells the system account by itself."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.delivery.timers import Timers
from millstream.nats.client_info import client_info
from millstream.nats.system.account_figures import account_figures
from millstream.nats.system.server_card import ServerCard
from millstream.nats.transport.closed import Closed, reason_text

if TYPE_CHECKING:
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.session import Session
    from millstream.nats.sessions import Sessions

STATSZ_SECONDS = 10.0
CONNS_SECONDS = 30.0
CHANGES_SECONDS = 1.0

Statsz = Callable[[], dict[str, Any]]


class SystemEvents:
    """Clients that come, go and are refused, and figures now and then.

    Nothing is put together that nobody listens for.
    """

    def __init__(
        self, sessions: "Sessions", system: "Space", card: ServerCard, statsz: Statsz
    ) -> None:
        self._sessions = sessions
        self._hub = sessions.hub
        self._system = system
        self._card = card
        self._statsz = statsz
        self._changed: dict[str, Space] = {}
        sessions.reception.events.watch(self)
        sessions.watch_closing(self._closing)

    def start(self, timers: Timers) -> None:
        """Tell figures from here on."""
        self._repeat(timers, STATSZ_SECONDS, self.tell_statsz)
        self._repeat(timers, CONNS_SECONDS, self.tell_connections)
        self._repeat(timers, CHANGES_SECONDS, self.tell_changes)

    def _repeat(self, timers: Timers, seconds: float, tell: Callable[[], None]) -> None:
        def told() -> None:
            tell()
            self._hub.flush()

        name = f"the server's event {tell.__name__}"
        timers.after(seconds, lambda: timers.every(seconds, name, told))

    # -- clients -----------------------------------------------------------------------------

    def connected(self, session: "Session") -> None:
        """Tell of a client that was believed."""
        if session.space is None:
            return
        subject = f"$SYS.ACCOUNT.{session.space.name}.CONNECT"
        self._tell(subject, lambda: self._card.event("client_connect", client=_about(session)))
        self._tell_connections(session.space)

    def refused(self, session: "Session") -> None:
        """Tell of a client that was not believed."""
        subject = f"$SYS.SERVER.{self._card.id}.CLIENT.AUTH.ERR"
        reason = Closed.AUTHENTICATION.text
        self._tell(subject, lambda: self._gone(session, reason))

    def _closing(self, cid: int, reason: int) -> None:
        session = self._sessions.session(cid)
        if session is None or session.space is None or not session.connected:
            return
        text, name = reason_text(reason), session.space.name
        self._tell(f"$SYS.ACCOUNT.{name}.DISCONNECT", lambda: self._gone(session, text))

    def left(self, space: "Space") -> None:
        """Note that an account has a client less: thousands may leave at once."""
        self._changed[space.name] = space

    def tell_changes(self) -> None:
        """Tell how many connections are left in accounts that clients have left."""
        changed, self._changed = self._changed, {}
        for space in changed.values():
            self._tell_connections(space)

    def _gone(self, session: "Session", reason: str) -> bytes:
        moved = self._hub.connection_stats(session.cid)
        return self._card.event(
            "client_disconnect",
            client={**_about(session), "stop": self._card.now()},
            sent={"msgs": moved["in_msgs"], "bytes": moved["in_bytes"]},
            received={"msgs": moved["out_msgs"], "bytes": moved["out_bytes"]},
            reason=reason,
        )

    # -- figures -----------------------------------------------------------------------------

    def tell_connections(self) -> None:
        """Tell how many connections each account with some has."""
        for space in self._sessions.reception.accounts:
            if space.members:
                self._tell_connections(space)

    def _tell_connections(self, space: "Space") -> None:
        """Tell an account's figures, under the subject of today and under the one before it."""
        for subject in ("$SYS.SERVER.ACCOUNT.{}.CONNS", "$SYS.ACCOUNT.{}.SERVER.CONNS"):
            self._tell(
                subject.format(space.name),
                lambda: self._card.event(
                    "account_connections", **account_figures(self._hub, space)
                ),
            )

    def tell_statsz(self) -> None:
        """Tell the server's figures."""
        self._tell(f"$SYS.SERVER.{self._card.id}.STATSZ", self.statsz)

    def statsz(self) -> bytes:
        """Return the server's figures as they are told and answered."""
        return msgspec.json.encode({"server": self._card.full(), "statsz": self._statsz()})

    # -- the server itself -------------------------------------------------------------------

    def shutting_down(self) -> None:
        """Tell that the server ends now."""
        self._tell_self("SHUTDOWN")

    def leaving(self) -> None:
        """Tell that the server takes no more clients and sends those away that are here."""
        self._tell_self("LAMEDUCK")

    def _tell_self(self, what: str) -> None:
        subject = f"$SYS.SERVER.{self._card.id}.{what}"
        self._tell(subject, lambda: msgspec.json.encode(self._card.full()))
        self._hub.flush()

    def _tell(self, subject: str, body: Callable[[], bytes]) -> None:
        raw = subject.encode("utf-8", "surrogateescape")
        if self._system.interest.has_interest(raw):
            self._hub.publish(self._system.interest, raw, b"", b"", body())


def _about(session: "Session") -> dict[str, Any]:
    """Return who a client is; events name its account as people do."""
    told = client_info(session)
    if session.space is not None:
        told["name_tag"] = session.space.account.shown_name
    return told
