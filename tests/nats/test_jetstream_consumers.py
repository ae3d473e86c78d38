"""What consumers do beyond delivering in order: filters at size, pauses, groups, pace, loss."""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from jetstream_broker import Broker, both
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

import nats
from millstream.clock import ManualClock
from millstream.message import NewRecord
from millstream.streams.config.times import rfc3339
from support.clients import flushed

NANO = 10**9


@asynccontextmanager
async def connected(
    directory: Path, clock: ManualClock | None = None, **options: str
) -> AsyncIterator[tuple[Broker, Client]]:
    broker = Broker(str(directory), clock, **options)
    client = await nats.connect(broker.start(), allow_reconnect=False)
    try:
        yield broker, client
    finally:
        await client.close()
        await broker.stop()


async def api(client: Client, subject: str, **body: Any) -> dict[str, Any]:
    data = json.dumps(body).encode() if body else b""
    reply = await client.request(f"$JS.API.{subject}", data, timeout=10)
    answer: dict[str, Any] = json.loads(reply.data)
    return answer


async def stream(client: Client, **config: Any) -> None:
    config = {"name": "S", "subjects": ["s.>"], "storage": "memory", **config}
    assert "error" not in await api(client, "STREAM.CREATE.S", **config)


async def consumer(client: Client, **config: Any) -> dict[str, Any]:
    config = {"name": "C", "ack_policy": "explicit", **config}
    answer = await api(client, "CONSUMER.CREATE.S.C", stream_name="S", config=config)
    assert "error" not in answer
    return answer


async def pull(client: Client, inbox: str, **body: Any) -> Subscription:
    waiting = await client.subscribe(inbox)
    data = json.dumps(body).encode() if body else b""
    await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", data, reply=inbox)
    await flushed(client)
    return waiting


async def take(waiting: Subscription, count: int) -> list[Msg]:
    return [await waiting.next_msg(timeout=10) for _ in range(count)]


async def is_silent(client: Client, waiting: Subscription) -> bool:
    await flushed(client)
    return waiting.pending_msgs == 0


async def test_a_filter_that_takes_one_record_in_a_hundred_is_served_at_once(tmp_path):
    async with connected(tmp_path) as (broker, client):
        await stream(client)
        kept = broker.js.catalog.get("S")
        for _ in range(10):
            spread = (NewRecord(b"s.%d.%d" % (i % 100, i % 77), b"x") for i in range(10_000))
            await kept.append(list(spread))
        info = await consumer(client, ack_policy="none", filter_subject="s.7.*")
        assert info["num_pending"] == 1000
        waiting = await pull(client, "in", batch=500, expires=2 * NANO)
        messages = await take(waiting, 500)
        assert [m.metadata.sequence.stream for m in messages[:2]] == [8, 108]
        assert [m.metadata.num_pending for m in messages] == list(range(999, 499, -1))
        assert (await api(client, "CONSUMER.INFO.S.C"))["num_pending"] == 500


async def test_pending_counts_follow_deletions_purges_and_new_records(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client)
        js = client.jetstream()
        for i in range(6):
            await js.publish(f"s.{i % 2}", b"x")
        await consumer(client, filter_subject="s.0")

        async def pending() -> int:
            return int((await api(client, "CONSUMER.INFO.S.C"))["num_pending"])

        assert await pending() == 3
        await js.delete_msg("S", 3)
        assert await pending() == 2
        await js.publish("s.0", b"x")
        await js.publish("s.1", b"x")
        assert await pending() == 3
        await js.purge_stream("S", subject="s.0", keep=1)
        assert await pending() == 1
        (message,) = await take(await pull(client, "in"), 1)
        assert (message.metadata.sequence.stream, message.metadata.num_pending) == (7, 0)


async def test_a_deleted_record_needs_no_ack_any_more(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client)
        js = client.jetstream()
        for _ in range(3):
            await js.publish("s.a", b"x")
        await consumer(client)
        await take(await pull(client, "in", batch=3, expires=NANO), 3)
        await js.delete_msg("S", 2)
        assert (await api(client, "CONSUMER.INFO.S.C"))["num_ack_pending"] == 2


