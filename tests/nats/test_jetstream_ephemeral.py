"""Streams in memory alone, over a restart: their sequences go on, what is lost is said."""

import json
from pathlib import Path

from jetstream_broker import Broker
from nats.js.api import ConsumerConfig, StorageType

import nats
from millstream.monitor import own_metrics
from millstream.monitor.kept_figures import KeptFigures, StreamFigures


async def test_nats_clients_hear_of_it_too(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start())
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"], storage=StorageType.MEMORY)
    for _ in range(3):
        await js.publish("s", b"x")
    await client.close()
    await broker.stop()
    again = Broker(str(tmp_path))
    client = await nats.connect(again.start())
    state = (await client.jetstream().stream_info("S")).state
    assert state.messages == 0
    assert state.last_seq >= 3
    assert state.lost is not None
    assert state.lost.msgs is not None
    assert set(range(1, 4)) <= set(state.lost.msgs)
    assert (await client.jetstream().publish("s", b"x")).seq == state.last_seq + 1
    await client.close()
    await again.stop()


async def test_a_consumer_and_the_metrics_tell_what_a_restart_took(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start())
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"], storage=StorageType.MEMORY)
    await js.add_consumer("S", ConsumerConfig(durable_name="c", mem_storage=False))
    for _ in range(3):
        await js.publish("s", b"x")
    await client.close()
    await broker.stop()
    again = Broker(str(tmp_path))
    client = await nats.connect(again.start())
    js = client.jetstream()
    head = (await js.stream_info("S")).state.last_seq
    advisories = await client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.GAP.>")
    waiting = await js.pull_subscribe_bind("c", "S")
    await js.publish("s", b"next")
    (message,) = await waiting.fetch(1)
    assert message.metadata.sequence.stream == head + 1
    assert (message.headers or {})["Millstream-Gap"] == f"1-{head}"
    told = json.loads((await advisories.next_msg(5)).data)
    assert (told["first_seq"], told["last_seq"]) == (1, head)
    figures = KeptFigures()
    figures.streams.append(
        StreamFigures(again.js, stream := again.js.catalog.get("S"), stream.state())
    )
    shown = {
        each.name: each.samples[0].value for each in own_metrics.streams(figures) if each.samples
    }
    assert shown["millstream_stream_lost_records"] == head
    assert shown["millstream_stream_gap_records_total"] == head
    assert shown["millstream_stream_evicted_records_total"] == 0
    await client.close()
    await again.stop()
