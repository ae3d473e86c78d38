"""What a limit per subject takes is out of sight at once, and leaves the log with others."""

from streams_fakes import World, batch_of

from millstream.nats.jetstream.messages import GetRequest, find
from millstream.streams.config.config import StreamConfig
from millstream.streams.retention.removal_batch import LONGEST, MOST
from millstream.streams.stream import Stream

BUCKET = {"name": "S", "subjects": ["s.>"], "max_msgs_per_subject": 1}


async def make(world: World, **config: object) -> Stream:
    stream, _ = await world.catalog.create(StreamConfig.from_request({**BUCKET, **config}))
    return stream


def put(stream: Stream, *keys: str) -> None:
    """Store one record after another, each committed before the next."""
    for key in keys:
        stream.deliver(batch_of((f"s.{key}".encode(), b"", b"", b"value")))


async def test_what_is_above_the_limit_is_hidden_at_once_and_removed_a_moment_later():
    world = World()
    stream = await make(world)
    put(stream, "a", "b", "a", "b")
    assert stream.log.state().count == 4
    assert stream.state().messages == 2
    assert stream.state().first_seq == 3
    assert stream.contents.subject_counts() == {b"s.a": 1, b"s.b": 1}
    world.clock.advance(LONGEST)
    world.timers.run_due()
    assert stream.log.state().count == 2
    assert stream.state().messages == 2
    assert not stream.index.hidden.seqs


async def test_what_is_hidden_is_neither_found_nor_copied():
    world = World()
    stream = await make(world, max_msgs_per_subject=2)
    put(stream, "a", "b", "a", "a")
    assert stream.log.state().count == 4
    at = GetRequest(start_time="2020-01-01T00:00:00Z")
    assert find(stream, at).seq == 2
    every = {"subjects": [], "max_msgs_per_subject": -1}
    copy = await make(world, name="C", sources=[{"name": "S"}], **every)
    mirror = await make(world, name="M", mirror={"name": "S"}, **every)
    world.timers.run_due()
    assert [copy.get(seq).subject for seq in (1, 2, 3)] == [b"s.b", b"s.a", b"s.a"]
    assert copy.log.state().last_seq == 3
    assert list(mirror.index.seqs(mirror.index.select(()))) == [2, 3, 4]


async def test_only_so_many_records_wait_for_their_removal():
    world = World()
    stream = await make(world)
    put(stream, *map(str, range(MOST + 1)))
    put(stream, *map(str, range(MOST)))
    assert stream.log.state().count == 2 * MOST + 1
    put(stream, str(MOST))
    assert stream.log.state().count == MOST + 1


async def test_a_subject_that_is_written_over_and_over_keeps_few_records_waiting():
    world = World()
    stream = await make(world)
    put(stream, *["a"] * 50)
    assert stream.log.state().count <= 3
    assert stream.contents.subject_counts() == {b"s.a": 1}


async def test_a_limit_of_the_whole_stream_sees_them_gone():
    world = World()
    stream = await make(world, max_msgs=3)
    put(stream, "a", "b", "c", "a")
    assert stream.log.state().count == 3
    assert stream.state().first_seq == 2


async def test_a_purge_counts_what_is_on_its_way_out_no_more():
    world = World()
    stream = await make(world)
    put(stream, "a", "b", "a", "b", "c")
    assert await stream.purge(below=4) == 1
    assert stream.state().messages == 2


async def test_a_raised_limit_brings_nothing_back():
    world = World()
    stream = await make(world)
    put(stream, "a", "a")
    config = StreamConfig.from_request({**BUCKET, "max_msgs_per_subject": 5})
    counts: list[int] = []
    control = world.store.control

    def observed(*arguments: object, **named: object) -> None:
        counts.append(stream.log.state().count)
        control(*arguments, **named)  # type: ignore[arg-type]

    world.store.control = observed  # type: ignore[method-assign]
    await world.catalog.update(config)
    assert counts == [1]  # before the new limit is on record
    assert stream.state().messages == 1


async def test_a_closed_stream_removes_nothing_any_more():
    world = World()
    stream = await make(world)
    put(stream, "a", "a")
    stream.close()
    world.clock.advance(LONGEST)
    world.timers.run_due()
    assert stream.log.state().count == 2