async def test_waiting_requests_are_served_in_turns_one_message_each(tmp_path):
    async with connected(tmp_path) as (broker, client):
        await stream(client)
        await consumer(client)
        one = await pull(client, "one", batch=3, expires=30 * NANO)
        two = await pull(client, "two", batch=1, expires=30 * NANO)
        six = await pull(client, "six", batch=6, expires=30 * NANO)
        records = [NewRecord(b"s.a", b"%d" % i) for i in range(9)]
        await broker.js.catalog.get("S").append(records)
        assert [m.data for m in await take(one, 3)] == [b"0", b"3", b"5"]
        assert [m.data for m in await take(two, 1)] == [b"1"]
        messages = await take(six, 5)
        assert [m.data for m in messages] == [b"2", b"4", b"6", b"7", b"8"]
        assert [m.metadata.num_pending for m in messages] == [6, 4, 2, 1, 0]
        assert (await api(client, "CONSUMER.INFO.S.C"))["num_waiting"] == 1


async def test_a_paused_consumer_delivers_once_the_pause_is_over(tmp_path):
    clock = ManualClock()
    async with connected(tmp_path, clock) as (broker, client):
        await stream(client)
        await client.jetstream().publish("s.a", b"x")
        await consumer(client)
        advisories = await client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.PAUSE.S.C")
        until = "2100-01-01T00:00:00Z"
        answer = await api(client, "CONSUMER.PAUSE.S.C", pause_until=until)
        assert (answer["paused"], answer["pause_until"]) == (True, until)
        assert json.loads((await advisories.next_msg(timeout=10)).data)["paused"] is True
        waiting = await pull(client, "in")
        assert await is_silent(client, waiting)
        info = await api(client, "CONSUMER.INFO.S.C")
        assert (info["paused"], info["pause_remaining"]) == (True, answer["pause_remaining"])
        clock.advance(answer["pause_remaining"] / 1e9 + 1)
        broker.timers.run_due()
        await take(waiting, 1)
        assert "paused" not in await api(client, "CONSUMER.INFO.S.C")


async def test_a_pause_that_ends_with_nobody_waiting_leaves_nothing_to_do(tmp_path):
    clock = ManualClock()
    async with connected(tmp_path, clock) as (broker, client):
        await stream(client)
        await client.jetstream().publish("s.a", b"x")
        await consumer(client, durable_name="C")
        until = rfc3339(clock.time_ns() + 10 * NANO)
        await api(client, "CONSUMER.PAUSE.S.C", pause_until=until)
        waiting = await pull(client, "in", expires=NANO)
        clock.advance(2)
        broker.timers.run_due()
        assert (await take(waiting, 1))[0].headers["Status"] == "408"
        clock.advance(10)
        assert sum(broker.timers.run_due() for _ in range(10)) < 5


async def test_resuming_ends_a_pause(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client)
        await client.jetstream().publish("s.a", b"x")
        await consumer(client, pause_until="2100-01-01T00:00:00Z")
        waiting = await pull(client, "in")
        assert await is_silent(client, waiting)
        answer = await api(client, "CONSUMER.PAUSE.S.C")
        assert (answer["paused"], answer["pause_until"]) == (False, "0001-01-01T00:00:00Z")
        await take(waiting, 1)


async def test_an_overflow_request_is_served_only_when_there_is_much_to_do(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client)
        js = client.jetstream()
        await consumer(client, priority_policy="overflow", priority_groups=["g"])
        helper = await pull(client, "in", group="g", min_pending=3, batch=5, expires=30 * NANO)
        await js.publish("s.a", b"1")
        await js.publish("s.a", b"2")
        assert await is_silent(client, helper)
        await js.publish("s.a", b"3")
        assert [m.data for m in await take(helper, 1)] == [b"1"]


