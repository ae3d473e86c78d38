"""Ed25519 signatures, apart from the keys' text: only who checks one loads the library for it."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def is_signed(key: bytes, signature: bytes, message: bytes) -> bool:
    """Say whether ``signature`` of ``message`` was made with the private half of ``key``."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
