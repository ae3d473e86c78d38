import pytest
from streams_fakes import FakeStore, World, batch_of, headers_of

from millstream.streams.config.config import StreamConfig
from millstream.streams.stream import Stream

MARKER = b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 1m0s\r\nNats-Rollup: sub\r\n\r\n"


async def make(world: World, **config: object) -> Stream:
    config = {
        "name": "S",
        "subjects": ["s.>"],
        "subject_delete_marker_ttl": 60 * 10**9,
        **config,
    }
    stream, _ = await world.catalog.create(StreamConfig.from_request(config))
    return stream


def held(stream: Stream) -> list[tuple[int, bytes, bytes]]:
    found = (stream.get(seq) for seq in stream.index.seqs(stream.index.select(())))
    return [(record.seq, record.subject, record.headers) for record in found]


async def test_the_last_record_of_a_subject_leaves_a_marker_when_it_outlives_max_age():
    world = World()
    stream = await make(world, max_age=10 * 10**9)
    stream.deliver(batch_of((b"s.a", b"", b"", b"1"), (b"s.a", b"", b"", b"2")))
    world.advance(5)
    stream.deliver(batch_of((b"s.b", b"", b"", b"3")))
    world.advance(6)
    assert held(stream) == [(3, b"s.b", b""), (4, b"s.a", MARKER)]


async def test_a_record_with_a_successor_leaves_no_marker():
    world = World()
    stream = await make(world)
    ttl = headers_of(Nats_TTL="70s")
    stream.deliver(batch_of((b"s.a", b"", ttl, b"1")))
    stream.deliver(batch_of((b"s.a", b"", b"", b"2")))
    world.advance(71)
    assert held(stream) == [(2, b"s.a", b"")]


@pytest.mark.parametrize("first", ["", "never", "200s"])
async def test_a_record_that_outlives_its_successor_is_not_replaced_by_a_marker(first):
    world = World()
    stream = await make(world)
    kept = headers_of(Nats_TTL=first) if first else b""
    stream.deliver(batch_of((b"s.a", b"", kept, b"1")))
    stream.deliver(batch_of((b"s.a", b"", headers_of(Nats_TTL="70s"), b"2")))
    world.advance(71)
    assert [seq for seq, _, _ in held(stream)] == [1]
    world.advance(130)
    assert [seq for seq, _, _ in held(stream)] == ([3] if first == "200s" else [1])


async def test_records_of_a_subject_that_expire_together_leave_one_marker():
    world = World()
    stream = await make(world)
    ttl = headers_of(Nats_TTL="70s")
    stream.deliver(batch_of((b"s.a", b"", ttl, b"1"), (b"s.a", b"", ttl, b"2")))
    world.advance(71)
    assert held(stream) == [(3, b"s.a", MARKER)]


async def test_a_marker_expires_and_leaves_nothing():
    world = World()
    stream = await make(world)
    stream.deliver(batch_of((b"s.a", b"", headers_of(Nats_TTL="70s"), b"1")))
    world.advance(71)
    assert held(stream) == [(2, b"s.a", MARKER)]
    world.advance(61)
    assert held(stream) == []
    assert stream.state().last_seq == 2


@pytest.mark.parametrize(
    ("operation", "left"),
    [("PURGE", []), ("DEL", [(2, b"s.a", MARKER)]), ("PUT", [(2, b"s.a", MARKER)])],
)
@pytest.mark.parametrize("by", ["ttl", "age"])
async def test_a_purge_of_a_key_that_expires_leaves_no_marker(by, operation, left):
    world = World()
    ttl = {"Nats_TTL": "70s"} if by == "ttl" else {}
    stream = await make(world, **({"max_age": 70 * 10**9} if by == "age" else {}))
    stream.deliver(batch_of((b"s.a", b"", headers_of(KV_Operation=operation, **ttl), b"")))
    world.advance(71)
    assert held(stream) == left


async def test_a_lifetime_is_at_least_a_marker_s_unless_a_subject_holds_one_record_alone():
    world = World()
    stream = await make(world)
    stream.deliver(batch_of((b"s.a", b"", headers_of(Nats_TTL="5s", H="v"), b"1")))
    assert held(stream) == [(1, b"s.a", b"NATS/1.0\r\nH: v\r\nNats-TTL: 60\r\n\r\n")]
    world.advance(30)
    assert held(stream)[0][0] == 1
    world.advance(31)
    assert held(stream) == [(2, b"s.a", MARKER)]
    lone = await make(world, name="T", subjects=["t.>"], max_msgs_per_subject=1)
    lone.deliver(batch_of((b"t.a", b"", headers_of(Nats_TTL="5s"), b"1")))
    world.advance(6)
    assert held(lone) == [(2, b"t.a", MARKER)]


async def test_a_record_that_is_to_live_forever_outlives_max_age_and_a_restart():
    store = FakeStore()
    world = World(store)
    stream = await make(world, max_age=10 * 10**9, subject_delete_marker_ttl=0, allow_msg_ttl=True)
    never = headers_of(Nats_TTL="never")
    stream.deliver(batch_of((b"s.a", b"", never, b"1"), (b"s.b", b"", b"", b"2")))
    world.advance(11)
    assert [seq for seq, _, _ in held(stream)] == [1]
    stream.deliver(batch_of((b"s.c", b"", b"", b"3")))
    world.advance(11)
    assert [seq for seq, _, _ in held(stream)] == [1]
    again = World(store)
    again.clock.advance(60)
    again.catalog.replay(None, store.controls)
    again.advance(1)
    assert [seq for seq, _, _ in held(again.catalog.get("S"))] == [1]


@pytest.mark.parametrize(("headers", "looks"), [(b"", False), (headers_of(Nats_Msg_Id="a"), True)])
async def test_a_start_reads_records_only_where_some_have_headers(headers, looks):
    store = FakeStore()
    stream = await make(World(store), allow_msg_ttl=True)
    stream.deliver(batch_of((b"s.a", b"", headers, b"1"), (b"s.b", b"", b"", b"2")))
    stream.log.reads = 0
    World(store).catalog.replay(None, store.controls)
    assert bool(stream.log.reads) is looks
