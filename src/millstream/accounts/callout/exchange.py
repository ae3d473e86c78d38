"""Auth callout: what the service of an account is asked about a client, and what it answers.

Values only: ``nats/auth_callout.py`` sends the request and waits.
"""

from collections.abc import Mapping
from typing import Any

from millstream.accounts import jwt, nkeys
from millstream.accounts.callout.terms import CalloutTerms
from millstream.accounts.credentials import Identity, Presented, permissions_of_claims
from millstream.accounts.jwt import JwtClaims, Refused, Trust, signed_body
from millstream.accounts.jwt_kind import JwtKind
from millstream.accounts.nkeys import Role

AUDIENCE = "nats-authorization-request"


def request_claims(
    terms: CalloutTerms,
    user: str,
    presented: Presented,
    server: Mapping[str, Any],
    client: Mapping[str, Any],
    said: Mapping[str, Any],
    tls: Mapping[str, Any] | None,
    *,
    now: int,
    expires: int,
) -> dict[str, Any]:
    """Return what the service is asked; ``user`` is the key that its answer must be about."""
    secrets = {
        "jwt": presented.jwt,
        "nkey": presented.nkey,
        "sig": presented.signature,
        "auth_token": presented.token,
        "user": presented.user,
        "pass": presented.password,
    }
    nonce = {"nonce": presented.nonce} if presented.signature else {}
    nats = {
        "server_id": _said(server),
        "user_nkey": user,
        "client_info": {**_said(client), **nonce},
        "connect_opts": {**_said(secrets), **_said(said, "protocol")},
        **({"client_tls": _said(tls)} if tls is not None else {}),
        "type": "authorization_request",
        "version": 2,
    }
    return {"aud": AUDIENCE, "exp": expires, "iat": now, "sub": terms.issuer, "nats": nats}


def _said(fields: Mapping[str, Any], *always: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value or key in always}


def user_token(
    answer: str, terms: CalloutTerms, server_id: str, user: str, account: JwtClaims | None
) -> str:
    """Return the user's JWT that an answer brings; raises ``Refused``.

    ``account`` is the asked account as its operator signed it, None in a file's own accounts or
    where the answer came sealed.
    """
    body = signed_body(answer, Role.ACCOUNT)
    nats = body.get("nats") or {}
    if nats.get("type") != "authorization_response":
        raise Refused("the answer is no authorization response")
    if body.get("sub") != user:
        raise Refused("the answer is not for the expected user")
    if body.get("aud") != server_id:
        raise Refused("the answer is not for this server")
    if nats.get("error"):
        raise Refused(f"the service returned an error: {nats['error']}")
    if account is not None:
        signer = nats.get("issuer_account") or body["iss"]
        if signer != terms.account and signer not in jwt.signing_keys(account):
            raise Refused("the signing key of the answer is unknown")
    return str(nats.get("jwt") or "")


def identity_of(
    token: str, terms: CalloutTerms, user: str, trust: Trust | None, asked: Presented, now: float
) -> Identity:
    """Return who a user's JWT says that the client is; raises ``Refused``."""
    claims = jwt.decode(token, JwtKind.USER)
    if claims.subject != user:
        raise Refused("the JWT is about another user than was asked for")
    if trust is not None:
        admitted = trust.admit(token, now=now, address=asked.address, kind=asked.connection_type)
        account, granted, expires = admitted.account, admitted.permissions, admitted.expires
        if not terms.allows(account):
            raise Refused(f"account {account!r} is not among the allowed accounts")
        ends = admitted.account_expires
    else:
        account, ends = _named_account(token, claims, terms), 0
        granted, expires = jwt.granted_alone(
            claims, now=now, address=asked.address, kind=asked.connection_type
        )
    return Identity(
        claims.name or claims.subject,
        account,
        permissions_of_claims(granted),
        claims.name,
        expires,
        granted.get("subs", -1),
        granted.get("payload", -1),
        ends,
        is_delegated=True,
    )


def _named_account(token: str, claims: JwtClaims, terms: CalloutTerms) -> str:
    """Return the account of a file that the service names; it signs with the one key listed."""
    if claims.nats.get("issuer_account"):
        raise Refused("the JWT names an issuer_account, which only operators' accounts do")
    if claims.issuer != terms.issuer:
        raise Refused(f"signed by {claims.issuer}: the issuer of auth_callout is {terms.issuer}")
    return str(signed_body(token, Role.ACCOUNT).get("aud") or "")


def is_curve_key(text: str) -> bool:
    """Say whether ``text`` is a public curve key (X…)."""
    return nkeys.is_public(text, Role.CURVE)
