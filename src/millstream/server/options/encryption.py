"""Where the key for records at rest comes from: the configuration, a file, the environment."""

import logging
from collections.abc import Mapping
from pathlib import Path

from millstream.errors import StorageUnusable
from millstream.server.options.options import EncryptionOptions
from millstream.store.disk.keys import KeyRing

KEY = "MILLSTREAM_ENCRYPTION_KEY"
PREVIOUS = "MILLSTREAM_ENCRYPTION_PREV_KEY"
SHORT = 16

log = logging.getLogger(__name__)


def key_ring(options: EncryptionOptions, environment: Mapping[str, str]) -> KeyRing:
    """Return the keys; what the configuration says wins over the environment."""
    key = _secret(options.key, options.key_file, environment, KEY)
    previous = _secret(options.prev_key, options.prev_key_file, environment, PREVIOUS)
    if key is not None and len(key) < SHORT:
        log.warning("the encryption key is short bytes=%d: use 32 random ones", len(key))
    older = () if previous is None else (previous,)
    return KeyRing(key, older, options.cipher)


def _secret(text: str, file: str, environment: Mapping[str, str], name: str) -> bytes | None:
    if text:
        return text.encode()
    if not file and environment.get(name):
        return environment[name].encode()
    file = file or environment.get(f"{name}_FILE", "")
    return key_from_file(file) if file else None


def key_from_file(path: str) -> bytes:
    """Return the secret that a file holds; a line end behind it does not count."""
    try:
        secret = Path(path).read_bytes().rstrip(b"\r\n")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StorageUnusable(f"cannot read the key file {path}: {reason}") from error
    if not secret:
        raise StorageUnusable(f"the key file {path} is empty")
    return secret
