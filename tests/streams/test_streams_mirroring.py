"""Mirrors: another stream's records under the same sequences and times."""

from datetime import UTC, datetime

import pytest
from streams_fakes import FakeStore, World, headers_of, put
from streams_fakes import make_named as make

from millstream.errors import InvalidStreamConfig
from millstream.message import NewRecord
from millstream.streams.config.config import StreamConfig
from millstream.streams.config.feature_rules import FeatureRefused
from millstream.streams.refusals import MirrorWritten
from millstream.streams.stream import Stream


def held(stream: Stream) -> list[tuple[int, bytes, bytes]]:
    found = stream.index.seqs(stream.index.select(()))
    return [(seq, stream.get(seq).subject, stream.get(seq).payload) for seq in found]


async def origin_with_a_hole(world: World) -> Stream:
    origin = await make(world, "O", subjects=["o.*"])
    for at in range(1, 7):
        put(origin, b"o.%d" % (at % 3), b"m%d" % at)
        world.advance(1)
    await origin.delete([3])
    await origin.purge(below=2)
    return origin


async def test_a_mirror_holds_its_origin_s_history_under_the_same_sequences_and_times():
    world = World()
    origin = await origin_with_a_hole(world)
    mirror = await make(world, "M", mirror={"name": "O"})
    world.advance(1)
    assert held(mirror) == held(origin)
    assert [mirror.get(seq).ts_ns for seq in (2, 6)] == [origin.get(seq).ts_ns for seq in (2, 6)]
    assert (mirror.state().first_seq, mirror.state().num_deleted) == (2, 1)
    put(origin, b"o.1", b"later")
    world.advance(1)
    assert held(mirror)[-1] == (7, b"o.1", b"later")


async def test_a_mirror_starts_at_a_sequence():
    world = World()
    await origin_with_a_hole(world)
    mirror = await make(world, "M", mirror={"name": "O", "opt_start_seq": 4})
    world.advance(1)
    assert [seq for seq, _, _ in held(mirror)] == [4, 5, 6]


async def test_a_mirror_that_starts_behind_the_end_of_its_origin_waits_for_that_sequence():
    world = World()
    origin = await origin_with_a_hole(world)
    mirror = await make(world, "M", mirror={"name": "O", "opt_start_seq": 9})
    world.advance(1)
    assert (mirror.state().first_seq, mirror.state().last_seq) == (9, 8)
    for text in (b"7", b"8", b"9", b"10"):
        put(origin, b"o.1", text)
        world.advance(1)
    assert [(seq, text) for seq, _, text in held(mirror)] == [(9, b"9"), (10, b"10")]