async def test_the_lowest_priority_number_is_served_first(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client)
        await consumer(client, priority_policy="prioritized", priority_groups=["g"])
        later = await pull(client, "late", group="g", priority=2, expires=30 * NANO)
        sooner = await pull(client, "soon", group="g", priority=1, expires=30 * NANO)
        js = client.jetstream()
        await js.publish("s.a", b"1")
        await js.publish("s.a", b"2")
        assert [m.data for m in await take(sooner, 1) + await take(later, 1)] == [b"1", b"2"]


async def test_a_pinned_client_gets_everything_until_it_is_unpinned(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client)
        js = client.jetstream()
        await consumer(client, priority_policy="pinned_client", priority_groups=["g"])
        one = await pull(client, "one", group="g", batch=2, expires=30 * NANO)
        two = await pull(client, "two", group="g", batch=2, expires=30 * NANO)
        await js.publish("s.a", b"1")
        await js.publish("s.a", b"2")
        messages = await take(one, 2)
        pin = messages[0].headers["Nats-Pin-Id"]
        assert messages[1].headers["Nats-Pin-Id"] == pin
        wrong = await pull(client, "wrong", group="g", id="other", expires=30 * NANO)
        assert (await take(wrong, 1))[0].headers["Status"] == "423"
        await js.publish("s.a", b"3")
        assert await is_silent(client, two)
        state = (await api(client, "CONSUMER.INFO.S.C"))["priority_groups"][0]
        assert (state["group"], state["pinned_client_id"]) == ("g", pin)
        assert "error" not in await api(client, "CONSUMER.UNPIN.S.C", group="g")
        (message,) = await take(two, 1)
        assert message.headers["Nats-Pin-Id"] != pin


async def test_a_pin_ends_when_its_holder_is_silent(tmp_path):
    clock = ManualClock()
    async with connected(tmp_path, clock) as (broker, client):
        await stream(client)
        js = client.jetstream()
        config = {"priority_policy": "pinned_client", "priority_timeout": 5 * NANO}
        await consumer(client, **config, priority_groups=["g"])
        one = await pull(client, "one", group="g", expires=60 * NANO)
        two = await pull(client, "two", group="g", expires=60 * NANO)
        await js.publish("s.a", b"1")
        await js.publish("s.a", b"2")
        await take(one, 1)
        assert await is_silent(client, two)
        clock.advance(6)
        broker.timers.run_due()
        await take(two, 1)


async def test_replaying_as_it_was_keeps_the_time_between_records(tmp_path):
    clock = ManualClock()
    async with connected(tmp_path, clock) as (broker, client):
        await stream(client)
        js = client.jetstream()
        await js.publish("s.a", b"1")
        clock.advance(10)
        await js.publish("s.a", b"2")
        await consumer(client, replay_policy="original")
        waiting = await pull(client, "in", batch=2, expires=60 * NANO)
        await take(waiting, 1)
        clock.advance(9)
        broker.timers.run_due()
        assert await is_silent(client, waiting)
        clock.advance(1.1)
        broker.timers.run_due()
        await take(waiting, 1)


async def test_a_rate_limit_spaces_deliveries(tmp_path):
    clock = ManualClock()
    async with connected(tmp_path, clock) as (broker, client):
        await stream(client)
        js = client.jetstream()
        for _ in range(2):
            await js.publish("s.a", b"x" * 1000)
        inbox = await client.subscribe("push")
        await consumer(client, deliver_subject="push", rate_limit_bps=8000)
        broker.timers.run_due()
        await take(inbox, 1)
        clock.advance(0.9)
        broker.timers.run_due()
        assert await is_silent(client, inbox)
        clock.advance(0.3)
        broker.timers.run_due()
        await take(inbox, 1)


async def test_sampled_acks_are_measured(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client)
        await client.jetstream().publish("s.a", b"x")
        await consumer(client, sample_freq="100%")
        metrics = await client.subscribe("$JS.EVENT.METRIC.CONSUMER.ACK.S.C")
        (message,) = await take(await pull(client, "in"), 1)
        await message.ack()
        metric = json.loads((await metrics.next_msg(timeout=10)).data)
        assert metric["type"] == "io.nats.jetstream.metric.v1.consumer_ack"
        assert (metric["stream_seq"], metric["deliveries"]) == (1, 1)
        assert 0 <= metric["ack_time"] < 60 * NANO


