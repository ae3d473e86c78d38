"""One secret and the ciphers derived from it, apart from the ring: loaded where there is a key."""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from millstream.errors import StorageUnusable
from millstream.store.disk.keys import CIPHERS, ID_BYTES

MOST_WORKING_KEYS = 256


class Key:
    """One secret."""

    def __init__(self, secret: bytes) -> None:
        if not secret:
            raise StorageUnusable("the encryption key is empty: give a secret, or leave it out")
        self._master = _derived(secret, b"", b"millstream master")
        self.id = _derived(self._master, b"", b"millstream key id")[:ID_BYTES]
        self._working: dict[tuple[int, bytes], AESGCM | ChaCha20Poly1305] = {}

    def seal(
        self, cipher: int, salt: bytes, nonce: bytes, data: bytes | memoryview, bound: bytes
    ) -> bytes:
        """Return ``data`` sealed with the working key of a salt."""
        return self._cipher(cipher, salt).encrypt(nonce, data, bound)

    def open(
        self, cipher: int, salt: bytes, nonce: bytes, data: bytes | memoryview, bound: bytes
    ) -> bytes | None:
        """Return what was sealed, None when it is damaged or not what it claims to be."""
        try:
            return self._cipher(cipher, salt).decrypt(nonce, data, bound)
        except InvalidTag:
            return None

    def _cipher(self, cipher: int, salt: bytes) -> AESGCM | ChaCha20Poly1305:
        known = self._working.get((cipher, salt))
        if known is None:
            kind = AESGCM if cipher == CIPHERS["aes"] else ChaCha20Poly1305
            known = kind(_derived(self._master, salt, b"millstream working key"))
            if len(self._working) >= MOST_WORKING_KEYS:
                self._working.clear()
            self._working[cipher, salt] = known
        return known


def _derived(secret: bytes, salt: bytes, purpose: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt or None, purpose).derive(secret)
