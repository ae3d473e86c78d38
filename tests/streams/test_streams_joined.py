"""Messages that arrive together and are checked one by one: as exact as if each had waited."""

import json

import pytest
from streams_fakes import World, batch_of, headers_of, make

from millstream.errors import RecordTooLarge, StorageFull
from millstream.message import NewRecord
from millstream.streams.stream import Stream


def deliver(stream: Stream, *messages: tuple[bytes, bytes, bytes]) -> None:
    """Publish (subject, headers, payload) together; the answers go to r0, r1 and so on."""
    stream.deliver(batch_of(*[(s, b"r%d" % i, h, p) for i, (s, h, p) in enumerate(messages)]))


def answers(world: World) -> dict[bytes, object]:
    """Return what each publisher heard: a sequence, or the code and text of an error."""
    heard: dict[bytes, object] = {}
    for sent in world.hub.take():
        body = json.loads(sent[3])
        error = body.get("error")
        heard[sent[0]] = body["seq"] if error is None else (error["err_code"], error["description"])
    return heard


async def test_a_bucket_without_a_limit_that_refuses_stores_what_came_together_in_one_append():
    world = World()
    stream = await make(world, max_msgs_per_subject=1, discard="new", allow_rollup_hdrs=True)
    deliver(stream, (b"s.a", b"", b"1"), (b"s.b", b"", b"2"), (b"s.a", b"", b"3"))
    assert stream.log.appends == [3]
    assert answers(world) == {b"r0": 1, b"r1": 2, b"r2": 3}
    assert stream.contents.subject_counts() == {b"s.a": 1, b"s.b": 1}
    assert stream.get(3).payload == b"3"


async def test_each_message_expects_what_the_one_before_it_left():
    world = World()
    stream = await make(world)
    stream.log.hold()
    deliver(
        stream,
        (b"s.a", headers_of(Nats_Expected_Last_Sequence="0"), b"1"),
        (b"s.b", headers_of(Nats_Expected_Last_Sequence="1"), b"2"),
        (b"s.c", headers_of(Nats_Expected_Last_Sequence="1"), b"no"),
        (b"s.c", headers_of(Nats_Expected_Last_Sequence="2"), b"3"),
    )
    assert answers(world) == {b"r2": (10071, "wrong last sequence: 2")}
    stream.log.commit()
    assert answers(world) == {b"r0": 1, b"r1": 2, b"r3": 3}
    assert stream.log.appends == [2, 1]
    assert [stream.get(seq).payload for seq in (1, 2, 3)] == [b"1", b"2", b"3"]


async def test_the_newest_of_a_subject_may_be_among_those_that_came_together():
    world = World()
    stream = await make(world)
    first = headers_of(Nats_Expected_Last_Subject_Sequence="0")
    second = headers_of(Nats_Expected_Last_Subject_Sequence="2")
    wild = {
        "Nats-Expected-Last-Subject-Sequence": "3",
        "Nats-Expected-Last-Subject-Sequence-Subject": "s.*",
    }
    block = b"NATS/1.0\r\n%s\r\n" % b"".join(
        b"%s: %s\r\n" % (k.encode(), v.encode()) for k, v in wild.items()
    )
    stream.log.hold()
    deliver(
        stream,
        (b"s.b", b"", b"1"),
        (b"s.a", first, b"2"),
        (b"s.a", first, b"no"),
        (b"s.a", second, b"3"),
        (b"s.c", block, b"4"),
    )
    assert answers(world) == {b"r2": (10071, "wrong last sequence: 2")}
    stream.log.commit()
    assert answers(world) == {b"r0": 1, b"r1": 2, b"r3": 3, b"r4": 4}


async def test_an_id_that_came_twice_together_is_stored_once_and_answered_after_the_commit():
    world = World()
    stream = await make(world)
    one, other = headers_of(Nats_Msg_Id="1"), headers_of(Nats_Msg_Id="2")
    stream.log.hold()
    deliver(stream, (b"s.a", one, b"1"), (b"s.a", other, b"2"), (b"s.a", one, b"again"))
    assert answers(world) == {}
    stream.log.commit()
    assert answers(world) == {b"r0": 1, b"r1": 2, b"r2": 1}
    assert stream.state().messages == 2


