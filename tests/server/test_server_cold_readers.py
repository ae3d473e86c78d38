"""History that is only at the cold place, read by every kind of reader of a broker."""

import asyncio
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from test_server_cold_history import LIMIT, RECORDS, Broker, broker
from websockets.asyncio.client import connect

import nats

ALL = list(range(1, RECORDS + 1))
CAP = RECORDS // 2

# A server whose reads of the cold place wait while the file `gate` is there.
GATED = """
import sys, time
from pathlib import Path
from millstream.cli.main import main
from millstream.store.disk.objects import DirectoryObjects
gate, read = Path(sys.argv.pop(1)), DirectoryObjects.get_range
def gated(self, name, offset, size):
    while gate.exists():
        (gate.parent / "held").write_text(name)
        time.sleep(0.01)
    return read(self, name, offset, size)
DirectoryObjects.get_range = gated
main(sys.argv[1:])
"""


def unacked(policy: DeliverPolicy = DeliverPolicy.ALL) -> ConsumerConfig:
    """Return a configuration for one subscription: the client notes its own inbox in it."""
    return ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=policy)


def put(running: Broker, path: str, body: dict[str, object]) -> None:
    kind = {"content-type": "application/json"}
    data = json.dumps(body).encode()
    request = urllib.request.Request(running.http + path, data, kind, method="PUT")
    with urllib.request.urlopen(request, timeout=LIMIT):
        pass


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where a broker's data is, of which all but the newest segments have moved."""
    home = tmp_path_factory.mktemp("cold")
    with broker(home) as running:
        asyncio.run(filled(running))
    with broker(home):
        pass  # each clean stop writes a snapshot; segments move once two of them know a segment
    with broker(home) as running:
        running.moved(4)
    return home


async def filled(running: Broker) -> None:
    client = await nats.connect(running.nats)
    stream = client.jetstream()
    await stream.add_stream(name="ORDERS", subjects=["orders.>"], duplicate_window=0.1)
    # A router that stops half way, as its destination is full: it has to come back later.
    put(running, "/v0/topics/COPY", {"cap_records": CAP, "discard": "reject"})
    put(running, "/v0/routers/slow", {"source": "ORDERS", "dest": "COPY"})
    for n in range(RECORDS):
        await stream.publish(f"orders.{n % 3}", b"%d" % n)
    await client.close()


@pytest.fixture
def running(home: Path) -> Iterator[Broker]:
    with broker(home) as started:
        assert len(started.moved(4)) >= 4
        yield started


async def state_of(client: Client, name: str, messages: int) -> dict[str, Any]:
    """Wait until a stream has so many messages."""
    async with asyncio.timeout(LIMIT):
        while True:
            answer = await client.request(f"$JS.API.STREAM.INFO.{name}", b"", timeout=LIMIT)
            state: dict[str, Any] = json.loads(answer.data)["state"]
            if state["messages"] >= messages:
                return state
            await asyncio.sleep(0.02)


async def payloads(client: Client, name: str, seqs: list[int]) -> list[bytes | None]:
    stream = client.jetstream()
    return [(await stream.get_msg(name, seq)).data for seq in seqs]


def events(running: Broker, path: str, until: int) -> list[int]:
    """Return the sequences that an event stream sends, up to ``until``."""
    found: list[int] = []
    accept = {"accept": "text/event-stream"}
    request = urllib.request.Request(running.http + path, headers=accept)
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        for line in answer:
            if line.startswith(b"data:") and b'"records"' in line:
                found += [row["$seq"] for row in json.loads(line[5:])["records"]]
            if found and found[-1] >= until:
                break
    return found


def test_a_tail_from_the_beginning_reads_it(running: Broker) -> None:
    assert events(running, "/v0/topics/ORDERS/tail?from_seq=0", RECORDS) == ALL


def test_a_watch_of_several_topics_reads_it(running: Broker) -> None:
    made = running.post(
        "/v0/watch", {"topics": {"ORDERS": {"from_seq": 0}, "COPY": {"tail": True}}}
    )
    assert events(running, str(made["stream_url"]), RECORDS) == ALL


async def test_a_socket_reads_it(running: Broker) -> None:
    found: list[int] = []
    async with connect(running.http.replace("http", "ws") + "/v0/ws") as socket:
        await socket.send(json.dumps({"op": "subscribe", "topic": "ORDERS", "from_seq": 0}))
        async with asyncio.timeout(LIMIT):
            while len(found) < RECORDS:
                message = json.loads(await socket.recv())
                found += [row["$seq"] for row in message.get("records", [])]
    assert found == ALL


async def test_a_mirror_and_a_source_take_it_in(running: Broker) -> None:
    client = await nats.connect(running.nats)
    for body in (
        {"name": "M", "mirror": {"name": "ORDERS"}},
        {"name": "S", "sources": [{"name": "ORDERS"}]},
    ):
        name = body["name"]
        await client.request(
            f"$JS.API.STREAM.CREATE.{name}", json.dumps(body).encode(), timeout=LIMIT
        )
        state = await state_of(client, str(name), RECORDS)
        assert (state["messages"], state["last_seq"]) == (RECORDS, RECORDS)
        assert await payloads(client, str(name), [1, 250, 600]) == [b"0", b"249", b"599"]
    await client.close()


