"""Decentralised identity: operator, account and user JWTs, checked link by link.

A user's JWT is signed by its account (or one of the account's signing keys), the account's by
the operator (or one of its signing keys). ``Trust`` holds what the server believes in; ``admit``
walks the chain and says who the user is, or raises ``Refused`` with a reason for the log alone.
"""

import base64
import binascii
import math
from collections.abc import Iterable
from datetime import UTC, datetime, time
from ipaddress import ip_address, ip_network
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from millstream.accounts import claim_shapes, nkeys
from millstream.accounts.claim_checks import account_problems
from millstream.accounts.claim_fields import Fate, without_effect
from millstream.accounts.jwt_kind import JwtKind
from millstream.accounts.nkeys import Role
from millstream.accounts.templates import BadTemplate, Names, filled
from millstream.wire.go_json import (
    ANYTHING,
    INT64,
    STRING,
    STRINGS,
    GoJsonError,
    Shape,
    Table,
    unmarshal,
)

_LONGEST = 64 * 1024
_OLD = "ed25519"
_NEWEST = 2  # version of the claims
_DAY = 86_400
_SHAPES = {
    JwtKind.OPERATOR: claim_shapes.Operator,
    JwtKind.ACCOUNT: claim_shapes.AccountClaim,
    JwtKind.USER: claim_shapes.UserClaim,
    JwtKind.ACTIVATION: claim_shapes.Activation,
}

# What a user's JWT may say only where its signing key says nothing.
_OWN_WORDS = (
    *("pub", "sub", "resp", "subs", "data", "payload"),
    *("src", "times", "times_location", "bearer_token", "allowed_connection_types"),
)


class Refused(Exception):
    """The chain does not hold; the text is for the log, the client only hears a violation."""


class JwtClaims(msgspec.Struct, frozen=True):
    """A verified JWT: who signed it, for whom, and what it says under ``nats``."""

    issuer: str
    subject: str
    name: str
    issued_at: int
    expires: int
    not_before: int
    nats: dict[str, Any] = msgspec.field(default_factory=dict)
    version: int = 2
    unheeded: tuple[str, ...] = ()  # fields that are not followed, and why


class VerifiedUser(msgspec.Struct, frozen=True):
    """A user whose chain holds, and what its JWTs grant."""

    user: str
    account: str
    claims: JwtClaims
    account_claims: JwtClaims
    permissions: dict[str, Any]
    expires: int  # when the user's time is over, in Unix seconds; 0 = never

    @property
    def account_expires(self) -> int:
        """When the account's time is over, in Unix seconds; 0 = never."""
        return self.account_claims.expires


def decode(text: str, kind: JwtKind) -> JwtClaims:
    """Return the claims of a JWT whose own signature holds; raises ``Refused``."""
    parts, old, body = _opened(text)
    claims = _claims({**body, "nats": _own_part(parts[1], kind)}, kind, body, old=old)
    if old and claims.version != 1:
        raise Refused("a newer version signs its header too")
    issuer_role, subject_role = _ROLES[kind]
    _check_signature(parts, claims.issuer, issuer_role, old=old)
    if not nkeys.is_public(claims.subject, subject_role):
        raise Refused(f"the subject is not a {subject_role.name.lower()} key")
    return claims


def signed_body(text: str, issuer: Role) -> dict[str, Any]:
    """Return all that a JWT of any kind says, if its own signature holds; raises ``Refused``."""
    parts, old, body = _opened(text)
    if old:
        raise Refused("a newer version signs its header too")
    _check_signature(parts, body.get("iss") or "", issuer, old=False)
    return body


def _opened(text: str) -> tuple[list[str], bool, dict[str, Any]]:
    """Return the parts of a JWT, whether it is of the first version, and what it says."""
    parts = text.strip().split(".")
    if len(text) > _LONGEST or len(parts) != 3:
        raise Refused("not a JWT")
    header = _json(parts[0], _HEADER)
    body = claim_shapes.without_nulls(_json(parts[1], _CLAIMS))
    if header.get("alg") not in ("ed25519-nkey", _OLD):
        raise Refused(f"unsupported algorithm {header.get('alg')!r}")
    return parts, header["alg"] == _OLD, body


