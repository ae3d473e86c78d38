"""Named objects in a directory or an object store: where backups and cold history are kept.

A put is whole or absent, and durable when it returns. A directory is reached through ``Files``, so
that the crash sweeps cover it; an object store through obstore, which is optional.
"""

import os
from typing import TYPE_CHECKING, Protocol

from millstream.errors import ObjectsFailed
from millstream.store.disk.files import Files, ensure_dir, replace_file

if TYPE_CHECKING:
    from obstore.store import ObjectStore

TEMPORARY = ".tmp"


class Objects(Protocol):
    """Bytes by name; a name is ``folder/…/leaf``."""

    place: str  # as the user gave it, for messages

    def put(self, name: str, data: bytes) -> None:
        """Store an object under its name, in place of one that is there."""
        ...

    def get(self, name: str) -> bytes:
        """Return an object; raises ``ObjectsFailed`` when it is not there."""
        ...

    def get_range(self, name: str, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes at ``offset``; fewer only at the end."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the leaves in a folder, sorted; an absent folder has none."""
        ...

    def remove(self, name: str) -> None:
        """Remove an object; one that is not there is fine."""
        ...


def open_objects(place: str, files: Files) -> Objects:
    """Return the objects at a path, or at a URL such as ``s3://bucket/prefix``."""
    if "://" not in place:
        return DirectoryObjects(files, os.path.abspath(place))
    try:
        from obstore.store import from_url
    except ImportError:
        raise ObjectsFailed(
            "object stores need the package obstore: pip install 'millstream[lake]'"
        ) from None
    return RemoteObjects(from_url(place), place)


class DirectoryObjects:
    """Objects as files, for this user alone."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self.place = directory

    def put(self, name: str, data: bytes) -> None:
        """Write beside, sync, rename, sync the directory."""
        folder, leaf = os.path.split(f"{self.place}/{name}")
        ensure_dir(self._files, folder)
        replace_file(self._files, folder, leaf, data)

    def get(self, name: str) -> bytes:
        """Read the whole file."""
        return self.get_range(name, 0, -1)

    def get_range(self, name: str, offset: int, size: int) -> bytes:
        """Read a part of the file."""
        try:
            file = self._files.open(f"{self.place}/{name}")
        except FileNotFoundError:
            raise ObjectsFailed(f"{self.place} lacks {name}") from None
        try:
            return file.pread(file.size() - offset if size < 0 else size, offset)
        finally:
            file.close()

    def names(self, folder: str) -> list[str]:
        """List the directory; what a cut write left there does not count."""
        path = f"{self.place}/{folder}"
        if not self._files.exists(path):
            return []
        return [name for name in self._files.listdir(path) if not name.endswith(TEMPORARY)]

    def remove(self, name: str) -> None:
        """Unlink the file."""
        path = f"{self.place}/{name}"
        if self._files.exists(path):
            self._files.unlink(path)


class RemoteObjects:
    """Objects of a bucket; such a store makes each put whole by itself."""

    def __init__(self, store: "ObjectStore", place: str) -> None:
        import obstore

        self._api = obstore
        self._store = store
        self.place = place

    def put(self, name: str, data: bytes) -> None:
        """Upload the object."""
        try:
            self._api.put(self._store, name, data)
        except Exception as error:
            raise self._failed("does not take objects", error) from error

    def get(self, name: str) -> bytes:
        """Download the object."""
        try:
            return bytes(self._api.get(self._store, name).bytes())
        except Exception as error:
            raise self._missing(name, error) from error

    def get_range(self, name: str, offset: int, size: int) -> bytes:
        """Download a part of the object."""
        try:
            return bytes(self._api.get_range(self._store, name, start=offset, length=size))
        except Exception as error:
            raise self._missing(name, error) from error

    def names(self, folder: str) -> list[str]:
        """List the folder, page by page."""
        prefix = folder.rstrip("/") + "/"
        try:
            pages = list(self._api.list(self._store, prefix=prefix))
        except Exception as error:
            raise self._failed("cannot be listed", error) from error
        paths = (str(item["path"]) for page in pages for item in page)
        return sorted(path[len(prefix) :] for path in paths if "/" not in path[len(prefix) :])

    def remove(self, name: str) -> None:
        """Delete the object."""
        try:
            self._api.delete(self._store, name)
        except FileNotFoundError:
            pass
        except Exception as error:
            raise self._failed("does not remove objects", error) from error

    def _missing(self, name: str, error: Exception) -> ObjectsFailed:
        if isinstance(error, FileNotFoundError):
            return ObjectsFailed(f"{self.place} lacks {name}")
        return self._failed("cannot be read", error)

    def _failed(self, what: str, error: Exception) -> ObjectsFailed:
        return ObjectsFailed(f"{self.place} {what}: {error}")
