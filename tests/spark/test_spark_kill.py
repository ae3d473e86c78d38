"""Copies that go on while driver and broker are killed: nothing is missing, nothing is twice."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from millstream.client import connect
from millstream.client.blocking import Client
from millstream.client.errors import ClientError
from millstream.client.streams import NatsStreams, open_streams
from millstream.spark.reading import segment_file
from support.broker import serve_command
from support.peers import free_port
from support.scale import count

pytestmark = [pytest.mark.spark, pytest.mark.timeout(count(900, 7200))]

MOST_AHEAD = 20_000
DRIVER = Path(__file__).with_name("copy_driver.py")


class Broker:
    """A server process that comes back at its port, over its directory."""

    def __init__(self, home: Path) -> None:
        self._port = free_port()
        self._command = serve_command(self._port, free_port(), home / "data")
        self._log = home / "broker.log"
        self.url = f"nats://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output)
        until = time.monotonic() + count(60, 600)
        while True:
            try:
                connect(self.url, timeout=5).close()
                return
            except ClientError:
                assert self._process.poll() is None, self._log.read_text()
                assert time.monotonic() < until
                time.sleep(0.05)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Driver:
    """A Spark driver with everything that it starts, in a process group of its own."""

    def __init__(self, url: str, home: Path) -> None:
        self._command = [sys.executable, str(DRIVER), url, str(home)]
        self._log = home / "driver.log"
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(
                self._command, stdout=output, stderr=output, start_new_session=True
            )

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Publisher(threading.Thread):
    """Publishes all the time, whoever is up, but no further ahead of the copy than it can follow.

    A copy that falls ever further behind proves no more and never ends.
    """

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.is_set():
            try:
                with connect(self._url, timeout=2) as client:
                    while not self.stopped.is_set():
                        for _ in range(25):
                            self._publish(client)
                        while self._lead() > MOST_AHEAD and not self.stopped.wait(0.1):
                            pass
            except ClientError:
                self.stopped.wait(0.05)

    def _publish(self, client: Client) -> None:
        for _ in range(20):
            client.publish("in.x", b"x" * 50)
        client.flush()
        self.stopped.wait(0.02)

    def _lead(self) -> int:
        streams = open_streams(self._url, 2.0)
        try:
            return streams.plan("IN").last_seq - streams.plan("OUT").last_seq
        finally:
            streams.close()


def copied(streams: NatsStreams, home: Path) -> tuple[int, int]:
    """Return how far both copies are: records in the stream, micro-batches of files."""
    commits = home / "to-files" / "commits"
    done = len(list(commits.glob("[0-9]*"))) if commits.exists() else 0
    return streams.plan("OUT").last_seq, done


def await_progress(streams: NatsStreams, home: Path, driver: Driver) -> None:
    """Return once both copies have moved on; a driver that stands still is killed once more.

    A session of Spark that stands still for any reason must lose nothing either.
    """
    before = copied(streams, home)
    until = time.monotonic() + count(360, 1200)  # a busy machine is slow, not wrong
    patience = time.monotonic() + count(90, 400)
    while any(now <= then for now, then in zip(copied(streams, home), before, strict=True)):
        assert driver.process.poll() is None, driver._log.read_text()[-3000:]
        assert time.monotonic() < until, driver._log.read_text()[-3000:]
        if time.monotonic() > patience:
            patience = time.monotonic() + count(90, 400)
            print(f"a driver stood still, and was killed: {driver._log.read_text()[-3000:]}")
            driver.kill()
            driver.start()
        time.sleep(0.05)


def payloads(streams: NatsStreams, stream: str) -> list[int]:
    """Return the numbers in a stream's payloads."""
    found: list[int] = []
    last = streams.plan(stream).last_seq
    position = 1
    while position <= last:
        records = segment_file.records_of(streams.read(stream, position, last))
        starts, lengths = records.spans("payload")
        data = bytes(records.data)
        found += [int(data[s : s + n]) for s, n in zip(starts, lengths, strict=True)]
        position = int(records.seqs[-1]) + 1
    return found


class Difference(NamedTuple):
    """How a copy differs from what it is a copy of."""

    missing: int
    twice: int
    unknown: int


def compared(copy: Counter[int], last: int) -> Difference:
    """Compare the sequences in a copy, each with how often it is there, with ``1..last``."""
    missing = sum(seq not in copy for seq in range(1, last + 1))
    twice = sum(times > 1 for times in copy.values())
    return Difference(missing, twice, sum(not 1 <= seq <= last for seq in copy))


def test_what_is_missing_twice_or_unknown_in_a_copy_is_counted() -> None:
    assert compared(Counter({1: 1, 2: 1}), 2) == Difference(0, 0, 0)
    assert compared(Counter({1: 1, 3: 2, 4: 3, 9: 1, 0: 1}), 5) == Difference(2, 2, 2)


def test_copies_are_exact_whoever_is_killed(tmp_path: Path) -> None:
    kills = count(2, 10)
    rng = random.Random(7)
    broker = Broker(tmp_path)
    with connect(broker.url) as client:
        for name in ("IN", "OUT"):
            config = b'{"name":"%s","subjects":["%s.>"]}' % (name.encode(), name.lower().encode())
            client.request(f"$JS.API.STREAM.CREATE.{name}", config)
    streams = open_streams(broker.url, 5.0, patience=60.0)
    assert isinstance(streams, NatsStreams)
    publisher = Publisher(broker.url)
    publisher.start()
    driver = Driver(broker.url, tmp_path)
    try:
        for _ in range(kills):
            await_progress(streams, tmp_path, driver)
            time.sleep(rng.uniform(0, 0.8))  # anywhere in a micro-batch
            broker.kill()
            broker.start()
            await_progress(streams, tmp_path, driver)
            time.sleep(rng.uniform(0, 0.8))
            driver.kill()
            driver.start()
        await_progress(streams, tmp_path, driver)
        publisher.stopped.set()
        publisher.join()
        with connect(broker.url) as client:  # its ack comes when all before it is written
            last = json.loads(client.request("in.x", b"x" * 50).payload)["seq"]
        (tmp_path / "stop").touch()
        assert driver.process.wait(count(240, 1800)) == 0, driver._log.read_text()[-3000:]
        written = Counter(payloads(streams, "OUT"))
    finally:
        publisher.stopped.set()
        if driver.process.poll() is None:
            driver.kill()
        streams.close()
        broker.kill()
    lines = (tmp_path / "found").read_text().split("\n")
    files = {int(seq): int(times) for seq, times in (line.split() for line in lines)}
    to_stream, to_files = compared(written, last), compared(Counter(files), last)
    print(f"kill -9 of driver x{kills} and broker x{kills} during copies of {last} records:")
    print(f"  stream to stream: {to_stream}", f"  stream to Parquet: {to_files}", sep="\n")
    assert to_stream == to_files == Difference(missing=0, twice=0, unknown=0)
