"""Measure the Spark sink, catch-up streaming and latency against a broker of its own.

python benches/spark_sink.py [--rows 2000000] [--baseline 20000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING

from spark_scan import cpu_by_process, payload, session

import nats
from millstream.client import connect
from millstream.client.errors import ClientError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2  # what a rate of CPU time is worth on the machine that the goals are for

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.peers import free_port  # noqa: E402


class Broker:
    """A server process over a directory of its own."""

    def __init__(self, home: Path) -> None:
        port = free_port()
        self.url = f"nats://127.0.0.1:{port}"
        command = [sys.executable, "-m", "millstream", "serve", "--port", str(port)]
        command += ["--http-port", str(free_port()), "--data-dir", str(home / "data")]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.pid = self._process.pid
        while True:
            try:
                connect(self.url, timeout=5).close()
                return
            except ClientError:
                time.sleep(0.1)

    def create(self, name: str, durability: str = "disk") -> None:
        """Make a stream that captures its name in small letters."""
        config = {"name": name, "subjects": [f"{name.lower()}.>"]}
        config |= {"metadata": {"millstream.durability": durability}}
        with connect(self.url) as client:
            client.request(f"$JS.API.STREAM.CREATE.{name}", json.dumps(config).encode())

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait()


class Cost:
    """What a piece of work costs: wall time, and the CPU time of Java, of Python and of the broker.

    On a machine that does other things too, only the CPU time says something.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker.pid
        self._before = self._now()
        self._started = time.perf_counter()

    def _now(self) -> dict[str, float]:
        spent = {"java": 0.0, "python": 0.0, "broker": 0.0}
        for pid, burnt in cpu_by_process().items():
            spent[self._kind(pid)] += burnt
        return spent

    def _kind(self, pid: int) -> str:
        if pid == self._broker:
            return "broker"
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return "python"
        return "java" if b"java" in command.split(b"\0")[0] else "python"

    def told(self, count: int) -> str:
        """Return the costs in words, as a rate for ``count`` records."""
        wall = time.perf_counter() - self._started
        spent = {kind: now - self._before[kind] for kind, now in self._now().items()}
        cpu = sum(spent.values())
        parts = ", ".join(f"{kind} {burnt:.2f}" for kind, burnt in spent.items())
        return (
            f"{wall:.2f} s, {count / wall:,.0f}/s; {cpu:.2f} s of CPU ({parts}), "
            f"{CORES * count / max(cpu, 0.01):,.0f}/s on {CORES} cores of its own"
        )


def rows(spark: SparkSession, count: int, subject: str) -> DataFrame:
    """Return ``count`` rows with JSON payloads of 100 bytes."""
    number = "cast(id as string)"
    text = f"""rpad('{{"id":' || {number} || ',"note":"', 98, 'x') || '"}}'"""
    frame = spark.range(0, count, 1, 4)
    return frame.selectExpr(f"'{subject}.' || (id % 50) subject", f"{text} payload")


def sink(spark: SparkSession, broker: Broker, source: DataFrame, count: int) -> None:
    """Write a stream exactly once, from rows that are there already."""
    for at in range(3):
        broker.create(f"OUT{at}")
        frame = source.selectExpr(f"'out{at}.x' subject", "payload")
        cost = Cost(broker)
        frame.write.format("millstream").mode("append").options(
            url=broker.url, stream=f"OUT{at}", timeout=120
        ).save()
        print(f"sink, exactly once, {count} records: {cost.told(count)}", flush=True)


def catch_up(spark: SparkSession, broker: Broker, home: Path, count: int) -> None:
    """Read what is there as a streaming query: in one micro-batch, and in several.

    The whole query counts from ``load`` to its end, with the start of its Python; a micro-batch
    from its trigger to its commit. Rows have all columns and go nowhere; the first queries warm up.
    """
    for at, limit in enumerate((0, 500_000, 0, 500_000, 0, 500_000)):
        reader = spark.readStream.format("millstream").options(url=broker.url, stream="OUT0")
        reader = reader.option("maxRecordsPerTrigger", limit)
        cost = Cost(broker)
        query = (
            reader.load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(home / f"catch-up-{at}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        told = cost.told(count)
        progress = [p for p in query.recentProgress if p.numInputRows]
        rates = [f"{p.processedRowsPerSecond:,.0f}/s" for p in progress]
        print(f"catch-up of {count} rows, the whole query: {told}", flush=True)
        print(f"  its micro-batches, as Spark reports them: {', '.join(rates)}", flush=True)
        assert sum(p.numInputRows for p in progress) == count


def latency(spark: SparkSession, broker: Broker, home: Path, seconds: float) -> None:
    """Measure from publish to foreachBatch, a message every few milliseconds."""
    broker.create("LIVE")
    waits: list[float] = []

    def seen(batch: DataFrame, _number: int) -> None:
        found = batch.select("payload").collect()
        now = time.time()
        waits.extend(now - float(row.payload) for row in found)

    query = (
        spark.readStream.format("millstream")
        .options(url=broker.url, stream="LIVE", columns="payload")
        .load()
        .writeStream.foreachBatch(seen)
        .option("checkpointLocation", str(home / "latency"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    over = threading.Event()

    def publish() -> None:
        with connect(broker.url) as client:
            while not over.is_set():
                client.publish("live.x", str(time.time()).encode())
                client.flush()
                over.wait(0.02)

    publisher = threading.Thread(target=publish)
    publisher.start()
    time.sleep(seconds)  # the first batches compile
    waits.clear()
    time.sleep(seconds)
    over.set()
    publisher.join()
    query.processAllAvailable()  # a query that is stopped within a batch tells at length about it
    query.stop()
    cuts = quantiles(waits, n=100)
    print(f"publish to foreachBatch, {len(waits)} messages: ", end="")
    print(
        f"p50 {1000 * cuts[49]:.0f} ms, p90 {1000 * cuts[89]:.0f} ms, p99 {1000 * cuts[98]:.0f} ms"
    )


def row_at_a_time(broker: Broker, count: int) -> None:
    """What people do without a connector: nats-py, one Python object for each message."""

    async def run() -> tuple[float, float]:
        client = await nats.connect(broker.url)
        jetstream = client.jetstream()
        started = time.perf_counter()
        for number in range(count):
            await jetstream.publish("base.x", payload(number))
        written = time.perf_counter() - started
        pull = await jetstream.pull_subscribe("base.>", "reader")
        started, taken = time.perf_counter(), 0
        while taken < count:
            for message in await pull.fetch(500):
                json.loads(message.data)
                await message.ack()
                taken += 1
        read = time.perf_counter() - started
        await client.close()
        return written, read

    broker.create("BASE")
    written, read = asyncio.run(run())
    print(f"nats-py row at a time: write {count / written:,.0f}/s, read {count / read:,.0f}/s")


def main() -> None:
    """Print one line a measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--baseline", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=15.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        broker = Broker(home)
        spark = session(home / "spark")
        try:
            rows(spark, asked.rows, "out").write.parquet(str(home / "rows"))
            source = spark.read.parquet(str(home / "rows"))
            sink(spark, broker, source, asked.rows)
            catch_up(spark, broker, home, asked.rows)
            latency(spark, broker, home, asked.seconds)
            row_at_a_time(broker, asked.baseline)
        finally:
            spark.stop()
            broker.stop()


if __name__ == "__main__":
    main()
