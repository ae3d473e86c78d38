"""Scrub: every form of a cold segment is read and compared with its checksum, before a client is.

What one form lost comes from the other: the segment's frames from its twin, the twin from the
segment, the index from the one that stayed here. What neither has is told record by record.
"""

import threading

import msgspec

from millstream.kernel._index import SegmentIndex, SubjectTable
from millstream.store.cold import manifest as cold_manifest
from millstream.store.cold import mend as cold_mend
from millstream.store.cold import twin
from millstream.store.cold.copy import SUFFIX, encode_marker
from millstream.store.cold.manifest import ColdFile, Form, Said, folder, holds, put_checked
from millstream.store.cold.move import live_records
from millstream.store.disk import blocks
from millstream.store.disk.blocks import BlockTable
from millstream.store.disk.files import Files, replace_file
from millstream.store.disk.objects import Objects
from millstream.store.segments.files import HEADER_BYTES, DataHead, decode_idx, read_data_header
from millstream.store.segments.segment import Segment

BREATH = 2000  # records after which the loop has its turn for certain
_pause = threading.Event()  # never set: waiting for it gives the processor away


class Found(msgspec.Struct):
    """What a scrub found and did."""

    file: ColdFile
    damaged: list[str] = msgspec.field(default_factory=list)  # names of objects that were not sound
    mended: list[str] = msgspec.field(default_factory=list)
    lost: list[int] = msgspec.field(default_factory=list)  # sequences that no form has
    head: DataHead | None = None  # of a .data that was made anew
    table: BlockTable | None = None


class Scrub:
    """One cold segment under the eye of the mover."""

    def __init__(
        self,
        files: Files,
        objects: Objects,
        segment: Segment,
        file: ColdFile,
        others: list[ColdFile],
        said: Said,
        gone: set[int],
    ) -> None:
        self._files = files
        self._objects = objects
        self._segment = segment
        self._others = others
        self._said = said
        self._gone = gone  # sequences that nobody needs any more
        self._found = Found(file)

    def run(self) -> Found:
        """Look at every form, and mend what can be mended."""
        found, file = self._found, self._found.file
        data = self._sound(file.data)
        idx = self._sound(file.idx)
        parquet = b"" if file.parquet is None else self._sound(file.parquet)
        if not found.damaged:
            return found
        here = self._index_here()
        index = self._index(here)
        if idx is None:
            file = msgspec.structs.replace(file, idx=self._put(".idx", here))
        if data is None:
            data, form = self._mend_data(index)
            file = msgspec.structs.replace(file, data=form)
        if parquet is None and twin.can_make():
            records = live_records(data, index, self._segment, self._table_of(data))
            form = self._put(".parquet", twin.make(records, self._said.stream))
            file = msgspec.structs.replace(file, parquet=form)
        cold_manifest.publish(self._objects, self._said, [*self._others, file])
        if file.data != found.file.data:
            self._mark_again(file.data)
        found.file = file
        return found

    def _mark_again(self, data: Form) -> None:
        """Let the marker tell of the .data that is there now: a withdrawal believes no other."""
        directory, name = self._segment.directory, self._segment.name + SUFFIX
        replace_file(self._files, directory, name, encode_marker(data))

    def _sound(self, form: Form) -> bytes | None:
        """Return an object's bytes, None when they are not what was put there."""
        names = self._objects.names(folder(self._segment.log_id))
        if form.name in names:
            data = self._objects.get(f"{folder(self._segment.log_id)}/{form.name}")
            if holds(form, data):
                return data
        self._found.damaged.append(form.name)
        return None

    def _index_here(self) -> bytes:
        file = self._files.open(f"{self._segment.directory}/{self._segment.name}.idx")
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def _index(self, data: bytes) -> SegmentIndex:
        segment = self._segment
        index = decode_idx(
            data,
            segment.log_id,
            segment.base_seq,
            1 << 32,
            SubjectTable(),
            segment.path,
            segment.keeping.ring,
        )
        if index is None:
            raise OSError(f"{segment.name}.idx is damaged here: the next start mends it")
        return index

    def _put(self, suffix: str, data: bytes) -> Form:
        name = f"{self._segment.name}{suffix}"
        made = put_checked(self._objects, self._segment.log_id, name, data)
        self._found.mended.append(name)
        return made

    def _head_of(self, data: bytes) -> DataHead | None:
        segment = self._segment
        return read_data_header(data[:HEADER_BYTES], segment.log_id, segment.base_seq, segment.path)

    def _table_of(self, data: bytes) -> BlockTable | None:
        head = self._head_of(data)
        if head is None or not head.in_blocks:
            return None
        return BlockTable(blocks.find_blocks(data, HEADER_BYTES, len(data), self._segment.bound)[0])

    def _mend_data(self, index: SegmentIndex) -> tuple[bytes, Form]:
        segment, found, objects = self._segment, self._found, self._objects
        name = f"{folder(segment.log_id)}/{segment.name}.data"
        leaf = f"{segment.name}.data"
        data = objects.get(name) if leaf in objects.names(folder(segment.log_id)) else b""
        mended, found.head, found.table, lost = cold_mend.whole(
            data,
            self._head_of(data),
            segment.log_id,
            index,
            segment.bound,
            segment.keeping.ring,
            objects,
        )
        found.lost = [seq for seq in map(index.seq, lost) if seq not in self._gone]
        return mended, self._put(".data", mended)


def rotten(files: Files, segment: Segment) -> list[int]:
    """Return the sequences of live records that a sealed file here no longer holds as they were.

    On the mover; one in blocks is checked block by block when it is read.
    """
    file = files.open(segment.path)
    try:
        data = file.pread(file.size(), 0)
    finally:
        file.close()
    index = segment.index
    image = data
    if segment.head.in_blocks:
        refs, _ = blocks.find_blocks(data, HEADER_BYTES, len(data), segment.bound)
        image = bytes(blocks.plain_image(data, refs, segment.bound, segment.keeping.ring)[0])
    found: list[int] = []
    for start in range(0, len(index), BREATH):
        where = range(start, min(start + BREATH, len(index)))
        found += [index.seq(at) for at in cold_mend.damaged(image, 0, index, where)]
        _pause.wait(0.001)
    return found
