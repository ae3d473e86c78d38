"""Snapshots go out in acknowledged chunks and come back whole, ours and nats-server's alike."""

import asyncio
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from jetstream_broker import Broker
from nats.aio.client import Client

import nats
from millstream.message import NewRecord
from millstream.nats.jetstream.archive import MAGIC, Archive
from millstream.nats.jetstream.s2_frames import BadArchive, Decoder, decompress_block, encode
from millstream.streams.config.config import StreamConfig
from support.jetstream_api import api
from support.nats_server import nats_server

CONFIG = {"name": "S", "subjects": ["s.*"], "allow_direct": True, "max_msgs": 900}
CONSUMER = {"name": "c", "durable_name": "c", "ack_policy": "explicit"}


async def fill(client: Client, count: int = 600) -> None:
    js = client.jetstream()
    await api(client, "STREAM.CREATE.S", CONFIG)
    for i in range(count):
        await js.publish(f"s.{i % 7}", b"payload %d " % i * 20, headers={"N": str(i)})
    for seq in (3, 4, 77):
        if seq <= count:
            await js.delete_msg("S", seq)
    await api(client, "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": CONSUMER})
    pull = await js.pull_subscribe_bind("c", "S")
    fetched = await pull.fetch(5)
    for message in fetched[:3]:
        await message.ack_sync(timeout=10)


async def back_up(client: Client, **options: Any) -> tuple[Any, list[bytes], Any]:
    """Take a snapshot as `nats stream backup` does: (answer, chunks, headers of the end)."""
    inbox = client.new_inbox()
    came: asyncio.Queue[Any] = asyncio.Queue()

    async def take(message: Any) -> None:
        await came.put(message)
        if message.reply:
            await client.publish(message.reply, b"")

    await client.subscribe(inbox, cb=take)
    answer = await api(client, "STREAM.SNAPSHOT.S", {"deliver_subject": inbox, **options})
    chunks = []
    while (message := await asyncio.wait_for(came.get(), 5)).data:
        chunks.append(message.data)
    return answer, chunks, message.headers


async def bring_back(client: Client, answer: Any, chunks: list[bytes]) -> Any:
    """Restore as `nats stream restore` does; returns the last answer."""
    ready = await api(
        client, "STREAM.RESTORE.S", {"config": answer["config"], "state": answer["state"]}
    )
    subject = ready["deliver_subject"]
    assert subject.startswith("$JS.SNAPSHOT.RESTORE.S.")
    for chunk in chunks:
        reply = await client.request(subject, chunk, timeout=5)
        if reply.data:
            return json.loads(reply.data)
    return json.loads((await client.request(subject, b"", timeout=5)).data)


def seen(info: Any) -> Any:
    state = info["state"]
    return {
        key: state.get(key)
        for key in ("messages", "first_seq", "first_ts", "last_seq", "last_ts", "num_subjects")
    }


async def records(client: Client) -> list[tuple[int, str, bytes]]:
    js = client.jetstream()
    found = []
    for seq in (1, 2, 5, 78, 300, 600):
        message = await js.get_msg("S", seq)
        found.append((message.seq or 0, message.subject or "", message.data or b""))
    return found


