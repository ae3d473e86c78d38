"""ClaimUpdates: the system account hands over an account's newer JWT."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from millstream.accounts.jwt import Refused, decode
from millstream.accounts.jwt_kind import JwtKind
from millstream.kernel._batch import Batch
from millstream.nats.system.server_card import ServerCard

if TYPE_CHECKING:
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.sessions import Sessions

_SUBJECTS = (b"$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE", b"$SYS.ACCOUNT.*.CLAIMS.UPDATE")
_BAD = "jwt update resulted in error"

Update = Callable[[str], None]


class ClaimUpdates:
    """A sink of the system account; ``update`` takes a JWT over or raises ``Refused``.

    Accounts live in memory alone: there is nothing to look up, list or delete.
    """

    def __init__(
        self, sessions: "Sessions", system: "Space", card: ServerCard, update: Update
    ) -> None:
        self._sessions = sessions
        self._system = system
        self._card = card
        self._update = update
        for subject in _SUBJECTS:
            system.interest.add_sink(subject, self)

    def deliver(self, batch: Batch) -> None:
        """Take each JWT over, or say why not."""
        for at in range(len(batch)):
            subject, reply, _, payload, _ = batch.message(at)
            account = subject.decode("utf-8", "replace").split(".")[-3]
            answer = self._answer(account, payload.decode("utf-8", "replace"))
            if reply:
                self._sessions.hub.publish(self._system.interest, reply, b"", b"", answer)

    def _answer(self, account: str, token: str) -> bytes:
        if not token:
            return self._refused(account, "jwt update error - request body is empty")
        try:
            claims = decode(token, JwtKind.ACCOUNT)
            if claims.subject != account:
                return self._refused(account, f"{_BAD} - subject does not match jwt content")
            if self._sessions.reception.accounts.get(account) is None:
                return self._done(account, "jwt update skipped")
            self._update(token)
        except Refused as error:
            return self._refused(account, f"{_BAD} - {error}")
        return self._done(account, "jwt updated")

    def _done(self, account: str, text: str) -> bytes:
        told = {"account": account, "code": 200, "message": text}
        return msgspec.json.encode({"server": self._card.full(), "data": told})

    def _refused(self, account: str, text: str) -> bytes:
        told = {"account": account, "code": 500, "description": text}
        return msgspec.json.encode({"server": self._card.full(), "error": told})
