"""AccountFetch: a client of an account that the server does not know waits until it is found."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from millstream.accounts.jwt import JwtClaims, Refused
from millstream.nats.resolvers.account_directory import AccountDirectory
from millstream.nats.resolvers.claim_requests import AccountClaims

if TYPE_CHECKING:
    from millstream.nats.authenticator import Admitted
    from millstream.nats.referees import Judged
    from millstream.nats.session import Session
    from millstream.nats.sessions import Sessions

log = logging.getLogger(__name__)

_MOST_AT_ONCE = 256
_MOST_TOGETHER = 64  # accounts that one account takes from, directly or by way of others

Found = Callable[[str], None]  # with the JWT, empty when there is none


class Source(Protocol):
    """Where account JWTs can be had."""

    def fetch(self, public: str, found: Found) -> None:
        """Call ``found`` once, now or later."""


class AccountFetch:
    """A referee: it finds the account, and those that the account takes from, and puts them up."""

    def __init__(
        self,
        sessions: "Sessions",
        source: Source,
        claims: AccountClaims,
        directory: AccountDirectory | None = None,
    ) -> None:
        self._sessions = sessions
        self._source = source
        self._claims = claims
        self._directory = directory
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def wants(self, session: "Session", admitted: "Admitted | None") -> bool:
        """Whether the client's account is unknown."""
        return admitted is None and bool(self._unknown(session))

    def ask(self, session: "Session", admitted: "Admitted | None", judged: "Judged") -> None:
        """Look for the account; then judge anew."""
        public = self._unknown(session)
        again = partial(self._again, session, judged)
        if public in self._waiting:
            self._waiting[public].append(again)
        elif len(self._waiting) >= _MOST_AT_ONCE:
            judged(None)
        else:
            self._waiting[public] = [again]
            self._gather(public, [public], {}, [])

    def _unknown(self, session: "Session") -> str:
        trust = self._sessions.reception.credentials.trust
        if trust is None:
            return ""
        _, public = trust.named_by(session.presented.jwt)
        return public if public and trust.account(public) is None else ""

    def _again(self, session: "Session", judged: "Judged") -> None:
        if self._sessions.session(session.cid) is session:
            judged(self._sessions.reception.admit(session.presented))

    def _gather(
        self, asked: str, missing: Sequence[str], seen: dict[str, None], tokens: list[str]
    ) -> None:
        """Fetch one account after the other, an account before those that it takes from."""
        left = [public for public in missing if public not in seen]
        if not left or len(seen) >= _MOST_TOGETHER:
            self._put_up(asked, tokens)
            return
        public, rest = left[0], left[1:]
        seen[public] = None
        self._source.fetch(public, partial(self._fetched, asked, public, rest, seen, tokens))

    def _fetched(
        self,
        asked: str,
        public: str,
        rest: list[str],
        seen: dict[str, None],
        tokens: list[str],
        token: str,
    ) -> None:
        further: list[str] = []
        if token:
            try:
                claims = self._claims.checked(token)
                if claims.subject != public:
                    raise Refused("the JWT is about another account")
            except Refused as error:
                log.error("account %s: its JWT is refused: %s", public, error)
            else:
                tokens.append(token)
                further = self._origins(claims)
        self._gather(asked, [*rest, *further], seen, tokens)

    def _origins(self, claims: JwtClaims) -> list[str]:
        """Return the accounts that one takes from and that are not known."""
        trust = self._sessions.reception.credentials.trust
        named = [str(item.get("account")) for item in claims.nats.get("imports") or ()]
        return [public for public in named if trust is not None and trust.account(public) is None]

    def _put_up(self, asked: str, tokens: list[str]) -> None:
        for token in reversed(tokens):
            try:
                self._claims.update(token)
                self._keep(token)
            except Refused as error:
                log.error("an account's JWT is refused: %s", error)
        for again in self._waiting.pop(asked, []):
            again()

    def _keep(self, token: str) -> None:
        if self._directory is not None:
            public = self._claims.checked(token).subject
            self._directory.save(public, token, lambda problem: None)
