"""Staging: records that a writer has sent and not committed yet, as files that nobody reads.

    staging/<stream's incarnation, 16 hex>/<sink, 16 hex>-<batch>-<id>.staged

A file holds entries as a `Batch` lays them out. The server keeps nothing else about it: whoever
commits names the files with their size and checksum, so what survived a crash can be committed
and what did not is refused. Nothing here is synced; the commit makes the records durable.
"""

import re

import msgspec
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from millstream.clock import Clock
from millstream.errors import BadRequest, MillstreamError, StorageFull
from millstream.kernel._batch import Batch
from millstream.store.disk.files import File, Files, ensure_dir, is_no_space, write_all
from millstream.streams.config.extras import VERSION

MOST_PART = 8 << 20  # bytes in one request
MOST_COMMIT = 512 << 20  # bytes that become records in one commit
MOST_STAGED = 4 << 30  # bytes of all writers together that wait for a commit
MOST_FILES = 100_000
LARGEST_RECORD = 1 << 20  # headers and payload: no more than a NATS client may publish
STALE = 3600.0  # seconds without a touch, after which nobody will come back
SUFFIX = ".staged"

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class StagedMissing(MillstreamError):
    """What a commit names is not staged here, or not as it was sent: stage it again."""

    status = 409
    err_code = 10003
    http_status = 409
    code = "staged_missing"


class CommitTooLarge(MillstreamError):
    """A commit holds more than the server appends in one step."""

    status = 413
    err_code = 10054
    http_status = 413
    code = "commit_too_large"

    def __init__(self, size: int) -> None:
        super().__init__(
            f"a commit holds at most {MOST_COMMIT} bytes, this one has {size}: write smaller "
            "batches (a streaming query by maxBytesPerTrigger)",
            {"max": MOST_COMMIT, "bytes": size},
        )


class StagedFile(msgspec.Struct, frozen=True):
    """One staged file as a commit names it; ``check`` is the XXH3-64 of all its bytes."""

    id: str
    bytes: int
    check: str


class StagingPlace(msgspec.Struct, frozen=True):
    """Whose records: the stream, the writer (``sink`` to clients) and its batch."""

    incarnation: int
    sink: str
    batch: int

    @property
    def prefix(self) -> str:
        """Return how the names of this batch's files begin."""
        return f"{xxh3_64_hexdigest(self.sink.encode())}-{self.batch}-"


