"""Measure Spark over sealed segments beside Spark's own Parquet scan of the same rows.

``table`` is ``millstream.spark.table`` or ``count``, ``source`` is ``format("millstream").load()``.

python benches/spark_scan.py [--rows 2000000] [--segment-rows 387000] [--warm-up 8] [--rounds 6]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream.kernel._batch import Batch
from millstream.kernel._frames import encode_batch
from millstream.kernel._index import SegmentIndex, SubjectTable
from millstream.pipelines.session import JAVA_OPTIONS
from millstream.spark import count, register, table
from millstream.spark.columns import RECORD_COLUMNS
from millstream.spark.options import Access
from millstream.spark.reading import reader
from millstream.spark.reading.planner import FileRange
from millstream.spark.reading.rows import FRAME_HEADER, FRAME_TRAILER
from millstream.spark.server import Server
from millstream.store.cold import twin
from millstream.store.log.file_log import LogOptions
from millstream.store.segments.files import data_header, encode_idx

if TYPE_CHECKING:
    from collections.abc import Callable

STREAM_ID = 7
COLUMNS = tuple(name for name in RECORD_COLUMNS if name != "headers")
T0 = 1_700_000_000_000_000_000


def payload(number: int) -> bytes:
    """A JSON object of 100 bytes."""
    text = b'{"id":%d,"user":%d,"amount":%d,"note":"' % (number, number % 977, number % 10_007)
    return text + b"x" * (98 - len(text)) + b'"}'


def write_segments(directory: Path, rows: int, each: int) -> list[dict[str, Any]]:
    """Write sealed segments as the store does; returns their part of a read plan."""
    segments = []
    for base in range(1, rows + 1, each):
        last = min(base + each - 1, rows)
        batch, index = Batch(), SegmentIndex(base, SubjectTable())
        for number in range(base, last + 1):
            batch.add(b"orders.eu.%d" % (number % 50), b"", b"", payload(number))
        data = data_header(STREAM_ID, base)
        size = last - base + 1
        data += encode_batch(batch, 0, size, STREAM_ID, base, T0 + base, index, len(data), False)
        path, idx = directory / f"{base}.data", directory / f"{base}.idx"
        path.write_bytes(data)
        idx.write_bytes(encode_idx(index, STREAM_ID, len(data)))
        names = {"path": str(path), "idx_path": str(idx), "bytes": len(data)}
        segments.append(names | {"base_seq": base, "last_seq": last})
    return segments


def store_rows() -> int:
    """How many of these records the store puts into a segment."""
    frame = FRAME_HEADER + len(b"orders.eu.10") + len(payload(1)) + FRAME_TRAILER
    bounds = LogOptions()
    return min(bounds.segment_records, bounds.segment_bytes // frame)


def write_twins(directory: Path, segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write the same records as cold files, as the server does; returns their part of a plan."""
    cold = []
    for segment in segments:
        first, last = segment["base_seq"], segment["last_seq"]
        fields = (
            (n, T0 + first, b"orders.eu.%d" % (n % 50), payload(n), b"", b"", b"", b"")
            for n in range(first, last + 1)
        )
        path = directory / f"{first}.parquet"
        path.write_bytes(twin.make(fields, "COLD"))
        cold.append({"path": str(path), "base_seq": first, "last_seq": last})
    return cold


def plan_of(stream: str, last: int, **parts: object) -> bytes:
    """Return what a server says about a stream without a tail."""
    plan: dict[str, Any] = {"stream": stream, "incarnation": STREAM_ID, "first_seq": 1}
    plan |= {"last_seq": last, "segments": [], "gaps": []} | parts
    return json.dumps(plan | {"tail": {"from_seq": last + 1, "to_seq": last}}).encode()


def serve_plans(plans: dict[str, bytes]) -> ThreadingHTTPServer:
    """Answer requests for a plan; nothing is read through this server."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = plans[self.path.split("/")[3]]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def decoded(segments: list[dict[str, Any]], columns: tuple[str, ...]) -> float:
    """Decode and verify every segment in this process; returns rows per CPU second."""
    nothing: dict[str, Any] = {"subject": None, "start_ns": None, "end_ns": None}
    task = reader.Task(
        Server(), "S", STREAM_ID, columns, access=Access.FILES, fail_on_data_loss=True, **nothing
    )
    started, rows = time.process_time(), 0
    for s in segments:
        part = FileRange(s["path"], s["idx_path"], s["base_seq"], s["last_seq"])
        rows += sum(batch.num_rows for batch in reader.read(part, task))
    return rows / (time.process_time() - started)


def noop(frame: DataFrame) -> None:
    """Read every column of every row into nothing."""
    frame.write.format("noop").mode("overwrite").save()


def by_subject(frame: DataFrame) -> None:
    """Count the records of each subject."""
    frame.groupBy("subject").count().collect()


def total(frame: DataFrame) -> None:
    """Add up a column of numbers."""
    frame.agg(F.sum("seq")).collect()


AGGREGATES = (
    ("sum of seq", "seq", total),
    ("count by subject", "subject", by_subject),
    ("count of rows", "seq", DataFrame.count),
)


def cpu_seconds() -> float:
    """CPU time so far of Spark: this driver, the Java machine and the Python workers below it."""
    return sum(cpu_by_process().values())


def cpu_by_process() -> dict[int, float]:
    """CPU time so far of this process and of all below it, with what they waited for."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        stats[int(path.parent.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    family, found = {os.getpid()}, True
    while found:
        found = {pid for pid, (parent, _) in stats.items() if parent in family} - family
        family |= found
    return {pid: stats[pid][1] / os.sysconf("SC_CLK_TCK") for pid in family}


