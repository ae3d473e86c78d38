import json

import pytest
from streams_fakes import World, batch_of, headers_of, make

from millstream.errors import RecordTooLarge, StorageFull
from millstream.message import NewRecord
from millstream.streams.config.config import StreamConfig
from millstream.streams.refusals import AccountLimit, StreamFull, StreamSealed
from millstream.streams.retention.claims import RecordClaim
from millstream.streams.stream import Stream
from millstream.streams.writing import writes as writes_module


def publish(stream: Stream, subject: bytes, payload: bytes = b"x", headers: bytes = b"") -> None:
    stream.deliver(batch_of((subject, b"r", headers, payload)))


def answers(world: World) -> list[dict]:
    return [json.loads(sent[3]) for sent in world.hub.take()]


def error_of(world: World) -> tuple[int, int, str]:
    (answer,) = answers(world)
    assert (answer["stream"], answer["seq"]) == ("S", 0)
    error = answer["error"]
    return error["code"], error["err_code"], error["description"]


async def test_a_batch_without_demands_goes_to_the_log_in_one_call_and_is_acked_after_commit():
    world = World()
    stream = await make(world)
    stream.log.hold()
    stream.deliver(batch_of(*[(b"s.a", b"r%d" % i, b"", b"x") for i in range(3)]))
    assert stream.log.appends == [3]
    assert world.hub.take() == []
    stream.log.commit()
    assert [(s[0], s[3]) for s in world.hub.take()] == [
        (b"r0", b'{"stream":"S","seq":1}'),
        (b"r1", b'{"stream":"S","seq":2}'),
        (b"r2", b'{"stream":"S","seq":3}'),
    ]
    assert world.hub.flushes == 1


async def test_neither_plain_headers_nor_demands_leave_the_bulk_path_or_change_the_order():
    world = World()
    stream = await make(world)
    plain = headers_of(A="b")
    stream.deliver(batch_of((b"s.a", b"", plain, b"1"), (b"s.a", b"", plain, b"2")))
    assert stream.log.appends == [2]
    demand = headers_of(Nats_Msg_Id="7")
    stream.deliver(
        batch_of(
            (b"s.a", b"", plain, b"3"),
            (b"s.a", b"", b"", b"4"),
            (b"s.a", b"", demand, b"5"),
            (b"s.a", b"", b"", b"6"),
        )
    )
    assert stream.log.appends == [2, 4]
    assert [stream.get(seq).payload for seq in range(1, 7)] == [b"1", b"2", b"3", b"4", b"5", b"6"]


async def test_a_failed_commit_answers_every_publisher_with_the_error():
    world = World()
    stream = await make(world)
    stream.log.hold()
    publish(stream, b"s.a", headers=headers_of(Nats_Msg_Id="1"))
    stream.log.commit(StorageFull("no space left"))
    assert error_of(world) == (503, 10077, "no space left")
    publish(stream, b"s.a", headers=headers_of(Nats_Msg_Id="1"))
    assert answers(world) == [{"stream": "S", "seq": 2}]  # the id was forgotten


async def test_a_duplicate_is_answered_with_the_first_sequence_once_that_is_committed():
    world = World()
    stream = await make(world)
    stream.log.hold()
    for _ in range(2):
        publish(stream, b"s.a", headers=headers_of(Nats_Msg_Id="1"))
    assert answers(world) == []
    stream.log.commit()
    assert answers(world) == [
        {"stream": "S", "seq": 1},
        {"stream": "S", "seq": 1, "duplicate": True},
    ]
    world.advance(121)
    publish(stream, b"s.a", headers=headers_of(Nats_Msg_Id="1"))
    assert answers(world) == [{"stream": "S", "seq": 2}]


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"Nats_Expected_Stream": "Q"}, (400, 10060, "expected stream does not match")),
        ({"Nats_Expected_Last_Sequence": "9"}, (400, 10071, "wrong last sequence: 1")),
        ({"Nats_Expected_Last_Sequence": "zz"}, (400, 10071, "wrong last sequence: 1")),
        ({"Nats_Expected_Last_Msg_Id": "9"}, (400, 10070, "wrong last msg ID: 1")),
        ({"Nats_Expected_Last_Subject_Sequence": "9"}, (400, 10071, "wrong last sequence: 1")),
        ({"Nats_Rollup": "sub"}, (500, 10111, "rollup not permitted")),
        ({"Nats_TTL": "5s"}, (400, 10166, "per-message TTL is disabled")),
        ({"Nats_Incr": "+5"}, (400, 10168, "message counters is disabled")),
        ({"Nats_Batch_Id": "5"}, (400, 10174, "atomic publish is disabled")),
    ],
)
async def test_an_unmet_demand_is_refused_as_the_reference_does(headers, error):
    world = World()
    stream = await make(world)
    publish(stream, b"s.a", headers=headers_of(Nats_Msg_Id="1"))
    world.hub.take()
    publish(stream, b"s.a", headers=headers_of(**headers))
    assert error_of(world) == error
    assert stream.state().last_seq == 1


