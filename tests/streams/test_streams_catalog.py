import pytest
from streams_fakes import FakeStore, World

from millstream.errors import InvalidStreamConfig, StreamExists, StreamNotFound, SubjectsOverlap
from millstream.streams.config.config import StreamConfig


def config(name: str, **more: object) -> StreamConfig:
    return StreamConfig.from_request({"name": name, **more})


def names(world: World) -> list[str]:
    return [stream.name for stream in world.catalog.streams()]


def reopened(world: World, section: bytes | None = None, skip: int = 0) -> World:
    again = World(world.store)
    again.catalog.replay(section, world.store.controls[skip:])
    again.catalog.capture()
    return again


async def test_creating_is_synced_captures_and_repeats_without_harm():
    world = World()
    stream, created = await world.catalog.create(config("S", subjects=["a.*", "b"]))
    assert created
    assert world.store.synced == [True]
    assert world.interest.patterns() == [b"a.*", b"b"]
    again, created = await world.catalog.create(config("S", subjects=["a.*", "b"]))
    assert (again, created) == (stream, False)
    with pytest.raises(StreamExists):
        await world.catalog.create(config("S", subjects=["b"]))


async def test_two_streams_never_capture_the_same_subject():
    world = World()
    await world.catalog.create(config("S", subjects=["a.*"]))
    with pytest.raises(SubjectsOverlap):
        await world.catalog.create(config("T", subjects=["a.b"]))
    await world.catalog.create(config("T", subjects=["b"]))
    with pytest.raises(SubjectsOverlap):
        await world.catalog.update(config("T", subjects=["a.>"]))


async def test_a_name_that_was_deleted_and_made_anew_replays_to_the_new_stream():
    world = World()
    first, _ = await world.catalog.create(config("S", description="old"))
    await world.catalog.delete("S")
    second, _ = await world.catalog.create(config("S", description="new"))
    assert second.incarnation > first.incarnation
    again = reopened(world)
    assert again.catalog.get("S").incarnation == second.incarnation
    assert again.catalog.get("S").config == second.config
    assert again.interest.patterns() == [b"S"]
    third, _ = await again.catalog.create(config("T"))
    assert third.incarnation > second.incarnation


async def test_a_snapshot_and_repeated_control_frames_give_the_same_catalog():
    world = World()
    await world.catalog.create(config("A"))
    await world.catalog.create(config("B"))
    await world.catalog.delete("A")
    section = world.catalog.section()()
    await world.catalog.create(config("C"))
    for skip in (0, 2, 3):
        again = reopened(world, section, skip)
        assert names(again) == ["B", "C"]


async def test_a_missing_stream_names_the_closest_one():
    world = World()
    await world.catalog.create(config("ORDERS"))
    with pytest.raises(StreamNotFound) as missing:
        world.catalog.get("ORDER")
    assert missing.value.detail == {"topic": "ORDER", "did_you_mean": "ORDERS"}


async def test_what_a_living_stream_cannot_become_is_refused():
    world = World()
    await world.catalog.create(config("S", deny_delete=True))
    for change in ({"storage": "memory"}, {"deny_delete": False}):
        with pytest.raises(InvalidStreamConfig):
            await world.catalog.update(config("S", **{"deny_delete": True, **change}))


async def test_a_failed_commit_creates_nothing():
    class Failing(FakeStore):
        def control(self, kind, log_id, body, done, sync=True):
            done(InvalidStreamConfig("disk on fire"))

    world = World(Failing())
    with pytest.raises(InvalidStreamConfig, match="disk on fire"):
        await world.catalog.create(config("S"))
    assert names(world) == []