async def test_headers_only_leaves_the_payload_out_and_tells_its_size(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client)
        await client.jetstream().publish("s.a", b"12345", headers={"k": "v"})
        await consumer(client, headers_only=True)
        (message,) = await take(await pull(client, "in"), 1)
        assert (message.data, message.headers) == (b"", {"k": "v", "Nats-Msg-Size": "5"})


async def test_records_lost_to_a_limit_are_told_before_the_next_delivery(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client, max_msgs=3)
        js = client.jetstream()
        advisories = await client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.GAP.S.C")
        for i in range(3):
            await js.publish("s.a", b"%d" % i)
        await consumer(client)
        (message,) = await take(await pull(client, "in"), 1)
        assert message.headers is None
        for i in range(4):
            await js.publish("s.a", b"%d" % i)
        message, after = await take(await pull(client, "in2", batch=2, expires=NANO), 2)
        assert message.headers == {"Millstream-Gap": "2-4"}
        assert (message.metadata.sequence.stream, after.headers) == (5, None)
        told = json.loads((await advisories.next_msg(timeout=10)).data)
        assert (told["first_seq"], told["last_seq"]) == (2, 4)


async def lose_some(client: Client) -> None:
    """Deliver the first record, then lose the three behind it."""
    await stream(client, max_msgs=3, storage="file")
    js = client.jetstream()
    for i in range(3):
        await js.publish("s.a", b"%d" % i)
    await consumer(client, durable_name="C")
    await take(await pull(client, "in"), 1)
    for i in range(4):
        await js.publish("s.a", b"%d" % i)


@pytest.mark.parametrize("is_asked", [False, True], ids=["unnoticed", "noticed"])
@pytest.mark.parametrize("end", ["close", "snapshot", "crash"])
async def test_a_loss_that_was_not_told_yet_is_told_once_after_a_restart(tmp_path, end, is_asked):
    before, after = tmp_path / "before", tmp_path / "after"
    async with connected(before) as (broker, client):
        await lose_some(client)
        if is_asked:  # the consumer moves behind the loss, and that is written down
            await api(client, "CONSUMER.INFO.S.C")
        known = broker.js.consumers.get(broker.js.catalog.get("S"), "C")
        written = asyncio.Event()
        known.state.write(lambda _error: written.set(), sync=True)
        await written.wait()
        if end == "snapshot":
            broker.store.checkpoint(broker.js.parts.sections())
        if end == "crash":
            shutil.copytree(before, after)
    if end != "crash":
        shutil.copytree(before, after)
    async with connected(after) as (_, client):
        advisories = await client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.GAP.S.C")
        (message,) = await take(await pull(client, "in"), 1)
        assert message.headers == {"Millstream-Gap": "2-4"}
        await message.ack_sync(timeout=10)
        told = json.loads((await advisories.next_msg(timeout=10)).data)
        assert (told["first_seq"], told["last_seq"]) == (2, 4)
    async with connected(after) as (_, client):
        (message,) = await take(await pull(client, "in"), 1)
        assert (message.metadata.sequence.stream, message.headers) == (6, None)


async def test_a_loss_of_counted_records_of_a_filter_is_told_after_a_restart(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client, max_msgs=3, storage="file")
        js = client.jetstream()
        for subject in ("s.mine", "s.mine", "s.others"):
            await js.publish(subject, b"")
        await consumer(client, durable_name="C", filter_subject="s.mine")
        await take(await pull(client, "in"), 1)
        for _ in range(4):
            await js.publish("s.others", b"")
        await api(client, "CONSUMER.INFO.S.C")
    async with connected(tmp_path) as (_, client):
        waiting = await pull(client, "in", expires=30 * NANO)
        await client.jetstream().publish("s.mine", b"")
        (message,) = await take(waiting, 1)
        assert message.headers == {"Millstream-Gap": "2-4"}