async def test_expected_subject_sequence_sees_writes_that_are_not_committed_yet():
    world = World()
    stream = await make(world)
    stream.log.hold()
    stream.deliver(batch_of((b"s.a", b"", b"", b"1"), (b"s.b", b"", b"", b"2")))
    publish(stream, b"s.a", headers=headers_of(Nats_Expected_Last_Subject_Sequence="0"))
    assert error_of(world) == (400, 10071, "wrong last sequence: 1")
    publish(stream, b"s.a", headers=headers_of(Nats_Expected_Last_Subject_Sequence="1"))
    stream.log.commit()
    assert answers(world) == [{"stream": "S", "seq": 3}]


async def test_discard_new_refuses_when_full_but_lets_a_crowded_subject_roll():
    world = World()
    stream = await make(world, discard="new", max_msgs=3, max_msgs_per_subject=2)
    for subject in (b"s.a", b"s.a", b"s.a", b"s.b"):
        publish(stream, subject)
    assert [a["seq"] for a in answers(world)] == [1, 2, 3, 4]
    publish(stream, b"s.c")
    assert error_of(world) == (503, 10077, "maximum messages exceeded")
    assert stream.contents.subject_counts() == {b"s.a": 2, b"s.b": 1}


async def test_discard_old_keeps_the_newest_and_calls_the_loss_involuntary():
    world = World()
    stream = await make(world, max_msgs=2)
    stream.deliver(batch_of(*[(b"s.a", b"", b"", b"%d" % i) for i in range(5)]))
    state = stream.state()
    assert (state.messages, state.first_seq, state.last_seq, state.evict_floor) == (2, 4, 5, 3)


async def test_max_bytes_drops_whole_records_until_the_rest_fits():
    world = World()
    stream = await make(world, max_bytes=100)
    stream.deliver(batch_of(*[(b"s.a", b"", b"", b"x" * 10) for _ in range(5)]))
    assert (stream.state().messages, stream.state().bytes) == (2, 86)


async def test_records_older_than_max_age_go_when_their_time_comes():
    world = World()
    stream = await make(world, max_age=10**9)
    publish(stream, b"s.a")
    world.advance(0.6)
    publish(stream, b"s.a")
    world.advance(0.5)
    assert stream.state().first_seq == 2
    world.advance(0.6)
    assert (stream.state().messages, stream.state().first_seq) == (0, 3)


async def test_a_message_larger_than_the_limit_is_refused_and_its_neighbours_are_stored():
    world = World()
    stream = await make(world, max_msg_size=5)
    stream.deliver(
        batch_of(
            (b"s.a", b"", b"", b"12345"), (b"s.a", b"r", b"", b"123456"), (b"s.a", b"", b"", b"1")
        )
    )
    assert error_of(world) == (400, 10054, "message size exceeds maximum allowed")
    assert stream.state().messages == 2


async def test_a_record_with_a_ttl_of_its_own_is_removed_after_it():
    world = World()
    stream = await make(world, allow_msg_ttl=True)
    publish(stream, b"s.a", headers=headers_of(Nats_TTL="2s"))
    publish(stream, b"s.b")
    world.advance(2.1)
    assert stream.contents.subject_counts() == {b"s.b": 1}


