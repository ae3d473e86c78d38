"""Dead letters of consumers: what is given up or terminated is kept elsewhere, and comes back."""

import asyncio
import contextlib
import json
import random
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StreamConfig
from nats.js.errors import APIError, NotFoundError

from millstream.cli import main
from support.broker import millstream
from support.clients import mortal_client
from support.peers import Peer
from support.scale import count

JOBS, KILLS = count(300, 5000), count(2, 20)
ACK_WAIT = 0.2


async def made(
    client: Client, to: str = "DEAD", retention: str = RetentionPolicy.LIMITS, **terms: Any
) -> Any:
    js = client.jetstream()
    await js.add_stream(StreamConfig(name="S", subjects=["s.>"], retention=retention))
    config = ConsumerConfig(
        durable_name="c",
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ACK_WAIT,
        metadata={"millstream.dead_letter": to},
        **terms,
    )
    await js.add_consumer("S", config)
    return await js.pull_subscribe_bind("c", stream="S")


async def taken(sub: Any, most: int = 10) -> list[Msg]:
    try:
        return list(await sub.fetch(most, timeout=0.5))
    except TimeoutError:
        return []


async def letter(client: Client, seq: int, stream: str = "DEAD") -> Any:
    js = client.jetstream()
    for _ in range(200):
        with contextlib.suppress(NotFoundError):
            return await js.get_msg(stream, seq)
        await asyncio.sleep(0.05)
    raise AssertionError(f"no letter {seq} in {stream}")


async def zero(look: Callable[[], Awaitable[int]]) -> None:
    """Wait until nothing is left."""
    for _ in range(600):
        if not await look():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("something is left")


async def _unanswered(sub: Any) -> int:
    return int((await sub.consumer_info()).num_ack_pending)


async def _left(js: Any) -> int:
    return int((await js.stream_info("S")).state.messages)


async def test_a_record_that_is_given_up_is_kept_with_its_reason_and_comes_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with millstream() as peer:
        url = f"http://{peer.host}:{peer.http_port}"
        async with mortal_client(peer) as client:
            sub, js = await made(client, max_deliver=2), client.jetstream()
            await js.publish("s.a", b"one", headers={"Own": "kept"})
            for _ in range(2):
                (message,) = await taken(sub)
                await message.nak()
            found = await letter(client, 1)
            assert (found.data, found.subject) == (b"one", "DEAD")
            told = {k: v for k, v in found.headers.items() if not k.startswith("Millstream-Meta")}
            assert told == {
                "Own": "kept",
                "Millstream-Dead-Letter-Reason": "max_deliver",
                "Millstream-Dead-Letter-Deliveries": "2",
                "Millstream-Dead-Letter-Stream": "S",
                "Millstream-Dead-Letter-Seq": "1",
                "Millstream-Dead-Letter-Consumer": "c",
                "Millstream-Dead-Letter-Subject": "s.a",
            }
            info = await sub.consumer_info()
            assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, 1)
            assert await dlq("ls", url=url) == 0
            assert capsys.readouterr().out == "DEAD   1   from S (c)\n"
            for name in ("S", "DEAD"):
                assert await dlq("ls", name, url=url) == 0
                assert "S (c)   max_deliver, 2 tries" in capsys.readouterr().out
            assert await dlq("ls", "S", "--json", url=url) == 0
            shown = json.loads(capsys.readouterr().out)
            assert (shown["consumer"], shown["reason"], shown["tries"]) == ("c", "max_deliver", "2")
            assert await dlq("replay", "S", url=url) == 0
            assert capsys.readouterr().out == "1 → S\n"
            (again,) = await taken(sub)
            assert (again.subject, again.data, again.headers) == ("s.a", b"one", {"Own": "kept"})
            assert again.metadata.num_delivered == 1
            await again.ack_sync()
            assert await dlq("replay", "S", url=url) == 0
            assert capsys.readouterr().out == "S has no dead letters\n"


async def dlq(*words: str, url: str) -> int:
    return await asyncio.to_thread(main.run, ["dlq", *words, "--http-url", url])