def _check_signature(parts: list[str], issuer: str, role: Role, *, old: bool) -> None:
    # The first version of these JWTs, which is still around, left its header unsigned.
    signed = (parts[1] if old else f"{parts[0]}.{parts[1]}").encode()
    try:
        signature = nkeys.decode_signature(parts[2])
    except nkeys.BadKey as error:
        raise Refused(str(error)) from error
    if not nkeys.verify(issuer, role, signature, signed):
        raise Refused("the signature does not fit the issuer")


_ROLES = {  # who signs, and for whom
    JwtKind.OPERATOR: (Role.OPERATOR, Role.OPERATOR),
    JwtKind.ACCOUNT: (Role.OPERATOR, Role.ACCOUNT),
    JwtKind.USER: (Role.ACCOUNT, Role.USER),
    JwtKind.ACTIVATION: (Role.ACCOUNT, Role.ACCOUNT),
}


def _json(part: str, shape: Shape) -> dict[str, Any]:
    try:
        data = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        return unmarshal(data, shape)
    except (binascii.Error, ValueError):
        raise Refused("not a JWT") from None


_HEADER = Shape("Header", {"typ": STRING, "alg": STRING})
_CLAIMS = Shape(
    "JwtClaims",
    {
        "iss": STRING,
        "sub": STRING,
        "name": STRING,
        "iat": INT64,
        "exp": INT64,
        "nbf": INT64,
        "aud": STRING,
        "jti": STRING,
        "type": STRING,
        "tags": STRINGS,
        "issuer_account": STRING,
        "nats": Table(ANYTHING),
    },
)


def _own_part(part: str, kind: JwtKind) -> dict[str, Any]:
    """Return the ``nats`` part, its fields under the names that we know them by."""
    data = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    try:
        found = unmarshal(data, Shape("Claims", {"nats": claim_shapes.shape_of(_SHAPES[kind])}))
    except GoJsonError as error:
        raise Refused(f"claims of the wrong type: {error}") from error
    nats: dict[str, Any] = found.get("nats") or {}
    return nats


def _claims(
    body: dict[str, Any], kind: JwtKind, written: dict[str, Any], *, old: bool
) -> JwtClaims:
    """Return the claims of a body; ``written`` is the same as its writer put it."""
    try:
        made = msgspec.convert(body, claim_shapes.Body)
        msgspec.convert(made.nats, _SHAPES[kind])
    except msgspec.ValidationError as error:
        raise Refused(f"claims of the wrong type: {error}") from error
    named = made.type or made.nats.get("type") or kind.value
    if named != kind.value:
        raise Refused(f"it is {named!r} and not {kind.value!r}")
    version = made.nats.get("version") or (1 if old or made.type else _NEWEST)
    if not 1 <= version <= _NEWEST:
        raise Refused(f"its claims have version {version}: {_NEWEST} is the newest known here")
    found = without_effect(kind, written)
    for each in found:
        if each.fate is Fate.REFUSED:
            raise Refused(str(each))
    nats = _as_newest(made) if version == 1 else made.nats
    notes = tuple(str(each) for each in found)
    return JwtClaims(
        *(made.iss, made.sub, made.name, made.iat, made.exp, made.nbf), nats, version, notes
    )


def _as_newest(made: claim_shapes.Body) -> dict[str, Any]:
    """Return the ``nats`` part of a first version with what stood outside of it then."""
    moved = {"issuer_account": made.issuer_account, "tags": made.tags}
    return {**{key: value for key, value in moved.items() if value}, **made.nats}


