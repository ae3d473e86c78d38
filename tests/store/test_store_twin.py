"""Parquet twins: what table readers see of cold segments, and frames made again from them."""

import io
from dataclasses import replace

import pytest
from test_store_cold import COLD, OPTIONS, filled, manifest_of, names, settle

from millstream.kernel._frames import Frames, check
from millstream.store.cold import twin
from support.fake_disk import FakeDisk
from support.store_bench import SEALED, Bench

pq = pytest.importorskip("pyarrow.parquet")


def table_of(data: bytes) -> list[dict[str, object]]:
    reader = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
    rows: list[dict[str, object]] = reader.read().to_pylist()
    return rows


def test_a_moved_segment_has_a_twin_with_the_same_records() -> None:
    disk = FakeDisk()
    bench, log = filled(disk)
    settle(bench)
    files = manifest_of(disk).files
    assert files
    rows = []
    for file in files:
        assert file.parquet is not None
        rows += table_of(disk.content()[f"/cold/{1:016x}/{file.parquet.name}"])
    expected = read(log, files[-1].last_seq)
    assert [(r["seq"], r["ts_ns"], r["subject"], r["payload"]) for r in rows] == expected
    assert {r["stream"] for r in rows} == {"ORDERS"}


def read(log: object, last: int) -> list[tuple[int, int, str, bytes]]:
    from support.store_bench import records

    return [(r[0], r[1], r[2].decode(), r[3]) for r in records(log) if r[0] <= last]  # type: ignore[arg-type]


def test_an_encrypted_log_has_no_twin_unless_asked_for() -> None:
    for twins, wanted in (("plain", False), ("all", True)):
        disk = FakeDisk()
        bench, _ = filled(disk, replace(SEALED, cold=replace(COLD, twins=twins)))
        settle(bench)
        found = [p for p in names(disk, "/cold") if p.endswith(".parquet")]
        assert bool(found) is wanted


def test_a_twin_gives_back_the_frames_it_was_made_of() -> None:
    meta, headers = b'{"a":1}', b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n"
    record = (7, 1_700_000_000_123_456_789, b"s.x", b"\x00\xff", headers, b"tag", b"node", meta)
    data = twin.make([record], "S")
    (row,) = table_of(data)
    assert row["headers"] == [("A", ["1", "2"])]
    assert row["headers_raw"] == headers
    found = twin.frames_of(data, 5, {7, 8})
    assert list(found) == [7]
    assert check(found[7], 0) == len(found[7])
    assert Frames(found[7], [0]).record(0) == record


def test_row_groups_are_large_and_bounded_in_rows_and_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(twin, "BATCH", 10)
    monkeypatch.setattr(twin, "ROW_GROUP", 40)
    monkeypatch.setattr(twin, "GROUP_BYTES", 1000)

    def groups(sizes: list[int]) -> list[int]:
        records = [(n, n, b"s", b"x" * size, b"", b"", b"", b"") for n, size in enumerate(sizes)]
        found = pq.ParquetFile(io.BytesIO(twin.make(records, "S"))).metadata
        return [found.row_group(at).num_rows for at in range(found.num_row_groups)]

    assert groups([1] * 95) == [40, 40, 15]
    assert groups([50] * 45) == [20, 20, 5]
    assert groups([5000] * 2) == [1, 1]
    assert groups([]) == []


def test_sequences_and_times_are_kept_as_differences_whatever_they_are() -> None:
    times = [1_700_000_000_123_456_789, 0, 0, (1 << 63) - 1, 1_000]  # also a clock that goes back
    seqs = [1, 2, 9, 1 << 40, (1 << 62) + 3]
    data = twin.make(
        [(n, at, b"s", b"", b"", b"", b"", b"") for n, at in zip(seqs, times, strict=True)], "S"
    )
    group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
    found = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    for name in ("seq", "ts", "ts_ns"):
        assert "DELTA_BINARY_PACKED" in found[name].encodings
    assert (found["seq"].statistics.min, found["seq"].statistics.max) == (seqs[0], seqs[-1])
    columns = pq.read_table(io.BytesIO(data), columns=["seq", "ts", "ts_ns"])
    assert columns["seq"].to_pylist() == seqs
    assert columns["ts_ns"].to_pylist() == times
    assert columns["ts"].cast("int64").to_pylist() == [at // 1000 for at in times]


def test_without_twins_wanted_there_are_none() -> None:
    disk = FakeDisk()
    bench, _ = filled(disk, replace(OPTIONS, cold=replace(COLD, twins="none")))
    settle(bench)
    assert not [p for p in names(disk, "/cold") if p.endswith(".parquet")]
    assert isinstance(bench, Bench)
