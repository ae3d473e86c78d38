"""SealedBox: what one curve key encrypts for another (NaCl's box, as nkeys writes it).

```
0 "xkv1"   4 24 bytes nonce   28 16 bytes Poly1305 tag   44 the message under XSalsa20
```
The key of a pair is HSalsa20 of what X25519 makes of a private and a public half.
"""

import hmac
import os
import struct

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.poly1305 import Poly1305

_VERSION = b"xkv1"
_NONCE, _TAG, _BLOCK, _WORD = 24, 16, 64, 0xFFFFFFFF
_SIGMA = struct.unpack("<4I", b"expand 32-byte k")
# One double round as quarter rounds over the columns, then over the rows.
_QUARTERS = (
    *((0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11)),
    *((0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14)),
)


class BadSeal(ValueError):
    """Bytes that the other side did not seal for us."""


def seal(message: bytes, private: X25519PrivateKey, public: bytes) -> bytes:
    """Encrypt for the owner of ``public``."""
    nonce = os.urandom(_NONCE)
    stream = _stream(_shared(private, public), nonce, 32 + len(message))
    hidden = _xor(message, stream[32:])
    return _VERSION + nonce + Poly1305.generate_tag(stream[:32], hidden) + hidden


def unseal(sealed: bytes, private: X25519PrivateKey, public: bytes) -> bytes:
    """Decrypt what the owner of ``public`` sealed for us; raises ``BadSeal``."""
    head = len(_VERSION) + _NONCE
    if not sealed.startswith(_VERSION) or len(sealed) < head + _TAG:
        raise BadSeal("not sealed for a curve key")
    tag, hidden = sealed[head : head + _TAG], sealed[head + _TAG :]
    stream = _stream(_shared(private, public), sealed[len(_VERSION) : head], 32 + len(hidden))
    if not hmac.compare_digest(Poly1305.generate_tag(stream[:32], hidden), tag):
        raise BadSeal("sealed with another key, or changed on the way")
    return _xor(hidden, stream[32:])


def _shared(private: X25519PrivateKey, public: bytes) -> bytes:
    return _hsalsa(private.exchange(X25519PublicKey.from_public_bytes(public)), bytes(16))


def _stream(key: bytes, nonce: bytes, size: int) -> bytes:
    """Return so many bytes of XSalsa20."""
    inner = _hsalsa(key, nonce[:16])
    blocks = -(-size // _BLOCK)
    return b"".join(_salsa(inner, nonce[16:], at) for at in range(blocks))[:size]


def _salsa(key: bytes, nonce: bytes, counter: int) -> bytes:
    start = _state(key, nonce + counter.to_bytes(8, "little"))
    mixed = _rounds(start)
    return struct.pack("<16I", *((a + b) & _WORD for a, b in zip(start, mixed, strict=True)))


def _hsalsa(key: bytes, middle: bytes) -> bytes:
    mixed = _rounds(_state(key, middle))
    return struct.pack("<8I", *(mixed[at] for at in (0, 5, 10, 15, 6, 7, 8, 9)))


def _state(key: bytes, middle: bytes) -> list[int]:
    k, n, s = struct.unpack("<8I", key), struct.unpack("<4I", middle), _SIGMA
    return [s[0], *k[:4], s[1], *n, s[2], *k[4:], s[3]]


def _rounds(state: list[int]) -> list[int]:
    x = list(state)
    for _ in range(10):
        for a, b, c, d in _QUARTERS:
            t = (x[a] + x[d]) & _WORD
            x[b] ^= ((t << 7) | (t >> 25)) & _WORD
            t = (x[b] + x[a]) & _WORD
            x[c] ^= ((t << 9) | (t >> 23)) & _WORD
            t = (x[c] + x[b]) & _WORD
            x[d] ^= ((t << 13) | (t >> 19)) & _WORD
            t = (x[d] + x[c]) & _WORD
            x[a] ^= ((t << 18) | (t >> 14)) & _WORD
    return x


def _xor(one: bytes, other: bytes) -> bytes:
    size = len(one)
    mixed = int.from_bytes(one, "little") ^ int.from_bytes(other[:size], "little")
    return mixed.to_bytes(size, "little")
