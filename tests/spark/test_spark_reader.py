"""What a task reads: files first, the server where they fail, and every loss told."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from segment_writer import write_segment
from spark_frames import Row, frames

from millstream.client.streams import ReadPlan, Tail
from millstream.kernel._frames import index_frames
from millstream.kernel._index import SegmentIndex, SubjectTable
from millstream.spark import server as server_module
from millstream.spark.columns import GAP_COLUMNS
from millstream.spark.options import Access
from millstream.spark.problems import DataLoss, FilesUnreachable, StreamReplaced
from millstream.spark.reading import reader
from millstream.spark.reading import rows as rows_module
from millstream.spark.reading.planner import FileRange, LostRanges, Part, ServerRange
from millstream.spark.reading.reader import Task
from millstream.spark.server import Server
from millstream.store.segments.files import DataHead, data_header, encode_idx

STREAM_ID = 7
T0 = 1_700_000_000_000_000_000
COLUMNS = ("seq", "payload", *GAP_COLUMNS)
TASK = Task(
    server=Server("nats://nowhere", 1.0),
    stream="ORDERS",
    incarnation=STREAM_ID,
    columns=COLUMNS,
    subject=None,
    start_ns=None,
    end_ns=None,
    access=Access.AUTO,
    fail_on_data_loss=False,
)
ROWS = [Row(s, T0 + s * 1000, b"orders.%d" % (s % 3), b"p%d" % s) for s in range(10, 30)]


class FakeServer:
    """A server's two calls over rows in memory, two frames an answer."""

    def __init__(self, rows: list[Row], stream_id: int = STREAM_ID) -> None:
        self.rows = rows
        self.stream_id = stream_id
        self.gaps: list[tuple[int, int, str]] = []
        self.asked: list[tuple[int, int]] = []

    def plan(self, stream: str, from_seq: int = 0) -> ReadPlan:
        last = self.rows[-1].seq if self.rows else 0
        return ReadPlan(stream, self.stream_id, 1, last, Tail(1, last), [], self.gaps)

    def read(self, stream: str, from_seq: int, to_seq: int, max_bytes: int = 1 << 20) -> bytes:
        self.asked.append((from_seq, to_seq))
        found = [row for row in self.rows if from_seq <= row.seq <= to_seq]
        return frames(found[:2], self.stream_id)

    def close(self) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    fake = FakeServer(ROWS)
    monkeypatch.setattr(server_module, "_connections", {TASK.server: fake})
    return fake


def written(directory: Path, rows: list[Row]) -> FileRange:
    segment = write_segment(directory, rows, STREAM_ID)
    return FileRange(segment.path, segment.idx_path, segment.base_seq, segment.last_seq)


def rows_of(part: Part, task: Task = TASK) -> list[dict[str, object]]:
    return [row for batch in reader.read(part, task) for row in batch.to_pylist()]


def seqs_of(part: Part, task: Task = TASK) -> list[object]:
    return [row["seq"] for row in rows_of(part, task)]


def flip(path: str, position: int) -> None:
    content = bytearray(Path(path).read_bytes())
    content[position] ^= 1
    Path(path).write_bytes(bytes(content))


def test_a_sealed_segment_is_read_from_its_files(tmp_path: Path, server: FakeServer) -> None:
    rows = rows_of(written(tmp_path, ROWS))
    assert [(row["seq"], row["payload"]) for row in rows] == [(r.seq, r.payload) for r in ROWS]
    assert server.asked == []


def test_a_part_of_a_segment_holds_only_its_range(tmp_path: Path, server: FakeServer) -> None:
    whole = written(tmp_path, ROWS)
    assert seqs_of(replace(whole, from_seq=12, to_seq=14)) == [12, 13, 14]
    assert seqs_of(replace(whole, from_seq=31, to_seq=40)) == []


def test_a_record_deleted_after_sealing_is_absent(tmp_path: Path, server: FakeServer) -> None:
    part = written(tmp_path, ROWS[:3])
    content = bytearray(Path(part.path).read_bytes())
    content[-1] = 0xD5
    Path(part.path).write_bytes(bytes(content))
    assert seqs_of(part) == [10, 11]


@pytest.mark.parametrize("columns", [("seq",), ("seq", "payload")])
def test_a_record_that_only_the_index_calls_deleted_is_absent(
    tmp_path: Path, server: FakeServer, columns: tuple[str, ...]
) -> None:
    part = written(tmp_path, [*ROWS[:2], replace(ROWS[2], deleted=True)])
    content = bytearray(Path(part.path).read_bytes())
    content[-1] = 0
    Path(part.path).write_bytes(bytes(content))
    assert seqs_of(part, replace(TASK, columns=columns, fail_on_data_loss=True)) == [10, 11]


