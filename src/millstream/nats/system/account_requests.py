"""AccountRequests: what is told about one account, to the system account and to its own clients."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from millstream.kernel._batch import Batch
from millstream.nats.system.account_figures import account_figures
from millstream.nats.system.server_card import ServerCard
from millstream.nats.system.system_query import RequestRefused, answered, wanted_by

if TYPE_CHECKING:
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.sessions import Sessions

# A monitoring endpoint by its name, from the options of the request to its answer.
Endpoint = Callable[[dict[str, Any]], Any]

QUESTIONS = ("CONNZ", "SUBSZ", "LEAFZ", "JSZ", "INFO", "STATZ", "CONNS")
EVERYONE = "PING"  # stands in the place of an account's name

# What a client may ask about its own account, and the question that it comes to.
_OF_ONES_OWN = {
    b"$SYS.REQ.ACCOUNT.PING.CONNZ": "CONNZ",
    b"$SYS.REQ.SERVER.PING.CONNZ": "CONNZ",
    b"$SYS.REQ.ACCOUNT.PING.STATZ": "STATZ",
}


class AccountRequests:
    """Answers for every account; ``endpoints`` are those of monitoring."""

    def __init__(
        self, sessions: "Sessions", card: ServerCard, endpoints: Mapping[str, Endpoint]
    ) -> None:
        self._sessions = sessions
        self._card = card
        self._endpoints = endpoints

    def answer(self, name: str, what: str, payload: bytes) -> bytes | None:
        """Return what is told about an account, None where silence is the answer."""
        return answered(self._card, lambda: self._answer(name, what, wanted_by(payload, what)))

    def _answer(self, name: str, what: str, wanted: dict[str, Any]) -> bytes | None:
        if not self._card.matches(wanted):
            return None
        if what == "CONNS":
            return self._connections(name)
        if what == "STATZ":
            named = (wanted.get("accounts") or ()) if name == EVERYONE else (name,)
            found = self._figures(named, unused=bool(wanted.get("include_unused")))
            return None if found is None else self._card.answer(found)
        return self._card.answer(self._monitored(name, what, wanted))

    def _connections(self, name: str) -> bytes | None:
        """Return the account's figures as the event that tells them now and then."""
        space = self._sessions.reception.accounts.get(name)
        if space is None or not space.members:
            return None
        return self._card.event("account_connections", **account_figures(self._sessions.hub, space))

    def _figures(self, named: "tuple[str, ...] | list[str]", *, unused: bool) -> Any:
        """Return the figures of these accounts, or of all; without clients only if asked."""
        spaces = [s for s in self._sessions.reception.accounts if not named or s.name in named]
        told = [space for space in spaces if unused or space.members]
        if not (told or unused):
            return None
        return {
            "server_id": self._card.id,
            "now": self._card.now(),
            "account_statz": [account_figures(self._sessions.hub, space) for space in told],
        }

    def _monitored(self, name: str, what: str, wanted: dict[str, Any]) -> Any:
        if what == "INFO":
            if self._sessions.reception.accounts.get(name) is None:
                raise RequestRefused(500, f"Account {name} does not exist")
            return self._endpoints["ACCOUNTZ"]({"account": name})["account_detail"]
        if what == "JSZ":
            return self._streams(name, wanted)
        listed = {"subscriptions": True} if what == "SUBSZ" else {}
        return self._endpoints[what]({**wanted, **listed, "acc": name})

    def _streams(self, name: str, wanted: dict[str, Any]) -> Any:
        if self._sessions.reception.accounts.get(name) is None:
            raise RequestRefused(500, f'account "{name}" not found')
        told = self._endpoints["JSZ"]({**wanted, "acc": name})
        details = told.get("account_details")
        if not details:
            raise RequestRefused(500, f'account "{name}" not jetstream enabled')
        return details[0]


class OwnAccount:
    """Lets the clients of one account ask about it, and about no other."""

    def __init__(self, space: "Space", sessions: "Sessions", requests: AccountRequests) -> None:
        self._space = space
        self._hub = sessions.hub
        self._requests = requests
        for subject in _OF_ONES_OWN:
            space.interest.add_sink(subject, self, costly=True)

    def deliver(self, batch: Batch) -> None:
        """Answer each request."""
        for at in range(len(batch)):
            subject, reply, _, payload, _ = batch.message(at)
            answer = self._requests.answer(self._space.name, _OF_ONES_OWN[subject], payload)
            if reply and answer is not None:
                self._hub.publish(self._space.interest, reply, b"", b"", answer)
