"""Cold Parquet files read by tasks: the rows that a segment would give, and no deleted one."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_frames import Row
from test_spark_reader import ROWS, T0, TASK, FakeServer, rows_of, seqs_of, written

from millstream.spark import server as server_module
from millstream.spark.columns import RECORD_COLUMNS, arrow_schema
from millstream.spark.options import Access
from millstream.spark.problems import DataLoss, FilesUnreachable
from millstream.spark.reading import cold_file, reader
from millstream.spark.reading.planner import ColdRange, ServerRange
from millstream.store.cold import twin

FULL = Row(
    30,
    T0 + 30_000,
    b"orders.0",
    b'{"a":1}',
    headers=b"NATS/1.0\r\nA: 1\r\nB: x:y\r\nA: 2\r\n\r\n",
    tag=b"blue",
    node=b"n1",
    meta=b'{"k":"v"}',
)
WITH_ALL = [*ROWS, FULL]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    fake = FakeServer(ROWS)
    monkeypatch.setattr(server_module, "_connections", {TASK.server: fake})
    return fake


def cooled(directory: Path, rows: list[Row]) -> ColdRange:
    fields = (
        (r.seq, r.ts_ns, r.subject, r.payload, r.headers, r.tag, r.node, r.meta) for r in rows
    )
    path = directory / "seg.parquet"
    path.write_bytes(twin.make(fields, "ORDERS"))
    return ColdRange(str(path), rows[0].seq, rows[-1].seq)


def damage(path: str, group: int) -> None:
    """Flip a bit in the payloads of a row group that only the page's checksum tells."""
    metadata = pq.read_metadata(path)
    column = metadata.row_group(group).column(metadata.schema.names.index("payload"))
    sound, content = pq.read_table(path), Path(path).read_bytes()
    end = column.data_page_offset + column.total_compressed_size
    for at in range(end - 1, column.data_page_offset, -1):
        Path(path).write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            if not pq.read_table(path).equals(sound):
                return
        except (OSError, pa.ArrowException):
            continue
    raise AssertionError("every flip is noticed by Parquet itself")


def test_a_cold_file_gives_the_rows_of_its_segment(tmp_path: Path, server: FakeServer) -> None:
    for columns in (RECORD_COLUMNS, ("payload_json", "seq"), ("records", "stream")):
        task = replace(TASK, columns=columns)
        cold = list(reader.read(cooled(tmp_path, WITH_ALL), task))
        hot = list(reader.read(written(tmp_path, WITH_ALL), task))
        assert [b.to_pylist() for b in cold] == [b.to_pylist() for b in hot]
        assert all(batch.schema == arrow_schema(columns) for batch in cold)
    assert server.asked == []


def test_deleted_rows_and_those_outside_of_the_range_are_absent(
    tmp_path: Path, server: FakeServer
) -> None:
    part = replace(cooled(tmp_path, ROWS), from_seq=12, to_seq=20, deleted=((11, 13), (17, 17)))
    assert seqs_of(part) == [14, 15, 16, 18, 19, 20]
    counting = replace(TASK, columns=("records",))
    assert [row["records"] for row in rows_of(part, counting)] == [6]


def test_times_and_subjects_narrow_a_cold_file(tmp_path: Path, server: FakeServer) -> None:
    part = cooled(tmp_path, ROWS)
    task = replace(TASK, start_ns=T0 + 12_000, end_ns=T0 + 16_000, subject="orders.1")
    assert seqs_of(part, task) == [13]
    assert next(iter(reader.read(part, task))).schema.names == list(TASK.columns)


def test_row_groups_outside_of_the_range_are_not_read(
    tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(twin, "BATCH", 4)
    monkeypatch.setattr(twin, "ROW_GROUP", 8)
    part = cooled(tmp_path, ROWS)  # 10..17, 18..25, 26..29
    damage(part.path, 0)
    assert seqs_of(replace(part, from_seq=18)) == list(range(18, 30))
    assert server.asked == []


@pytest.mark.parametrize("harm", ["gone", "no parquet", "a page damaged"])
def test_what_a_cold_file_cannot_give_comes_through_the_server(
    tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    monkeypatch.setattr(twin, "BATCH", 4)
    monkeypatch.setattr(twin, "ROW_GROUP", 8)
    monkeypatch.setattr(cold_file, "BATCH_ROWS", 4)
    part = cooled(tmp_path, ROWS)
    match harm:
        case "gone":
            Path(part.path).unlink()
        case "no parquet":
            Path(part.path).write_bytes(b"something else")
        case "a page damaged":
            damage(part.path, 1)
    assert seqs_of(part) == [row.seq for row in ROWS]
    assert server.asked[0] == ((18, 29) if harm == "a page damaged" else (10, 29))
    with pytest.raises(FilesUnreachable):
        rows_of(part, replace(TASK, access=Access.FILES))


def test_what_was_lost_meanwhile_is_told_there_too(tmp_path: Path, server: FakeServer) -> None:
    part = cooled(tmp_path, ROWS)
    Path(part.path).unlink()
    server.rows, server.gaps = ROWS[5:], [(1, 14, "cap")]
    with pytest.raises(DataLoss, match=r"10\.\.14 \(cap\)"):
        rows_of(part, replace(TASK, fail_on_data_loss=True))
    assert rows_of(part) == rows_of(ServerRange(10, 29))
