import json

import pytest
from streams_fakes import World, batch_of, headers_of

from millstream.message import NewRecord
from millstream.streams.config.config import StreamConfig
from millstream.streams.publishing import atomic_batch
from millstream.streams.publishing.atomic_batch import AtomicBatches, BatchPart
from millstream.streams.stream import Stream
from millstream.streams.writing.preconditions import PublishRefused


def part(batch_id: str, position: int, commit: str = "", size: int = 1) -> BatchPart:
    values = {
        b"Nats-Batch-Id": batch_id.encode(),
        b"Nats-Batch-Sequence": b"%d" % position,
        b"Nats-Batch-Commit": commit.encode(),
    }
    return BatchPart(b"s.a", b"", b"x" * size, values)


def test_batches_of_several_publishers_do_not_mix():
    batches = AtomicBatches()
    assert batches.take(part("a", 1), 0) is None
    assert batches.take(part("b", 1), 0) is None
    whole = batches.take(part("a", 2, "1"), 0)
    assert whole == [part("a", 1), part("a", 2, "1")]
    assert len(batches) == 1


def test_a_batch_nobody_goes_on_with_is_forgotten():
    batches = AtomicBatches()
    batches.take(part("a", 1), 0)
    batches.take(part("a", 2), 9 * 10**9)
    assert batches.idle_at == 19 * 10**9
    assert batches.expire(18 * 10**9) == []
    assert batches.expire(19 * 10**9) == [b"a"]
    assert batches.idle_at is None
    with pytest.raises(PublishRefused, match="incomplete"):
        batches.take(part("a", 3, "1"), 20 * 10**9)


def test_open_batches_are_bounded_in_number_and_size(monkeypatch: pytest.MonkeyPatch):
    batches = AtomicBatches()
    for number in range(50):
        batches.take(part(str(number), 1), 0)
    with pytest.raises(PublishRefused) as refused:
        batches.take(part("more", 1), 0)
    assert (refused.value.status, refused.value.err_code) == (429, 10210)
    monkeypatch.setattr(atomic_batch, "MOST_BYTES", 1000)
    with pytest.raises(PublishRefused) as refused:
        batches.take(part("0", 2, size=900), 0)
    assert refused.value.err_code == 10210
    assert len(batches) == 49


async def make(world: World, **config: object) -> Stream:
    wire = {"name": "S", "subjects": ["s.>"], **config}
    stream, _ = await world.catalog.create(StreamConfig.from_request(wire))
    return stream


def publish(stream: Stream, subject: bytes, payload: bytes = b"", **headers: str) -> None:
    stream.deliver(batch_of((subject, b"r", headers_of(**headers), payload)))


async def test_a_batch_goes_to_the_log_in_one_call_and_nothing_before_its_commit():
    world = World()
    stream = await make(world, allow_atomic=True)
    for position in ("1", "2"):
        publish(stream, b"s.a", Nats_Batch_Id="x", Nats_Batch_Sequence=position)
    assert stream.log.appends == []
    assert [sent[3] for sent in world.hub.take()] == [b"", b""]
    publish(stream, b"s.b", Nats_Batch_Id="x", Nats_Batch_Sequence="3", Nats_Batch_Commit="1")
    assert stream.log.appends == [3]
    (ack,) = world.hub.take()
    assert json.loads(ack[3]) == {"stream": "S", "seq": 3, "batch": "x", "count": 3}


async def test_a_batch_with_an_unmet_demand_leaves_nothing_behind():
    world = World()
    stream = await make(world, allow_atomic=True)
    publish(stream, b"s.a", Nats_Batch_Id="x", Nats_Batch_Sequence="1")
    publish(
        stream, b"s.b", Nats_Batch_Id="x", Nats_Batch_Sequence="2", Nats_Batch_Commit="1",
        Nats_Expected_Last_Sequence="7",
    )  # fmt: skip
    assert json.loads(world.hub.take()[-1][3])["error"]["description"] == "wrong last sequence: 1"
    assert stream.state().last_seq == 0


async def test_a_counter_adds_to_what_is_staged_and_not_committed_yet():
    world = World()
    stream = await make(world, allow_msg_counter=True)
    publish(stream, b"s.a", Nats_Incr="1")
    stream.log.hold()
    for _ in range(2):
        publish(stream, b"s.a", Nats_Incr="+2")
    stream.log.commit()
    shown = [json.loads(sent[3]) for sent in world.hub.take()]
    assert [one["val"] for one in shown] == ["1", "3", "5"]
    assert stream.get(3).payload == b'{"val":"5"}'


async def test_a_counter_takes_no_record_that_is_no_count():
    world = World()
    stream = await make(world, allow_msg_counter=True)
    with pytest.raises(PublishRefused, match="increment is missing"):
        await stream.append([NewRecord(b"s.a", b"x")])