async def test_a_snapshot_of_ours_restores_records_sequences_times_and_consumers(tmp_path: Path):
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start())
    await fill(client)
    before, consumer = await api(client, "STREAM.INFO.S"), await api(client, "CONSUMER.INFO.S.c")
    stored = await records(client)
    answer, chunks, ended = await back_up(client, chunk_size=1024)
    assert len(chunks) > 5
    assert all(len(chunk) == 1024 for chunk in chunks[:-1])
    assert ended == {"Status": "204"}
    refused = await api(client, "STREAM.RESTORE.S", {"config": answer["config"], "state": {}})
    assert refused["error"]["err_code"] == 10130
    await client.jetstream().delete_stream("S")
    made = await bring_back(client, answer, chunks)
    assert made["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    assert made["config"] == before["config"]
    after = await api(client, "STREAM.INFO.S")
    assert seen(after) == seen(before)
    assert after["created"] == before["created"]
    assert await records(client) == stored
    again = await api(client, "CONSUMER.INFO.S.c")
    for key in ("created", "config", "num_pending", "num_ack_pending", "num_redelivered"):
        assert again[key] == consumer[key]
    for key in ("delivered", "ack_floor"):
        again[key].pop("last_active", None)
        consumer[key].pop("last_active", None)
        assert again[key] == consumer[key]
    assert (await client.jetstream().publish("s.1", b"next")).seq == 601
    await client.close()
    await broker.stop()


async def test_a_snapshot_of_nats_server_restores_here(tmp_path: Path):
    with nats_server("-js", "-sd", str(tmp_path / "theirs")) as reference:
        client = await nats.connect(reference.url)
        await fill(client)
        before = await api(client, "STREAM.INFO.S")
        consumer = await api(client, "CONSUMER.INFO.S.c")
        stored = await records(client)
        answer, chunks, _ = await back_up(client)
        await client.close()
    broker = Broker(str(tmp_path / "ours"))
    client = await nats.connect(broker.start())
    made = await bring_back(client, answer, chunks)
    assert "error" not in made
    assert seen(await api(client, "STREAM.INFO.S")) == seen(before)
    assert await records(client) == stored
    with pytest.raises(nats.js.errors.NotFoundError):
        await client.jetstream().get_msg("S", 77)
    again = await api(client, "CONSUMER.INFO.S.c")
    for key in ("num_pending", "num_ack_pending"):
        assert again[key] == consumer[key]
    assert again["ack_floor"]["stream_seq"] == consumer["ack_floor"]["stream_seq"]
    await client.close()
    await broker.stop()


async def test_a_snapshot_of_ours_restores_at_nats_server(tmp_path: Path):
    broker = Broker(str(tmp_path / "ours"))
    client = await nats.connect(broker.start())
    await fill(client)
    before, stored = await api(client, "STREAM.INFO.S"), await records(client)
    consumer = await api(client, "CONSUMER.INFO.S.c")
    answer, chunks, _ = await back_up(client)
    await client.close()
    await broker.stop()
    with nats_server("-js", "-sd", str(tmp_path / "theirs")) as reference:
        client = await nats.connect(reference.url)
        made = await bring_back(client, answer, chunks)
        assert "error" not in made
        assert seen(await api(client, "STREAM.INFO.S")) == seen(before)
        assert await records(client) == stored
        again = await api(client, "CONSUMER.INFO.S.c")
        assert again["num_ack_pending"] == consumer["num_ack_pending"] == 2
        assert again["ack_floor"]["stream_seq"] == consumer["ack_floor"]["stream_seq"]
        await client.close()


async def test_a_damaged_snapshot_is_refused_and_leaves_nothing(tmp_path: Path):
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start())
    await fill(client, 20)
    answer, chunks, _ = await back_up(client, no_consumers=True)
    await client.jetstream().delete_stream("S")
    flipped = bytearray(b"".join(chunks))
    flipped[len(flipped) // 2] ^= 1
    failed = await bring_back(client, answer, [bytes(flipped)])
    assert failed["error"]["err_code"] == 10062
    assert failed["error"]["description"].startswith("restore failed: ")
    cut = await bring_back(client, answer, [b"".join(chunks)[:-9]])
    assert cut["error"]["err_code"] == 10062
    other = {**answer, "config": {**answer["config"], "name": "S"}}
    assert "error" not in await bring_back(client, other, chunks)
    await client.close()
    await broker.stop()


async def test_a_restore_that_a_crash_cut_short_is_gone_at_the_next_start(tmp_path: Path):
    broker = Broker(str(tmp_path))
    broker.start()
    config = StreamConfig.from_request(CONFIG)
    half = await broker.js.catalog.begin_restore(config, "$G", 1)
    await half.append([NewRecord(b"s.1", b"half")])
    await broker.stop()
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start())
    assert (await api(client, "STREAM.NAMES"))["streams"] is None
    assert "error" not in await api(client, "STREAM.CREATE.S", CONFIG)
    await client.close()
    await broker.stop()


