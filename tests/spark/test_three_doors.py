"""The thinnest walk through everything: NATS in, HTTP and Spark out, and a kill in the middle."""

import asyncio
import http.client
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from nats.js.api import ConsumerConfig

import nats
from support.broker import millstream
from support.peers import Peer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEGMENT = 40  # records a segment: small, so that Spark meets sealed files and a tail
FIRST = 100
LIMIT = 60.0  # seconds: a busy machine, or a disk that takes its time, is slow and not wrong
SMALL_SEGMENTS = ["--segment-max-events", str(SEGMENT)]


def ask(broker: Peer, method: str, path: str, body: Any = None) -> Any:
    connection = http.client.HTTPConnection(broker.host, broker.http_port, timeout=LIMIT)
    try:
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, {"content-type": "application/json"})
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def read_all(broker: Peer) -> dict[int, Any]:
    """Every record by sequence, over HTTP; a sequence seen twice fails."""
    found: dict[int, Any] = {}
    position = 0
    while True:
        page = ask(broker, "POST", "/v0/topics/ORDERS/diff", {"from_seq": position, "limit": 1000})
        assert page["tombstone"] is None
        for record in page["records"]:
            assert record["$seq"] not in found
            found[record["$seq"]] = record["data"]
        position = page["next_from_seq"]
        if page["caught_up"]:
            return found


async def publish_until_killed(broker: Peer) -> dict[int, int]:
    """Publish without a pause, kill the broker in the middle, return what was acked: seq → id."""
    nc = await nats.connect(broker.url, allow_reconnect=False, error_cb=_quiet)
    js = nc.jetstream(timeout=LIMIT)
    acked: dict[int, int] = {}

    async def worker(lane: int) -> None:
        for number in range(lane, 1_000_000, 8):
            try:
                ack = await js.publish("orders.new", json.dumps({"id": number}).encode())
            except Exception:
                return  # not acked: nothing was promised
            acked[ack.seq] = number
            if len(acked) == 400:
                broker.process.send_signal(signal.SIGKILL)

    workers = [asyncio.create_task(worker(lane)) for lane in range(8)]
    await asyncio.to_thread(broker.process.wait, LIMIT)
    _, waiting = await asyncio.wait(workers, timeout=2)  # for acks that were sent before
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await nc.close()
    return acked


async def _quiet(error: Exception) -> None:
    """Losing the connection is the point of this test."""


async def fill(broker: Peer) -> None:
    """A stream made over NATS takes records from NATS and from HTTP; a consumer acks half."""
    nc = await nats.connect(broker.url)
    js = nc.jetstream(timeout=LIMIT)
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    for number in range(FIRST):
        ack = await js.publish("orders.old", json.dumps({"id": -number}).encode())
        assert ack.seq == number + 1
    consumer = await js.pull_subscribe(
        "orders.>", durable="billing", config=ConsumerConfig(ack_wait=60)
    )
    messages = await consumer.fetch(50, timeout=LIMIT)
    assert len(messages) == 50
    for message in messages:
        await message.ack_sync(timeout=LIMIT)
    await nc.close()


async def drain(broker: Peer) -> list[int]:
    """What the durable consumer still gets, by stream sequence."""
    nc = await nats.connect(broker.url)
    js = nc.jetstream(timeout=LIMIT)
    consumer = await js.pull_subscribe("orders.>", durable="billing")
    found: list[int] = []
    left = 1
    while left:
        for message in await consumer.fetch(200, timeout=LIMIT):
            found.append(message.metadata.sequence.stream)
            left = message.metadata.num_pending
            await message.ack()
    with pytest.raises(TimeoutError):  # nothing comes twice either
        await consumer.fetch(1, timeout=1)
    await nc.close()
    return found


@pytest.mark.spark
@pytest.mark.timeout(240)
async def test_every_acked_record_is_found_once_at_every_door_after_a_kill(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    data = tmp_path / "data"
    with millstream(data_dir=data, extra=SMALL_SEGMENTS) as broker:
        await fill(broker)
        written = ask(
            broker,
            "POST",
            "/v0/topics/ORDERS",
            {"records": [{"subject": "orders.http", "tag": "t", "data": {"id": "h"}}]},
        )
        assert written["seqs"] == [FIRST + 1]
        acked = await publish_until_killed(broker)
    assert len(acked) >= 400

    with millstream(data_dir=data, extra=SMALL_SEGMENTS) as broker:
        assert "recovered ORDERS" in broker.output()
        assert ", 0 lost," in broker.output()
        over_http = read_all(broker)
        over_nats = await drain(broker)
        over_spark = {
            row.seq: (row.subject, json.loads(row.payload))
            for row in spark.read.format("millstream")
            .option("url", broker.url)
            .option("stream", "ORDERS")
            .load()
            .select("seq", "subject", "payload")
            .collect()
        }
        state = ask(broker, "GET", "/v0/topics/ORDERS")

    assert {seq: over_http[seq]["id"] for seq in acked} == acked
    assert over_http[FIRST + 1] == {"id": "h"}
    assert state["count"] == len(over_http)
    assert sorted(over_http) == list(range(1, state["head_seq"] + 1))
    # The first fifty were acked with confirmation before the kill: they never come again.
    assert over_nats == [seq for seq in sorted(over_http) if seq > 50]
    assert {seq: data for seq, (_, data) in over_spark.items()} == over_http
    assert over_spark[FIRST + 1][0] == "orders.http"
    sealed = list(data.glob("streams/*/seg-*.idx"))
    assert len(sealed) >= 5, "Spark must have read sealed segments beside the tail"
