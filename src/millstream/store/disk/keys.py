"""Keys for bytes at rest: one seals what is written, all of them open what is read.

A key is any secret text or bytes; what is used of it is derived by HKDF-SHA-256:

    master        32 bytes from the secret
    key id         8 bytes from the master, written beside what it sealed: it names the key
    working key   32 bytes from the master and a salt of 12 random bytes, a new one for each start

The nonce that stands beside sealed bytes is the salt and a counter of 12 bytes, so that no pair of
working key and nonce comes twice, however much is written and however often it is written again.
"""

from collections.abc import Sequence
from itertools import count
from secrets import token_bytes
from typing import TYPE_CHECKING

from millstream.errors import StorageUnusable

if TYPE_CHECKING:
    from millstream.store.disk.key import Key

ID_BYTES = 8
SALT_BYTES = 12
NONCE_BYTES = 24
TAG_BYTES = 16
PREFIX_BYTES = 1 + ID_BYTES + NONCE_BYTES  # of a whole sealed text: cipher, key id, nonce
NO_KEY = bytes(ID_BYTES)
CIPHERS = {"aes": 1, "chacha": 2}  # AES-256-GCM, ChaCha20-Poly1305


class KeyRing:
    """The key that seals, if there is one, and those of earlier times that still open."""

    def __init__(
        self, secret: bytes | None = None, older: Sequence[bytes] = (), cipher: str = "aes"
    ) -> None:
        current = _key(secret) if secret is not None else None
        keys = [*([current] if current else []), *map(_key, older)]
        self._keys = {key.id: key for key in keys}
        self._current = current
        self._cipher = CIPHERS[cipher]
        self._salt = token_bytes(SALT_BYTES)
        self._counter = count(1)

    @property
    def seals(self) -> bool:
        """Say whether what is written must be sealed."""
        return self._current is not None

    @property
    def key_id(self) -> bytes:
        """Return the id of the key that seals, zeros when none does."""
        return self._current.id if self._current else NO_KEY

    @property
    def cipher(self) -> int:
        """Return the number of the cipher that seals, 0 when nothing does."""
        return self._cipher if self._current else 0

    def require(self, key_id: bytes, what: str) -> None:
        """Raise unless the key that sealed ``what`` is here."""
        if key_id != NO_KEY and key_id not in self._keys:
            given = "no key was given" if not self._keys else "another key was given"
            raise StorageUnusable(
                f"{what} is encrypted with key {key_id.hex()}, and {given}: set jetstream "
                "{ key } to it, or prev_key if it was replaced; nothing was changed"
            )

    def nonce(self) -> bytes:
        """Return a nonce that was never used."""
        return self._salt + next(self._counter).to_bytes(NONCE_BYTES - SALT_BYTES, "little")

    def seal(self, nonce: bytes, data: bytes | memoryview, bound: bytes) -> bytes:
        """Return ``data`` sealed; it opens only together with ``bound``."""
        assert self._current is not None
        salt, rest = nonce[:SALT_BYTES], nonce[SALT_BYTES:]
        return self._current.seal(self._cipher, salt, rest, data, bound)

    def open(
        self, cipher: int, key_id: bytes, nonce: bytes, data: bytes | memoryview, bound: bytes
    ) -> bytes | None:
        """Return what was sealed, None when it is damaged or not what it claims to be."""
        key = self._keys.get(key_id)
        if key is None or cipher not in CIPHERS.values() or len(data) < TAG_BYTES:
            return None
        return key.open(cipher, nonce[:SALT_BYTES], nonce[SALT_BYTES:], data, bound)

    def seal_whole(self, data: bytes, bound: bytes) -> bytes:
        """Return ``data`` sealed, with cipher, key id and nonce before it."""
        nonce = self.nonce()
        return bytes((self._cipher,)) + self.key_id + nonce + self.seal(nonce, data, bound)

    def open_whole(self, data: bytes | memoryview, bound: bytes, what: str) -> bytes | None:
        """Return what ``seal_whole`` was given; raises when the key is missing."""
        if len(data) < PREFIX_BYTES:
            return None
        key_id, nonce = bytes(data[1 : 1 + ID_BYTES]), bytes(data[1 + ID_BYTES : PREFIX_BYTES])
        self.require(key_id, what)
        return self.open(data[0], key_id, nonce, data[PREFIX_BYTES:], bound)


def _key(secret: bytes) -> "Key":
    # Imported here: a store without encryption does not pay for ciphers.
    from millstream.store.disk.key import Key

    return Key(secret)
