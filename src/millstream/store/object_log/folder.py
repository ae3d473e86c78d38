"""FolderPlace: the objects of a fleet in a directory that its members share."""

import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from xxhash import xxh3_128_hexdigest

from millstream.store.disk.files import Files, ensure_dir, replace_file, write_all
from millstream.store.object_log.requests import (
    ABSENT,
    CONDITION_FAILED,
    Accepted,
    Answer,
    Create,
    FoundObject,
    Get,
    Put,
    Remove,
    Replace,
    Request,
    Unsure,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK = "lock"


class LinkingFiles(Files, Protocol):
    """Files that may have a second name."""

    def link(self, old: str, new: str) -> None:
        """Give a file a second name; raises ``FileExistsError`` where that name is taken."""
        ...


class FolderPlace:
    """Keeps ``ObjectPlace``; an object that is answered for is on stable storage (rule 27).

    ``unique`` names this process among those that share the directory.
    """

    def __init__(self, files: LinkingFiles, directory: str, unique: str) -> None:
        self._files = files
        self._directory = directory
        self._unique = unique
        self._made = 0
        self._replacing = threading.Lock()
        ensure_dir(files, directory)

    def carry_out(self, request: Request) -> Answer:
        """Read or change one file."""
        try:
            return self._answer(request)
        except OSError as error:
            return Unsure(f"{request.name}: {error.strerror or error}")

    def _answer(self, request: Request) -> Answer:
        path = f"{self._directory}/{request.name}"
        match request:
            case Create(_, data):
                return self._create(path, data)
            case Get():
                found = self._read(path)
                return ABSENT if found is None else FoundObject(found, _tag(found))
            case Replace(_, data, tag):
                return self._replace(path, data, tag)
            case Put(_, data):
                folder, leaf = os.path.split(path)
                ensure_dir(self._files, folder)
                replace_file(self._files, folder, leaf, data)
                return Accepted(_tag(data))
            case Remove():
                with suppress(FileNotFoundError):
                    self._files.unlink(path)
                    self._files.sync_dir(os.path.dirname(path))
                return Accepted()

    def names(self, folder: str) -> list[str]:
        """List a folder; what a write has beside does not count."""
        path = f"{self._directory}/{folder}"
        if not self._files.exists(path):
            return []
        found = self._files.listdir(path)
        return [name for name in found if not name.startswith(".") and not name.endswith(".tmp")]

    def _create(self, path: str, data: bytes) -> Answer:
        """Write beside, sync, link: the link fails where the name is taken, by whomever."""
        folder = os.path.dirname(path)
        ensure_dir(self._files, folder)
        with self._replacing:
            self._made += 1
            beside = f"{folder}/.{self._unique}-{self._made}.tmp"
        file = self._files.open(beside, create=True)
        try:
            write_all(file, data, 0)
            file.sync()
            self._files.link(beside, path)
        except FileExistsError:
            self._files.sync_dir(folder)  # whoever was first may not have come to it
            return CONDITION_FAILED
        finally:
            file.close()
            self._files.unlink(beside)
        self._files.sync_dir(folder)
        return Accepted(_tag(data))

    def _replace(self, path: str, data: bytes, tag: str | None) -> Answer:
        with self._replacing, self._lock():
            there = self._read(path)
            if (None if there is None else _tag(there)) != tag:
                return CONDITION_FAILED
            folder, leaf = os.path.split(path)
            ensure_dir(self._files, folder)
            replace_file(self._files, folder, leaf, data)
        return Accepted(_tag(data))

    @contextmanager
    def _lock(self) -> "Iterator[None]":
        """Hold the directory's lock against other processes."""
        file = self._files.open(f"{self._directory}/{LOCK}", create=True)
        try:
            if not file.lock():
                raise BlockingIOError(0, "another member replaces an object")
            yield
        finally:
            file.close()

    def _read(self, path: str) -> bytes | None:
        try:
            file = self._files.open(path)
        except FileNotFoundError:
            return None
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()


def _tag(data: bytes) -> str:
    return xxh3_128_hexdigest(data)
