"""Records that are published again at a time, or time and again."""

from datetime import UTC, datetime

import pytest
from streams_fakes import FakeStore, World, batch_of, headers_of

from millstream.streams.config import durations
from millstream.streams.config.config import StreamConfig
from millstream.streams.config.extras import first_values
from millstream.streams.schedules.schedules import ScheduleRefused, due
from millstream.streams.stream import Stream


async def scheduled(world: World, **more: object) -> Stream:
    wire = {"name": "S", "subjects": ["s.*", "t.*"], "allow_msg_schedules": True, **more}
    stream, _ = await world.catalog.create(StreamConfig.from_request(wire))
    return stream


def put(stream: Stream, subject: bytes, payload: bytes = b"x", **headers: str) -> None:
    stream.deliver(batch_of((subject, b"", headers_of(**headers) if headers else b"", payload)))


def at(world: World, seconds: float) -> str:
    when = datetime.fromtimestamp(world.clock.time_ns() / 1e9 + seconds, UTC)
    return f"@at {when:%Y-%m-%dT%H:%M:%SZ}"


def of(stream: Stream, subject: bytes) -> list[bytes]:
    return [stream.get(seq).payload for seq in stream.index.seqs_of(subject)]


async def test_a_message_comes_at_its_time_and_its_schedule_goes():
    world = World()
    stream = await scheduled(world)
    put(stream, b"s.1", b"late", Nats_Schedule=at(world, 10), Nats_Schedule_Target="t.1", H="v")
    assert stream.get(1).headers.endswith(b"\r\nNats-Rollup: sub\r\n\r\n")
    world.advance(8)
    assert of(stream, b"t.1") == []
    world.advance(3)
    assert of(stream, b"t.1") == [b"late"]
    assert of(stream, b"s.1") == []
    assert stream.get(2).headers == (
        b"NATS/1.0\r\nH: v\r\nNats-Scheduler: s.1\r\nNats-Schedule-Next: purge\r\n\r\n"
    )
    world.advance(100)
    assert of(stream, b"t.1") == [b"late"]


async def test_a_message_comes_time_and_again_until_its_schedule_is_replaced_or_purged():
    world = World()
    stream = await scheduled(world)
    put(stream, b"s.1", b"tick", Nats_Schedule="@every 5s", Nats_Schedule_Target="t.1")
    for _ in range(12):
        world.advance(1)
    assert of(stream, b"t.1") == [b"tick", b"tick"]
    put(stream, b"s.1", b"tock", Nats_Schedule="@every 2s", Nats_Schedule_Target="t.1")
    for _ in range(5):
        world.advance(1)
    assert of(stream, b"t.1") == [b"tick", b"tick", b"tock", b"tock"]
    put(stream, b"s.2", b"end", Nats_Scheduler="s.1", Nats_Schedule_Next="purge")
    world.advance(10)
    assert of(stream, b"s.1") == []
    assert len(of(stream, b"t.1")) == 4


async def test_a_plain_message_in_the_place_of_a_schedule_ends_it():
    world = World()
    stream = await scheduled(world)
    put(stream, b"s.1", b"tick", Nats_Schedule="@every 5s", Nats_Schedule_Target="t.1")
    put(stream, b"s.1", b"plain")
    world.advance(20)
    assert of(stream, b"t.1") == []


async def test_a_schedule_that_was_deleted_brings_nothing_forth():
    world = World()
    stream = await scheduled(world)
    put(stream, b"s.1", b"late", Nats_Schedule=at(world, 10), Nats_Schedule_Target="t.1")
    await stream.delete([1])
    world.advance(20)
    assert stream.state().last_seq == 1


async def test_content_comes_from_the_source_s_newest_record_with_lifetime_and_roll_up():
    world = World()
    stream = await scheduled(world, allow_msg_ttl=True)
    asked = {
        "Nats_Schedule_Source": "s.2",
        "Nats_Schedule_TTL": "3s",
        "Nats_Schedule_Rollup": "sub",
    }
    put(
        stream, b"s.1", b"own",
        Nats_Schedule="@every 2s", Nats_Schedule_Target="t.1", **asked,
    )  # fmt: skip
    world.advance(3)
    assert of(stream, b"t.1") == [b"own"]
    put(stream, b"s.2", b"newest", H="v")
    world.advance(2)
    assert of(stream, b"t.1") == [b"newest"]
    values = first_values(stream.get(stream.index.last_seq(stream.index.select(["t.1"]))).headers)
    assert (values[b"H"], values[b"Nats-TTL"], values[b"Nats-Rollup"]) == (b"v", b"3s", b"sub")
    put(stream, b"s.3", b"end", Nats_Scheduler="s.1", Nats_Schedule_Next="purge")
    world.advance(4)
    assert of(stream, b"t.1") == []


