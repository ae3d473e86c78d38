"""Files that are more than files: cold history by its manifest, Delta tables by their log."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.cli.main import run
from millstream.pipelines import ready_made
from millstream.pipelines.problems import PipelineError
from millstream.store.cold.manifest import ColdFile, Form, Manifest, encode

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "cold-history.md"


def cold_place(folder: Path) -> Path:
    """Two cold segments of five records; record 3 and the last two are deleted."""
    folder.mkdir()
    files = []
    for base in (1, 6):
        rows = [
            {"stream": "S", "seq": seq, "subject": f"s.{seq % 2}", "payload": b"p%d" % seq}
            for seq in range(base, base + 5)
        ]
        name = f"seg-{base:020d}"
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
        (folder / f"{name}.data").write_bytes(b"frames")
        twin = Form(f"{name}.parquet", 1, "x")
        data, idx = Form(f"{name}.data", 1, "x"), Form(f"{name}.idx", 1, "x")
        files.append(ColdFile(base, base + 4, 5, 0, 0, data, idx, twin))
    manifest = Manifest("S", 1, files, deleted=[(3, 3), (9, 10)])
    (folder / "manifest.json").write_bytes(encode(manifest))
    return folder


def test_the_guide_reads_cold_files_without_what_was_deleted(tmp_path: Path) -> None:
    place = cold_place(tmp_path / "0000000000000001")
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace("/mnt/archive/millstream/0000000000000001", str(place)), names)
    assert names["rows"].column("seq").to_pylist() == [1, 2, 4, 5, 6, 7, 8]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_cold_history_is_compacted_without_what_was_deleted(bench: Any) -> None:
    place = str(cold_place(bench.home / "cold"))
    small = str(bench.home / "small")
    assert run(["pipeline", "compact", place, "--to", small, "--key", "subject"]) == 0
    assert bench.parquet("small", "subject", "seq") == [("s.0", 8), ("s.1", 7)]
    for left in ("seg-00000000000000000001.data", "seg-00000000000000000006.data"):
        assert (bench.home / "cold" / left).is_file()


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_delta_table_is_compacted_by_its_log(bench: Any) -> None:
    deltalake = pytest.importorskip("deltalake", reason="Delta tables need deltalake")
    place = str(bench.home / "delta")
    for number in (1, 2):  # the files of the first stay where they were
        rows = pa.table({"subject": ["a"], "seq": [number]})
        deltalake.write_deltalake(place, rows, mode="overwrite")
    bench.run(ready_made.compact(place, str(bench.home / "new"), [], ["seq"], 1))
    assert bench.parquet("new", "seq") == [(2,)]
    with pytest.raises(PipelineError, match="is a Delta table"):
        bench.run(
            {
                "sources": {"a": {"parquet": "delta"}},
                "sinks": [{"from": "a", "parquet": "x"}],
            }
        )
