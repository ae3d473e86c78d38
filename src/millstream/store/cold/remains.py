"""Remains: what a cold segment's own files tell where its manifest is damaged or gone.

The marker has the checksum of the .data, and the .idx is here. Nobody vouches for the rest: it is
named without a checksum, which no object fits, so that the scrub makes it anew from what is sound.
"""

import io

import msgspec

from millstream.errors import ObjectsFailed
from millstream.store.cold import twin
from millstream.store.cold.manifest import UNVOUCHED, ColdFile, Form, folder, form
from millstream.store.disk.files import Files
from millstream.store.disk.objects import Objects
from millstream.store.segments.segment import Segment


class Remains(msgspec.Struct, frozen=True):
    """A cold segment as the loop knows it."""

    base_seq: int
    last_seq: int
    records: int
    first_ts_ns: int
    last_ts_ns: int
    stem: str  # of its objects' names
    directory: str  # where its .idx is
    data: Form | None  # as the marker says, where that is sound

    @classmethod
    def of(cls, segment: Segment) -> "Remains":
        """Return what is known of a segment that has records, and is elsewhere."""
        assert segment.cold is not None
        index = segment.index
        return cls(
            segment.base_seq,
            segment.last_seq,
            len(index),
            index.ts_ns(0),
            index.ts_ns(len(index) - 1),
            segment.name,
            segment.directory,
            segment.cold.form,
        )

    def named_again(self, files: Files, names: list[str]) -> ColdFile:
        """Return the segment as a manifest names it; ``names`` are the objects that there are."""
        parquet = f"{self.stem}.parquet"
        return ColdFile(
            self.base_seq,
            self.last_seq,
            self.records,
            self.first_ts_ns,
            self.last_ts_ns,
            data=self.data or Form(f"{self.stem}.data", 0, UNVOUCHED),
            idx=form(f"{self.stem}.idx", self._idx(files)),
            parquet=Form(parquet, 0, UNVOUCHED) if parquet in names else None,
        )

    def _idx(self, files: Files) -> bytes:
        file = files.open(f"{self.directory}/{self.stem}.idx")
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()


def stream_of_twins(objects: Objects, log_id: int) -> str:
    """Return a stream's name as one of its twins has it, nothing when none can be read."""
    names = [name for name in objects.names(folder(log_id)) if name.endswith(".parquet")]
    if not names or not twin.can_make():
        return ""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in names:
        try:
            source = io.BytesIO(objects.get(f"{folder(log_id)}/{name}"))
            table = pq.read_table(source, columns=["stream"], page_checksum_verification=True)
        except (pa.ArrowException, OSError, ObjectsFailed):
            continue  # damaged too: another one may tell
        if len(table):
            return str(table["stream"][0].as_py())
    return ""
