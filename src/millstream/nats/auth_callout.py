"""AuthCallout: asks the service of an account who a client is, and waits for its answer."""

import logging
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.accounts.account import GLOBAL_ACCOUNT
from millstream.accounts.callout.exchange import (
    identity_of,
    request_claims,
    user_token,
)
from millstream.accounts.callout.sealed_box import BadSeal
from millstream.accounts.callout.server_keys import ServerKeys, new_user
from millstream.accounts.callout.terms import CalloutTerms
from millstream.accounts.jwt import Refused, Trust
from millstream.accounts.permissions import BadPermission
from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.kernel._batch import Batch
from millstream.nats.authenticator import CALLOUT, Admitted
from millstream.nats.client_info import client_info
from millstream.wire.headers import encode_headers

if TYPE_CHECKING:
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.referees import Judged
    from millstream.nats.session import Session
    from millstream.nats.sessions import Sessions

log = logging.getLogger(__name__)

_XKEY = b"Nats-Server-Xkey"
_JWT = b"eyJ"


class AuthCallout:
    """A referee: a file's accounts have one service, an operator's may have one each."""

    def __init__(
        self,
        sessions: "Sessions",
        keys: ServerKeys,
        timers: Timers,
        clock: Clock,
    ) -> None:
        self._sessions = sessions
        self._reception = sessions.reception
        self._keys = keys
        self._timers = timers
        self._clock = clock

    def wants(self, session: "Session", admitted: Admitted | None) -> bool:
        """Whether a service decides about this client: also about one that is known otherwise."""
        terms, shown = self._terms_for(session), session.presented
        if terms is None:
            return False
        trust = self._reception.credentials.trust
        if trust is not None:
            return trust.named_by(shown.jwt)[0] not in terms.auth_users
        account = admitted.identity.account if admitted is not None else GLOBAL_ACCOUNT
        return terms.delegates(shown.nkey or shown.user or shown.token, account)

    def ask(self, session: "Session", admitted: Admitted | None, judged: "Judged") -> None:
        """Send the request; no answer in time is a refusal."""
        terms = self._terms_for(session)
        space = self._reception.accounts.get(terms.account) if terms is not None else None
        if terms is None or space is None:
            judged(None)
            return
        Inquiry(self, session, space, terms, judged).begin()

    def _terms_for(self, session: "Session") -> CalloutTerms | None:
        known = self._reception.credentials
        if known.trust is None:
            return known.callout
        _, account = known.trust.named_by(session.presented.jwt)
        return known.callout_of(account) if account else None

    # -- what an inquiry needs ---------------------------------------------------------------

    def request(self, session: "Session", terms: CalloutTerms, user: str) -> tuple[bytes, bytes]:
        """Return headers and payload of the request."""
        info, card = session.greeting, session.transport
        asked, now = session.options, self._clock.time_ns() // 10**9
        server = {
            "name": info.server_name,
            "host": info.host,
            "id": info.server_id,
            "version": info.version,
            "cluster": info.cluster,
            "xkey": self._keys.xkey if terms.xkey else "",
        }
        known = client_info(session)
        client = {
            **{key: known.get(key) for key in ("host", "id", "user", "name", "kind")},
            "type": known.get("client_type"),
        }
        said = {
            "name": asked.name,
            "lang": asked.lang,
            "version": asked.version,
            "protocol": asked.protocol,
        }
        tls = {"version": card.tls_version, "cipher": card.tls_cipher} if card.tls else None
        seconds = session.limits.auth_timeout or session.limits.handshake_timeout
        claims = request_claims(
            terms, user, session.presented, server, client, said, tls,
            now=now, expires=now + round(seconds),
        )  # fmt: skip
        token = self._keys.sign(claims).encode()
        if not terms.xkey:
            return b"", token
        headers = encode_headers([(_XKEY, self._keys.xkey.encode())])
        return headers, self._keys.seal(token, terms.xkey)

    def verdict(
        self, session: "Session", terms: CalloutTerms, user: str, payload: bytes
    ) -> Admitted:
        """Return who the client is by the service's answer; raises ``Refused``."""
        if not payload:
            raise Refused("the service gave no reason")
        trust = self._reception.credentials.trust
        account = None if trust is None else trust.account(terms.account)
        if terms.xkey and not payload.startswith(_JWT):
            payload, account = self._opened(payload, terms), None
        text = payload.decode("utf-8", "replace")
        token = user_token(text, terms, session.greeting.server_id, user, account)
        return self._placed(token, terms, user, trust, session)

    def _opened(self, payload: bytes, terms: CalloutTerms) -> bytes:
        try:
            return self._keys.unseal(payload, terms.xkey)
        except BadSeal as error:
            raise Refused(f"the answer cannot be read: {error}") from error

    def _placed(
        self, token: str, terms: CalloutTerms, user: str, trust: Trust | None, session: "Session"
    ) -> Admitted:
        now = self._clock.time_ns() / 1e9
        try:
            identity = identity_of(token, terms, user, trust, session.presented, now)
        except (BadPermission, AttributeError, TypeError) as error:
            raise Refused(f"permissions that nobody can follow: {error}") from error
        placed = self._reception.place(identity)
        if placed is None:
            raise Refused(f"there is no account {identity.account!r}")
        return placed

    def publish(self, space: "Space", reply: bytes, headers: bytes, payload: bytes) -> None:
        """Send a request to whoever serves the account."""
        self._sessions.hub.publish(space.interest, CALLOUT.encode(), reply, headers, payload)
        self._sessions.hub.flush()

    def wait(self, seconds: float, late: Callable[[], None]) -> Callable[[], None]:
        """Call ``late`` after so long; return what calls it off."""
        return self._timers.after(seconds, late).cancel

    def is_here(self, session: "Session") -> bool:
        """Whether the client still waits."""
        return self._sessions.session(session.cid) is session


class Inquiry:
    """One question about one client; a sink for its answer."""

    def __init__(
        self,
        callout: AuthCallout,
        session: "Session",
        space: "Space",
        terms: CalloutTerms,
        judged: "Judged",
    ) -> None:
        self._callout = callout
        self._session = session
        self._space = space
        self._terms = terms
        self._judged = judged
        self._user = new_user()
        self._call_off: Callable[[], None] | None = None
        self._handle = -1

    def begin(self) -> None:
        """Ask."""
        reply = f"_INBOX.{secrets.token_hex(16)}".encode()
        limits = self._session.limits
        seconds = limits.auth_timeout or limits.handshake_timeout
        headers, payload = self._callout.request(self._session, self._terms, self._user)
        self._handle = self._space.interest.add_sink(reply, self)
        self._call_off = self._callout.wait(seconds, self._late)
        self._callout.publish(self._space, reply, headers, payload)

    def deliver(self, batch: Batch) -> None:
        """Take the first answer."""
        if self._call_off is None:
            return
        payload = batch.message(0)[3]
        try:
            found: Admitted | None = self._callout.verdict(
                self._session, self._terms, self._user, payload
            )
        except Refused as error:
            log.warning("auth callout on account %r: %s", self._space.name, error)
            found = None
        self._end(found)

    def _late(self) -> None:
        log.warning("auth callout on account %r: no answer in time", self._space.name)
        self._end(None)

    def _end(self, found: Admitted | None) -> None:
        if self._call_off is None:
            return
        self._call_off()
        self._call_off = None
        self._space.interest.remove_sink(self._handle)
        if self._callout.is_here(self._session):
            self._judged(found)
