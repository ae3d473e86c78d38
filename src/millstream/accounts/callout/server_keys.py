"""ServerKeys: the server's own key pairs: one signs what it asks, the other hides it."""

import base64
import hashlib
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from millstream.accounts import nkeys
from millstream.accounts.callout.sealed_box import seal, unseal
from millstream.accounts.nkeys import Role

_HEADER = b'{"typ":"JWT","alg":"ed25519-nkey"}'


class ServerKeys:
    """New with every start; the public halves are the server's id and its ``xkey``."""

    def __init__(self) -> None:
        self._signing = Ed25519PrivateKey.generate()
        self._curve = X25519PrivateKey.generate()
        self.public = self._signing.public_key().public_bytes_raw()
        self.id = nkeys.encode(Role.SERVER, self.public)
        self.xkey = nkeys.encode(Role.CURVE, self._curve.public_key().public_bytes_raw())

    def sign(self, claims: dict[str, Any]) -> str:
        """Return claims as a JWT that this server issued."""
        issued = {**claims, "iss": self.id}
        digest = hashlib.new("sha512_256", msgspec.json.encode(issued)).digest()
        issued["jti"] = base64.b32encode(digest).decode().rstrip("=")
        signed = f"{_unpadded(_HEADER)}.{_unpadded(msgspec.json.encode(issued))}"
        return f"{signed}.{_unpadded(self._signing.sign(signed.encode()))}"

    def seal(self, message: bytes, xkey: str) -> bytes:
        """Encrypt for the owner of a public curve key."""
        return seal(message, self._curve, nkeys.decode(xkey, Role.CURVE))

    def unseal(self, sealed: bytes, xkey: str) -> bytes:
        """Decrypt what the owner of a public curve key sent; raises ``BadSeal``."""
        return unseal(sealed, self._curve, nkeys.decode(xkey, Role.CURVE))


def new_user() -> str:
    """Return a public user key that nobody saw before; its private half is forgotten."""
    public = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    return nkeys.encode(Role.USER, public)


def _unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
