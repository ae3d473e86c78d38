"""``--key-file``: keys for commands that read a data directory whose records are encrypted."""

import os
from collections.abc import Sequence

import click

from millstream.server.options.encryption import KEY, PREVIOUS, key_from_file
from millstream.store.disk.keys import KeyRing

key_file_option = click.option(
    "--key-file",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="File with the encryption key; repeat it for an older key.  "
    f"[default: ${KEY} and ${PREVIOUS}]",
)


def key_ring(paths: Sequence[str]) -> KeyRing:
    """Return the keys of the files, or those of the environment."""
    return KeyRing(None, _secrets(paths))


def sealing_ring(paths: Sequence[str]) -> KeyRing:
    """Return the same keys for a command that writes: the first one seals."""
    secrets = _secrets(paths)
    return KeyRing(secrets[0], secrets[1:]) if secrets else KeyRing()


def _secrets(paths: Sequence[str]) -> list[bytes]:
    secrets = [key_from_file(path) for path in paths]
    if not secrets:
        secrets = [os.environ[name].encode() for name in (KEY, PREVIOUS) if os.environ.get(name)]
    return secrets
