"""Where backups are kept: a directory, or an object store through obstore."""

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from millstream.errors import BackupFailed

if TYPE_CHECKING:
    from obstore.store import ObjectStore


class Target(Protocol):
    """Named objects. A put is whole or absent, and durable when it returns."""

    def put(self, name: str, data: bytes) -> None:
        """Store an object under its name, in place of one that is there."""
        ...

    def get(self, name: str) -> bytes:
        """Return an object; raises ``BackupFailed`` when it is not there."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Return the names below a prefix such as ``moments/``, sorted."""
        ...

    def remove(self, name: str) -> None:
        """Remove an object."""
        ...


def open_target(place: str) -> Target:
    """Return the target at a path, or at a URL such as ``s3://bucket/prefix``."""
    if "://" not in place:
        return DirectoryTarget(Path(place).resolve())
    try:
        from obstore.store import from_url
    except ImportError:
        raise BackupFailed(
            "object stores need the package obstore: pip install 'millstream[lake]'"
        ) from None
    return ObjectTarget(from_url(place), place)


class DirectoryTarget:
    """Objects as files, for this user alone."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, name: str, data: bytes) -> None:
        """Write beside, sync, rename, sync the directory."""
        path = self._directory / name
        self._make(path.parent)
        temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync(path.parent)

    def _make(self, directory: Path) -> None:
        if directory.is_dir():
            return
        self._make(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        _sync(directory.parent)

    def get(self, name: str) -> bytes:
        """Read the whole file."""
        try:
            return (self._directory / name).read_bytes()
        except FileNotFoundError:
            raise BackupFailed(f"the backup at {self._directory} lacks {name}") from None

    def names(self, prefix: str) -> list[str]:
        """List the files below; leftovers of a cut write begin with a dot and do not count."""
        found = (self._directory / prefix).rglob("*")
        files = (path for path in found if path.is_file() and not path.name.startswith("."))
        return sorted(path.relative_to(self._directory).as_posix() for path in files)

    def remove(self, name: str) -> None:
        """Unlink the file."""
        (self._directory / name).unlink(missing_ok=True)


class ObjectTarget:
    """Objects of a bucket; such a store makes each put whole by itself."""

    def __init__(self, store: "ObjectStore", place: str) -> None:
        import obstore

        self._api = obstore
        self._store = store
        self._place = place

    def put(self, name: str, data: bytes) -> None:
        """Upload the object."""
        self._api.put(self._store, name, data)

    def get(self, name: str) -> bytes:
        """Download the object."""
        try:
            return bytes(self._api.get(self._store, name).bytes())
        except FileNotFoundError:
            raise BackupFailed(f"the backup at {self._place} lacks {name}") from None

    def names(self, prefix: str) -> list[str]:
        """List the objects below the prefix, page by page."""
        pages = self._api.list(self._store, prefix=prefix)
        return sorted(str(item["path"]) for page in pages for item in page)

    def remove(self, name: str) -> None:
        """Delete the object."""
        self._api.delete(self._store, name)


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