async def test_a_rollup_replaces_the_history_of_its_subject():
    world = World()
    stream = await make(world, allow_rollup_hdrs=True)
    for subject in (b"s.a", b"s.b", b"s.a"):
        publish(stream, subject)
    publish(stream, b"s.a", headers=headers_of(Nats_Rollup="sub"))
    assert list(stream.index.seqs(stream.index.select(()))) == [2, 4]
    publish(stream, b"s.*", headers=headers_of(Nats_Rollup="sub"))
    assert list(stream.index.seqs(stream.index.select(()))) == [5]
    publish(stream, b"s.a", headers=headers_of(Nats_Rollup="all"))
    assert list(stream.index.seqs(stream.index.select(()))) == [6]


async def test_appended_records_are_whole_or_absent_and_return_their_sequences():
    world = World()
    stream = await make(world, discard="new", max_msgs=3)
    record = NewRecord(b"", b"{}", tag=b"t", node=b"n", meta=b"{}")
    assert await stream.append([record, record]) == (1, 2)
    stored = stream.get(1)
    assert (stored.subject, stored.tag, stored.node, stored.meta) == (b"S", b"t", b"n", b"{}")
    with pytest.raises(StreamFull) as full:
        await stream.append([record, record])
    assert full.value.detail == {
        "topic": "S",
        "cap_records": 3,
        "cap_bytes": 0,
        "head_seq": 2,
        "earliest_seq": 1,
    }
    with pytest.raises(RecordTooLarge):
        await stream.append([record] * 4)
    assert stream.state().messages == 2


async def test_appended_records_and_fast_batches_keep_to_the_room_of_the_account():
    world = World(most_bytes=100)
    stream = await make(world, allow_batched=True)
    record = NewRecord(b"", b"x" * 30)
    with pytest.raises(AccountLimit) as refused:
        await stream.append([record, record])
    assert (refused.value.err_code, stream.state().messages) == (10002, 0)
    assert await stream.append([record]) == (1, 1)
    stream.deliver(batch_of((b"s.a", b"p.id.1.fail.1.0.$FI", b"", b"x" * 90)))
    assert b"10002" in b"".join(sent[3] for sent in world.hub.take())
    assert stream.state().messages == 1


async def test_extras_sent_as_headers_are_stored_as_tag_node_and_meta():
    world = World()
    stream = await make(world)
    headers = headers_of(Millstream_Tag="a%0Ab", Millstream_Meta='{"k":1}', Other="1")
    publish(stream, b"s.a", headers=headers)
    record = stream.get(1)
    assert (record.tag, record.node, record.meta) == (b"a\nb", b"", b'{"k":1}')
    assert record.headers == headers_of(Other="1")


async def test_publishers_are_stalled_above_the_backlog_and_read_again_below_it(monkeypatch):
    monkeypatch.setattr(writes_module, "BACKLOG_BYTES", 100)
    world = World()
    stream = await make(world)
    stream.log.hold()
    publish(stream, b"s.a", b"x" * 200)
    assert len(world.interest.paused) == 1
    stream.log.commit()
    assert world.interest.paused == set()


async def test_a_flooded_stream_puts_a_few_mebibytes_before_its_neighbours_and_stalls_alone():
    world = World()
    stream = await make(world)
    await world.catalog.create(StreamConfig.from_request({"name": "OTHER"}))
    stream.log.hold()
    sent = 0
    while not world.interest.paused and sent < 64:
        publish(stream, b"s.a", b"x" * (1 << 20))
        sent += 1
    assert sent <= 5  # at most what a disk takes in a twentieth of a second
    assert [world.interest.sinks[handle][0] for handle in world.interest.paused] == [b"s.>"]
    stream.log.commit()
    assert world.interest.paused == set()


async def test_publishers_wait_while_the_disk_is_behind_with_all_streams_together(monkeypatch):
    monkeypatch.setattr(writes_module, "BACKLOG_BYTES", 100)
    world = World()
    stream = await make(world)
    await world.catalog.create(StreamConfig.from_request({"name": "OTHER"}))
    await world.catalog.create(StreamConfig.from_request({"name": "RAM", "storage": "memory"}))
    world.catalog.hold_publishers(True)
    waiting = {world.interest.sinks[handle][0] for handle in world.interest.paused}
    assert waiting == {b"s.>", b"OTHER"}  # nothing in memory waits for the disk
    stream.log.hold()
    publish(stream, b"s.a", b"x" * 200)
    world.catalog.hold_publishers(False)
    assert [world.interest.sinks[handle][0] for handle in world.interest.paused] == [b"s.>"]
    stream.log.commit()
    assert world.interest.paused == set()


