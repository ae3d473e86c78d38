"""Credentials: who is it? What a client presents, and the server's way to believe it.

The order is nats-server's: JWT where operators are trusted, then nkey, then user and password,
then token; ``no_auth_user`` stands in only for a client that presented nothing at all.
"""

import hashlib
import hmac
import logging
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.accounts import nkeys
from millstream.accounts.account import GLOBAL_ACCOUNT
from millstream.accounts.callout.terms import CalloutTerms, terms_of_claims
from millstream.accounts.nkeys import Role
from millstream.accounts.permissions import BadPermission, Permissions, Responses, Rule

if TYPE_CHECKING:
    from millstream.accounts.jwt import JwtClaims, Trust

log = logging.getLogger(__name__)

_HASHED = ("$2a$", "$2b$", "$2x$", "$2y$")
_MOST_PROVEN = 4096
_MOST_FAILURES = 10
_FAILURE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class User:
    """A configured user: by name and password, by nkey, or by the name in its certificate."""

    name: str = ""
    password: str = field(default="", repr=False)
    nkey: str = ""
    account: str = GLOBAL_ACCOUNT
    permissions: Permissions = field(default_factory=Permissions)
    connection_types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Presented:
    """What CONNECT and the connection itself say about the client."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    nkey: str = ""
    signature: str = field(default="", repr=False)
    jwt: str = field(default="", repr=False)
    nonce: str = ""
    address: str = "127.0.0.1"
    connection_type: str = "STANDARD"
    certificate_names: tuple[str, ...] = ()
    believed_before: bool = False  # by others than are asked now: a reload, not a guess

    @property
    def nothing(self) -> bool:
        """Whether the client did not say who it is."""
        return not (self.user or self.password or self.token or self.nkey or self.jwt)


class Identity(msgspec.Struct, frozen=True):
    """Who the client is, as the rest of the server sees it."""

    name: str = ""
    account: str = GLOBAL_ACCOUNT
    permissions: Permissions = msgspec.field(default_factory=Permissions)
    label: str = ""  # what people call a user whose name is a key
    expires: int = 0  # Unix seconds, 0 = never
    max_subscriptions: int = -1
    max_payload: int = -1
    account_expires: int = 0  # Unix seconds, 0 = never
    is_delegated: bool = False  # a service said so, nothing that is known here


class Credentials:
    """Everyone the server knows. ``identify`` is the only way in."""

    def __init__(
        self,
        users: Iterable[User] = (),
        *,
        token: str = "",
        no_auth_user: str = "",
        trust: "Trust | None" = None,
        map_certificates: bool = False,
        closed: bool = False,
        callout: CalloutTerms | None = None,
    ) -> None:
        """Know these; ``closed`` keeps everyone out even where nobody is listed."""
        listed = list(users)
        self._by_name = {user.name: user for user in listed if user.name}
        self._by_nkey = {user.nkey: user for user in listed if user.nkey}
        self._token = token
        self._no_auth_user = no_auth_user
        self._trust = trust
        self._map_certificates = map_certificates
        self._closed = closed
        self.callout = callout
        self.listed = tuple(listed)
        self._hashes = _SlowHashes()
        self._told: set[str] = set()  # users of whose JWT the log has said what is not followed

    @property
    def trust(self) -> "Trust | None":
        """The operators that are believed, where any are."""
        return self._trust

    def callout_of(self, account: str) -> CalloutTerms | None:
        """Return the terms of the service that lives in an account, None when none does."""
        if self._trust is not None:
            claims = self._trust.account(account)
            return None if claims is None else terms_of_claims(claims)
        lives_there = self.callout is not None and self.callout.account == account
        return self.callout if lives_there else None

    @property
    def required(self) -> bool:
        """Whether a client must say who it is."""
        return not (self.open or self._no_auth_user)

    @property
    def open(self) -> bool:
        """Whether nobody is configured, so that everyone may do everything."""
        known = self._by_name or self._by_nkey or self._token or self._trust
        return not (known or self._closed)

    @property
    def wants_nonce(self) -> bool:
        """Whether clients may have to sign something fresh."""
        return bool(self._by_nkey or self._trust)

    def identify(self, presented: Presented, now: float) -> Identity | None:
        """Return who it is, or None: the client only learns that it was not believed."""
        if self.open:
            return Identity()
        if presented.nothing and not self._map_certificates and self._no_auth_user:
            guest = self._by_name.get(self._no_auth_user) or self._by_nkey.get(self._no_auth_user)
            return self._admit(guest, presented)
        if self._trust is not None:
            return self._by_jwt(self._trust, presented, now)
        if presented.nkey:
            return self._by_signature(presented)
        if self._map_certificates:
            return self._by_certificate(presented)
        if presented.user and self._by_name:
            return self._by_password(presented, now)
        if self._token and presented.token:
            return Identity() if self._same(self._token, presented.token, presented, now) else None
        return None

    def _by_jwt(self, trust: "Trust", presented: Presented, now: float) -> Identity | None:
        from millstream.accounts.jwt import Refused

        try:
            admitted = trust.admit(
                presented.jwt, now=now, address=presented.address, kind=presented.connection_type
            )
            permissions = permissions_of_claims(admitted.permissions)
        except (Refused, BadPermission, AttributeError, TypeError):
            return None  # not believed, or signed with words that nobody can follow
        self._tell_unheeded(admitted.claims)
        bearer = bool(admitted.permissions.get("bearer_token"))
        if not bearer and not _signed(admitted.user, presented):
            return None
        return Identity(
            admitted.user,
            admitted.account,
            permissions,
            admitted.claims.name,
            admitted.expires,
            admitted.permissions.get("subs", -1),
            admitted.permissions.get("payload", -1),
            admitted.account_expires,
        )

    def _tell_unheeded(self, claims: "JwtClaims") -> None:
        """Name in the log, once for a user, what its JWT says and the server does not follow."""
        if not claims.unheeded or claims.subject in self._told:
            return
        if len(self._told) < _MOST_PROVEN:
            self._told.add(claims.subject)
        for text in claims.unheeded:
            log.warning("The JWT of user %s: %s", claims.name or claims.subject, text)

    def _by_signature(self, presented: Presented) -> Identity | None:
        user = self._by_nkey.get(presented.nkey)
        if user is None or not _signed(user.nkey, presented):
            return None
        return self._admit(user, presented)

    def _same(self, held: str, given: str, presented: Presented, now: float) -> bool:
        address = "" if presented.believed_before else presented.address
        return self._hashes.same(held, given, address, now)

    def _by_password(self, presented: Presented, now: float) -> Identity | None:
        user = self._by_name.get(presented.user)
        # An unknown name costs one comparison too, so that time does not tell names apart.
        held = user.password if user is not None else "\0"
        if not self._same(held, presented.password, presented, now) or user is None:
            return None
        return self._admit(user, presented)

    def _by_certificate(self, presented: Presented) -> Identity | None:
        for name in presented.certificate_names:
            if name in self._by_name:
                return self._admit(self._by_name[name], presented)
        return None

    @staticmethod
    def _admit(user: User | None, presented: Presented) -> Identity | None:
        if user is None:
            return None
        if user.connection_types and presented.connection_type not in user.connection_types:
            return None
        return Identity(user.name or user.nkey, user.account, user.permissions)


class _SlowHashes:
    """Compares secrets with their slow hashes, which hold up everybody while they are computed.

    What fitted before is not computed again: it is remembered as a keyed digest of what was given.
    An address that failed too often is not listened to for a moment, unless it knows a secret that
    fitted before.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._proven: set[bytes] = set()
        self._failures: dict[str, tuple[int, float]] = {}  # address → (failures, since)

    def same(self, held: str, given: str, address: str, now: float) -> bool:
        """Compare as ``same_secret`` does; without an address nothing is held against it."""
        if not held.startswith(_HASHED):
            return same_secret(held, given)
        digest = hmac.digest(self._key, _bytes(f"{held}\0{given}"), hashlib.sha256)
        if digest in self._proven:
            return True
        failures, since = self._failures.get(address, (0, now)) if address else (0, now)
        if now - since >= _FAILURE_SECONDS:
            failures, since = 0, now
        if failures >= _MOST_FAILURES:
            return False
        if not same_secret(held, given):
            if address:
                self._note_failure(address, failures + 1, since)
            return False
        if len(self._proven) >= _MOST_PROVEN:
            self._proven.clear()
        self._proven.add(digest)
        return True

    def _note_failure(self, address: str, failures: int, since: float) -> None:
        if len(self._failures) >= _MOST_PROVEN:
            del self._failures[next(iter(self._failures))]
        self._failures[address] = (failures, since)


