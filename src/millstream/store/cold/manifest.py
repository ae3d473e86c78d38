"""The manifest of a stream's cold history: what is there, and what of it counts.

    <log id, 16 hex>/manifest.json
    {"xxh3": XXH3-64 of the manifest's bytes, 16 hex, "manifest": {
      "format": 1, "stream", "incarnation",
      "files": [{"base_seq", "last_seq", "records", "first_ts_ns", "last_ts_ns",
                 "data": {"name", "bytes", "xxh3"}, "idx": {…}, "parquet": {…} | null}],
      "deleted": [[first, last]], "gaps": [[first, last, reason]]}}

It is replaced as a whole, and only once every file that it names is there.
"""

import msgspec
from xxhash import xxh3_64_hexdigest

from millstream.errors import ObjectsFailed
from millstream.store.disk.objects import Objects
from millstream.store.segments.files import segment_name

FORMAT = 1
UNVOUCHED = ""  # instead of a checksum that nobody knows: no object fits it
NAME = "manifest.json"


class Form(msgspec.Struct, frozen=True):
    """One object: its name in the log's folder, its size and its checksum."""

    name: str
    bytes: int
    xxh3: str

    @property
    def is_vouched_for(self) -> bool:
        """Say whether it is known what the object holds."""
        return self.xxh3 != UNVOUCHED


def holds(form: Form, data: bytes) -> bool:
    """Say whether these are the bytes of an object."""
    return len(data) == form.bytes and xxh3_64_hexdigest(data) == form.xxh3


class ColdFile(msgspec.Struct, frozen=True):
    """A segment at the cold place, in its forms."""

    base_seq: int
    last_seq: int
    records: int
    first_ts_ns: int
    last_ts_ns: int
    data: Form
    idx: Form
    parquet: Form | None = None

    @property
    def forms(self) -> list[Form]:
        """Return every form there is."""
        return [self.data, self.idx, *([self.parquet] if self.parquet is not None else [])]


class Manifest(msgspec.Struct, frozen=True):
    """What the cold place holds of one log."""

    stream: str
    incarnation: int
    files: list[ColdFile] = []
    deleted: list[tuple[int, int]] = []
    gaps: list[tuple[int, int, str]] = []
    format: int = FORMAT


class _Checked(msgspec.Struct):
    xxh3: str
    manifest: msgspec.Raw


class Said(msgspec.Struct, frozen=True):
    """What the loop knows of a log, for its manifest."""

    log_id: int
    stream: str
    deleted: list[tuple[int, int]] = msgspec.field(default_factory=list)
    gaps: list[tuple[int, int, str]] = msgspec.field(default_factory=list)


def folder(log_id: int) -> str:
    """Return where a log's objects are."""
    return f"{log_id:016x}"


def form(name: str, data: bytes) -> Form:
    """Return an object's description."""
    return Form(name, len(data), xxh3_64_hexdigest(data))


def object_names(base_seq: int) -> list[str]:
    """Return the names of all forms that a segment may have."""
    return [f"{segment_name(base_seq)}{suffix}" for suffix in (".parquet", ".idx", ".data")]


def encode(manifest: Manifest) -> bytes:
    """Return the object's bytes."""
    body = msgspec.json.encode(manifest)
    return b'{"xxh3":"%b","manifest":%b}\n' % (xxh3_64_hexdigest(body).encode(), body)


def decode(data: bytes) -> Manifest | None:
    """Return the manifest, None when it is damaged or of a version that is not known."""
    try:
        checked = msgspec.json.decode(data, type=_Checked)
        if xxh3_64_hexdigest(bytes(checked.manifest)) != checked.xxh3:
            return None
        manifest = msgspec.json.decode(checked.manifest, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return manifest if manifest.format == FORMAT else None


def load(objects: Objects, log_id: int) -> Manifest | None:
    """Return a log's manifest, None when there is none that can be trusted."""
    if NAME not in objects.names(folder(log_id)):
        return None
    return decode(objects.get(f"{folder(log_id)}/{NAME}"))


def publish(objects: Objects, said: Said, files: list[ColdFile]) -> Manifest:
    """Put the manifest in place."""
    manifest = Manifest(said.stream, said.log_id, sorted(files, key=_base), said.deleted, said.gaps)
    objects.put(f"{folder(said.log_id)}/{NAME}", encode(manifest))
    return manifest


def put_checked(objects: Objects, log_id: int, name: str, data: bytes) -> Form:
    """Put an object and read it back: what is not there as it was is not there."""
    path = f"{folder(log_id)}/{name}"
    objects.put(path, data)
    made = form(name, data)
    if not holds(made, objects.get(path)):
        raise ObjectsFailed(f"{objects.place} returns other bytes for {path} than were put")
    return made


def _base(file: ColdFile) -> int:
    return file.base_seq
