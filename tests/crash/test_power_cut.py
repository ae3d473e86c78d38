"""The power goes off under load: what was synced is there, and what is gone is told."""

import asyncio
import contextlib
import json
import os
import random
import shlex
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest
from websockets.asyncio.client import connect as open_socket

import nats
from millstream.client.streams import open_streams
from millstream.store.disk.files import OsFiles
from millstream.store.upkeep.dump import dump_directory
from millstream.store.upkeep.inspect import check_directory
from support.broker import serve_command
from support.mounts import LoopDisk, loop_disk
from support.peers import Peer, free_port, running
from support.publisher import Publisher, api, create_stream, read_stream, stream_state
from support.scale import count


@contextlib.contextmanager
def booted(data: Path, directory: Path, boot: int) -> Iterator[Peer]:
    """A server on a machine that has just been switched on: the kernel's boot id is another."""
    boot_id = directory / f"boot-{boot}"
    boot_id.write_text(f"boot {boot}")
    home = directory / f"home-{boot}"
    home.mkdir()
    port, http_port = free_port(), free_port()
    served = shlex.join(serve_command(port, http_port, data))
    bind = f"mount --bind {boot_id} /proc/sys/kernel/random/boot_id && exec {served}"
    command = ["unshare", "-m", "sh", "-c", bind]
    with running("millstream", command, port, home, http_port) as peer:
        yield peer


class Cut:
    """Cuts the power after a while, and knows what had been promised when it began to."""

    def __init__(
        self, disk: LoopDisk, process: "Popen[bytes]", publisher: Publisher, seconds: float
    ) -> None:
        self._disk, self._process, self._publisher = disk, process, publisher
        self.promised: set[int] = set()
        timer = threading.Timer(seconds, self._cut)
        timer.daemon = True
        timer.start()

    def _cut(self) -> None:
        self.promised = set(self._publisher.acked)
        self._disk.cut_power()
        self._process.kill()


@pytest.mark.timeout(3600)
def test_a_power_cut_loses_nothing_synced_and_names_the_rest(tmp_path: Path) -> None:
    rng = random.Random(1)
    cycles = count(5, 50)
    synced, written = Publisher("SYNC.a"), Publisher("DISK.a")
    lost = cuts = heard_late = 0
    late: set[int] = set()
    names = ["SYNC", "DISK"]
    with loop_disk(tmp_path, 900) as disk:
        for cycle in range(cycles + 1):
            with booted(disk.path / "data", tmp_path, cycle) as peer:
                if cycle == 0:
                    create_stream(peer.port, "SYNC", "fsync")
                    create_stream(peer.port, "DISK", "disk")
                check_synced(peer.port, synced, late)
                lost += check_written(peer.port, written)
                check_names(peer.port, names)
                if cycle == cycles:
                    break
                names.append(f"NEW{cycle}")
                create_stream(peer.port, names[-1], "disk")  # answered before the power goes
                cut = Cut(disk, peer.process, synced, rng.uniform(0.3, 0.8))
                both = [
                    threading.Thread(target=each.run, args=(peer.port, 10))
                    for each in (synced, written)
                ]
                for thread in both:
                    thread.start()
                for thread in both:
                    thread.join()
                assert peer.process.wait(10) == -9
                late = set(synced.acked) - cut.promised
                heard_late += len(late)
                cuts += 1
            disk.unmount()
            assert disk.mount()
    print(
        f"power cut: cuts {cuts}, fsync acked {len(synced.acked)} lost 0 "
        f"({heard_late} heard during a cut), "
        f"disk acked {len(written.acked)} lost {lost}, all at the tail and named"
    )
    assert cuts >= count(5, 50)


def check_names(port: int, names: list[str]) -> None:
    answer = api(port, "$JS.API.STREAM.NAMES", {})
    found = answer["streams"]
    assert isinstance(found, list)
    assert set(names) <= set(found)


def check_synced(port: int, publisher: Publisher, late: set[int]) -> None:
    """Compare with what was acked; ``late`` acks came from a machine that had no power any more.

    ext4 may let a sync succeed that ends while it is being shut down, without having converted the
    extents that it wrote: a bare file of preallocated space shows it in one cut of ten.
    """
    last = stream_state(port, "SYNC")["last_seq"]
    found = read_stream(port, "SYNC", 1, last)
    for seq in late - set(found):
        del publisher.acked[seq]
    missing = sorted(seq for seq in publisher.acked if seq not in found)
    assert not missing, (
        missing[0],
        missing[-1],
        len(missing),
        len(found),
        last,
        gaps(port, "SYNC"),
    )
    for seq, number in publisher.acked.items():
        assert found[seq] == publisher.payload(number), seq