async def test_a_loss_that_goes_on_after_a_restart_is_told_from_its_beginning(tmp_path):
    async with connected(tmp_path) as (_, client):
        await lose_some(client)
        await api(client, "CONSUMER.INFO.S.C")
    async with connected(tmp_path) as (_, client):
        await client.jetstream().publish("s.a", b"")
        (message,) = await take(await pull(client, "in"), 1)
        assert message.headers == {"Millstream-Gap": "2-5"}


async def test_what_a_filter_would_not_have_taken_is_no_loss(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client, max_msgs=3)
        js = client.jetstream()
        for _ in range(3):
            await js.publish("s.other", b"")
        await consumer(client, filter_subject="s.mine")
        assert (await api(client, "CONSUMER.INFO.S.C"))["num_pending"] == 0
        for _ in range(3):
            await js.publish("s.mine", b"")
        (message,) = await take(await pull(client, "in"), 1)
        assert message.headers is None


async def test_a_purge_is_no_loss(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client)
        js = client.jetstream()
        for _ in range(3):
            await js.publish("s.a", b"")
        await consumer(client)
        await js.purge_stream("S", seq=3)
        (message,) = await take(await pull(client, "in"), 1)
        assert (message.metadata.sequence.stream, message.headers) == (3, None)


async def test_a_reset_consumer_delivers_anew(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client)
        js = client.jetstream()
        for i in range(3):
            await js.publish("s.a", b"%d" % i)
        await consumer(client)
        first, *_ = await take(await pull(client, "in", batch=3, expires=NANO), 3)
        await first.ack_sync(timeout=10)
        assert (await api(client, "CONSUMER.RESET.S.C"))["reset_seq"] == 2
        (again,) = await take(await pull(client, "again"), 1)
        assert (again.metadata.sequence.stream, again.metadata.num_delivered) == (2, 1)
        answer = await api(client, "CONSUMER.RESET.S.C", seq=1)
        assert (answer["reset_seq"], answer["num_pending"], answer["num_ack_pending"]) == (1, 3, 0)


async def test_the_newest_of_several_subjects_come_in_one_request(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client, allow_direct=True)
        js = client.jetstream()
        for i in range(6):
            await js.publish(f"s.{i % 3}", b"%d" % i)
        inbox = await client.subscribe("in")
        for body in ({"multi_last": ["s.0", "s.2"]}, {"multi_last": ["s.>"], "up_to_seq": 4}):
            data = json.dumps(body).encode()
            await client.publish("$JS.API.DIRECT.GET.S", data, reply="in")
        await flushed(client)
        messages = await take(inbox, 3)
        assert [m.data for m in messages] == [b"3", b"5", b""]
        assert messages[0].headers["Nats-Num-Pending"] == "1"
        assert messages[2].headers["Nats-UpTo-Sequence"] == "6"
        assert [m.data for m in await take(inbox, 4)] == [b"1", b"2", b"3", b""]


async def test_streams_consumers_and_requests_are_announced(tmp_path):
    async with connected(tmp_path) as (_, client):
        events = await client.subscribe("$JS.EVENT.ADVISORY.>")
        await stream(client)
        await consumer(client)
        await api(client, "CONSUMER.DELETE.S.C")
        await api(client, "STREAM.DELETE.S")
        seen = [m.subject.removeprefix("$JS.EVENT.ADVISORY.") for m in await take(events, 8)]
        assert sorted(seen) == [
            *["API"] * 4,
            "CONSUMER.CREATED.S.C",
            "CONSUMER.DELETED.S.C",
            "STREAM.CREATED.S",
            "STREAM.DELETED.S",
        ]


async def test_the_api_answers_under_the_domain_too(tmp_path):
    async with connected(tmp_path, domain="hub") as (_, client):
        js = client.jetstream(domain="hub")
        await js.add_stream(name="S", subjects=["s"])
        await js.publish("s", b"x")
        sub = await js.pull_subscribe("s", durable="d")
        assert [m.data for m in await sub.fetch(1, timeout=10)] == [b"x"]
        assert (await js.account_info()).domain == "hub"
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("$JS.hub.API.CONSUMER.MSG.NEXT.S.nobody", b"", timeout=10)


