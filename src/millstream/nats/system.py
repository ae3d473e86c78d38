"""System: everything that the system account sees and asks, as one part."""

from collections.abc import Mapping, Sequence
from typing import Any

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.nats.accounts import Accounts
from millstream.nats.server_card import ServerCard
from millstream.nats.sessions import Sessions
from millstream.nats.system_events import Statsz, SystemEvents
from millstream.nats.system_requests import Endpoint, Order, SystemRequests
from millstream.nats.user_info import UserInfo


class System:
    """Events, requests, and who-am-I for every account; ``renew`` after accounts changed."""

    def __init__(
        self,
        sessions: Sessions,
        clock: Clock,
        *,
        statsz: Statsz | None = None,
        endpoints: Mapping[str, Endpoint] | None = None,
        orders: Mapping[str, Order] | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        self._sessions = sessions
        self._clock = clock
        self.card = ServerCard(lambda: sessions.info, clock, tags)
        self.events: SystemEvents | None = None
        self._asked: set[str] = set()
        accounts = sessions.reception.accounts
        if accounts.system is not None:
            tell = statsz or (lambda: basic_statsz(sessions, accounts))
            self.events = SystemEvents(sessions, accounts.system, self.card, tell)
            self.requests = SystemRequests(
                sessions, accounts.system, self.card, self.events, endpoints or {}, orders
            )
        self.renew()

    def start(self, timers: Timers) -> None:
        """Tell figures from here on."""
        if self.events is not None:
            self.events.start(timers)

    def renew(self) -> None:
        """Answer who-am-I in accounts that are new."""
        for space in self._sessions.reception.accounts:
            if space.name not in self._asked:
                self._asked.add(space.name)
                UserInfo(self._sessions.hub, space, self.card, self._clock, self._sessions.session)

    def shutting_down(self) -> None:
        """Tell that the server ends now."""
        if self.events is not None:
            self.events.shutting_down()

    def leaving(self) -> None:
        """Tell that the server takes no more clients."""
        if self.events is not None:
            self.events.leaving()


def basic_statsz(sessions: Sessions, accounts: Accounts) -> dict[str, Any]:
    """Return the figures that the door itself knows."""
    totals = sessions.hub.stats()
    return {
        "connections": totals["connections"],
        "total_connections": totals["total_connections"],
        "active_accounts": sum(bool(space.members) for space in accounts),
        "subscriptions": sum(
            sessions.hub.connection_stats(session.cid)["subscriptions"]
            for session in sessions.all()
        ),
        "sent": {"msgs": totals["out_msgs"], "bytes": totals["out_bytes"]},
        "received": {"msgs": totals["in_msgs"], "bytes": totals["in_bytes"]},
        "slow_consumers": totals["slow_consumers"],
        "active_servers": 1,
    }
