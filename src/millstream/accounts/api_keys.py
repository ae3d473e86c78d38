"""API keys: secrets that HTTP clients present, and what each of them may do. Pure values.

Only digests are kept. A key is a long random word, so a plain SHA-256 of it cannot be turned back;
people's passwords belong to users, who have slow hashes.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from millstream.accounts.account import GLOBAL_ACCOUNT

SCOPES = frozenset(("read", "write", "delete", "admin"))
FILE_VERSION = 1
_WORDS = {
    **{word: {"read"} for word in ("read", "r")},
    **{word: {"write"} for word in ("write", "w")},
    **{word: {"delete"} for word in ("delete", "del", "d")},
    **{word: {"admin"} for word in ("admin", "a")},
    "rw": {"read", "write"},
}
_SECRET_BYTES = 24


class BadKeys(ValueError):
    """Keys that nobody can follow. The text never repeats what was given: it may be a secret."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key: its digest, and what its holder may do; no ``prefixes`` means any name."""

    id: str
    digest: bytes = field(repr=False)
    scopes: frozenset[str] = SCOPES
    prefixes: tuple[str, ...] = ()
    account: str = GLOBAL_ACCOUNT


def digest_of(secret: bytes) -> bytes:
    """Return what is kept of a secret."""
    return hashlib.sha256(secret).digest()


def make_key(
    key_id: str,
    scopes: frozenset[str] = SCOPES,
    prefixes: tuple[str, ...] = (),
    account: str = GLOBAL_ACCOUNT,
) -> tuple[ApiKey, str]:
    """Return a new key and its secret, which exists nowhere else."""
    secret = "msk_" + secrets.token_urlsafe(_SECRET_BYTES)
    return ApiKey(key_id, digest_of(secret.encode()), scopes, prefixes, account), secret


def parse_scopes(text: str) -> frozenset[str]:
    """Read ``read+write``; an empty text means every scope."""
    if not text:
        return SCOPES
    found: set[str] = set()
    for word in text.lower().split("+"):
        if word.strip():
            if word.strip() not in _WORDS:
                raise BadKeys("a scope must be read, write, delete, admin or rw")
            found |= _WORDS[word.strip()]
    if not found:
        raise BadKeys("the scopes must name read, write, delete, admin or rw")
    return frozenset(found)


def parse_keys(text: str) -> tuple[ApiKey, ...]:
    """Read ``secret[:scopes[:prefixes]]``, separated by commas, as the environment gives them."""
    made: dict[bytes, ApiKey] = {}
    for number, entry in enumerate(text.split(","), 1):
        if not entry.strip():
            continue
        try:
            key = _parse_entry(entry.strip())
        except BadKeys as error:
            raise BadKeys(f"entry {number}: {error}") from None
        if made.setdefault(key.digest, key) != key:
            raise BadKeys(f"entry {number}: the same secret comes twice, with different rights")
    return tuple(made.values())


def _parse_entry(entry: str) -> ApiKey:
    secret, _, rest = entry.partition(":")
    scopes, _, prefixes = rest.partition(":")
    if not secret:
        raise BadKeys("the secret is empty")
    digest = digest_of(secret.encode("utf-8", "surrogateescape"))
    # The id is a digest of the digest: it may be shown where the digest may not.
    key_id = "env-" + hashlib.sha256(digest).hexdigest()[:16]
    names = tuple(prefix for prefix in prefixes.split("|") if prefix)
    if prefixes and not names:
        raise BadKeys("the prefixes name nothing")
    return ApiKey(key_id, digest, parse_scopes(scopes.strip()), names)


class ApiKeyRing:
    """The keys that count now. Once there were any, nobody comes in without one.

    Only ``open`` lets everybody in again: keys that are merely gone leave the door closed.
    """

    def __init__(self, fixed: Iterable[ApiKey] = (), *, required: bool = False) -> None:
        """Hold keys that never change; ``required`` closes the door even without any."""
        self._fixed = tuple(fixed)
        self._keys = self._fixed
        self.required = required or bool(self._fixed)

    def replace(self, listed: Iterable[ApiKey]) -> None:
        """Hold these beside the fixed ones; the door that they closed stays closed."""
        self._keys = (*self._fixed, *listed)
        self.required = True

    def all(self) -> tuple[ApiKey, ...]:
        """Return the keys that count now; a key shows its digest to nobody."""
        return self._keys

    def open(self) -> None:
        """Hold only the fixed keys; without any, everybody comes in."""
        self._keys = self._fixed
        self.required = bool(self._fixed)

    def __contains__(self, key: ApiKey) -> bool:
        return key in self._keys

    def find(self, secret: bytes) -> ApiKey | None:
        """Return the key of a secret; every key is compared, so that time tells nothing."""
        presented, found = digest_of(secret), None
        for key in self._keys:
            same = hmac.compare_digest(key.digest, presented)
            found = key if same and found is None else found
        return found


class _KeyEntry(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    sha256: str
    scopes: list[str]
    prefixes: list[str] = []
    account: str = GLOBAL_ACCOUNT


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    keys: list[_KeyEntry]


def encode_keys(keys: Iterable[ApiKey]) -> bytes:
    """Return keys as their file's text."""
    entries = [
        _KeyEntry(key.id, key.digest.hex(), sorted(key.scopes), list(key.prefixes), key.account)
        for key in keys
    ]
    raw = msgspec.json.encode(_File(FILE_VERSION, entries))
    return msgspec.json.format(raw, indent=2) + b"\n"


def decode_keys(text: bytes) -> tuple[ApiKey, ...]:
    """Read the file's text; an empty list of scopes means none at all."""
    try:
        read = msgspec.json.decode(text, type=_File)
        keys = tuple(_key(entry) for entry in read.keys)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadKeys(f"the keys cannot be read: {error}") from None
    if read.version != FILE_VERSION:
        raise BadKeys(f"the keys are of version {read.version}, this is {FILE_VERSION}")
    if len({key.id for key in keys}) != len(keys):
        raise BadKeys("two keys have the same id")
    return keys


def _key(entry: _KeyEntry) -> ApiKey:
    digest, scopes = bytes.fromhex(entry.sha256), frozenset(entry.scopes)
    if len(digest) != hashlib.sha256().digest_size:
        raise BadKeys("a digest is not a SHA-256")
    if not scopes <= SCOPES:
        raise BadKeys("a scope must be read, write, delete or admin")
    if not entry.id or not all(entry.prefixes):
        raise BadKeys("an id or a prefix is empty")
    return ApiKey(entry.id, digest, scopes, tuple(entry.prefixes), entry.account)
