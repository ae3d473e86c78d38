"""The stream of 100 orders that tests of the source and of tables read."""

from pathlib import Path

from pyspark.sql import DataFrame
from segment_writer import PlannedStream, write_segment
from spark_frames import Row

STREAM_ID = 42
T0 = 1_700_000_000_000_000_000
HEADERS = b"NATS/1.0\r\nTrace: a\r\nTrace: b\r\n\r\n"
LIVE = [seq for seq in range(1, 101) if seq != 7]


def row(seq: int) -> Row:
    return Row(
        seq,
        T0 + seq * 1_000_000_000,
        (b"orders.eu", b"orders.us", b"bills.eu")[seq % 3],
        b'{"n":%d}' % seq if seq % 2 else b"payload %d" % seq,
        headers=HEADERS if seq % 10 == 0 else b"",
        tag=b"even" if seq % 2 == 0 else b"",
        meta=b"{}" if seq % 7 == 0 else b"",
        deleted=seq == 7,
    )


def planned_orders(directory: Path) -> PlannedStream:
    """Two sealed segments (1..40, 41..80) and a tail (81..100); record 7 is deleted."""
    rows = [row(seq) for seq in range(1, 101)]
    segments = [write_segment(directory, rows[:40], STREAM_ID)]
    segments.append(write_segment(directory, rows[40:80], STREAM_ID))
    return PlannedStream(segments, rows, STREAM_ID)


def damage(stream: PlannedStream, payload: bytes) -> None:
    """Change a bit of the payload in the first file."""
    path = Path(stream.segments[0].path)
    content = bytearray(path.read_bytes())
    content[content.index(payload)] ^= 4
    path.write_bytes(bytes(content))


def seqs(frame: DataFrame) -> list[int]:
    return sorted(found.seq for found in frame.select("seq").collect())