def check_written(port: int, publisher: Publisher) -> int:
    """Return how many acks this cut took; what is left is a prefix, what is gone is a gap."""
    last = stream_state(port, "DISK")["last_seq"]
    found = read_stream(port, "DISK", 1, last)
    acked = {seq: publisher.payload(number) for seq, number in publisher.acked.items()}
    gone = sorted(seq for seq in acked if seq not in found)
    for seq, payload in acked.items():
        assert found.get(seq, payload) == payload
    if gone:
        assert last >= max(acked)  # no sequence comes back
        newest = [seq for seq in acked if seq > max(gone)]
        assert not newest, "the loss is not at the tail"
        named = losses(port, "DISK")
        assert all(any(a <= seq <= b for a, b in named) for seq in gone)
    for seq in gone:
        del publisher.acked[seq]
    return len(gone)


def losses(port: int, name: str) -> list[tuple[int, int]]:
    """Return the gaps that readers are told of: no acknowledged record may be in another."""
    plan = api(port, f"$MILLSTREAM.API.PLAN.{name}", {})
    found = plan["gaps"]
    assert isinstance(found, list)
    return [(first, last) for first, last, why in found if why != "void"]


def gaps(port: int, name: str) -> list[tuple[int, int]]:
    plan = api(port, f"$MILLSTREAM.API.PLAN.{name}", {})
    found = plan["gaps"]
    assert isinstance(found, list)
    return [(first, last) for first, last, _ in json.loads(json.dumps(found))]


def test_every_door_reports_what_the_power_took(tmp_path: Path) -> None:
    with loop_disk(tmp_path, 900) as disk:
        data = disk.path / "data"
        with booted(data, tmp_path, 0) as peer:
            for _ in range(4):
                post(peer, "quiet", {"records": [{"data": 1}]})
            post(peer, "busy", {"records": [{"data": 1}]})
            config = {"durable_name": "C", "ack_policy": "explicit"}
            made = {"stream_name": "busy", "config": config}
            assert "error" not in api(peer.port, "$JS.API.CONSUMER.CREATE.busy.C", made)
            wait_until_quiet(data, peer)
            with ThreadPoolExecutor() as pool:
                written = pool.submit(write_on, peer)
                written_some(peer, 300)
                disk.cut_power()
                peer.process.kill()
            acked = written.result()
        disk.unmount()
        assert disk.mount()
        report = check_directory(str(data), OsFiles())
        with booted(data, tmp_path, 1) as peer:
            state = stream_state(peer.port, "busy")
            first, last = state["messages"] + 1, state["last_seq"]
            lost = last - first + 1
            assert first <= acked + 1
            assert acked <= last <= acked + 2000  # about a second of such writes
            assert [(each.first, each.last) for each in report.lost] == [(first, last)]
            assert f"busy: {first - 1:,} records, 0 to {lost:,} lost, 0 torn" in peer.output()
            assert "quiet: 4 records, 0 lost, 0 torn" in peer.output()
            check_doors(peer, first, last)
            asyncio.run(check_consumer(peer, first, last))
        with booted(data, tmp_path, 2) as peer:  # after an orderly stop, by a machine that rebooted
            check_doors(peer, first, last)
            assert f"busy: {first:,} records, 0 lost, 0 torn" in peer.output()  # one came since


def post(peer: Peer, path: str, body: object) -> dict[str, Any]:
    """Ask the HTTP API, over a connection of its own."""
    connection = HTTPConnection("127.0.0.1", peer.http_port, timeout=10)
    try:
        headers = {"content-type": "application/json"}
        connection.request("POST", f"/v0/topics/{path}", json.dumps(body), headers)
        found = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    assert isinstance(found, dict)
    return found


def written_some(peer: Peer, least: int) -> None:
    while post(peer, "busy/diff", {"from_seq": 1})["head_seq"] < least:
        pass


def wait_until_quiet(data: Path, peer: Peer) -> None:
    """Wait until the log says that `quiet` gives out nothing, and that is on the disk."""
    ended = {"kind": "control", "name": "reserve", "body": 4}
    while not any(ended.items() <= each.items() for each in dump_directory(str(data), OsFiles())):
        assert peer.process.poll() is None
    create_stream(peer.port, "SYNCED", "disk")