async def test_a_router_that_fell_behind_goes_on_with_it(running: Broker) -> None:
    assert running.get("/v0/topics/COPY")["count"] == CAP
    put(running, "/v0/topics/COPY", {"cap_records": RECORDS, "discard": "reject"})
    client = await nats.connect(running.nats)
    running.post("/v0/topics/COPY/diff", {"from_seq": 0, "limit": 1})  # a read brings it on
    assert (await state_of(client, "COPY", RECORDS))["last_seq"] == RECORDS
    assert await payloads(client, "COPY", [1, CAP + 1, RECORDS]) == [b"0", b"300", b"599"]
    await client.close()


async def test_push_consumers_and_direct_reads_get_it(running: Broker) -> None:
    client = await nats.connect(running.nats)
    stream = client.jetstream()
    pushed = await stream.subscribe("orders.>", config=unacked())
    found = [(await pushed.next_msg(LIMIT)).data for _ in ALL]
    assert found == [b"%d" % n for n in range(RECORDS)]
    body = json.dumps({"seq": 7}).encode()
    direct = await client.request("$JS.API.STREAM.MSG.GET.ORDERS", body, timeout=LIMIT)
    assert json.loads(direct.data)["message"]["seq"] == 7
    await client.close()


async def test_a_stream_snapshot_holds_it(running: Broker, tmp_path: Path) -> None:
    client = await nats.connect(running.nats)
    inbox = client.new_inbox()
    came: asyncio.Queue[Any] = asyncio.Queue()

    async def take(message: Any) -> None:
        await came.put(message)
        if message.reply:
            await client.publish(message.reply, b"")

    await client.subscribe(inbox, cb=take)
    body = json.dumps({"deliver_subject": inbox}).encode()
    asked = await client.request("$JS.API.STREAM.SNAPSHOT.ORDERS", body, timeout=LIMIT)
    answer = json.loads(asked.data)
    chunks = []
    while (message := await asyncio.wait_for(came.get(), LIMIT)).data:
        chunks.append(message.data)
    await client.close()
    with broker(tmp_path) as other:
        client = await nats.connect(other.nats)
        wanted = json.dumps({"config": answer["config"], "state": answer["state"]}).encode()
        ready = await client.request("$JS.API.STREAM.RESTORE.ORDERS", wanted, timeout=LIMIT)
        subject = json.loads(ready.data)["deliver_subject"]
        for chunk in chunks:
            await client.request(subject, chunk, timeout=LIMIT)
        await client.request(subject, b"", timeout=LIMIT)
        assert (await state_of(client, "ORDERS", RECORDS))["last_seq"] == RECORDS
        assert await payloads(client, "ORDERS", [1, 250, 600]) == [b"0", b"249", b"599"]
        await client.close()


class GatedBroker(Broker):
    """One whose cold place can be made to hang."""

    def program(self) -> list[str]:
        return [sys.executable, "-c", GATED, str(self._home / "gate")]


async def replayed(url: str) -> int:
    """Read the whole history once; returns how many messages came."""
    client = await nats.connect(url)
    pushed = await client.jetstream().subscribe("orders.>", config=unacked())
    count = 0
    async with asyncio.timeout(LIMIT):
        while count < RECORDS:
            await pushed.next_msg(LIMIT)
            count += 1
    await client.close()
    return count


async def test_live_messages_come_while_replays_wait_for_the_cold_place(home: Path) -> None:
    gate, held = home / "gate", home / "held"
    gate.touch()
    held.unlink(missing_ok=True)
    with broker(home, kind=GatedBroker) as running:
        try:
            client = await nats.connect(running.nats)
            stream = client.jetstream()
            live = await stream.subscribe("orders.>", config=unacked(DeliverPolicy.NEW))
            replays = [asyncio.create_task(replayed(running.nats)) for _ in range(8)]
            await asyncio.to_thread(running.wait_for, "held")
            for n in range(5):
                ack = await stream.publish("orders.0", b"live %d" % n, timeout=LIMIT)
                message = await live.next_msg(LIMIT)
                assert (message.data, message.metadata.sequence.stream) == (b"live %d" % n, ack.seq)
            assert not any(task.done() for task in replays)
        finally:
            gate.unlink()
        assert await asyncio.gather(*replays) == [RECORDS] * 8
        await client.close()


async def test_a_diff_tells_how_many_cold_segments_it_was_read_from(running: Broker) -> None:
    def page(from_seq: int, limit: int) -> Any:
        body = {"from_seq": from_seq, "limit": limit}
        return running.post("/v0/topics/ORDERS/diff", body)

    assert page(0, 1)["performance"]["cold_segments_read"] == 1
    at = found = 0
    while at < RECORDS:  # a page ends where the next piece has to be fetched first
        shown = page(at, RECORDS)
        at, found = (
            shown["next_from_seq"],
            found + shown["performance"].get("cold_segments_read", 0),
        )
    assert found >= 4
    for start in (RECORDS - 1, RECORDS):  # the newest never moved
        assert "cold_segments_read" not in page(start, 1)["performance"]
