from streams_fakes import World, batch_of

from millstream.streams.config.config import StreamConfig
from millstream.streams.retention.claims import Claims, RecordClaim
from millstream.streams.stream import Stream


def always_a(seq: int) -> bytes | None:
    return b"s.a" if seq < 100 else None


def test_a_record_is_free_once_the_last_holder_is_done_with_it():
    claims = Claims()
    claims.put("one", RecordClaim((), 1, ()))
    claims.put("two", RecordClaim((), 1, ()))
    assert claims.release("one", [1, 2], always_a) == []
    assert claims.release("two", [2, 3], always_a) == [2]


def test_a_holder_is_not_asked_about_subjects_and_records_that_do_not_concern_it():
    claims = Claims()
    claims.put("one", RecordClaim((), 1, ()))
    claims.put("filtered", RecordClaim(("s.b",), 1, ()))
    claims.put("late", RecordClaim((), 5, ()))
    assert claims.release("one", [4, 5], always_a) == [4]


def test_a_record_that_is_gone_is_not_free_and_leaves_no_trace():
    claims = Claims()
    first = RecordClaim((), 1, ())
    claims.put("one", first)
    claims.put("two", RecordClaim((), 1, ()))
    assert claims.release("one", [100], always_a) == []
    assert not first.done
    claims.release("one", [1, 2, 3], always_a)
    claims.forget([2])
    claims.forget_below(3)
    assert first.done == {3}


def test_new_records_that_match_no_claim_are_unwanted():
    claims = Claims()
    assert claims.unwanted([1, 2], [b"s.a", b"s.b"]) == [1, 2]
    claims.put("filtered", RecordClaim(("s.b",), 1, ()))
    assert claims.unwanted([1, 2, 3], [b"s.a", b"s.b", b"s.a"]) == [1, 3]
    claims.put("one", RecordClaim((), 2, ()))
    assert claims.unwanted([2, 3], [b"s.a", b"s.b"]) == []


async def stream_of(world: World, retention: str) -> Stream:
    config = {"name": "S", "subjects": ["s.>"], "retention": retention}
    stream, _ = await world.catalog.create(StreamConfig.from_request(config))
    return stream


async def test_interest_takes_a_sequence_and_keeps_nothing_while_nobody_needs_it():
    world = World()
    stream = await stream_of(world, "interest")
    stream.deliver(batch_of((b"s.a", b"r", b"", b"x")))
    assert world.hub.take()[0][3] == b'{"stream":"S","seq":1}'
    assert (stream.state().messages, stream.state().last_seq) == (0, 1)
    stream.removal.claims.put("c", RecordClaim((), 2, ()))
    stream.deliver(batch_of((b"s.a", b"r", b"", b"x")))
    assert stream.state().messages == 1
    stream.removal.unclaim("c")
    assert stream.state().messages == 0


async def test_one_ack_is_enough_for_a_work_queue_and_none_for_limits():
    world = World()
    stream = await stream_of(world, "workqueue")
    stream.deliver(batch_of((b"s.a", b"", b"", b"x"), (b"s.a", b"", b"", b"y")))
    stream.removal.release("c", [1])
    assert [seq for seq in (1, 2) if stream.index.is_live(seq)] == [2]
    stream.removal.unclaim("c")
    assert stream.state().messages == 1
    other = World()
    kept = await stream_of(other, "limits")
    kept.deliver(batch_of((b"s.a", b"", b"", b"x")))
    kept.removal.release("c", [1])
    assert kept.state().messages == 1