def write_on(peer: Peer) -> int:
    """Write record after record until the power goes; returns the last that was acknowledged."""
    last = 0
    with contextlib.suppress(OSError, HTTPException):
        while "last_seq" in (answer := post(peer, "busy", {"records": [{"data": 1}]})):
            last = answer["last_seq"]
    return last


def get(peer: Peer, path: str) -> bytes:
    connection = HTTPConnection("127.0.0.1", peer.http_port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def check_doors(peer: Peer, first: int, last: int) -> None:
    """See that each door which looks at the log tells of ``first..last``, and nothing of quiet."""
    lost = last - first + 1
    doubt = {"gap_from": first, "gap_to": last, "reason": "unsynced", "in_doubt": lost}
    tombstone = post(peer, "busy/diff", {"from_seq": first - 1})["tombstone"]
    assert doubt.items() <= tombstone.items()
    assert tombstone["missed_estimate"] == lost
    assert doubt.items() <= first_event(peer, first - 1).items()
    assert doubt.items() <= asyncio.run(first_message(peer, first - 1)).items()
    state = stream_state(peer.port, "busy")
    told: Any = state["lost"]
    assert (told["msgs"], told["in_doubt"]) == (list(range(first, last + 1)), lost)
    metrics = get(peer, "/metrics").decode().splitlines()
    busy = [line for line in metrics if 'stream="busy"' in line]
    assert [line.split()[-1] for line in busy if "_lost_records" in line] == ["0"]
    assert [line.split()[-1] for line in busy if "_in_doubt_records" in line] == [str(lost)]
    with contextlib.closing(open_streams(peer.url)) as streams:
        plan = streams.plan("busy")
    if find_spec("pyarrow") is not None:  # Spark's door, where its packages are installed
        from millstream.spark.reading import planner

        assert planner.lost(plan, 1, last) == ((first, last, "unsynced"),)
    assert "lost" not in stream_state(peer.port, "quiet")
    assert post(peer, "quiet/diff", {"from_seq": 4})["head_seq"] == 4


def first_event(peer: Peer, after: int) -> dict[str, Any]:
    """Return what the tombstone at the beginning of a tail says."""
    connection = HTTPConnection("127.0.0.1", peer.http_port, timeout=10)
    try:
        connection.request("GET", f"/v0/topics/busy/tail?from_seq={after}")
        answer = connection.getresponse()
        while answer.readline() != b"event: tombstone\n":
            pass
        found = json.loads(answer.readline().removeprefix(b"data: "))
    finally:
        connection.close()
    assert isinstance(found, dict)
    return found


async def first_message(peer: Peer, after: int) -> dict[str, Any]:
    """Return the tombstone that a subscriber over a WebSocket gets."""
    async with open_socket(f"ws://127.0.0.1:{peer.http_port}/v0/ws") as socket:
        asked = {"op": "subscribe", "topics": {"busy": {"from_seq": after}}}
        await socket.send(json.dumps(asked))
        while True:
            found = json.loads(await socket.recv())
            if found["op"] == "tombstone":
                assert isinstance(found, dict)
                return found


async def check_consumer(peer: Peer, first: int, last: int) -> None:
    """See that a consumer is told with the next record, although it had come to the end."""
    client = await nats.connect(peer.url)
    told = await client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.GAP.busy.C")
    messages = await client.jetstream().pull_subscribe_bind("C", "busy")
    seen = 0
    while seen < first - 1:
        for message in await messages.fetch(1000, timeout=10):
            await message.ack_sync(timeout=10)
            seen = message.metadata.sequence.stream
    with contextlib.suppress(TimeoutError):
        await messages.fetch(1, timeout=0.1)  # at the end, before the loss is passed
    await client.flush()
    await asyncio.to_thread(post, peer, "busy", {"records": [{"data": "after"}]})
    (message,) = await messages.fetch(1, timeout=10)
    assert message.metadata.sequence.stream == last + 1
    assert message.headers == {"Millstream-Gap": f"{first}-{last}"}
    advisory = json.loads((await told.next_msg(10)).data)
    assert (advisory["first_seq"], advisory["last_seq"]) == (first, last)
    assert advisory["in_doubt"] == last - first + 1
    await client.close()


def test_a_dead_disk_is_mounted_anew_although_another_process_holds_its_mount(
    tmp_path: Path,
) -> None:
    with loop_disk(tmp_path, 16) as disk:
        kept = disk.path / "kept"
        kept.write_text("x")
        os.sync()
        with Popen(["unshare", "-m", "sh", "-c", "echo; sleep 0.5"], stdout=PIPE) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            disk.cut_power()
            disk.unmount()
            assert disk.mount()
        assert kept.read_text() == "x"
