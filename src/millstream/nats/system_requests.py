"""SystemRequests: what the system account may ask of the server, ``$SYS.REQ.…``."""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.errors import MillstreamError
from millstream.kernel._batch import Batch
from millstream.nats.account_figures import account_figures
from millstream.nats.server_card import ServerCard
from millstream.nats.session import Closed

if TYPE_CHECKING:
    from millstream.nats.accounts import Space
    from millstream.nats.sessions import Sessions
    from millstream.nats.system_events import SystemEvents

log = logging.getLogger(__name__)

# A monitoring endpoint by its name, from the options of the request to its answer.
Endpoint = Callable[[dict[str, Any]], Any]
Order = Callable[[], None]

_PER_ACCOUNT = ("CONNZ", "SUBSZ", "JSZ")


class RequestRefused(Exception):
    """A request that cannot be answered, with the code that says why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class SystemRequests:
    """A sink of the system account.

    ``endpoints`` are those of monitoring (VARZ, CONNZ, …); ``orders`` are RELOAD and LDM, as far
    as the server can be told so.
    """

    def __init__(
        self,
        sessions: "Sessions",
        system: "Space",
        card: ServerCard,
        events: "SystemEvents",
        endpoints: Mapping[str, Endpoint],
        orders: Mapping[str, Order] | None = None,
    ) -> None:
        self._sessions = sessions
        self._system = system
        self._card = card
        self._events = events
        self._endpoints = endpoints
        self._orders = orders or {}
        for pattern in (
            b"$SYS.REQ.SERVER.PING",
            b"$SYS.REQ.SERVER.PING.*",
            b"$SYS.REQ.SERVER.%s.*" % card.id.encode(),
            b"$SYS.REQ.ACCOUNT.*.*",
        ):
            system.interest.add_sink(pattern, self)

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
        try:
            wanted = _options(payload)
            if not self._card.matches(wanted):
                return None
            if kind == "ACCOUNT":
                return self._card.answer(self._account(rest[0], rest[1], wanted))
            return self._server(rest[1] if len(rest) > 1 else "STATSZ", wanted)
        except RequestRefused as refusal:
            return self._card.failure(refusal.code, str(refusal))
        except MillstreamError as error:
            return self._card.failure(error.status, error.message)
        except Exception:
            log.exception("request failed subject=%r", subject)
            return self._card.failure(500, "internal error")

    # -- the server --------------------------------------------------------------------------

    def _server(self, what: str, wanted: dict[str, Any]) -> bytes | None:
        if what == "STATSZ":
            return self._events.statsz()
        if what == "IDZ":
            return msgspec.json.encode(self._card.short())
        if what == "KICK":
            self._kick(wanted.get("cid"))
            return self._card.answer(None)
        if what in self._orders:
            self._orders[what]()
            return self._card.answer(None)
        endpoint = self._endpoints.get(what)
        return None if endpoint is None else self._card.answer(endpoint(wanted))

    def _kick(self, cid: object) -> None:
        if not isinstance(cid, int) or self._sessions.session(cid) is None:
            raise RequestRefused(500, "no such client or leafnode id")
        self._sessions.hub.close_connection(cid, Closed.KICKED)

    # -- accounts ----------------------------------------------------------------------------

    def _account(self, name: str, what: str, wanted: dict[str, Any]) -> Any:
        if name == "PING":
            return self._all_accounts(what, wanted)
        space = self._sessions.reception.accounts.get(name)
        if space is None:
            raise RequestRefused(404, f"no account {name!r}")
        if what in ("CONNS", "STATZ"):
            return account_figures(self._sessions.hub, space)
        if what == "INFO":
            return _account_info(space, is_system=space is self._system)
        if what in _PER_ACCOUNT and what in self._endpoints:
            return self._endpoints[what]({**wanted, "acc": name})
        raise RequestRefused(404, f"accounts do not answer {what}")

    def _all_accounts(self, what: str, wanted: dict[str, Any]) -> Any:
        if what != "STATZ":
            raise RequestRefused(404, f"accounts do not answer {what}")
        named = wanted.get("accounts") or ()
        spaces = [s for s in self._sessions.reception.accounts if not named or s.name in named]
        if not (named or wanted.get("include_unused")):
            spaces = [space for space in spaces if space.members]
        return {
            "server_id": self._card.id,
            "now": self._card.now(),
            "account_statz": [account_figures(self._sessions.hub, space) for space in spaces],
        }


def _options(payload: bytes) -> dict[str, Any]:
    try:
        made = msgspec.json.decode(payload or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestRefused(400, f"the request is not JSON: {error}") from error
    if made is None:
        return {}
    if not isinstance(made, dict):
        raise RequestRefused(400, "the request is no JSON object")
    return made


def _account_info(space: "Space", *, is_system: bool) -> dict[str, Any]:
    account = space.account
    return {
        "account_name": account.name,
        "name_tag": account.label,
        "is_system": is_system,
        "expired": False,
        "complete": True,
        "jetstream_enabled": account.jetstream,
        "client_cnt": len(space.members),
        "exports": [{"subject": export.subject} for export in account.exports],
        "imports": [
            {"account": item.account, "subject": item.subject, "local_subject": item.local}
            for item in account.imports
        ],
    }
