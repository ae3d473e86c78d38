"""A segment's way to the cold place and back, on the mover's thread."""

from collections.abc import Iterator
from contextlib import suppress

from millstream.errors import ObjectsFailed
from millstream.kernel._frames import Frames, check
from millstream.kernel._index import SegmentIndex, SubjectTable
from millstream.store.cold import manifest as cold_manifest
from millstream.store.cold import twin
from millstream.store.cold.copy import SUFFIX, encode_marker
from millstream.store.cold.manifest import ColdFile, Said, folder, object_names, put_checked
from millstream.store.disk import blocks
from millstream.store.disk.blocks import BlockTable
from millstream.store.disk.files import Files, replace_file
from millstream.store.disk.keys import NO_KEY
from millstream.store.disk.objects import Objects
from millstream.store.segments.files import HEADER_BYTES, DataHead, decode_idx, read_data_header
from millstream.store.segments.segment import Segment


class Move:
    """Copies one sealed segment, checks the copy, publishes it, and marks it as moved."""

    def __init__(
        self,
        files: Files,
        objects: Objects,
        segment: Segment,
        said: Said,
        others: list[ColdFile],
        twins: str,
    ) -> None:
        self._files = files
        self._objects = objects
        self._segment = segment
        self._said = said
        self._others = others
        self._twins = twins
        self.head = DataHead()
        self.table: BlockTable | None = None

    def run(self) -> ColdFile:
        """Do everything but the removal of the hot file."""
        segment = self._segment
        data, idx = self._read(".data"), self._read(".idx")
        self._look_at(data)
        made = self._put(data, idx)
        cold_manifest.publish(self._objects, self._said, [*self._others, made])
        replace_file(
            self._files, segment.directory, segment.name + SUFFIX, encode_marker(made.data)
        )
        return made

    def _read(self, suffix: str) -> bytes:
        file = self._files.open(f"{self._segment.directory}/{self._segment.name}{suffix}")
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def _look_at(self, data: bytes) -> None:
        """Find out what readers will have to know of the object."""
        segment = self._segment
        head = read_data_header(data[:HEADER_BYTES], segment.log_id, segment.base_seq, segment.path)
        if head is None:
            raise ObjectsFailed(f"{segment.path} has a damaged header: it stays where it is")
        self.head = head
        if head.in_blocks:
            found, _ = blocks.find_blocks(data, HEADER_BYTES, len(data), segment.bound)
            self.table = BlockTable(found)

    def _put(self, data: bytes, idx: bytes) -> ColdFile:
        segment, objects, log_id = self._segment, self._objects, self._segment.log_id
        index = decode_idx(
            idx,
            log_id,
            segment.base_seq,
            1 << 32,
            SubjectTable(),
            segment.path,
            segment.keeping.ring,
        )
        if index is None or not len(index):
            raise ObjectsFailed(f"{segment.path} has a damaged index: it stays where it is")
        count = len(index)
        parquet = self._twin(data, index)
        return ColdFile(
            base_seq=segment.base_seq,
            last_seq=index.seq(count - 1),
            records=count,
            first_ts_ns=index.ts_ns(0),
            last_ts_ns=index.ts_ns(count - 1),
            data=put_checked(objects, log_id, f"{segment.name}.data", data),
            idx=put_checked(objects, log_id, f"{segment.name}.idx", idx),
            parquet=(
                put_checked(objects, log_id, f"{segment.name}.parquet", parquet)
                if parquet
                else None
            ),
        )

    def _twin(self, data: bytes, index: SegmentIndex) -> bytes:
        """Return the segment as a table, empty where there is to be none."""
        is_wanted = self._twins == "all" or (self._twins == "plain" and not self._is_sealed)
        if not is_wanted or not twin.can_make():
            return b""
        return twin.make(live_records(data, index, self._segment, self.table), self._said.stream)

    @property
    def _is_sealed(self) -> bool:
        return self.head.key_id != NO_KEY

    def unmark(self) -> None:
        """Take the marker back (on the file thread): the hot file counts."""
        segment = self._segment
        path = f"{segment.directory}/{segment.name}{SUFFIX}"
        if segment.cold is None and self._files.exists(path):
            self._files.unlink(path)
            with suppress(OSError):
                self._files.sync_dir(segment.directory)


def live_records(
    data: bytes, index: SegmentIndex, segment: Segment, table: BlockTable | None
) -> Iterator[twin.Fields]:
    """Return the records of a .data file that are sound and not deleted, in order."""
    image: bytes | memoryview = data
    if table is not None:
        image, _ = blocks.plain_image(data, table, segment.bound, segment.keeping.ring)
    for at in range(len(index)):
        offset, size = index.offset(at), index.frame_len(at)
        if not index.deleted(at) and check(image, offset) == size:
            frames = Frames(image, [offset])
            if not frames.deleted(0):
                yield frames.record(0)


def put_back(
    files: Files, objects: Objects, segments: list[Segment], said: Said, rest: list[ColdFile]
) -> dict[int, DataHead]:
    """Make segments hot again and remove every cold form; returns what their files are."""
    heads: dict[int, DataHead] = {}
    for segment in segments:
        if segment.cold is not None:
            heads[segment.base_seq] = _restore(files, objects, segment)
    cold_manifest.publish(objects, said, rest)
    for segment in segments:
        for name in object_names(segment.base_seq):
            objects.remove(f"{folder(segment.log_id)}/{name}")
    return heads


def _restore(files: Files, objects: Objects, segment: Segment) -> DataHead:
    assert segment.cold is not None
    data = objects.get(segment.cold.name)
    form = segment.cold.form
    if form is not None and not cold_manifest.holds(form, data):
        raise ObjectsFailed(f"{objects.place} holds a damaged {segment.cold.name}")
    head = read_data_header(data[:HEADER_BYTES], segment.log_id, segment.base_seq, segment.path)
    if head is None:
        raise ObjectsFailed(f"{objects.place} holds a damaged {segment.cold.name}")
    replace_file(files, segment.directory, f"{segment.name}.data", data)
    marker = f"{segment.directory}/{segment.name}{SUFFIX}"
    if files.exists(marker):
        files.unlink(marker)
        files.sync_dir(segment.directory)
    return head