async def test_what_others_lost_before_a_restart_is_no_loss(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client, max_msgs=3, storage="file")
        await consumer(client, durable_name="C", filter_subject="s.mine")
        await client.jetstream().publish("s.mine")
        (message,) = await take(await pull(client, "in"), 1)
        for _ in range(6):
            await client.jetstream().publish("s.others")
        (end,) = await take(await pull(client, "in2", expires=NANO // 10), 1)
        assert end.headers["Status"] == "408"
        await message.ack_sync(timeout=10)
    async with connected(tmp_path) as (_, client):
        waiting = await pull(client, "in", batch=2, expires=30 * NANO)
        await client.jetstream().publish("s.mine")
        (message,) = await take(waiting, 1)
        assert (message.metadata.sequence.stream, message.headers) == (8, None)


async def test_a_consumer_of_many_records_is_created_without_reading_them(tmp_path):
    async with connected(tmp_path) as (broker, client):
        await stream(client)
        kept = broker.js.catalog.get("S")
        for _ in range(20):
            await kept.append([NewRecord(b"s.%d" % (i % 999), b"") for i in range(10_000)])
        started = time.process_time()  # what others do with the machine is not counted
        info = await consumer(client, filter_subject="s.5")
        assert info["num_pending"] == sum(len(range(5, 10_000, 999)) for _ in range(20))
        assert time.process_time() - started < 1


async def test_a_damaged_record_is_told_to_the_consumer_and_in_the_stream_info(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client, storage="file")
        js = client.jetstream()
        for body in (b"one", b"two", b"BREAK-ME", b"four"):
            await js.publish("s.a", body)
        await consumer(client, durable_name="C")
    damage(tmp_path, b"BREAK-ME")
    async with connected(tmp_path) as (_, client):
        messages = await take(await pull(client, "in", batch=3, expires=NANO), 3)
        assert [m.metadata.sequence.stream for m in messages] == [1, 2, 4]
        assert [m.headers for m in messages] == [None, None, {"Millstream-Gap": "3-3"}]
        info = await api(client, "STREAM.INFO.S")
        assert info["state"]["lost"]["msgs"] == [3]


async def test_a_get_passes_a_damaged_record_by_when_it_finds_the_damage(tmp_path):
    async with connected(tmp_path) as (broker, client):
        await stream(client, storage="file", allow_direct=True)
        for body in (b"one", b"BREAK-ME", b"three", b"BREAK-TOO", b"five"):
            await client.jetstream().publish("s.a", body)
        log = broker.js.catalog.get("S").log
        log.segments[0].full = True
        while not log.segments[0].sealed:  # from then on reads see what the disk has
            log.flush()
            await flushed(client)
        log.segments[0].close()
        damage(tmp_path, b"BREAK-ME")
        damage(tmp_path, b"BREAK-TOO")
        found = await api(client, "STREAM.MSG.GET.S", seq=2, next_by_subj="s.*")
        assert found["message"]["seq"] == 3
        inbox = await client.subscribe("answers")
        body = json.dumps({"seq": 3, "next_by_subj": "s.*", "batch": 5}).encode()
        await client.publish("$JS.API.DIRECT.GET.S", body, reply="answers")
        assert [m.data for m in await take(inbox, 3)] == [b"three", b"five", b""]


def damage(directory: Path, text: bytes) -> None:
    """Flip a bit wherever the files hold this text."""
    found = 0
    for path in directory.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        if text in data:
            flipped = bytes([text[0] ^ 1]) + text[1:]
            path.write_bytes(data.replace(text, flipped))
            found += 1
    assert found


async def test_a_push_consumer_with_a_group_waits_for_a_member_of_the_group(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client)
        await client.jetstream().publish("s.a", b"x")
        outsider = await client.subscribe("push")
        await consumer(client, deliver_subject="push", deliver_group="workers")
        assert "push_bound" not in await api(client, "CONSUMER.INFO.S.C")
        assert await is_silent(client, outsider)
        member = await client.subscribe("push", queue="workers")
        await take(member, 1)
        assert (await api(client, "CONSUMER.INFO.S.C"))["push_bound"] is True


async def test_a_group_that_an_update_names_is_served_at_once_and_the_old_one_no_more(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client)
        old = await client.subscribe("push", queue="workers")
        await consumer(client, deliver_subject="push", deliver_group="workers")
        await client.jetstream().publish("s.a", b"1")
        await take(old, 1)
        await consumer(client, deliver_subject="push", deliver_group="others")
        await client.jetstream().publish("s.a", b"2")
        assert await is_silent(client, old)
        assert "push_bound" not in await api(client, "CONSUMER.INFO.S.C")
        await old.unsubscribe()
        new = await client.subscribe("push", queue="others")
        assert [message.data for message in await take(new, 1)] == [b"2"]


async def test_a_push_consumer_without_a_group_does_not_serve_queue_groups_alone(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client)
        await client.jetstream().publish("s.a", b"x")
        member = await client.subscribe("push", queue="workers")
        await consumer(client, deliver_subject="push")
        assert await is_silent(client, member)
        assert "push_bound" not in await api(client, "CONSUMER.INFO.S.C")
        alone = await client.subscribe("push")
        await take(alone, 1)
        await take(member, 1)


@pytest.mark.parametrize("how", ["delete", "limit"])
async def test_a_pending_record_that_is_removed_is_answered_for_and_told(tmp_path, how):
    async with connected(tmp_path) as (_, client):
        await stream(client, max_msgs=2)
        told = await client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.C")
        for body in (b"1", b"2"):
            await client.jetstream().publish("s.a", body)
        await consumer(client, ack_policy="all")
        await take(await pull(client, "in", batch=2, no_wait=True), 2)
        if how == "delete":
            await api(client, "STREAM.MSG.DELETE.S", seq=1)
        else:
            await client.jetstream().publish("s.a", b"3")
        (advisory,) = [json.loads(message.data) for message in await take(told, 1)]
        assert advisory["type"] == "io.nats.jetstream.advisory.v1.terminated"
        assert advisory["reason"] == "Unacknowledged message was deleted"
        assert (advisory["stream_seq"], advisory["consumer_seq"]) == (1, 1)
        assert advisory["deliveries"] == 1
        info = await api(client, "CONSUMER.INFO.S.C")
        assert info["ack_floor"] | {"last_active": ""} == {
            "consumer_seq": 1,
            "stream_seq": 1,
            "last_active": "",
        }
        assert info["num_ack_pending"] == 1


async def test_a_purge_tells_nobody_of_what_was_pending(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client)
        told = await client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.C")
        await client.jetstream().publish("s.a", b"1")
        await consumer(client)
        await take(await pull(client, "in", batch=1, no_wait=True), 1)
        await api(client, "STREAM.PURGE.S")
        assert (await api(client, "CONSUMER.INFO.S.C"))["num_ack_pending"] == 0
        assert await is_silent(client, told)


async def test_consumers_that_go_with_their_stream_or_by_themselves_are_told_of(tmp_path):
    async with connected(tmp_path) as (_, client):
        told = await client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.C")
        await stream(client)
        await consumer(client, inactive_threshold=NANO // 10)
        (advisory,) = [json.loads(message.data) for message in await take(told, 1)]
        assert advisory["action"] == "delete"
        await consumer(client)
        await api(client, "STREAM.DELETE.S")
        await take(told, 1)


async def test_a_pause_is_told_when_it_begins_and_when_it_ends(tmp_path):
    clock = ManualClock()
    async with connected(tmp_path, clock) as (broker, client):
        told = await client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.PAUSE.S.C")
        await stream(client)
        await consumer(client, pause_until=rfc3339(clock.time_ns() + NANO // 2))
        begun = await take(told, 1)
        clock.advance(1)
        broker.timers.run_due()
        first, second = [json.loads(message.data) for message in begun + await take(told, 1)]
        assert (first["paused"], second["paused"]) == (True, False)
        await api(client, "CONSUMER.PAUSE.S.C")
        (third,) = [json.loads(message.data) for message in await take(told, 1)]
        assert third["pause_until"] == "0001-01-01T00:00:00Z"


async def test_a_purge_moves_only_consumers_that_wanted_nothing_else(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client)
        for subject in ("s.y", "s.x.a", "s.x.c"):
            await client.jetstream().publish(subject, b"1")
        await consumer(client)
        body = {"name": "D", "ack_policy": "explicit", "filter_subjects": ["s.x.a", "s.y"]}
        await api(client, "CONSUMER.CREATE.S.D", stream_name="S", config=body)
        await take(await pull(client, "in", batch=3, no_wait=True), 3)
        await client.jetstream().publish("s.x.a", b"2")
        await api(client, "STREAM.PURGE.S", filter="s.x.*", keep=1)
        wide, other = [await api(client, f"CONSUMER.INFO.S.{name}") for name in "CD"]
        assert (wide["ack_floor"]["consumer_seq"], wide["ack_floor"]["stream_seq"]) == (3, 0)
        assert wide["num_ack_pending"] == 1
        assert other["delivered"]["stream_seq"] == 0


async def test_a_term_is_told_even_of_what_was_answered_and_names_the_delivery(tmp_path):
    async with connected(tmp_path) as (_, client):
        told = await client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.C")
        await stream(client)
        await client.jetstream().publish("s.a", b"1")
        await consumer(client)
        (message,) = await take(await pull(client, "in", batch=1, no_wait=True), 1)
        await client.publish(message.reply, b"-NAK")
        (again,) = await take(await pull(client, "again", batch=1, no_wait=True), 1)
        for _ in range(2):
            await client.request(again.reply, b"+TERM", timeout=10)
        for advisory in await take(told, 2):
            fields = json.loads(advisory.data)
            assert (fields["consumer_seq"], fields["deliveries"]) == (2, 2)


async def test_a_roll_up_moves_consumers_as_a_purge_does(tmp_path):
    async with connected(tmp_path) as (_, client):
        await stream(client, allow_rollup_hdrs=True)
        await client.jetstream().publish("s.a", b"1")
        await consumer(client, filter_subject="s.a")
        await client.jetstream().publish("s.a", b"2", headers={"Nats-Rollup": "sub"})
        info = await api(client, "CONSUMER.INFO.S.C")
        assert (info["delivered"]["stream_seq"], info["ack_floor"]["stream_seq"]) == (1, 1)
        assert info["num_pending"] == 1


async def test_a_request_that_wants_no_answer_is_carried_out(tmp_path):
    async with connected(tmp_path) as (_, client):
        told = await client.subscribe("$JS.EVENT.ADVISORY.STREAM.*.S")
        await client.publish("$JS.API.STREAM.CREATE.S", b'{"name": "S"}')
        (made,) = await take(told, 1)
        await client.publish("$JS.API.STREAM.DELETE.S")
        (gone,) = await take(told, 1)
        assert [message.subject.split(".")[-2] for message in (made, gone)] == [
            "CREATED",
            "DELETED",
        ]


async def stalling(client: Client) -> list[Any]:
    """Return how many messages came before the request, and before nothing more did."""
    await stream(client, storage="file")
    js, body = client.jetstream(), b"x" * 100_000
    for _ in range(3):
        await asyncio.gather(*[js.publish("s.a", body) for _ in range(10)])
    heard = await client.subscribe("to")
    wire = {"deliver_subject": "to", "ack_policy": "none"}
    await consumer(client, flow_control=True, idle_heartbeat=NANO // 4, **wire)
    seen, came = [], 0
    while len(seen) < 2:
        message = await heard.next_msg(timeout=5)
        if message.headers is None:
            came += 1
        elif "Nats-Consumer-Stalled" in message.headers or message.reply:
            seen.append((came, message.headers["Description"]))
    return seen


async def test_flow_control_is_asked_for_and_waited_for_at_the_same_message_as_at_the_reference(
    tmp_path,
):
    ours, theirs = await both(tmp_path, stalling)
    assert ours == theirs
    assert ours == [(11, "FlowControl Request"), (21, "Idle Heartbeat")]
