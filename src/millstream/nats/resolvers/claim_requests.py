"""ClaimRequests: the system account brings, asks for, lists and deletes the JWTs of accounts."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from millstream.accounts.jwt import JwtClaims, Refused
from millstream.kernel._batch import Batch
from millstream.nats.resolvers.account_directory import AccountDirectory
from millstream.nats.system.server_card import ServerCard

if TYPE_CHECKING:
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.sessions import Sessions

_UPDATES = (b"$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE", b"$SYS.ACCOUNT.*.CLAIMS.UPDATE")
_UPDATE = b"$SYS.REQ.CLAIMS.UPDATE"
_LOOKUP = b"$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP"
_LIST = b"$SYS.REQ.CLAIMS.LIST"
_DELETE = b"$SYS.REQ.CLAIMS.DELETE"
_PACK = b"$SYS.REQ.CLAIMS.PACK"

Answer = Callable[[bytes], None]


class AccountClaims(Protocol):
    """What puts account JWTs in force."""

    def checked(self, token: str) -> JwtClaims:
        """Return the claims of a JWT that an operator of ours signed; raises ``Refused``."""

    def update(self, token: str) -> None:
        """Take a JWT over; raises ``Refused``."""

    def remove(self, accounts: list[str]) -> None:
        """Let nobody into these accounts any more."""

    def deletions(self, token: str) -> list[str]:
        """Return the accounts that an operator's request names; raises ``Refused``."""


class ClaimRequests:
    """A sink of the system account. Without a ``directory`` JWTs live in memory alone."""

    def __init__(
        self,
        sessions: "Sessions",
        system: "Space",
        card: ServerCard,
        claims: AccountClaims,
        directory: AccountDirectory | None = None,
    ) -> None:
        self._sessions = sessions
        self._system = system
        self._card = card
        self._claims = claims
        self._directory = directory
        served = list(_UPDATES)
        if directory is not None:
            served += [_UPDATE, _LIST, _DELETE]
            served += [] if directory.terms.is_cache else [_LOOKUP, _PACK]
        for subject in served:
            system.interest.add_sink(subject, self)

    def deliver(self, batch: Batch) -> None:
        """Answer each request."""
        for at in range(len(batch)):
            subject, reply, _, payload, _ = batch.message(at)
            self._serve(subject, payload, partial(self._answer, reply))

    def _answer(self, reply: bytes, payload: bytes) -> None:
        if reply:
            self._sessions.hub.publish(self._system.interest, reply, b"", b"", payload)
            self._sessions.hub.flush()

    def _serve(self, subject: bytes, payload: bytes, answer: Answer) -> None:
        tokens, text = subject.decode("utf-8", "replace").split("."), _text(payload)
        if tokens[-1] == "UPDATE":
            self._update("" if subject == _UPDATE else tokens[-3], text, answer)
        elif self._directory is None:
            return
        elif tokens[-1] == "LOOKUP":
            answer((self._directory.get(tokens[3]) or "").encode())
        elif tokens[-1] == "LIST":
            answer(self._told({"data": list(self._directory.all())}))
        elif tokens[-1] == "PACK":
            _pack(self._directory, payload, answer)
        else:
            self._delete(self._directory, text, answer)

    # -- updates -----------------------------------------------------------------------------

    def _update(self, account: str, token: str, answer: Answer) -> None:
        """Take a JWT over and keep it; one for an account that nobody uses is not cached."""
        words, directory = self._words, self._directory
        if not token:
            named = account if directory is None else "n/a"
            answer(self._refused(named, "jwt update error - request body is empty"))
            return
        try:
            claims = self._claims.checked(token)
            if account and claims.subject != account:
                raise Refused("subject does not match jwt content")
            known = self._sessions.reception.accounts.get(claims.subject) is not None
            if not known and (directory is None or directory.terms.is_cache):
                answer(self._done(claims.subject, f"{words[0]} skipped"))
                return
            if directory is None:
                self._claims.update(token)
                answer(self._done(claims.subject, words[1]))
                return
        except Refused as error:
            answer(self._refused(account or "n/a", f"{words[0]} resulted in error - {error}"))
            return
        directory.save(claims.subject, token, partial(self._kept, claims, token, answer))

    @property
    def _words(self) -> tuple[str, str]:
        """What an update is called, and one that is done."""
        if self._directory is not None and self._directory.terms.is_cache:
            return "jwt update cache", "jwt updated cache"
        return "jwt update", "jwt updated"

    def _kept(self, claims: JwtClaims, token: str, answer: Answer, problem: str) -> None:
        words = self._words
        try:
            if problem:
                raise Refused(problem)
            self._claims.update(token)
        except Refused as error:
            answer(self._refused(claims.subject, f"{words[0]} resulted in error - {error}"))
        else:
            answer(self._done(claims.subject, words[1]))

    # -- deletions ---------------------------------------------------------------------------

    def _delete(self, directory: AccountDirectory, token: str, answer: Answer) -> None:
        try:
            if not directory.terms.allow_delete:
                raise Refused("delete must be enabled in server config")
            accounts = self._claims.deletions(token)
            if self._system.name in accounts:
                raise Refused("not allowed to delete system account")
        except Refused as error:
            answer(self._refused("", f"delete accounts request failed - {error}"))
            return
        left, wrong = set(accounts), list[str]()

        def settled(account: str, problem: str) -> None:
            left.discard(account)
            wrong.extend([problem] if problem else [])
            if not left:
                self._claims.remove(accounts)
                answer(self._deleted(len(accounts) - len(wrong), wrong))

        for account in list(left):
            directory.delete(account, partial(settled, account))
        if not accounts:
            answer(self._deleted(0, []))

    def _deleted(self, count: int, wrong: list[str]) -> bytes:
        if not wrong:
            return self._done("", f"deleted {count} accounts")
        text = f"deleted {count} accounts, failed for {len(wrong)} - " + "\n".join(wrong)
        return self._refused("", text)

    # -- answers -----------------------------------------------------------------------------

    def _told(self, told: dict[str, Any]) -> bytes:
        return msgspec.json.encode({"server": self._card.full(), **told})

    def _done(self, account: str, text: str) -> bytes:
        named = {"account": account} if account else {}
        return self._told({"data": {**named, "code": 200, "message": text}})

    def _refused(self, account: str, text: str) -> bytes:
        named = {"account": account} if account else {}
        return self._told({"error": {**named, "code": 500, "description": text}})


def _text(payload: bytes) -> str:
    return payload.decode("utf-8", "replace")


def _pack(directory: AccountDirectory, theirs: bytes, answer: Answer) -> None:
    """Send every JWT with its account, one a message, unless the other side has the same."""
    if theirs != directory.digest():
        for public, token in directory.all().items():
            answer(f"{public}|{token}".encode())
    answer(b"")
