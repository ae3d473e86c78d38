"""What a process that only plans a read has to import."""

import subprocess
import sys

HEAVY = ("pyarrow.compute", "pyarrow.parquet", "millstream.spark.reading.rows", "cryptography")


def test_planning_a_read_loads_nothing_that_only_tasks_need() -> None:
    imported = "import sys, millstream.spark.reading.stream_source"
    script = f"{imported}; print([m for m in {HEAVY} if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (found.stdout, found.stderr) == ("[]\n", "")
