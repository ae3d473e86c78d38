import pytest
from streams_fakes import World, headers_of, put
from streams_fakes import make_named as make

from millstream.errors import InvalidStreamConfig
from millstream.streams.config.source import identity_of
from millstream.streams.stream import Stream


def payloads(stream: Stream) -> list[bytes]:
    return [stream.get(seq).payload for seq in stream.index.seqs(stream.index.select(()))]


async def test_a_source_that_is_missing_is_named_and_followed_once_it_is_there():
    world = World()
    target = await make(world, "T", sources=[{"name": "A"}])
    (shown,) = [feed.info() for feed in target.feeds]
    assert shown == {
        "name": "A",
        "lag": 0,
        "active": -1,
        "error": {"code": 404, "err_code": 10059, "description": "stream not found"},
    }
    origin = await make(world, "A", subjects=["a.*"])
    put(origin, b"a.1", b"one")
    world.advance(1)
    assert payloads(target) == [b"one"]
    assert target.feeds[0].info() == {"name": "A", "lag": 0, "seq": 1, "active": 0}


async def test_a_stream_that_was_created_anew_is_taken_in_from_its_beginning():
    world = World()
    target = await make(world, "T", sources=[{"name": "A"}])
    for payload in (b"one", b"two"):
        put(await make(world, "A", subjects=["a.*"]), b"a.1", payload)
        world.advance(1)
        await world.catalog.delete("A")
    assert payloads(target) == [b"one", b"two"]


async def test_a_full_target_holds_its_source_up_and_loses_nothing():
    world = World()
    origin = await make(world, "A", subjects=["a.*"])
    target = await make(world, "T", sources=[{"name": "A"}], max_msgs=1, discard="new")
    put(origin, b"a.1", b"one")
    world.advance(1)
    put(origin, b"a.1", b"two")
    world.advance(1)
    assert payloads(target) == [b"one"]
    assert target.feeds[0].info()["lag"] == 1
    await target.purge()
    world.advance(2)
    assert payloads(target) == [b"two"]


async def test_demands_are_left_behind_and_a_lifetime_is_kept_where_it_is_allowed():
    world = World()
    origin = await make(world, "A", subjects=["a.*"], allow_msg_ttl=True)
    target = await make(world, "T", sources=[{"name": "A"}], allow_msg_ttl=True)
    put(origin, b"a.1", b"one", headers_of(Nats_Expected_Last_Sequence="0", H="v"))
    put(origin, b"a.1", b"two", headers_of(Nats_TTL="5s"))
    world.advance(1)
    assert target.get(1).headers == (
        b"NATS/1.0\r\nH: v\r\nNats-Stream-Source: A 1 > > a.1 %s\r\n\r\n"
        % identity_of(origin).encode()
    )
    assert payloads(target) == [b"one", b"two"]
    world.advance(6)
    assert payloads(target) == [b"one"]


async def test_an_interest_stream_keeps_for_its_source_and_a_work_queue_hands_over():
    for retention in ("interest", "workqueue"):
        world = World()
        origin = await make(world, "A", subjects=["a.*"], retention=retention)
        target = await make(world, "T", sources=[{"name": "A"}])
        target.log.hold()
        put(origin, b"a.1", b"one")
        assert origin.state().messages == 1
        target.log.commit()
        assert origin.state().messages == 0
        assert payloads(target) == [b"one"]


async def test_streams_that_would_feed_each_other_are_refused():
    world = World()
    await make(world, "A", subjects=["a.*"], sources=[{"name": "B"}])
    with pytest.raises(InvalidStreamConfig, match="detected cycle"):
        await make(world, "B", subjects=["b.*"], sources=[{"name": "A"}])
    await make(world, "C", subjects=["c.*"], sources=[{"name": "D", "filter_subject": "d.*"}])
    other = await make(
        world, "D", subjects=["d.*"], sources=[{"name": "C", "filter_subject": "c.*"}]
    )
    assert other.feeds


async def test_what_is_too_large_for_the_target_is_left_out_and_nothing_else():
    world = World()
    origin = await make(world, "A", subjects=["a.*"])
    for payload in (b"one", b"x" * 200, b"two"):
        put(origin, b"a.1", payload)
    target = await make(world, "T", sources=[{"name": "A"}], max_msg_size=150)
    world.advance(1)
    assert payloads(target) == [b"one", b"two"]


async def test_a_history_longer_than_a_capped_target_is_taken_in_as_there_is_room():
    world = World()
    origin = await make(world, "A", subjects=["a.*"])
    for payload in (b"1", b"2", b"3"):
        put(origin, b"a.1", payload)
    target = await make(world, "T", sources=[{"name": "A"}], max_msgs=2, discard="new")
    world.advance(1)
    assert payloads(target) == [b"1", b"2"]
    await target.purge()
    world.advance(2)
    assert payloads(target) == [b"3"]


async def test_a_record_that_its_origin_makes_too_large_is_left_out_and_the_next_one_comes():
    world = World()
    origin = await make(world, "A", subjects=["a.*"])
    put(origin, b"a.1", b"one")
    put(origin, b"a.1", b"two", headers_of(A="b" * 65_500))  # no room for where it came from
    put(origin, b"a.1", b"three")
    target = await make(world, "T", sources=[{"name": "A"}])
    world.advance(1)
    assert payloads(target) == [b"one", b"three"]