async def test_watchers_hear_of_commits_until_they_leave():
    world = World()
    stream = await make(world)
    heard = []
    undo = stream.watch(lambda: heard.append(stream.state().last_seq))
    publish(stream, b"s.a")
    undo()
    publish(stream, b"s.a")
    assert heard == [1]
    assert stream.state().last_seq == 2


async def test_a_watcher_that_fails_keeps_no_other_from_hearing_of_a_commit():
    world = World()
    stream = await make(world)
    heard = []

    def fails() -> None:
        raise ValueError("bad")

    stream.watch(fails)
    stream.watch(lambda: heard.append(stream.state().last_seq))
    with pytest.raises(ValueError, match="bad"):
        publish(stream, b"s.a")
    assert heard == [1]


async def test_purge_removes_by_filter_sequence_and_count():
    world = World()
    stream = await make(world)
    for i in range(6):
        publish(stream, b"s.%d" % (i % 2))
    assert await stream.purge(subject="s.0", keep=1) == 2
    assert await stream.purge(below=5) == 2
    assert list(stream.index.seqs(stream.index.select(()))) == [5, 6]
    assert await stream.purge() == 2
    assert (stream.state().first_seq, stream.state().last_seq) == (7, 6)


async def test_a_sealed_stream_takes_nothing_and_loses_nothing():
    world = World()
    stream = await make(world)
    publish(stream, b"s.a")
    sealed = StreamConfig.from_request({"name": "S", "subjects": ["s.>"], "sealed": True})
    await world.catalog.update(sealed)
    world.hub.take()
    publish(stream, b"s.a")
    assert error_of(world) == (400, 10109, "invalid operation on sealed stream")
    for operation in (stream.purge(), stream.delete([1]), stream.append([NewRecord(b"", b"1")])):
        with pytest.raises(StreamSealed):
            await operation


async def test_what_nobody_waits_for_needs_neither_room_nor_a_lifetime():
    world = World()
    limits = {"discard": "new", "max_msgs": 1, "allow_msg_ttl": True}
    stream = await make(world, retention="interest", **limits)
    stream.removal.claims.put("holder", RecordClaim(("s.a",), 1, ()))
    publish(stream, b"s.a")
    publish(stream, b"s.b")
    publish(stream, b"s.b", headers=headers_of(Nats_TTL="bad"))
    assert answers(world) == [{"stream": "S", "seq": seq} for seq in (1, 2, 3)]
    assert (stream.state().messages, stream.get(1).subject) == (1, b"s.a")
    publish(stream, b"s.a")
    assert error_of(world) == (503, 10077, "maximum messages exceeded")
    publish(stream, b"s.a", headers=headers_of(Nats_TTL="bad"))
    assert error_of(world) == (400, 10165, "invalid per-message TTL")


async def test_a_full_server_refuses_even_what_nobody_waits_for():
    world = World(most_in_all=0)
    held = await make(world, name="HELD", subjects=("held",))
    publish(held, b"held")
    answers(world)
    stream = await make(world, retention="interest", discard="new", max_msgs=1)
    publish(stream, b"s.a")
    assert error_of(world) == (503, 10023, "insufficient resources")


async def test_an_account_without_room_takes_what_nobody_waits_for():
    world = World(most_bytes=0)
    stream = await make(world, retention="interest")
    publish(stream, b"s.a")
    assert answers(world) == [{"stream": "S", "seq": 1}]
    stream.removal.claims.put("holder", RecordClaim((), 1, ()))
    publish(stream, b"s.a")
    assert error_of(world) == (400, 10002, "resource limits exceeded for account")


async def test_what_nobody_waits_for_is_not_published_again():
    world = World()
    stream = await make(world, retention="interest", republish={"dest": "again.>"})
    stream.removal.claims.put("holder", RecordClaim(("s.a",), 1, ()))
    publish(stream, b"s.a")
    publish(stream, b"s.b")
    assert [sent[0] for sent in world.hub.take()] == [b"again.s.a", b"r", b"r"]