def cost(work: Callable[[], object]) -> tuple[float, float]:
    """The wall and CPU time of one piece of work."""
    started, burnt = time.perf_counter(), cpu_seconds()
    work()
    return time.perf_counter() - started, cpu_seconds() - burnt


def session(home: Path) -> SparkSession:
    """A local session on two cores, with Java as pipelines have it."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
    builder = builder.config("spark.driver.memory", "1g").config("spark.local.dir", str(home))
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    return spark


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--segment-rows", type=int, default=store_rows())
    parser.add_argument("--warm-up", type=int, default=8, help="rounds that do not count")
    parser.add_argument("--rounds", type=int, default=6)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        segments = write_segments(home, asked.rows, asked.segment_rows)
        for columns in (COLUMNS, ("seq", "payload"), ("seq",)):
            best = max(decoded(segments, columns) for _ in range(asked.rounds))
            print(f"decode and verify {','.join(columns)}: {best / 1e6:.1f} M rows/s of CPU")
        last = segments[-1]["last_seq"]
        cold = write_twins(home, segments)
        plans = {
            "S": plan_of("S", last, segments=segments),
            "COLD": plan_of("COLD", last, cold=cold),
        }
        server = serve_plans(plans)
        spark = session(home)
        url = f"http://127.0.0.1:{server.server_address[1]}"
        ours = spark.read.format("millstream").option("url", url).option("stream", "S")
        ours.load().write.parquet(str(home / "parquet"))
        theirs = spark.read.parquet(str(home / "parquet"))
        assert sum(pq.read_metadata(f).num_rows for f in home.glob("parquet/*.parquet")) == (
            ours.load().count()
        )
        history = table(spark, "COLD", url=url)
        run = Comparison(theirs, asked.warm_up, asked.rounds)
        run.of("cold history, all columns", noop, table=history)
        run.of("cold history by subject", by_subject, table=history)
        run.of("all columns", noop, table=table(spark, "S", url=url), source=ours.load())
        whole = lambda f: f.count() if f is theirs else count(spark, "S", url=url)  # noqa: E731
        run.of("count", whole, table=ours.load())
        for name, column, work in AGGREGATES:
            narrow = ours.option("columns", column).load()
            run.of(name, work, table=table(spark, "S", url=url, columns=column), source=narrow)
        spark.stop()
        server.shutdown()


class Comparison:
    """Ways to read the same rows beside Spark's scan of its own Parquet files.

    All take turns, each before and behind each other, so that what else the machine does, and what
    Java is still compiling or has to clear away, meets all.
    """

    def __init__(self, native: DataFrame, warm_up: int, rounds: int) -> None:
        self._native = native
        self._warm_up = warm_up  # Java compiles what it runs often, also what plans a query
        self._rounds = rounds

    def of(self, name: str, work: Callable[[DataFrame], object], **ours: DataFrame) -> None:
        """Print wall and CPU times, and our speed as a share of Parquet's."""
        frames = {**ours, "parquet": self._native}
        for at in range(self._warm_up):
            self._turn(at, frames, work)
        turns = [self._turn(at, frames, work) for at in range(self._rounds)]
        for at, what in enumerate(("wall", "cpu")):
            native = median(turn["parquet"][at] for turn in turns)
            for way in ours:
                mine = median(turn[way][at] for turn in turns)
                times = f"{mine:.2f} s, parquet {native:.2f} s, {native / max(mine, 0.01):.2f}x"
                print(f"{name}, {way}, {what}: {times}", flush=True)

    def _turn(
        self, at: int, frames: dict[str, DataFrame], work: Callable[[DataFrame], object]
    ) -> dict[str, tuple[float, float]]:
        """The costs of the same work on all sides, beginning with another in each round."""
        names = list(frames)
        first = at % len(names)
        order = (names[first:] + names[:first])[:: -1 if at % 2 else 1]
        return {way: cost(partial(work, frames[way])) for way in order}


if __name__ == "__main__":
    main()
