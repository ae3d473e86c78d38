"""How many clients listen: ``$SYS.REQ.ACCOUNT.NSUBS`` and ``$SYS.DEBUG.SUBSCRIBERS``."""

from typing import TYPE_CHECKING, Any

import msgspec

from millstream.accounts.rights import text_of
from millstream.kernel._batch import Batch
from millstream.nats.accounts.service_import import REQUEST_INFO
from millstream.nats.system.system_query import Unanswerable, wanted_by
from millstream.subjects.subject import is_literal, is_subset, matches
from millstream.wire.headers import MalformedHeaders, parse_headers

if TYPE_CHECKING:
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.sessions import Sessions

_OF_ANY = b"$SYS.REQ.ACCOUNT.NSUBS"
_OF_ASKER = b"$SYS.DEBUG.SUBSCRIBERS"


class Subscribers:
    """A sink of the system account that answers with a bare number."""

    def __init__(self, sessions: "Sessions", system: "Space") -> None:
        self._sessions = sessions
        self._system = system
        for subject in (_OF_ANY, _OF_ASKER):
            system.interest.add_sink(subject, self)

    def deliver(self, batch: Batch) -> None:
        """Answer each request; one that makes no sense gets no answer, as in the reference."""
        for at in range(len(batch)):
            subject, reply, headers, payload, _ = batch.message(at)
            count = self._of_any(payload) if subject == _OF_ANY else self._asked(headers, payload)
            if reply and count is not None:
                answer = str(count).encode()
                self._sessions.hub.publish(self._system.interest, reply, b"", b"", answer)

    def _of_any(self, payload: bytes) -> int | None:
        try:
            wanted = wanted_by(payload, "NSUBS")
        except Unanswerable:
            return None
        space = self._sessions.reception.accounts.get(str(wanted.get("acc") or ""))
        if space is None or not space.members:
            return None
        return self._count(space, str(wanted.get("subject") or ""), str(wanted.get("queue") or ""))

    def _asked(self, headers: bytes, payload: bytes) -> int | None:
        """Count for the account that an import names, or for the system account itself."""
        info = _request_info(headers)
        name = info.get("svc") or info.get("acc")
        space = self._sessions.reception.accounts.get(str(name)) if name else self._system
        if space is None:
            return None
        subject, _, queue = text_of(payload).strip().partition(" ")
        return self._count(space, subject, queue)

    def _count(self, space: "Space", subject: str, queue: str) -> int:
        fits = matches if is_literal(subject) else is_subset
        return sum(
            fits(text_of(pattern), subject) and queue in ("", text_of(group))
            for cid in space.members
            for pattern, group, *_ in self._sessions.hub.subscriptions(cid)
        )


def _request_info(headers: bytes) -> dict[str, Any]:
    try:
        told = next((value for key, value in parse_headers(headers) if key == REQUEST_INFO), b"{}")
        info = msgspec.json.decode(told)
    except (MalformedHeaders, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return info if isinstance(info, dict) else {}