class Trust:
    """The operators a server believes, and the account JWTs it was given."""

    def __init__(
        self,
        operators: Iterable[str],
        keys: Iterable[str] = (),
        pinned: Iterable[str] | None = None,
    ) -> None:
        """Believe operators by their JWTs, and by their public keys alone.

        Where accounts are ``pinned``, users of others are not believed.
        """
        self._keys = set(keys)
        self._strict: set[str] = set()  # keys of operators whose accounts sign by signing keys
        self._pinned = None if pinned is None else frozenset(pinned)
        self.system_account = ""
        for text in operators:
            claims = decode(text, JwtKind.OPERATOR)
            signing = set(claims.nats.get("signing_keys") or ())
            if claims.nats.get("strict_signing_key_usage"):
                self._strict |= signing
            else:
                signing.add(claims.subject)
            self._keys |= signing
            self.system_account = claims.nats.get("system_account") or self.system_account
        self._accounts: dict[str, JwtClaims] = {}

    def add_account(self, text: str) -> JwtClaims:
        """Take an account JWT that the operator signed; the newest one of an account wins."""
        claims = self.checked(text)
        known = self._accounts.get(claims.subject)
        if known is None or known.issued_at <= claims.issued_at:
            self._accounts[claims.subject] = claims
        return claims

    def checked(self, text: str) -> JwtClaims:
        """Return the claims of an account JWT that the operator signed; raises ``Refused``."""
        claims = decode(text, JwtKind.ACCOUNT)
        if claims.issuer not in self._keys:
            raise Refused("the account is not signed by a trusted operator")
        problem = next(account_problems(claims.nats), None)
        if problem is not None:
            raise Refused(problem)
        return claims

    def remove_account(self, public: str) -> None:
        """Forget an account: none of its users is believed any more."""
        self._accounts.pop(public, None)

    def named_by(self, text: str) -> tuple[str, str]:
        """Return the user and the account that a user's JWT names, empty where it is none."""
        try:
            user = decode(text, JwtKind.USER)
        except Refused:
            return "", ""
        public = user.nats.get("issuer_account") or user.issuer
        if self._pinned is not None and public not in self._pinned:
            return "", ""
        return user.subject, str(public)

    def deletions(self, text: str) -> list[str]:
        """Return the accounts that an operator asks to delete; raises ``Refused``."""
        body = signed_body(text, Role.OPERATOR)
        if body.get("sub") != body.get("iss"):
            raise Refused("not self signed")
        if body["iss"] not in self._keys:
            raise Refused("not trusted")
        listed = body.get("nats", {}).get("accounts")
        if not isinstance(listed, list):
            raise Refused("malformed request")
        for public in listed:
            if not isinstance(public, str) or not nkeys.is_public(public, Role.ACCOUNT):
                raise Refused("malformed request")
        return list(dict.fromkeys(listed))

    def accounts(self) -> list[JwtClaims]:
        """Return the claims of every account that was given."""
        return list(self._accounts.values())

    def account(self, public: str) -> JwtClaims | None:
        """Return the account's claims as last given."""
        return self._accounts.get(public)

    def admit(self, text: str, *, now: float, address: str, kind: str) -> VerifiedUser:
        """Check a user JWT against its account, the clock, the address and the connection kind.

        Proof that the client holds the user's key (the signed nonce) is the caller's to check,
        unless ``bearer_token`` is claimed.
        """
        user = decode(text, JwtKind.USER)
        public = user.nats.get("issuer_account") or user.issuer
        if self._pinned is not None and public not in self._pinned:
            raise Refused("the account is not in resolver_pinned_accounts")
        account = self._accounts.get(public)
        if account is None:
            raise Refused("unknown account")
        for claims in (account, user):
            _check_times(claims, now)
        if user.issuer == account.subject and account.issuer in self._strict:
            raise Refused("the operator lets accounts sign users only with signing keys")
        scope = _signing_scope(account, user.issuer)
        _check_revoked(account, user)
        granted = _granted(account, user, scope)
        _check_bearer(account, granted)
        _check_place(granted, address=address, kind=kind)
        ends = [end for end in (user.expires, _end_of_hours(granted, now)) if end]
        return VerifiedUser(
            user.subject, account.subject, user, account, granted, min(ends, default=0)
        )


def _check_times(claims: JwtClaims, now: float) -> None:
    if claims.expires and claims.expires <= now:
        raise Refused("expired")
    if claims.not_before and claims.not_before > now:
        raise Refused("not valid yet")


def _signing_scope(account: JwtClaims, issuer: str) -> dict[str, Any] | None:
    """Return the template of a scoped signing key, None for an unscoped one."""
    if issuer == account.subject:
        return None
    for entry in account.nats.get("signing_keys") or ():
        if entry == issuer:
            return None
        if isinstance(entry, dict) and entry.get("key") == issuer:
            return entry.get("template") or {}
    raise Refused("signed by a key that the account does not list")


def signing_keys(account: JwtClaims) -> list[str]:
    """Return the keys beside its own that sign for an account."""
    listed = account.nats.get("signing_keys") or ()
    return [str(entry["key"] if isinstance(entry, dict) else entry) for entry in listed]


