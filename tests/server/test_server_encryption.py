"""Where the key for records at rest comes from."""

from pathlib import Path

import pytest

from millstream.errors import StorageUnusable
from millstream.server.options.encryption import key_ring
from millstream.server.options.options import EncryptionOptions
from millstream.store.disk.keys import NO_KEY, KeyRing

SECRET = b"0123456789abcdef"


def test_without_a_key_nothing_is_sealed() -> None:
    assert key_ring(EncryptionOptions(), {}).key_id == NO_KEY


def test_a_key_comes_from_the_configuration_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(SECRET + b"\n")
    wanted = KeyRing(SECRET).key_id
    text = SECRET.decode()
    assert key_ring(EncryptionOptions(key=text), {}).key_id == wanted
    assert key_ring(EncryptionOptions(key_file=str(file)), {}).key_id == wanted
    assert key_ring(EncryptionOptions(), {"MILLSTREAM_ENCRYPTION_KEY": text}).key_id == wanted
    by_file = {"MILLSTREAM_ENCRYPTION_KEY_FILE": str(file)}
    assert key_ring(EncryptionOptions(), by_file).key_id == wanted
    other = {"MILLSTREAM_ENCRYPTION_KEY": "something else"}
    assert key_ring(EncryptionOptions(key=text), other).key_id == wanted


def test_an_older_key_still_opens_and_does_not_seal() -> None:
    ring = key_ring(EncryptionOptions(key="0123456789abcdef", prev_key="older"), {})
    assert ring.key_id == KeyRing(SECRET).key_id
    ring.require(KeyRing(b"older").key_id, "a file")
    with pytest.raises(StorageUnusable, match="another key was given"):
        ring.require(KeyRing(b"oldest").key_id, "a file")


def test_a_key_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageUnusable, match="cannot read the key file"):
        key_ring(EncryptionOptions(key_file=str(tmp_path / "none")), {})
    (tmp_path / "empty").write_bytes(b"\n")
    with pytest.raises(StorageUnusable, match="is empty"):
        key_ring(EncryptionOptions(key_file=str(tmp_path / "empty")), {})


def test_options_do_not_show_their_secrets() -> None:
    assert "hunter2" not in repr(EncryptionOptions(key="hunter2", prev_key="hunter2"))