async def test_schedules_survive_a_restart_and_what_was_missed_comes_once():
    store = FakeStore()
    world = World(store)
    stream = await scheduled(world)
    put(stream, b"s.1", b"tick", Nats_Schedule="@every 5s", Nats_Schedule_Target="t.1")
    put(stream, b"s.2", b"late", Nats_Schedule=at(world, 10), Nats_Schedule_Target="t.2")
    again = World(store)
    again.clock.advance(60)
    again.catalog.replay(None, store.controls)
    stream = again.catalog.get("S")
    again.advance(1)
    assert (of(stream, b"t.1"), of(stream, b"t.2")) == ([b"tick"], [b"late"])
    again.advance(6)
    assert of(stream, b"t.1") == [b"tick", b"tick"]


async def test_a_schedule_that_came_true_right_before_the_end_does_not_come_true_again():
    store = FakeStore()
    world = World(store)
    stream = await scheduled(world)
    put(stream, b"s.1", b"late", Nats_Schedule=at(world, 10), Nats_Schedule_Target="t.1")
    log = store.logs[stream.incarnation]
    log.delete = lambda seqs, done: 0  # type: ignore[method-assign]  # the process ends before it
    world.advance(11)
    del log.delete
    again = World(store)
    again.clock.advance(60)
    again.catalog.replay(None, store.controls)
    stream = again.catalog.get("S")
    again.advance(1)
    assert (of(stream, b"t.1"), of(stream, b"s.1")) == ([b"late"], [])


@pytest.mark.parametrize(
    ("values", "err_code"),
    [
        ({"Nats-Schedule": "@at tomorrow"}, 10189),
        ({"Nats-Schedule": "@every 500ms"}, 10189),
        ({"Nats-Schedule": "@every 5s", "Nats-Schedule-Time-Zone": "UTC"}, 10189),
        ({"Nats-Schedule": "* * * * *"}, 10189),
        ({"Nats-Schedule": "0 0 0 31 2 *"}, 10189),
        ({"Nats-Schedule": "@daily", "Nats-Schedule-Time-Zone": "Nowhere"}, 10223),
        ({"Nats-Schedule": "@daily", "Nats-Schedule-Time-Zone": ""}, 10223),
    ],
)
def test_a_time_that_is_none_is_refused(values, err_code):
    with pytest.raises(ScheduleRefused) as refused:
        due({k.encode(): v.encode() for k, v in values.items()}, 0, 0)
    assert refused.value.err_code == err_code


def test_the_next_time_is_shown_in_the_schedule_s_zone():
    found = due(
        {b"Nats-Schedule": b"@daily", b"Nats-Schedule-Time-Zone": b"Europe/Berlin"},
        1_773_144_896 * 10**9, 1_773_144_896 * 10**9,
    )  # fmt: skip
    assert found is not None
    assert found.text == "2026-03-11T00:00:00+01:00"


@pytest.mark.parametrize(
    ("set_to", "next_day"),
    [
        ("Europe/Berlin", "2026-03-11T00:00:00+01:00"),
        (":America/New_York", "2026-03-11T00:00:00-04:00"),
        ("Nowhere", "2026-03-11T00:00:00Z"),
    ],
)
def test_a_schedule_may_follow_the_zone_of_the_machine(monkeypatch, set_to, next_day):
    monkeypatch.setenv("TZ", set_to)
    found = due(
        {b"Nats-Schedule": b"@daily", b"Nats-Schedule-Time-Zone": b"Local"},
        1_773_144_896 * 10**9, 1_773_144_896 * 10**9,
    )  # fmt: skip
    assert found is not None
    assert found.text == next_day


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"5", 5), (b"1m30s", 90), (b"1.9s", 1), (b"never", 0), (b"NEVER", 0), (b"+2s", 2),
        (b"0", None), (b"0.5s", None), (b"-5s", None), (b"x", None), (b"", None),
        (b"99999999h", None), (b"9999999999999", 9999999999999), (b"9" * 20, None),
    ],
)  # fmt: skip
def test_a_lifetime_is_whole_seconds(text, seconds):
    assert durations.lifetime(text) == seconds