@pytest.mark.parametrize("columns", [("seq",), ("seq", "payload")])
def test_a_long_run_of_records_comes_in_several_batches(
    tmp_path: Path, server: FakeServer, columns: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.spark.reading.rows.BATCH_ROWS", 3)
    monkeypatch.setattr("millstream.spark.reading.rows.INDEX_ROWS", 6)
    task = replace(TASK, columns=columns, fail_on_data_loss=True)
    lengths = [len(batch) for batch in reader.read(written(tmp_path, ROWS), task)]
    assert lengths == ([6, 6, 6, 2] if columns == ("seq",) else [3] * 6 + [2])


def test_times_are_half_open(tmp_path: Path, server: FakeServer) -> None:
    part = written(tmp_path, ROWS)
    task = replace(TASK, start_ns=T0 + 12_000, end_ns=T0 + 15_000)
    assert seqs_of(part, task) == [12, 13, 14]
    assert seqs_of(ServerRange(10, 29), task) == [12, 13, 14]


def test_a_subject_filter_holds_for_files_and_for_the_server(
    tmp_path: Path, server: FakeServer
) -> None:
    part = written(tmp_path, ROWS)
    task = replace(TASK, subject="orders.1")
    expected = [row.seq for row in ROWS if row.seq % 3 == 1]
    assert seqs_of(part, task) == expected
    assert seqs_of(ServerRange(10, 29), task) == expected


def test_a_damaged_record_is_a_gap_between_its_neighbours(
    tmp_path: Path, server: FakeServer
) -> None:
    part = written(tmp_path, ROWS[:4])
    flip(part.path, Path(part.path).read_bytes().index(b"p12"))
    rows = rows_of(part)
    assert [row["seq"] for row in rows if row["gap_from"] is None] == [10, 11, 13]
    assert [
        (row["gap_from"], row["gap_to"], row["gap_reason"]) for row in rows if row["gap_from"]
    ] == [(12, 12, "corruption")]


def test_damage_that_the_plan_knew_of_is_told_once(tmp_path: Path, server: FakeServer) -> None:
    part = written(tmp_path, ROWS[:4])
    flip(part.path, Path(part.path).read_bytes().index(b"p12"))
    task = replace(TASK, known_lost=((12, 12, "corruption"),))
    assert [(row["seq"], row["gap_from"]) for row in rows_of(part, task)] == [
        (10, None),
        (11, None),
        (13, None),
    ]


def test_a_damaged_record_fails_a_read_that_allows_no_loss(
    tmp_path: Path, server: FakeServer
) -> None:
    part = written(tmp_path, ROWS[:4])
    flip(part.path, Path(part.path).read_bytes().index(b"p12"))
    with pytest.raises(DataLoss, match=r"'ORDERS' has lost records 12\.\.12 \(corruption\)"):
        rows_of(part, replace(TASK, fail_on_data_loss=True))


def test_columns_of_the_index_need_none_of_a_records_bytes(
    tmp_path: Path, server: FakeServer
) -> None:
    part = written(tmp_path, ROWS[:6])
    flip(part.path, Path(part.path).read_bytes().index(b"p12"))
    content = bytearray(Path(part.path).read_bytes())
    content[-1] = 0xD5  # deleted since
    Path(part.path).write_bytes(bytes(content))
    narrow = replace(TASK, columns=("seq", "subject", "ts_ns"), fail_on_data_loss=True)
    assert [(row["seq"], row["subject"], row["ts_ns"]) for row in rows_of(part, narrow)] == [
        (r.seq, r.subject.decode(), r.ts_ns) for r in ROWS[:5]
    ]
    assert rows_of(part, replace(narrow, columns=("records",))) == [{"records": 5}]
    known = replace(narrow, known_lost=((12, 12, "corruption"),))
    assert seqs_of(part, known) == [10, 11, 13, 14]


def test_a_cut_file_gives_no_row_beyond_its_end(tmp_path: Path, server: FakeServer) -> None:
    part = written(tmp_path, ROWS[:6])
    content = Path(part.path).read_bytes()
    Path(part.path).write_bytes(content[: content.index(b"p14")])
    with pytest.raises(DataLoss, match=r"14\.\.15 \(corruption\)"):
        rows_of(part, replace(TASK, columns=("seq",), fail_on_data_loss=True))


@pytest.mark.parametrize("harm", ["no data", "no idx", "idx damaged", "data header damaged"])
def test_files_that_cannot_be_used_are_read_through_the_server(
    tmp_path: Path, server: FakeServer, harm: str
) -> None:
    part = written(tmp_path, ROWS)
    match harm:
        case "no data":
            Path(part.path).unlink()
        case "no idx":
            Path(part.idx_path).unlink()
        case "idx damaged":
            flip(part.idx_path, 100)
        case "data header damaged":
            flip(part.path, 20)
    assert seqs_of(part) == [row.seq for row in ROWS]
    assert server.asked[0] == (10, 29)
    with pytest.raises(FilesUnreachable):
        rows_of(part, replace(TASK, access=Access.FILES))


def test_another_streams_files_at_the_same_path_are_not_believed(
    tmp_path: Path, server: FakeServer
) -> None:
    part = written(tmp_path, ROWS)
    with pytest.raises(FilesUnreachable, match="another stream"):
        rows_of(part, replace(TASK, access=Access.FILES, incarnation=8))


def test_the_tail_is_read_in_as_many_ranges_as_it_takes(server: FakeServer) -> None:
    assert seqs_of(ServerRange(11, 15)) == [11, 12, 13, 14, 15]
    assert server.asked == [(11, 15), (13, 15), (15, 15)]


def test_what_was_trimmed_while_reading_is_told(server: FakeServer) -> None:
    server.rows = ROWS[5:]
    server.gaps = [(1, 14, "cap")]
    rows = rows_of(ServerRange(10, 16))
    assert [row["seq"] for row in rows] == [15, 16, None]
    assert (rows[-1]["gap_from"], rows[-1]["gap_to"]) == (10, 14)
    with pytest.raises(DataLoss, match=r"10\.\.14 \(cap\)"):
        rows_of(ServerRange(10, 16), replace(TASK, fail_on_data_loss=True))


def test_what_the_plan_knew_to_be_lost_is_told_once(server: FakeServer) -> None:
    server.rows = ROWS[5:]
    server.gaps = [(1, 14, "cap")]
    task = replace(TASK, known_lost=((1, 14, "cap"),))
    assert seqs_of(ServerRange(10, 16), task) == [15, 16]
    assert [(row["gap_from"], row["gap_to"]) for row in rows_of(LostRanges(((1, 14, "cap"),)))] == [
        (1, 14)
    ]


def test_a_stream_made_anew_under_the_same_name_is_refused(server: FakeServer) -> None:
    server.stream_id = 9
    with pytest.raises(StreamReplaced, match="deleted and created again"):
        rows_of(ServerRange(10, 16))
    server.rows = []
    with pytest.raises(StreamReplaced):
        rows_of(ServerRange(10, 16))


def rewritten(part: FileRange, rows: list[Row], generation: int) -> tuple[bytes, bytes]:
    """Return what .data and .idx are after a rewrite that leaves these rows."""
    head = DataHead(generation=generation)
    data = data_header(STREAM_ID, part.from_seq, head) + frames(rows, STREAM_ID)
    index = SegmentIndex(part.from_seq, SubjectTable())
    index_frames(data, 64, len(data), STREAM_ID, index)
    return data, encode_idx(index, STREAM_ID, len(data), generation)


def test_files_of_two_generations_are_not_mixed(tmp_path: Path, server: FakeServer) -> None:
    part = written(tmp_path, ROWS)
    data, idx = rewritten(part, ROWS[::2], 1)
    Path(part.path).write_bytes(data)  # a rewrite that has not replaced the index yet
    server.rows = ROWS[::2]
    assert seqs_of(part) == [row.seq for row in ROWS[::2]]
    assert server.asked
    with pytest.raises(FilesUnreachable, match="it was rewritten"):
        seqs_of(part, replace(TASK, access=Access.FILES))
    server.asked.clear()
    Path(part.idx_path).write_bytes(idx)
    assert seqs_of(part) == [row.seq for row in ROWS[::2]]
    assert server.asked == []


def test_a_file_in_blocks_is_left_to_the_server(tmp_path: Path, server: FakeServer) -> None:
    part = written(tmp_path, ROWS)
    head = data_header(STREAM_ID, part.from_seq, DataHead(version=2, complete=True, generation=1))
    Path(part.path).write_bytes(head + b"blocks" * 100)
    assert seqs_of(part) == [row.seq for row in ROWS]
    assert server.asked


def test_a_record_erased_while_it_is_copied_is_not_shown(
    tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = written(tmp_path, ROWS[:3])
    decode = rows_module.decode
    begun: list[int] = []

    def erased_meanwhile(records: rows_module.Records, *rest: Any) -> pa.RecordBatch:
        if not begun:
            begun.append(1)
            with open(part.path, "r+b") as file:
                content = file.read()
                file.seek(content.index(b"p11"))
                file.write(b"xyz" + b"?" * 8 + b"\xd5")
        return decode(records, *rest)

    monkeypatch.setattr(rows_module, "decode", erased_meanwhile)
    assert seqs_of(part) == [10, 12]
    assert server.asked == []