async def test_the_last_message_id_is_that_of_the_message_before():
    world = World()
    stream = await make(world)
    deliver(
        stream,
        (b"s.a", headers_of(Nats_Msg_Id="1"), b"1"),
        (b"s.a", headers_of(Nats_Expected_Last_Msg_Id="1"), b"2"),
        (b"s.a", headers_of(Nats_Expected_Last_Msg_Id="1"), b"no"),
    )
    assert answers(world) == {b"r0": 1, b"r1": 2, b"r2": (10070, "wrong last msg ID: ")}


async def test_ids_of_messages_that_the_log_refused_are_free_again():
    world = World()
    stream = await make(world)
    message = (b"s.a", headers_of(Nats_Msg_Id="1"), b"1")
    append = stream.log.append

    def refuse(*_: object) -> int:
        raise StorageFull("no space left")

    stream.log.append = refuse
    deliver(stream, message)
    stream.log.append = append
    deliver(stream, message)
    assert answers(world) == {b"r0": 1}
    assert stream.state().messages == 1


async def test_discard_new_counts_messages_and_bytes_of_what_came_together():
    world = World()
    stream = await make(world, discard="new", max_msgs=2)
    stream.log.hold()
    deliver(stream, *[(b"s.%d" % i, b"", b"x") for i in range(4)])
    full = (10077, "maximum messages exceeded")
    assert answers(world) == {b"r2": full, b"r3": full}
    stream.log.commit()
    assert answers(world) == {b"r0": 1, b"r1": 2}
    assert stream.log.appends == [2]

    stream = await make(world, name="B", subjects=["b.>"], discard="new", max_bytes=3 * 44)
    stream.log.hold()
    deliver(stream, *[(b"b.%d" % i, b"", b"x" * 11) for i in range(4)])  # 30 more of each
    assert answers(world) == {b"r3": (10077, "maximum bytes exceeded")}


async def test_discard_new_per_subject_counts_what_came_together():
    world = World()
    stream = await make(world, discard="new", discard_new_per_subject=True, max_msgs_per_subject=1)
    stream.log.hold()
    deliver(stream, (b"s.a", b"", b"1"), (b"s.b", b"", b"2"), (b"s.a", b"", b"no"))
    assert answers(world) == {b"r2": (10077, "maximum messages per subject exceeded")}
    deliver(stream, (b"s.b", b"", b"no"))
    assert answers(world) == {b"r0": (10077, "maximum messages per subject exceeded")}


async def test_a_rollup_among_others_takes_only_what_came_before_it():
    world = World()
    stream = await make(world, allow_rollup_hdrs=True)
    deliver(
        stream,
        (b"s.a", b"", b"1"),
        (b"s.b", b"", b"2"),
        (b"s.a", headers_of(Nats_Rollup="sub"), b"3"),
        (b"s.a", b"", b"4"),
    )
    assert stream.log.appends == [4]
    assert list(stream.index.seqs(stream.index.select(()))) == [2, 3, 4]


async def test_a_message_that_is_stored_otherwise_than_it_came_keeps_its_place():
    world = World()
    stream = await make(world)
    tagged = b"NATS/1.0\r\nMillstream-Tag: t\r\n\r\n"
    one = headers_of(Nats_Msg_Id="1")
    deliver(stream, (b"s.a", one, b"1"), (b"s.a", tagged, b"2"), (b"s.a", b"", b"3"))
    assert answers(world) == {b"r0": 1, b"r1": 2, b"r2": 3}
    assert [stream.get(seq).payload for seq in (1, 2, 3)] == [b"1", b"2", b"3"]
    assert stream.get(2).tag == b"t"


