"""Operators, accounts and users with keys of their own, and the JWTs that they sign."""

import base64
import hashlib
import json
import secrets
from typing import Any

import nkeys as signing

ISSUED = 1_600_000_000


def _unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Holder:
    """Whoever has a key."""

    def __init__(self, prefix: int) -> None:
        self.seed = signing.encode_seed(secrets.token_bytes(32), prefix)
        self.pair = signing.from_seed(bytearray(self.seed))
        self.public = self.pair.public_key.decode()

    def sign_claims(self, subject: str, name: str, nats: dict[str, Any], **more: Any) -> str:
        """Return a JWT as nats-server reads it."""
        claims = {"iat": ISSUED, "iss": self.public, "name": name, "sub": subject, "nats": nats}
        claims |= more
        digest = hashlib.new("sha512_256", json.dumps(claims).encode()).digest()
        claims["jti"] = base64.b32encode(digest).decode().rstrip("=")
        header = _unpadded(b'{"typ":"JWT","alg":"ed25519-nkey"}')
        body = _unpadded(json.dumps(claims).encode())
        return f"{header}.{body}.{_unpadded(self.pair.sign(f'{header}.{body}'.encode()))}"


class Operator(Holder):
    """The root of trust."""

    def __init__(self, **nats: Any) -> None:
        super().__init__(signing.PREFIX_BYTE_OPERATOR)
        claims = {"type": "operator", "version": 2, **nats}
        self.token = self.sign_claims(self.public, "operator", claims)

    def account(self, name: str, **nats: Any) -> "AccountHolder":
        return AccountHolder(self, name, nats)


class AccountHolder(Holder):
    """An account that its operator signed."""

    def __init__(self, operator: Operator, name: str, nats: dict[str, Any]) -> None:
        super().__init__(signing.PREFIX_BYTE_ACCOUNT)
        no_limit = dict.fromkeys(
            ("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1
        )
        claims = {
            "limits": no_limit | {"wildcards": True},
            "type": "account",
            "version": 2,
            **nats,
        }
        self.token = operator.sign_claims(self.public, name, claims)

    def user(self, name: str, exp: int = 0, **nats: Any) -> "UserHolder":
        return UserHolder(self, name, exp, nats)


class UserHolder(Holder):
    """A user that its account signed."""

    def __init__(self, account: AccountHolder, name: str, exp: int, nats: dict[str, Any]) -> None:
        super().__init__(signing.PREFIX_BYTE_USER)
        claims = {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, **nats}
        times = {"exp": exp} if exp else {}
        self.token = account.sign_claims(self.public, name, claims, **times)

    def creds_file(self) -> str:
        """Return the text of a credentials file."""
        return (
            f"-----BEGIN NATS USER JWT-----\n{self.token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{self.seed.decode()}\n"
            "------END USER NKEY SEED------\n"
        )