async def test_a_mirror_starts_at_a_time():
    world = World()
    origin = await origin_with_a_hole(world)
    start = datetime.fromtimestamp(origin.get(5).ts_ns // 10**9, UTC)
    text = f"{start:%Y-%m-%dT%H:%M:%SZ}"
    mirror = await make(world, "M", mirror={"name": "O", "opt_start_time": text})
    world.advance(1)
    assert [seq for seq, _, _ in held(mirror)] == [5, 6]


async def test_what_the_origin_removes_later_stays_in_the_mirror():
    world = World()
    origin = await make(world, "O", subjects=["o.*"])
    mirror = await make(world, "M", mirror={"name": "O"})
    for payload in (b"one", b"two"):
        put(origin, b"o.1", payload)
    world.advance(1)
    await origin.delete([1])
    await origin.purge()
    world.advance(1)
    assert [payload for _, _, payload in held(mirror)] == [b"one", b"two"]


async def test_a_mirror_of_a_mirror_holds_the_same():
    world = World()
    origin = await make(world, "O", subjects=["o.*"])
    await make(world, "M", mirror={"name": "O"})
    second = await make(world, "MM", mirror={"name": "M"})
    put(origin, b"o.1", b"one")
    world.advance(1)
    assert held(second) == [(1, b"o.1", b"one")]


async def test_an_origin_that_is_missing_is_named_and_followed_once_it_is_there():
    world = World()
    mirror = await make(world, "M", mirror={"name": "O"})
    (shown,) = [feed.info() for feed in mirror.feeds]
    assert shown == {
        "name": "O",
        "lag": 0,
        "active": -1,
        "error": {"code": 404, "err_code": 10059, "description": "stream not found"},
    }
    origin = await make(world, "O", subjects=["o.*"])
    put(origin, b"o.1", b"one")
    world.advance(1)
    assert held(mirror) == [(1, b"o.1", b"one")]
    assert mirror.feeds[0].info() == {"name": "O", "lag": 0, "active": 0}


async def test_an_origin_created_anew_is_mirrored_from_where_the_mirror_is():
    world = World()
    origin = await make(world, "O", subjects=["o.*"])
    mirror = await make(world, "M", mirror={"name": "O"})
    for _ in range(2):
        put(origin, b"o.1", b"old")
    world.advance(1)
    await world.catalog.delete("O")
    origin = await make(world, "O", subjects=["o.*"])
    for at in range(4):
        put(origin, b"o.1", b"new%d" % at)
    world.advance(1)
    assert [payload for _, _, payload in held(mirror)] == [b"old", b"old", b"new2", b"new3"]


async def test_a_mirror_goes_on_where_it_was_after_a_restart():
    store = FakeStore()
    world = World(store)
    origin = await make(world, "O", subjects=["o.*"])
    await make(world, "M", mirror={"name": "O"})
    put(origin, b"o.1", b"one")
    world.advance(1)
    again = World(store)
    again.catalog.replay(None, store.controls)
    put(again.catalog.get("O"), b"o.1", b"two")
    again.catalog.capture()
    again.advance(1)
    assert [payload for _, _, payload in held(again.catalog.get("M"))] == [b"one", b"two"]


async def test_a_mirror_is_written_by_nobody_but_its_origin():
    world = World()
    mirror = await make(world, "M", mirror={"name": "O"})
    assert world.interest.patterns() == []
    with pytest.raises(MirrorWritten):
        await mirror.append([NewRecord(payload=b"x", subject=b"m")])


async def test_a_mirror_is_promoted_by_an_update_without_it():
    world = World()
    origin = await make(world, "O", subjects=["o.*"])
    mirror = await make(world, "M", mirror={"name": "O"})
    put(origin, b"o.1", b"one", headers_of(Nats_Msg_Id="a"))
    world.advance(1)
    config = StreamConfig.from_request({"name": "M", "subjects": ["m.*"]}, mirror.config)
    await world.catalog.update(config)
    put(origin, b"o.1", b"two")
    put(mirror, b"m.1", b"mine")
    put(mirror, b"m.1", b"again", headers_of(Nats_Msg_Id="a"))
    world.advance(1)
    assert mirror.feeds == []
    assert [payload for _, _, payload in held(mirror)] == [b"one", b"mine"]


async def test_a_mirror_keeps_another_origin_or_filter_only_by_being_made_anew():
    world = World()
    mirror = await make(world, "M", mirror={"name": "O"})
    for changed in ({"name": "P"}, {"name": "O", "filter_subject": "a"}):
        config = StreamConfig.from_request({"name": "M", "mirror": changed}, mirror.config)
        with pytest.raises(FeatureRefused) as refused:
            await world.catalog.update(config)
        assert refused.value.err_code == 10055
    plain = await make(world, "P", subjects=["p"])
    config = StreamConfig.from_request({"name": "P", "mirror": {"name": "O"}}, plain.config)
    with pytest.raises(FeatureRefused) as refused:
        await world.catalog.update(config)
    assert refused.value.err_code == 10055


async def test_mirrors_and_sources_that_lead_back_are_refused():
    world = World()
    with pytest.raises(InvalidStreamConfig, match="detected cycle"):
        await make(world, "M", mirror={"name": "M"})
    await make(world, "A", mirror={"name": "B"})
    with pytest.raises(InvalidStreamConfig, match="detected cycle"):
        await make(world, "B", mirror={"name": "A"})
    with pytest.raises(InvalidStreamConfig, match="detected cycle"):
        await make(world, "B", sources=[{"name": "A"}])


async def test_a_mirror_answers_direct_gets_as_its_origin_does():
    world = World()
    await make(world, "O", subjects=["o.*"], allow_direct=True)
    assert (await make(world, "M", mirror={"name": "O"})).config.mirror_direct
    assert not (await make(world, "N", mirror={"name": "M"})).config.mirror_direct


async def test_a_lifetime_counts_from_the_origin_s_time():
    world = World()
    origin = await make(world, "O", subjects=["o.*"], allow_msg_ttl=True)
    put(origin, b"o.1", b"short", headers_of(Nats_TTL="10s"))
    world.advance(6)
    mirror = await make(world, "M", mirror={"name": "O"}, allow_msg_ttl=True)
    world.advance(3)
    assert len(held(mirror)) == 1
    world.advance(2)
    assert held(mirror) == []


async def test_a_mirror_that_may_hold_less_than_its_origin_is_refused():
    world = World()
    await make(world, "O", subjects=["o.*"], max_msg_size=100)
    with pytest.raises(FeatureRefused) as refused:
        await make(world, "M", mirror={"name": "O"}, max_msg_size=10)
    assert refused.value.err_code == 10030


async def test_expectations_of_publishers_are_left_behind():
    world = World()
    origin = await make(world, "O", subjects=["o.*"])
    mirror = await make(world, "M", mirror={"name": "O"})
    put(origin, b"o.1", b"one", headers_of(Nats_Expected_Last_Sequence="0", H="v"))
    put(origin, b"o.1", b"two", headers_of(Nats_Expected_Last_Sequence="1"))
    world.advance(1)
    assert [mirror.get(seq).headers for seq in (1, 2)] == [b"NATS/1.0\r\nH: v\r\n\r\n", b""]
