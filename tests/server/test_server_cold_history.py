"""A broker with a cold place: all of its history is read at both doors, whatever happened to it."""

import asyncio
import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nats

RECORDS = 600
LIMIT = 60.0


class Broker:
    """A ``serve`` process with small segments and a cold directory."""

    def __init__(self, home: Path) -> None:
        self._home = home
        for old in home.glob("*.ports"):
            old.unlink()
        self.process = subprocess.Popen(
            [
                *(*self.program(), "serve", "--port", "0", "--http-port", "0"),
                *("--data-dir", str(home / "data"), "--cold", str(home / "cold")),
                *("--hot-segments", "1", "--segment-max-events", "100"),
                *("--ports-file-dir", str(home)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ports = json.loads(self.wait_for("*.ports").read_text())
        self.nats, self.http = ports["nats"][0], ports["monitoring"][0]

    def program(self) -> list[str]:
        """Return what is started."""
        return [sys.executable, "-m", "millstream"]

    def wait_for(self, pattern: str) -> Path:
        """Wait until a file is there and holds something."""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            found = [path for path in self._home.glob(pattern) if path.stat().st_size]
            if found:
                return found[0]
            time.sleep(0.05)
        raise AssertionError(f"no {pattern} came")

    def moved(self, count: int) -> list[Path]:
        """Wait until so many segments have moved."""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            found = sorted(self._home.glob("data/streams/*/*.cold"))
            left = [path for path in found if path.with_suffix(".data").exists()]
            if len(found) >= count and not left:
                return found
            time.sleep(0.1)
        raise AssertionError("segments stay where they are")

    def post(self, path: str, body: dict[str, object]) -> dict[str, object]:
        data, kind = json.dumps(body).encode(), {"content-type": "application/json"}
        request = urllib.request.Request(self.http + path, data, kind)
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            found: dict[str, object] = json.load(answer)
        return found

    def get(self, path: str) -> dict[str, object]:
        with urllib.request.urlopen(self.http + path, timeout=LIMIT) as answer:
            found: dict[str, object] = json.load(answer)
        return found


@contextmanager
def broker(
    home: Path, end: signal.Signals = signal.SIGTERM, kind: type[Broker] = Broker
) -> Iterator[Broker]:
    started = kind(home)
    try:
        yield started
    finally:
        started.process.send_signal(end)
        started.process.wait(LIMIT)


async def fill(url: str) -> None:
    client = await nats.connect(url)
    stream = client.jetstream()
    await stream.add_stream(name="ORDERS", subjects=["orders.>"], duplicate_window=0.1)
    for n in range(RECORDS):
        await stream.publish(f"orders.{n % 3}", b"%06d" % n)
    await client.close()


async def consumed(url: str) -> list[tuple[int, bytes]]:
    client = await nats.connect(url)
    stream = client.jetstream()
    pulled = await stream.pull_subscribe("orders.>", durable="all")
    found: list[tuple[int, bytes]] = []
    while len(found) < RECORDS:
        for message in await pulled.fetch(100, timeout=20):
            found.append((message.metadata.sequence.stream, message.data))
            await message.ack()
    single = await stream.get_msg("ORDERS", 7)
    assert single.data == b"000006"
    await client.close()
    return found


def diffed(running: Broker) -> list[int]:
    found: list[int] = []
    at: object = 0
    while len(found) < RECORDS:
        page = running.post("/v0/topics/ORDERS/diff", {"from_seq": at, "limit": 1000})
        rows = page["records"]
        assert isinstance(rows, list)
        found += [row["$seq"] for row in rows]
        at = page["next_from_seq"]
    return found


def test_the_whole_history_is_read_at_both_doors_after_a_kill(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        asyncio.run(fill(running.nats))
    with broker(tmp_path):
        pass  # each clean stop writes a snapshot; segments move once two of them know a segment
    with broker(tmp_path, signal.SIGKILL) as running:
        running.moved(4)
        asyncio.run(consumed(running.nats))
    with broker(tmp_path) as running:
        asyncio.run(_again(running.nats))
        assert diffed(running) == list(range(1, RECORDS + 1))
        plan = running.get("/v0/topics/ORDERS/plan")
        check_twins(plan)
        assert running.get("/healthz")["status"] == "ok"


async def _again(url: str) -> None:
    client = await nats.connect(url)
    await client.jetstream().delete_consumer("ORDERS", "all")
    await client.close()
    expected = [(n + 1, b"%06d" % n) for n in range(RECORDS)]
    assert await consumed(url) == expected


def check_twins(plan: dict[str, object]) -> None:
    import pyarrow.parquet as pq

    rows: list[int] = []
    files = plan.get("cold", [])
    assert isinstance(files, list)
    for file in files:
        rows += pq.read_table(file["path"], columns=["seq"])["seq"].to_pylist()
    assert rows == list(range(1, len(rows) + 1))
    assert len(rows) >= 400