def granted_alone(
    user: JwtClaims, *, now: float, address: str, kind: str
) -> tuple[dict[str, Any], int]:
    """Return what a user's JWT grants where no account's JWT stands behind it, and its end."""
    _check_times(user, now)
    granted = {**_UNSAID[user.version], **user.nats}
    _check_place(granted, address=address, kind=kind)
    ends = [end for end in (user.expires, _end_of_hours(granted, now)) if end]
    return granted, min(ends, default=0)


def _check_revoked(account: JwtClaims, user: JwtClaims) -> None:
    revocations = account.nats.get("revocations") or {}
    for key in (user.subject, "*"):
        if key in revocations and user.issued_at <= revocations[key]:
            raise Refused("revoked")


def _granted(account: JwtClaims, user: JwtClaims, scope: dict[str, Any] | None) -> dict[str, Any]:
    """Return what the user may do: a scoped key's template replaces the user's own words."""
    if scope is not None:
        if any(user.nats.get(key) for key in _OWN_WORDS):
            raise Refused("a user of a scoped signing key has no permissions of its own")
        return {**_NOTHING, **_from_template(account, user, scope)}
    defaults = account.nats.get("default_permissions") or {}
    own = {key: user.nats[key] for key in ("pub", "sub", "resp") if user.nats.get(key)}
    limits = {key: value for key, value in user.nats.items() if key not in ("pub", "sub", "resp")}
    return {**_UNSAID[user.version], **limits, **(own or defaults)}


# What a JWT leaves out is nothing; the first version left out what it did not limit.
_NOTHING = {"subs": 0, "payload": 0}
_UNSAID = {1: {"subs": -1, "payload": -1}, 2: _NOTHING}


def _check_bearer(account: JwtClaims, granted: dict[str, Any]) -> None:
    limits = account.nats.get("limits") or {}
    if limits.get("disallow_bearer") and granted.get("bearer_token"):
        raise Refused("the account allows no bearer tokens")


def _from_template(account: JwtClaims, user: JwtClaims, scope: dict[str, Any]) -> dict[str, Any]:
    names = Names(
        user.name,
        user.subject,
        account.name,
        account.subject,
        tuple(user.nats.get("tags") or ()),
        tuple(account.nats.get("tags") or ()),
    )
    try:
        return filled(scope, names)
    except BadTemplate as error:
        raise Refused(str(error)) from error


def _check_place(granted: dict[str, Any], *, address: str, kind: str) -> None:
    kinds = granted.get("allowed_connection_types") or ()
    if kinds and kind not in kinds:
        raise Refused(f"connections of kind {kind} are not allowed")
    networks = granted.get("src") or ()
    if networks and not any(_inside(address, network) for network in networks):
        raise Refused("connections from this address are not allowed")


def _end_of_hours(granted: dict[str, Any], now: float) -> int:
    """Return when the hours end that allow a connection now, 0 where any hour does."""
    spans = granted.get("times") or ()
    if not spans:
        return 0
    left = _hours_left(spans, granted.get("times_location") or "", now)
    if left is None:
        raise Refused("connections at this hour are not allowed")
    return math.ceil(now + left)


def _inside(address: str, network: str) -> bool:
    try:
        return ip_address(address) in ip_network(network, strict=False)
    except ValueError:
        return False


def _hours_left(spans: list[dict[str, str]], location: str, now: float) -> float | None:
    """Return how many seconds the longest of the spans that it is within goes on, if it is."""
    try:
        zone = ZoneInfo(location) if location else None  # None: this machine's
        clock = _second_of_day(datetime.fromtimestamp(now, UTC).astimezone(zone).time())
        hours = [(_read_time(span["start"]), _read_time(span["end"])) for span in spans]
    except (ZoneInfoNotFoundError, ValueError, KeyError):
        return None
    left = [
        (end - clock) % _DAY
        for start, end in hours
        if (clock - start) % _DAY <= (end - start) % _DAY
    ]
    return max(left, default=None)


def _read_time(text: str) -> float:
    return _second_of_day(time.fromisoformat(text))


def _second_of_day(clock: time) -> float:
    return clock.hour * 3600 + clock.minute * 60 + clock.second + clock.microsecond / 1e6
