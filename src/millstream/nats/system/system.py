"""System: everything that the system account sees and asks, as one part."""

from collections.abc import Mapping
from typing import Any

from millstream.accounts.jwt import Refused
from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.nats.accounts.accounts import Accounts, Space
from millstream.nats.sessions import Sessions
from millstream.nats.system.account_requests import AccountRequests, Endpoint, OwnAccount
from millstream.nats.system.claim_updates import ClaimUpdates, Update
from millstream.nats.system.server_card import ServerCard
from millstream.nats.system.subscribers import Subscribers
from millstream.nats.system.system_events import Statsz, SystemEvents
from millstream.nats.system.system_requests import Order, SystemRequests
from millstream.nats.system.user_info import UserInfo


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
    ) -> None:
        self._sessions = sessions
        self._clock = clock
        self.card = ServerCard(lambda: sessions.info, clock)
        self.events: SystemEvents | None = None
        self.update_claims: Update = _no_update
        self._asked: set[str] = set()
        self._about_accounts = AccountRequests(sessions, self.card, endpoints or {})
        accounts = sessions.reception.accounts
        if accounts.system is not None:
            tell = statsz or (lambda: basic_statsz(sessions, accounts))
            self.events = SystemEvents(sessions, accounts.system, self.card, tell)
            self._answer(accounts.system, self.events, endpoints or {}, orders)
        self.renew()

    def _answer(
        self,
        system: Space,
        events: SystemEvents,
        endpoints: Mapping[str, Endpoint],
        orders: Mapping[str, Order] | None,
    ) -> None:
        about = self._about_accounts
        SystemRequests(self._sessions, system, self.card, events, endpoints, about, orders)
        Subscribers(self._sessions, system)
        ClaimUpdates(self._sessions, system, self.card, lambda token: self.update_claims(token))

    def start(self, timers: Timers) -> None:
        """Tell figures from here on."""
        if self.events is not None:
            self.events.start(timers)

    def renew(self) -> None:
        """Answer clients of accounts that are new when they ask about themselves."""
        sessions = self._sessions
        for space in sessions.reception.accounts:
            if space.name not in self._asked:
                self._asked.add(space.name)
                UserInfo(sessions.hub, space, self.card, self._clock, sessions.session)
                if space is not sessions.reception.accounts.system and self.events is not None:
                    OwnAccount(space, sessions, self._about_accounts)

    def shutting_down(self) -> None:
        """Tell that the server ends now."""
        if self.events is not None:
            self.events.shutting_down()

    def leaving(self) -> None:
        """Tell that the server takes no more clients."""
        if self.events is not None:
            self.events.leaving()


def _no_update(token: str) -> None:
    raise Refused("this server does not take accounts by JWT")


def basic_statsz(sessions: Sessions, accounts: Accounts) -> dict[str, Any]:
    """Return the figures that the door itself knows."""
    totals = sessions.hub.stats()
    return {
        "connections": totals["connections"],
        "total_connections": totals["total_connections"],
        "active_accounts": sum(bool(space.members) for space in accounts),
        "subscriptions": sum(space.interest.stats()["num_subscriptions"] for space in accounts),
        # There are no other servers, so whatever is sent goes to clients.
        **dict.fromkeys(("sent", "sent_to_clients"), _moved(totals, "out")),
        **dict.fromkeys(("received", "received_from_clients"), _moved(totals, "in")),
        "slow_consumers": totals["slow_consumers"],
        "stalled_clients": totals["stalled_clients"],
        "active_servers": 1,
    }


def _moved(totals: Mapping[str, int], way: str) -> dict[str, int]:
    return {"msgs": totals[f"{way}_msgs"], "bytes": totals[f"{way}_bytes"]}