async def test_a_terminated_record_is_confirmed_once_its_letter_is_kept() -> None:
    with millstream() as peer:
        async with mortal_client(peer) as client:
            sub, js = await made(client, retention=RetentionPolicy.WORK_QUEUE), client.jetstream()
            await js.publish("s.a", b"one")
            (message,) = await taken(sub)
            assert message.reply
            answer = await client.request(message.reply, b"+TERM no such customer", timeout=5)
            assert answer.data == b""
            found = await letter(client, 1)
            assert found.headers["Millstream-Dead-Letter-Reason"] == "terminated: no such customer"
            assert (await js.stream_info("S")).state.messages == 0  # it moved


async def test_letters_go_to_a_subject_of_a_stream() -> None:
    with millstream() as peer:
        async with mortal_client(peer) as client:
            js = client.jetstream()
            await js.add_stream(StreamConfig(name="GIVEN-UP", subjects=["dead.*"]))
            sub = await made(client, "dead.billing", max_deliver=1)
            await js.publish("s.a", b"one")
            (message,) = await taken(sub)
            await message.nak()
            assert (await letter(client, 1, "GIVEN-UP")).subject == "dead.billing"


async def test_a_letter_that_cannot_be_kept_keeps_its_record_pending() -> None:
    with millstream() as peer:
        async with mortal_client(peer) as client:
            js = client.jetstream()
            full = StreamConfig(name="DEAD", subjects=["d"], max_msgs=1, discard="new")
            await js.add_stream(full)
            await js.publish("d", b"in the way")
            sub = await made(client, max_deliver=1)
            await js.publish("s.a", b"one")
            (message,) = await taken(sub)
            await message.nak()
            assert await taken(sub) == []
            assert (await sub.consumer_info()).num_ack_pending == 1
            await js.purge_stream("DEAD")
            assert (await letter(client, 2)).data == b"one"
            await zero(lambda: _unanswered(sub))


async def test_places_that_could_not_be_are_refused() -> None:
    with millstream() as peer:
        async with mortal_client(peer) as client:
            with pytest.raises(APIError, match="must name another stream"):
                await made(client, "S")
            with pytest.raises(APIError, match="is no stream or subject"):
                await made(client, "dead.*")
            config = ConsumerConfig(
                durable_name="c",
                ack_policy=AckPolicy.NONE,
                metadata={"millstream.dead_letter": "D"},
            )
            with pytest.raises(APIError, match="requires acks"):
                await client.jetstream().add_consumer("S", config)


async def worker(peer: Peer, stop: asyncio.Event) -> None:
    with contextlib.suppress(Exception):
        async with mortal_client(peer) as client:
            sub = await client.jetstream().pull_subscribe_bind("c", stream="S")
            while not stop.is_set():
                for message in await taken(sub, 20):
                    number = int(message.data)
                    if number % 3 == 0:
                        await message.ack()
                    elif number % 3 == 1:
                        await message.term()
                    else:
                        await message.nak()


@pytest.mark.timeout(count(120, 3600))
async def test_nothing_is_lost_on_its_way_to_the_letters_when_the_server_dies(
    tmp_path: Path,
) -> None:
    for life in range(KILLS + 1):
        with millstream(data_dir=tmp_path / "data") as peer:
            async with mortal_client(peer) as client:
                js = client.jetstream()
                if life == 0:
                    await made(client, retention=RetentionPolicy.WORK_QUEUE, max_deliver=3)
                    await asyncio.gather(*[js.publish("s.x", b"%d" % n) for n in range(JOBS)])
                stop = asyncio.Event()
                tasks = [asyncio.create_task(worker(peer, stop)) for _ in range(8)]
                if life < KILLS:
                    await asyncio.sleep(random.uniform(0.1, 0.4))
                    peer.process.send_signal(signal.SIGKILL)
                else:
                    await zero(partial(_left, js))
                    found = await numbers(client)
                stop.set()
                await asyncio.gather(*tasks)
    wanted = {n for n in range(JOBS) if n % 3}
    print(f"{len(wanted)} given up or terminated, {len(found)} letters, {KILLS} kills")
    assert set(found) >= wanted
    assert {n for n in found if n % 3 == 0} == set()


async def numbers(client: Client) -> list[int]:
    js = client.jetstream()
    state = (await js.stream_info("DEAD")).state
    return [
        int((await js.get_msg("DEAD", seq)).data or b"0")
        for seq in range(state.first_seq, state.last_seq + 1)
    ]