async def test_a_snapshot_that_nobody_acknowledges_or_hears_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("millstream.nats.jetstream.snapshots.PATIENCE", 0.1)
    monkeypatch.setattr("millstream.nats.jetstream.snapshots.INTEREST_PATIENCE", 0.05)
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start())
    await fill(client, 200)
    events = await client.subscribe("$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.S")
    silent = await client.subscribe("silent")
    body = {"deliver_subject": "silent", "chunk_size": 1024, "window_size": 1024}
    await api(client, "STREAM.SNAPSHOT.S", body)
    first, end = await silent.next_msg(5), await silent.next_msg(5)
    assert len(first.data) == 1024
    assert first.reply.startswith("$JS.SNAPSHOT.ACK.S.")
    assert end.headers == {"Status": "408", "Description": "No Flow Response"}
    assert json.loads((await events.next_msg(5)).data)["error"] == "no flow response"
    await api(client, "STREAM.SNAPSHOT.S", {"deliver_subject": "nobody"})
    assert json.loads((await events.next_msg(5)).data)["error"] == "no interest"
    await client.close()
    await broker.stop()


def test_s2_blocks_with_repeated_offsets_are_read():
    # "abcd", copy 4 from 4 back, then repeat that offset for 8 more.
    block = bytes([16, 0x0C]) + b"abcd" + bytes([0x01, 4]) + bytes([0x11, 0])
    assert decompress_block(block) == b"abcd" * 4


def test_a_stream_of_chunks_is_read_however_it_is_cut():
    content = bytes(range(256)) * 1000
    stream = encode(content) + encode(b"more")
    decoder = Decoder()
    read = b"".join(
        piece for at in range(0, len(stream), 7) for piece in decoder.feed(stream[at : at + 7])
    )
    assert read == content + b"more"
    assert decoder.is_complete


def test_what_is_no_s2_stream_is_refused():
    with pytest.raises(BadArchive):
        list(Decoder().feed(b"\xff\x06\x00\x00nonono"))


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "msgs/../../1.blk", "obs\\..\\x", "c:/x", "consumers/../x"]
)
def test_paths_that_lead_out_of_a_snapshot_are_refused_by_name(name: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:") as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    entry = bytes([len(name), 0, 0, 0, 0]) + name.encode() + bytes(5)
    for data in (packed.getvalue(), MAGIC + entry):
        with pytest.raises(BadArchive, match="leads out of it") as raised:
            Archive(data)
        assert repr(name) in str(raised.value)


async def test_a_snapshot_waits_for_an_inbox_that_is_subscribed_after_the_answer(tmp_path: Path):
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start())
    await fill(client, 20)
    inbox = client.new_inbox()
    early = await client.subscribe(inbox.rpartition(".")[0] + ".*")  # as a client's own wildcard
    await api(client, "STREAM.SNAPSHOT.S", {"deliver_subject": inbox})
    await client.flush()
    sub = await client.subscribe(inbox)
    message = await sub.next_msg(timeout=5)
    assert message.data.startswith(b"\xff\x06\x00\x00sNaPpY")
    assert (await sub.next_msg(timeout=5)).data == b""
    assert early.pending_msgs == 2
    await client.close()
    await broker.stop()


async def test_a_durable_consumer_in_memory_goes_along(tmp_path: Path):
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start())
    await fill(client, 20)
    config = {**CONSUMER, "name": "m", "durable_name": "m", "mem_storage": True}
    await api(client, "CONSUMER.CREATE.S.m", {"stream_name": "S", "config": config})
    answer, chunks, _ = await back_up(client)
    await client.jetstream().delete_stream("S")
    await bring_back(client, answer, chunks)
    assert (await api(client, "CONSUMER.NAMES.S"))["consumers"] == ["c", "m"]
    await client.close()
    await broker.stop()
