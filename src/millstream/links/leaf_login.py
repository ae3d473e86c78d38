"""LeafLogin: how a leafnode says who it is to its hub."""

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from millstream.wire.link_info import LinkConnect, LinkInfo

if TYPE_CHECKING:
    from millstream.links.terms import LeafRemote, ServerAddress

_BLOCK = re.compile(r"-{3,}[^\n]*-{3,}\s*\n([\s\S]*?)\n\s*-{3,}[^\n]*-{3,}")
_SEED_BYTES = 36  # two of role, the key, its check


class LeafLogin:
    """The credentials of a remote, and those that its URL carries."""

    def __init__(self, dialled: "LeafRemote | None") -> None:
        self._dialled = dialled
        self.certificate_names: tuple[str, ...] = ()
        self.address: ServerAddress | None = None  # where we called

    def line(self, said: LinkInfo, introduction: LinkConnect) -> bytes:
        """Return CONNECT for the hub that said this; OSError or ValueError for bad credentials."""
        assert self._dialled is not None
        fields: dict[str, str] = {}
        if self._dialled.credentials:
            token, seed = credentials(Path(self._dialled.credentials).read_text())
            fields = {"jwt": token, "sig": signed(seed, said.nonce)[1]}
        elif self._dialled.nkey:
            public, signature = signed(self._dialled.nkey, said.nonce)
            fields = {"nkey": public, "sig": signature}
        if self.address is not None and self.address.user:
            fields |= {"user": self.address.user, "password": self.address.password}
            if not self.address.has_password:
                fields["auth_token"] = self.address.user
        return msgspec.structs.replace(introduction, **fields).line()


def credentials(text: str) -> tuple[str, str]:
    """Return the JWT and the seed of a credentials file."""
    found = [block.strip() for block in _BLOCK.findall(text)]
    if len(found) < 2:
        raise ValueError("the credentials file holds no JWT and seed")
    return found[0], found[1]


def signed(seed: str, nonce: str) -> tuple[str, str]:
    """Return the public key of a seed, and its signature of the nonce."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from millstream.accounts import nkeys

    text = seed.strip()
    raw = base64.b32decode(text + "=" * (-len(text) % 8))
    if len(raw) != _SEED_BYTES:
        raise ValueError("not the seed of an nkey")
    key = Ed25519PrivateKey.from_private_bytes(raw[2:34])
    public = nkeys.encode(nkeys.Role.USER, key.public_key().public_bytes_raw())
    signature = base64.urlsafe_b64encode(key.sign(nonce.encode())).decode().rstrip("=")
    return public, signature
