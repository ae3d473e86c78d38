"""SystemSource: account JWTs that somebody else in the system account has."""

import secrets
from functools import partial
from typing import TYPE_CHECKING

from millstream.delivery.timers import Timer, Timers
from millstream.kernel._batch import Batch

if TYPE_CHECKING:
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.resolvers.account_fetch import Found
    from millstream.nats.sessions import Sessions


class SystemSource:
    """Asks ``$SYS.REQ.ACCOUNT.<account>.CLAIMS.LOOKUP``; a sink for the answers."""

    def __init__(
        self, sessions: "Sessions", system: "Space", timers: Timers, seconds: float
    ) -> None:
        self._hub = sessions.hub
        self._system = system
        self._timers = timers
        self._seconds = seconds
        self._inbox = b"$SYS._INBOX." + secrets.token_hex(8).encode()
        self._waiting: dict[bytes, tuple[Found, Timer]] = {}
        system.interest.add_sink(self._inbox + b".*", self)

    def fetch(self, public: str, found: "Found") -> None:
        """Ask; nobody who listens, or no answer in time, is none."""
        reply = self._inbox + b"." + secrets.token_hex(8).encode()
        late = self._timers.after(self._seconds, partial(self._settle, reply, ""))
        self._waiting[reply] = (found, late)
        subject = f"$SYS.REQ.ACCOUNT.{public}.CLAIMS.LOOKUP".encode()
        if self._hub.publish(self._system.interest, subject, reply, b"", b"") == 0:
            self._settle(reply, "")
        self._hub.flush()

    def deliver(self, batch: Batch) -> None:
        """Take the first answer; an empty one says that the account is not known there either."""
        for at in range(len(batch)):
            subject, _, _, payload, _ = batch.message(at)
            self._settle(subject, payload.decode("utf-8", "replace"))

    def _settle(self, reply: bytes, token: str) -> None:
        found, late = self._waiting.pop(reply, (None, None))
        if found is not None and late is not None:
            late.cancel()
            found(token)