def same_secret(held: str, given: str) -> bool:
    """Compare a configured secret, plain or bcrypt, with what was given, in constant time."""
    if held.startswith(_HASHED):
        try:
            import bcrypt  # a server whose secrets are plain never needs it

            return bcrypt.checkpw(_bytes(given)[:72], held.encode())
        except ValueError:
            return False
    return hmac.compare_digest(_bytes(held), _bytes(given))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _signed(public: str, presented: Presented) -> bool:
    try:
        signature = nkeys.decode_signature(presented.signature)
    except nkeys.BadKey:
        return False
    return nkeys.verify(public, Role.USER, signature, presented.nonce.encode())


def permissions_of_claims(claims: dict[str, Any]) -> Permissions:
    """Read the permissions of a user JWT (``pub``, ``sub``, ``resp``)."""
    responses = claims.get("resp")
    return Permissions(
        _rule(claims.get("pub") or {}, queues=False),
        _rule(claims.get("sub") or {}, queues=True),
        None if responses is None else _responses(responses),
    )


def _rule(lists: dict[str, Any], *, queues: bool) -> Rule:
    return Rule.of(lists.get("allow") or None, lists.get("deny") or (), queues=queues)


def _responses(claims: dict[str, Any]) -> Responses:
    return Responses(claims.get("max") or 1, (claims.get("ttl") or 120_000_000_000) / 1e9)
