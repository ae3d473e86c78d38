"""One process per data directory."""

import os
from contextlib import suppress

from millstream.errors import StorageUnusable
from millstream.store.disk.files import File, Files, ensure_dir


def lock_directory(files: Files, directory: str) -> File:
    """Take the directory for this process; the lock lives as long as the returned file.

    Nothing but the lock file is touched before the lock is held, so a second process leaves
    the first one's files as they are.
    """
    _harden_way(files, directory)
    ensure_dir(files, directory)
    file = files.open(f"{directory}/lock", create=True)
    if not file.lock():
        file.close()
        raise StorageUnusable(
            f"{directory} is in use by another millstream process: stop it, "
            "or start this one with a directory of its own"
        )
    return file


def _harden_way(files: Files, directory: str) -> None:
    """Sync the last directory that is there on the way to a missing one: a kill may have come.

    A start makes each only once the one before it is durable, so no other can be in doubt. Where
    the data directory itself is there, the way to it is durable, and the store syncs the rest.
    """
    last = directory
    while not files.exists(last):
        last = os.path.dirname(last) or "."
    if last != directory:
        with suppress(PermissionError):  # not ours to read, so most likely not made by us either
            files.sync_dir(os.path.dirname(last) or ".")
