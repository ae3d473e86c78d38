"""One process per data directory."""

from millstream.errors import StorageUnusable
from millstream.store.files import File, Files, ensure_dir


def lock_directory(files: Files, directory: str) -> File:
    """Take the directory for this process; the lock lives as long as the returned file.

    Nothing but the lock file is touched before the lock is held, so a second process leaves
    the first one's files as they are.
    """
    ensure_dir(files, directory)
    file = files.open(f"{directory}/lock", create=True)
    if not file.lock():
        file.close()
        raise StorageUnusable(
            f"{directory} is in use by another millstream process: stop it, "
            "or start this one with a directory of its own"
        )
    return file
