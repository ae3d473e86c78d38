"""FileManifest: which objects are the files of a directory, as of one position of the log (rule 8).

shards/<k>/files/<epoch>/<checksum>       a file, made once
shards/<k>/snapshots/<position>-<epoch>-<checksum>.json   the manifest, which `head` names
"""

from pathlib import Path

import msgspec
from xxhash import xxh3_128_hexdigest

SNAPSHOTS = "meta"
STREAMS = "streams"


class KeptFile(msgspec.Struct, frozen=True):
    """A file of the directory, and the object that holds its bytes."""

    path: str
    name: str
    size: int
    check: str


class FileManifest(msgspec.Struct, frozen=True):
    """The files that a start begins with; then it replays the log behind ``position``."""

    position: int
    files: list[KeptFile]
    retired: list[str] = []  # objects that the manifest before this one named, and this does not


def check_of(data: bytes) -> str:
    """Return what names a file's content."""
    return xxh3_128_hexdigest(data)


def file_name(shard: int, epoch: int, check: str) -> str:
    """Return the name of a file's object."""
    return f"shards/{shard}/files/{epoch:020d}/{check}"


def manifest_name(shard: int, epoch: int, position: int, data: bytes) -> str:
    """Return the name of a manifest's object."""
    return f"shards/{shard}/snapshots/{position:020d}-{epoch:020d}-{check_of(data)}.json"


def files_below(directory: Path) -> list[Path]:
    """Return the segment files that there are, an ``.idx`` before its ``.data``.

    When the first of the two exists, the second is complete.
    """
    streams = directory / STREAMS
    if not streams.is_dir():
        return []
    found = [path for path in streams.glob("*/*") if path.suffix in (".data", ".idx")]
    return sorted(found, reverse=True)