class Staging:
    """The files of all writers. Everything but ``sweep`` runs on the file thread."""

    def __init__(self, files: Files, directory: str, clock: Clock) -> None:
        self._files = files
        self._directory = f"{directory}/staging"
        self._clock = clock
        self._sizes: dict[str, int] = {}
        self._touched: dict[str, float] = {}
        self._total = 0
        self._find()

    @property
    def total(self) -> int:
        """Return how many bytes wait for a commit."""
        return self._total

    def _find(self) -> None:
        """Take over what an earlier process left: its writers may still commit it."""
        if not self._files.exists(self._directory):
            return
        for stream in self._files.listdir(self._directory):
            for name in self._files.listdir(f"{self._directory}/{stream}"):
                path = f"{self._directory}/{stream}/{name}"
                file = self._files.open(path)
                try:
                    self._grow(path, file.size())
                finally:
                    file.close()

    def put(self, place: StagingPlace, staged_id: str, at: int, data: bytes) -> int:
        """Write ``data`` at ``at``, where the file must reach already; returns its size.

        Writing the same part again changes nothing, so a sender may repeat what it got no answer
        to.
        """
        path = self._path(place, staged_id)
        size = self._sizes.get(path, 0)
        if at > size:
            raise StagedMissing(f"{staged_id} ends at {size}, not at {at}: send it again from 0")
        if at + len(data) > MOST_COMMIT:
            raise CommitTooLarge(at + len(data))
        if self._total + at + len(data) - size > MOST_STAGED or len(self._sizes) >= MOST_FILES:
            raise StorageFull(
                f"{self._total} bytes wait for a commit, as many as may: commit or abort some"
            )
        try:
            ensure_dir(self._files, f"{self._directory}/{place.incarnation:016x}")
            file = self._files.open(path, create=True)
            try:
                write_all(file, data, at)
            finally:
                file.close()
        except OSError as error:
            if is_no_space(error):
                raise StorageFull("no space left for staged records") from error
            raise
        self._grow(path, max(at + len(data), size))
        return self._sizes[path]

    def take(self, place: StagingPlace, files: list[StagedFile]) -> Batch:
        """Return the records of these files in order, all of them as they were sent."""
        size = sum(file.bytes for file in files)
        if size > MOST_COMMIT:
            raise CommitTooLarge(size)
        batch = Batch()
        for one in files:
            data = self._read(self._path(place, one.id), one)
            try:
                batch.add_entries(data, LARGEST_RECORD, VERSION)
            except ValueError as error:
                raise BadRequest(f"staged records {one.id} cannot be stored: {error}") from error
        return batch

    def _read(self, path: str, one: StagedFile) -> bytes:
        if not self._files.exists(path):
            raise StagedMissing(f"{one.id} is not staged here, or no longer")
        file = self._files.open(path)
        try:
            data = _whole(file, one.bytes)
        finally:
            file.close()
        if len(data) != one.bytes or f"{xxh3_64_intdigest(data):016x}" != one.check:
            raise StagedMissing(f"{one.id} differs from what was sent: stage it again")
        return data

    def drop(self, place: StagingPlace, staged_id: str = "") -> None:
        """Remove a batch's file, or all of them."""
        directory = f"{self._directory}/{place.incarnation:016x}"
        prefix = f"{directory}/{place.prefix}"
        wanted = self._path(place, staged_id) if staged_id else ""
        for path in [path for path in self._sizes if path.startswith(prefix)]:
            if not wanted or path == wanted:
                self._remove(path)

    def drop_through(self, place: StagingPlace) -> None:
        """Remove everything of a writer up to this batch: it is committed, or never will be."""
        sink = place.prefix.partition("-")[0]
        directory = f"{self._directory}/{place.incarnation:016x}/"
        for path in [path for path in self._sizes if path.startswith(directory + sink)]:
            batch = path[len(directory) :].split("-")[1]
            if int(batch) <= place.batch:
                self._remove(path)

    def drop_stream(self, incarnation: int) -> None:
        """Remove what was meant for a stream that is gone."""
        directory = f"{self._directory}/{incarnation:016x}"
        for path in [path for path in self._sizes if path.startswith(directory + "/")]:
            self._remove(path)
        if self._files.exists(directory) and not self._files.listdir(directory):
            self._files.remove_dir(directory)

    def sweep(self) -> None:
        """Remove what nobody touched for an hour."""
        now = self._clock.monotonic()
        for path in [path for path, at in self._touched.items() if now - at >= STALE]:
            self._remove(path)

    def _remove(self, path: str) -> None:
        if self._files.exists(path):
            self._files.unlink(path)
        self._total -= self._sizes.pop(path, 0)
        self._touched.pop(path, None)

    def _grow(self, path: str, size: int) -> None:
        self._total += size - self._sizes.get(path, 0)
        self._sizes[path] = size
        self._touched[path] = self._clock.monotonic()

    def _path(self, place: StagingPlace, staged_id: str) -> str:
        if not _ID.fullmatch(staged_id):
            raise BadRequest("the id of staged records is 1 to 64 letters, digits, - and _")
        return f"{self._directory}/{place.incarnation:016x}/{place.prefix}{staged_id}{SUFFIX}"


def _whole(file: File, size: int) -> bytes:
    parts: list[bytes] = []
    at = 0
    while at < size:
        part = file.pread(min(size - at, MOST_PART), at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)
