"""Streams in memory alone, over a restart: their sequences go on, what is lost is said."""

from pathlib import Path

from jetstream_broker import Broker
from nats.js.api import StorageType

import nats


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