async def test_what_a_full_bucket_has_replaced_makes_room_before_its_removal_is_logged():
    world = World()
    stream = await make(world, discard="new", max_msgs=3, max_msgs_per_subject=1, max_bytes=3 * 34)
    logged: list[object] = []

    def delete(seqs: list[int], done: object, *_: object) -> int:
        logged.append(done)
        return len(seqs)

    stream.log.delete = delete
    deliver(stream, (b"s.a", b"", b"1"), (b"s.b", b"", b"2"))
    deliver(stream, (b"s.a", b"", b"3"))
    assert (len(logged), stream.log.state().count) == (1, 3)
    world.hub.take()
    deliver(stream, (b"s.c", b"", b"4"), (b"s.d", b"", b"no"))
    assert answers(world) == {b"r0": 4, b"r1": (10077, "maximum messages exceeded")}


LARGE = b"NATS/1.0\r\nA: " + b"b" * 70_000 + b"\r\n\r\n"
TOO_LARGE = (10097, "header size exceeds maximum allowed of 64k")


async def test_headers_above_64_kib_are_refused_without_those_that_arrived_beside_them():
    world = World()
    stream = await make(world)
    deliver(stream, (b"s.a", b"", b"1"), (b"s.a", LARGE, b"no"), (b"s.a", b"", b"2"))
    assert answers(world) == {b"r0": 1, b"r1": TOO_LARGE, b"r2": 2}
    assert [stream.get(seq).payload for seq in (1, 2)] == [b"1", b"2"]


async def test_headers_above_64_kib_are_refused_where_each_message_is_looked_at_too():
    world = World()
    stream = await make(world, allow_msg_ttl=True)
    ttl = headers_of(Nats_TTL="1h")
    deliver(stream, (b"s.a", ttl, b"1"), (b"s.a", LARGE, b"no"), (b"s.a", ttl, b"2"))
    assert answers(world) == {b"r0": 1, b"r1": TOO_LARGE, b"r2": 2}


async def test_a_header_that_the_server_adds_cannot_make_the_others_fail():
    world = World()
    stream = await make(world, allow_msg_schedules=True, allow_rollup_hdrs=True)
    schedule = headers_of(
        Nats_Schedule="@at 2100-01-01T00:00:00Z", Nats_Schedule_Target="s.b", A="b" * 65_400
    )
    schedule = schedule.replace(b"A: ", b"A: " + b"b" * (65_535 - len(schedule)))
    deliver(stream, (b"s.a", b"", b"1"), (b"s.s", schedule, b"no"), (b"s.a", b"", b"2"))
    assert answers(world) == {b"r0": 1, b"r1": TOO_LARGE, b"r2": 2}


async def test_a_node_that_is_too_long_is_refused_without_those_that_arrived_beside_it():
    world = World()
    stream = await make(world)
    long = headers_of(Millstream_Node="n" * 256)
    deliver(stream, (b"s.a", b"", b"1"), (b"s.a", long, b"no"), (b"s.a", b"", b"2"))
    refusal = (10003, "Millstream-Node holds at most 255 bytes")
    assert answers(world) == {b"r0": 1, b"r1": refusal, b"r2": 2}


async def test_a_subject_that_a_transform_makes_too_long_is_refused_alone():
    world = World()
    twenty = ".".join(["{{wildcard(1)}}"] * 20)
    transform = {"src": "s.*", "dest": f"t.{twenty}"}
    stream = await make(world, subject_transform=transform)
    deliver(stream, (b"s.a", b"", b"1"), (b"s." + b"b" * 4000, b"", b"no"), (b"s.c", b"", b"2"))
    refusal = (10003, "subject, reply, tag and node hold at most 65535 bytes")
    assert answers(world) == {b"r0": 1, b"r1": refusal, b"r2": 2}


async def test_records_that_nobody_can_store_are_refused_and_leave_nothing_in_flight():
    world = World()
    stream = await make(world)
    with pytest.raises(RecordTooLarge):
        await stream.append([NewRecord(b"s.a", b"1"), NewRecord(b"s.a", b"2", meta=b"m" * 65_536)])
    deliver(stream, (b"s.a", headers_of(Nats_Expected_Last_Sequence="0"), b"1"))
    assert answers(world) == {b"r0": 1}
