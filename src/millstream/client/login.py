"""Login: who asks and whom it trusts, beside what the url says.

Files are read once, where the login is made, so that it can go to machines that lack them; only a
client certificate stays a path, as TLS takes it from files alone.
"""

import base64
import binascii
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.client.errors import ClientError

if TYPE_CHECKING:  # loaded where somebody has a key: it takes longer than the rest of the client
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_BLOCK = re.compile(r"-+BEGIN [A-Z ]+-+\s+(\S+)\s+-+END [A-Z ]+-+")
_SEED_ROLE = 18  # S
_USER_ROLE = 20  # U


class BadCredentials(ClientError):
    """A credentials file, seed or certificate that cannot be used."""


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials; its text never shows a secret."""

    user: str | None = None
    password: str | None = None
    token: str | None = None  # an API key at the HTTP door
    seed: str | None = None
    jwt: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def __repr__(self) -> str:
        """Return which kinds of credentials there are."""
        given = [name for name in self.__slots__ if getattr(self, name) is not None]
        return f"Login({', '.join(given)})"

    def answer(self, nonce: str) -> dict[str, object]:
        """Return what CONNECT says about this login."""
        said: dict[str, object] = {}
        if self.token is not None:
            said["auth_token"] = self.token
        if self.user is not None:
            said |= {"user": self.user, "pass": self.password or ""}
        if self.seed is not None:
            key = _key_of(self.seed)
            signature = key.sign(nonce.encode())
            said["sig"] = base64.urlsafe_b64encode(signature).decode().rstrip("=")
            if self.jwt is None:
                said["nkey"] = _public(key)
        if self.jwt is not None:
            said["jwt"] = self.jwt
        return said

    def tls(self) -> ssl.SSLContext:
        """Return the context of TLS connections."""
        try:
            context = ssl.create_default_context(cadata=self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            raise BadCredentials(f"the certificates cannot be used: {error}") from error
        return context


def login_of(
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    nkey_file: str | None = None,
    creds_file: str | None = None,
    ca_file: str | None = None,
    cert_file: str | None = None,
    key_file: str | None = None,
) -> Login:
    """Return the login of these settings, its files read."""
    jwt = seed = None
    if creds_file is not None:
        found = _BLOCK.findall(_text_of(creds_file))
        if len(found) != 2:
            raise BadCredentials(
                f"{creds_file} is not a credentials file: it needs a JWT and a seed"
            )
        jwt, seed = found
    if nkey_file is not None:
        seed = _text_of(nkey_file).strip()
    if seed is not None:
        _key_of(seed)
    ca = None if ca_file is None else _text_of(ca_file)
    return Login(user, password, token, seed, jwt, ca, cert_file, key_file)


def _text_of(path: str) -> str:
    try:
        return Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadCredentials(f"cannot read {path}: {error}") from error


def _key_of(seed: str) -> "Ed25519PrivateKey":
    """Return the key behind the text of a user's seed: S, U, then base32."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except (binascii.Error, ValueError):
        raise BadCredentials("the nkey seed is not base32") from None
    role = (raw[0] & 7) << 5 | raw[1] >> 3 if len(raw) == 36 else 0
    if role != _USER_ROLE << 3 or raw[0] >> 3 != _SEED_ROLE:
        raise BadCredentials("the nkey seed is not that of a user: it begins with SU")
    if binascii.crc_hqx(raw[:-2], 0).to_bytes(2, "little") != raw[-2:]:
        raise BadCredentials("the nkey seed has a wrong checksum")
    return Ed25519PrivateKey.from_private_bytes(raw[2:34])


def _public(key: "Ed25519PrivateKey") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    body = bytes([_USER_ROLE << 3]) + raw
    check = binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return base64.b32encode(body + check).decode().rstrip("=")
