"""Nkeys: Ed25519 keys written as base32 text with a role letter and a CRC-16.

```
public   u8 role << 3   32 bytes key   u16 CRC-16/XMODEM of what precedes, little-endian
```
"""

import base64
import binascii
from enum import IntEnum


class Role(IntEnum):
    """What a key stands for; its number gives the first letter of the text form."""

    ACCOUNT = 0  # A
    SERVER = 13  # N
    OPERATOR = 14  # O
    USER = 20  # U
    CURVE = 23  # X


class BadKey(ValueError):
    """Text that is no public nkey of the role asked for."""


def encode(role: Role, raw: bytes) -> str:
    """Return the text form of a 32-byte public key."""
    body = bytes([role << 3]) + raw
    return base64.b32encode(body + _crc(body)).decode().rstrip("=")


def decode(text: str, role: Role) -> bytes:
    """Return the 32-byte key behind ``text``; raises ``BadKey``."""
    try:
        data = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raise BadKey("not base32") from None
    body, check = data[:-2], data[-2:]
    if len(body) != 33 or _crc(body) != check:
        raise BadKey("wrong length or checksum")
    if body[0] != role << 3:
        raise BadKey(f"not the key of a {role.name.lower()}")
    return body[1:]


def is_public(text: str, role: Role) -> bool:
    """Say whether ``text`` is a public key of this role."""
    try:
        decode(text, role)
    except BadKey:
        return False
    return True


def verify(text: str, role: Role, signature: bytes, message: bytes) -> bool:
    """Say whether ``signature`` of ``message`` was made with the private half of ``text``."""
    # Imported here: most servers never see an nkey.
    from millstream.accounts.signature import is_signed

    try:
        return is_signed(decode(text, role), signature, message)
    except BadKey:
        return False


def decode_signature(text: str) -> bytes:
    """Return the bytes of a signature in URL-safe or standard base64, padded or not."""
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise BadKey("the signature is not base64") from None


def _crc(data: bytes) -> bytes:
    return binascii.crc_hqx(data, 0).to_bytes(2, "little")
