"""A stream that nobody uses has no parts, and those that it gets know all that it knew."""

import gc

import pytest
from streams_fakes import World

from millstream.message import NewRecord
from millstream.streams.config.config import StreamConfig
from millstream.streams.sleepers import TICKS
from millstream.streams.stream import Stream
from millstream.streams.stream_parts import StreamParts
from millstream.streams.writing.writes import Writes


async def made(world: World, **config: object) -> Stream:
    stream, _ = await world.catalog.create(StreamConfig(name="S", subjects=("s.>",), **config))  # type: ignore[arg-type]
    return stream


async def test_a_stream_falls_asleep_once_nobody_uses_it_and_wakes_when_somebody_does() -> None:
    world = World()
    stream = await made(world)
    await stream.append([NewRecord(subject=b"s.a", payload=b"1")])
    seen = stream.state()
    assert not stream.sleep()  # used since the last round
    assert stream.sleep()
    assert stream.is_asleep
    assert stream.state() == seen
    assert stream.is_asleep  # a look at it wakes nobody
    assert stream.get(1).payload == b"1"
    assert not stream.is_asleep
    assert await stream.append([NewRecord(subject=b"s.a", payload=b"2")]) == (2, 2)


async def test_streams_made_again_at_a_start_sleep_until_they_are_used() -> None:
    world = World()
    for at in range(20):
        config = StreamConfig(name=f"S{at}", subjects=(f"s{at}",))
        stream, _ = await world.catalog.create(config)
        await stream.append([NewRecord(subject=b"s", payload=b"1")])
    gc.collect()
    before = sum(isinstance(each, StreamParts | Writes) for each in gc.get_objects())
    for _ in range(3 * TICKS):
        world.catalog.tick()
    gc.collect()
    after = sum(isinstance(each, StreamParts | Writes) for each in gc.get_objects())
    assert before - after == 2 * 20
    assert all(stream.is_asleep for stream in world.catalog.everything())


@pytest.mark.parametrize(
    "config",
    [{"max_age": 10**12}, {"max_msgs": 9}, {"retention": "interest"}, {"allow_msg_ttl": True}],
)
async def test_a_stream_to_which_something_happens_by_itself_stays_awake(
    config: dict[str, object],
) -> None:
    stream = await made(World(), **config)
    assert not stream.sleep()
    assert not stream.sleep()


async def test_a_stream_stays_awake_for_whoever_watches_or_remembers() -> None:
    world = World()
    stream = await made(world)
    undo = stream.watch(lambda: None)
    assert not stream.sleep()
    assert not stream.sleep()
    undo()
    assert stream.sleep()
    stream.pin()
    stream.sleep()
    assert not stream.sleep()


async def test_a_message_id_is_known_as_long_as_its_window() -> None:
    world = World()
    stream = await made(world, duplicate_window=10**9)
    stream.writes.window.add(b"id", 1, world.clock.time_ns())
    stream.sleep()
    assert not stream.sleep()
    world.clock.advance(2)
    assert stream.sleep()
