"""Whose cold place it is: two data directories must not move segments into one.

    meta/cold-place.json and millstream/owner.json at the cold place: {"id": the same 32 hex digits}

Log ids are only unique within a data directory.
"""

import secrets

import msgspec

from millstream.errors import ObjectsFailed
from millstream.store.disk.files import Files, ensure_dir, replace_file
from millstream.store.disk.objects import Objects

FOLDER = "millstream"
NAME = "owner.json"
LOCAL = "cold-place.json"


class _Owner(msgspec.Struct):
    id: str


class PlaceOwner:
    """A data directory's claim on a cold place; used on the mover's thread."""

    def __init__(self, files: Files, directory: str, objects: Objects) -> None:
        self._files = files
        self._meta = f"{directory}/meta"
        self._objects = objects

    def claim(self) -> None:
        """Take the place, or find that it is ours; raises ``ObjectsFailed`` when it is not."""
        mine = self._mine()
        there = NAME in self._objects.names(FOLDER)
        if there:
            theirs = _read(self._objects.get(f"{FOLDER}/{NAME}"))
            if theirs != mine:
                raise ObjectsFailed(
                    f"{self._objects.place} belongs to another data directory: give each its own "
                    f"place, or remove {FOLDER}/{NAME} there if this one is its successor"
                )
            return
        self._objects.put(f"{FOLDER}/{NAME}", msgspec.json.encode(_Owner(mine)))

    def _mine(self) -> str:
        path = f"{self._meta}/{LOCAL}"
        if self._files.exists(path):
            file = self._files.open(path)
            try:
                known = _read(file.pread(file.size(), 0))
            finally:
                file.close()
            if known:
                return known
        ensure_dir(self._files, self._meta)
        made = secrets.token_hex(16)
        replace_file(self._files, self._meta, LOCAL, msgspec.json.encode(_Owner(made)))
        return made


def _read(data: bytes) -> str:
    try:
        return msgspec.json.decode(data, type=_Owner).id
    except msgspec.MsgspecError:
        return ""
