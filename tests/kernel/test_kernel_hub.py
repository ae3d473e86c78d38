"""The hub without sockets: connections are fed and taken from."""

import os
import select
import threading
from random import Random

import pytest
from hub_recorder import Collector, Recorder
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.kernel import _frames, _hub
from millstream.kernel._batch import Batch
from millstream.kernel._interest import Interest


def test_a_publish_is_delivered_with_the_subscribers_sid() -> None:
    door = Recorder()
    a, b = door.client(), door.client()
    door.hub.feed(b, b"SUB x.* 17\r\n")
    door.hub.feed(a, b"PUB x.y 5\r\nhello\r\nPUB x.z re.ply 0\r\n\r\n")
    assert door.sent(b) == b"MSG x.y 17 5\r\nhello\r\nMSG x.z 17 re.ply 0\r\n\r\n"


def test_odd_spacing_and_case_are_normalised() -> None:
    door = Recorder()
    a = door.client()
    door.hub.feed(a, b"sub\tx \t 1\npub  x\t 2 \r\nhi\r\nhPuB x 12   14\nNATS/1.0\r\n\r\nhi\r\n")
    assert door.sent(a) == b"MSG x 1 2\r\nhi\r\nHMSG x 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"


def test_headers_are_stripped_for_a_client_that_cannot_read_them() -> None:
    door = Recorder()
    a, old = door.client(), door.client(headers=False)
    door.hub.feed(old, b"SUB x 1\r\n")
    door.hub.feed(a, b"HPUB x r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert door.sent(old) == b"MSG x 1 r 2\r\nhi\r\n"


def test_headers_from_a_client_without_them_are_refused() -> None:
    door = Recorder()
    old = door.client(headers=False)
    door.hub.feed(old, b"HPUB x 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert door.calls == [("error", old, _hub.HEADERS_NOT_SUPPORTED), ("closed", old, 4)]


def test_verbose_acknowledges_before_the_delivery() -> None:
    door = Recorder()
    a = door.client(verbose=True)
    door.hub.feed(a, b"SUB x 1\r\nPUB x 0\r\n\r\n")
    assert door.sent(a) == b"+OK\r\nMSG x 1 0\r\n\r\n"


def test_pedantic_complains_of_a_wildcard_and_delivers_all_the_same() -> None:
    door = Recorder()
    a = door.client(pedantic=True)
    door.hub.feed(a, b"SUB x.* 1\r\nPUB x.* 0\r\n\r\nPUB x.a* 0\r\n\r\n")
    assert door.sent(a) == (
        b"-ERR 'Invalid Publish Subject'\r\nMSG x.* 1 0\r\n\r\nMSG x.a* 1 0\r\n\r\n"
    )


def test_without_echo_the_publisher_hears_nothing_of_itself() -> None:
    door = Recorder()
    a = door.client(echo=False)
    door.hub.feed(a, b"SUB x 1\r\nSUB x q 2\r\nPUB x 0\r\n\r\n")
    assert door.sent(a) == b""


def test_a_requester_without_responders_gets_a_503() -> None:
    door = Recorder()
    a = door.client(no_responders=True)
    door.hub.feed(a, b"SUB inbox.* 9\r\nPUB no.body inbox.1 2\r\nhi\r\n")
    block = b"NATS/1.0 503\r\nNats-Subject: no.body\r\n\r\n"
    assert door.sent(a) == b"HMSG inbox.1 9 %d %d\r\n%s\r\n" % (len(block), len(block), block)


def test_a_503_does_not_count_towards_the_maximum_of_the_inbox() -> None:
    door = Recorder()
    a = door.client(no_responders=True)
    door.hub.feed(a, b"SUB in 9\r\nUNSUB 9 1\r\nPUB nobody in 0\r\n\r\nPUB in 2\r\nhi\r\n")
    answer, message = door.sent(a).split(b"MSG in 9 2\r\n")
    assert answer.startswith(b"HMSG in 9 38 38\r\nNATS/1.0 503")
    assert message == b"hi\r\n"
    assert door.interest.nodes() == 1


def test_the_first_ping_is_told_and_all_are_answered() -> None:
    door = Recorder()
    a = door.client()
    door.hub.feed(a, b"PING\r\nping \nPONG\r\n")
    assert door.sent(a) == b"PONG\r\nPONG\r\n"
    assert door.calls == [("ping", a), ("pong", a)]


def test_a_maximum_counts_from_the_subscription_on() -> None:
    door = Recorder()
    a = door.client()
    one = b"PUB x 1\r\n1\r\n"
    door.hub.feed(a, b"SUB x 1\r\n" + one + b"UNSUB 1 3\r\n" + 5 * one)
    assert door.sent(a) == 3 * b"MSG x 1 1\r\n1\r\n"
    assert door.interest.nodes() == 1
    door.hub.feed(a, b"SUB x 1\r\n" + one + one + b"UNSUB 1 2\r\n" + one)
    assert door.sent(a) == 2 * b"MSG x 1 1\r\n1\r\n"


def test_a_sid_in_use_keeps_its_subject() -> None:
    door = Recorder()
    a = door.client()
    door.hub.feed(a, b"SUB x 1\r\nSUB y 1\r\nPUB y 0\r\n\r\nPUB x 0\r\n\r\n")
    assert door.sent(a) == b"MSG x 1 0\r\n\r\n"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"BOGUS\r\n", _hub.UNKNOWN_OPERATION),
        (b"\r\n", _hub.UNKNOWN_OPERATION),
        (b"GET / HTTP/1.1\r\n", _hub.UNKNOWN_OPERATION),
        (b"\x16\x03\x01", _hub.UNKNOWN_OPERATION),
        (b"PUBX x 1\r\n1\r\n", _hub.UNKNOWN_OPERATION),
        (b"PUB x 1\r\n12\r\n", _hub.UNKNOWN_OPERATION),
        (b"PUB x\r\n", _hub.MALFORMED),
        (b"PUB x y z 1\r\n", _hub.MALFORMED),
        (b"PUB x -1\r\n", _hub.MALFORMED),
        (b"PUB x 1e3\r\n", _hub.MALFORMED),
        (b"HPUB x 5 4\r\n", _hub.MALFORMED),
        (b"SUB x\r\n", _hub.MALFORMED),
        (b"SUB a b c d\r\n", _hub.MALFORMED),
        (b"UNSUB \r\n", _hub.MALFORMED),
        (b"PUB x 1048577\r\n", _hub.PAYLOAD_TOO_LARGE),
        (b"HPUB x 12 1048577\r\n", _hub.PAYLOAD_TOO_LARGE),
        (b"SUB " + b"x" * 4096 + b" 1\r\n", _hub.LINE_TOO_LONG),
        (b"SUB " + b"x" * 5000, _hub.LINE_TOO_LONG),
    ],
)
def test_bad_input_is_refused_and_ends_the_connection(line: bytes, code: int) -> None:
    door = Recorder()
    a = door.client()
    door.hub.feed(a, line + b"PING\r\n")
    assert door.calls == [("error", a, code), ("closed", a, _hub.PROTOCOL_ERROR)]
    assert door.sent(a) == b"-ERR\r\n"
    assert door.hub.connections() == []


operations = st.sampled_from(
    [
        b"PUB a 3\r\nxyz\r\n",
        b"PUB a.b r 0\r\n\r\n",
        b"PUB a.b 11\r\nPUB a 0\r\n\r\n\r\n",
        b"HPUB a 12 15\r\nNATS/1.0\r\n\r\nabc\r\n",
        b"SUB a 1\r\n",
        b"SUB a.* q 2\r\n",
        b"SUB > 3\r\n",
        b"UNSUB 1\r\n",
        b"UNSUB 3 2\r\n",
        b"PING\r\n",
        b"PONG\r\n",
        b'CONNECT {"a":1}\r\n',
        b"+OK\r\n",
        b"PUB big 300\r\n" + b"z" * 300 + b"\r\n",
        b"WHAT\r\n",
    ]
)


def outcome(pieces: list[bytes]) -> tuple[object, ...]:
    door = Recorder()
    sink = Collector()
    door.interest.add_sink(b"a.>", sink)
    cid = door.client()
    for piece in pieces:
        door.hub.feed(cid, piece)
    seen = list(door.calls), door.sent(cid), sink.messages(), door.interest.nodes()
    door.hub.close()
    return seen


@settings(max_examples=150)
@given(st.lists(operations, max_size=12).map(b"".join), st.integers(0, 2**32))
def test_where_the_input_is_cut_makes_no_difference(data: bytes, seed: int) -> None:
    whole = outcome([data])
    assert outcome([data[i : i + 1] for i in range(len(data))]) == whole
    random, pieces, at = Random(seed), [], 0
    while at < len(data):
        step = random.choice([1, 2, 3, 7, 40, 200])
        pieces.append(data[at : at + step])
        at += step
    assert outcome(pieces) == whole


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_are_survived(noise: bytes, cut: int) -> None:
    outcome([b"SUB a 1\r\nPUB a " + noise[:cut], noise[cut:]])
    outcome([noise[:cut], noise[cut:]])


def test_sinks_get_one_batch_per_chunk_in_order() -> None:
    door = Recorder()
    sink, other = Collector(), Collector()
    door.interest.add_sink(b"s.>", sink)
    door.interest.add_sink(b"s.1", other)
    a = door.client()
    door.hub.feed(a, b"".join(b"PUB s.%d r.%d 1\r\n%d\r\n" % (i, i, i) for i in range(10)))
    assert [len(batch) for batch in sink.batches] == [10]
    assert sink.messages() == [(b"s.%d" % i, b"r.%d" % i, b"", b"%d" % i, a) for i in range(10)]
    assert other.messages() == [(b"s.1", b"r.1", b"", b"1", a)]


def test_a_sink_that_publishes_while_delivered_to_reaches_the_next_sink_and_clients() -> None:
    door = Recorder()
    last = Collector()

    class Echo:
        def deliver(self, batch: Batch) -> None:
            for i in range(len(batch)):
                _, reply, headers, payload, _ = batch.message(i)
                door.hub.publish(door.interest, reply, b"", headers, payload + b"!")
                door.hub.flush()

    door.interest.add_sink(b"ask", Echo())
    door.interest.add_sink(b"answer", last)
    a = door.client()
    door.hub.feed(a, b"SUB answer 4\r\nPUB ask answer 2\r\nhi\r\n")
    assert last.messages() == [(b"answer", b"", b"", b"hi!", 0)]
    assert door.sent(a) == b"MSG answer 4 3\r\nhi!\r\n"


def test_two_sinks_that_answer_each_other_for_ever_do_not_hold_the_hub() -> None:
    door = Recorder()
    rounds = []

    class Ping:
        def deliver(self, batch: Batch) -> None:
            rounds.append(len(batch))
            door.hub.publish(door.interest, b"loop", b"", b"", b"")

    door.interest.add_sink(b"loop", Ping())
    door.hub.publish(door.interest, b"loop", b"", b"", b"")
    door.hub.flush()
    assert 1 < len(rounds) <= 100
    before = len(rounds)
    door.hub.poll()
    assert len(rounds) > before


def test_a_deferred_call_comes_after_the_sinks_of_its_round_and_before_anything_is_sent() -> None:
    door = Recorder()
    a, b = door.client(), door.client()
    door.hub.feed(b, b"SUB told 1\r\n")
    order: list[str] = []

    def told() -> None:
        order.append("told")
        door.hub.publish(door.interest, b"told", b"", b"", b"")

    class Deferring:
        def deliver(self, _batch: Batch) -> None:
            order.append("sink")
            assert door.hub.defer(told)

    for _ in range(2):
        door.interest.add_sink(b"x", Deferring())
    door.hub.feed(a, b"PUB x 0\r\n\r\n")
    assert order == ["sink", "sink", "told", "told"]
    assert door.sent(b) == b"MSG told 1 0\r\n\r\n" * 2


def test_what_a_deferred_call_defers_comes_in_the_same_turn_once_the_answers_are_sent() -> None:
    door = Recorder()
    a, b = door.client(), door.client()
    door.hub.feed(b, b"SUB told 1\r\n")
    heard: list[bytes] = []

    def answer() -> None:
        door.hub.publish(door.interest, b"told", b"", b"", b"")
        assert door.hub.defer(lambda: heard.append(door.sent(b)))

    class Deferring:
        def deliver(self, _batch: Batch) -> None:
            assert door.hub.defer(answer)

    door.interest.add_sink(b"x", Deferring())
    door.hub.feed(a, b"PUB x 0\r\n\r\n")
    assert heard == [b"MSG told 1 0\r\n\r\n"]


def test_outside_of_a_round_nothing_is_deferred() -> None:
    assert not Recorder().hub.defer(lambda: None)


def test_a_failing_sink_does_not_harm_the_others(caplog: pytest.LogCaptureFixture) -> None:
    door = Recorder()
    good = Collector()

    class Bad:
        def deliver(self, batch: Batch) -> None:
            raise RuntimeError("broken sink")

    door.interest.add_sink(b"x", Bad())
    door.interest.add_sink(b"x", good)
    assert door.hub.publish(door.interest, b"x", b"", b"", b"1") == 2
    door.hub.flush()
    assert len(good.messages()) == 1
    assert "broken sink" in caplog.text


def test_a_fault_in_the_handler_ends_only_that_connection(caplog: pytest.LogCaptureFixture) -> None:
    door = Recorder()
    a, b = door.client(), door.client()

    def fail(cid: int) -> None:
        raise RuntimeError("broken handler")

    door.on_pong = fail  # type: ignore[method-assign]
    door.hub.feed(a, b"PONG\r\nPING\r\n")
    door.hub.feed(b, b"PING\r\n")
    assert ("closed", a, _hub.INTERNAL_ERROR) in door.calls
    assert door.sent(b) == b"PONG\r\n"


def test_a_removed_sink_gets_nothing_more() -> None:
    door = Recorder()
    sink = Collector()
    handle = door.interest.add_sink(b"x", sink)
    door.hub.publish(door.interest, b"x", b"", b"", b"1")
    door.interest.remove_sink(handle)
    assert door.hub.publish(door.interest, b"x", b"", b"", b"2") == 0
    door.hub.flush()
    assert sink.batches == []


def test_publish_counts_deliveries_and_shows_another_subject() -> None:
    door = Recorder()
    a, b = door.client(), door.client()
    door.hub.feed(a, b"SUB inbox 1\r\n")
    door.hub.feed(b, b"SUB inbox 2\r\n")
    sent = door.hub.publish(
        door.interest, b"inbox", b"ack", b"NATS/1.0\r\n\r\n", b"hi", shown=b"real"
    )
    door.hub.flush()
    assert sent == 2
    assert door.sent(a) == b"HMSG real 1 ack 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    assert door.hub.publish(door.interest, b"nobody", b"", b"", b"") == 0


def test_a_sink_that_passes_messages_on_sees_where_they_went_and_what_they_show() -> None:
    frames_module = pytest.importorskip("millstream.kernel._frames")
    door = Recorder()
    plain, routed = Collector(), Collector()
    door.interest.add_sink(b"inbox", plain)
    door.interest.add_sink(b"inbox", routed, routed=True)
    batch = Batch()
    batch.add(b"s.1", b"", b"NATS/1.0\r\n\r\n", b"record")
    encoded = frames_module.encode_batch(batch, 0, 1, 1, 10, 0, None, 0, True)
    frames = frames_module.Frames(encoded, [0])
    door.hub.publish(door.interest, b"inbox", b"re", b"", b"hi", shown=b"real")
    door.hub.publish_frames(door.interest, [b"inbox"], frames, 0, [b"ack"])
    door.hub.publish(door.interest, b"inbox", b"", b"", b"as it is")
    door.hub.flush()
    block = b"NATS/1.0\r\n\r\n"
    assert [each[:4] for each in plain.messages()] == [
        (b"real", b"re", b"", b"hi"),
        (b"s.1", b"ack", block, b"record"),
        (b"inbox", b"", b"", b"as it is"),
    ]
    assert [each[:4] for each in routed.messages()] == [
        (b"inbox", b"re", b"", b"hi"),
        (b"inbox", b"ack", block, b"record"),
        (b"inbox", b"", b"", b"as it is"),
    ]
    assert [tag for tag, _, _ in _extras(routed)] == [b"real", b"s.1", b""]
    assert set(_extras(plain)) == {(b"", b"", b"")}


def _extras(sink: Collector) -> list[tuple[bytes, bytes, bytes]]:
    return [batch.extras(at) for batch in sink.batches for at in range(len(batch))]


def test_acks_go_to_the_reply_subjects_of_a_batch() -> None:
    door = Recorder()
    sink = Collector()
    door.interest.add_sink(b"s", sink)
    a = door.client()
    door.hub.feed(a, b"SUB in.* 1\r\nPUB s in.a 0\r\n\r\nPUB s 0\r\n\r\nPUB s in.c 0\r\n\r\n")
    cached = door.interest.stats()["num_cache"]
    sent = door.hub.publish_acks(door.interest, sink.batches[0], 0, 3, 98, b'{"seq":', b"}")
    door.hub.flush()
    assert sent == 2
    assert door.sent(a) == b'MSG in.a 1 10\r\n{"seq":98}\r\nMSG in.c 1 11\r\n{"seq":100}\r\n'
    assert door.interest.stats()["num_cache"] == cached
    with pytest.raises(IndexError):
        door.hub.publish_acks(door.interest, sink.batches[0], 1, 3, 1, b"", b"")


def test_subjects_that_come_once_leave_the_cache_to_those_that_come_often() -> None:
    door = Recorder()
    cid = door.client()
    door.hub.feed(cid, b"SUB often 1\r\nSUB once.* 2\r\n")
    for i in range(200):
        door.hub.feed(cid, b"PUB once.%d 0\r\n\r\nPUB often 0\r\n\r\n" % i)
    stats = door.interest.stats()
    assert 1 < stats["num_cache"] < 80  # about one in eight
    assert stats["cache_hits"] > 100


def test_one_member_of_a_queue_group_gets_each_message_and_all_get_some() -> None:
    door = Recorder()
    members = [door.client() for _ in range(4)]
    for cid, pattern in zip(members, [b"w", b"w", b"*", b">"], strict=True):
        door.hub.feed(cid, b"SUB " + pattern + b" group 1\r\n")
    for _ in range(400):
        door.hub.publish(door.interest, b"w", b"", b"", b"")
    door.hub.flush()
    counts = [door.sent(cid).count(b"MSG") for cid in members]
    assert sum(counts) == 400
    assert min(counts) > 40


def test_a_paused_sink_stalls_who_publishes_into_it_until_resumed() -> None:
    door = Recorder()
    sink = Collector()
    handle = door.interest.add_sink(b"s", sink)
    a, b = door.client(), door.client()
    door.interest.pause_sink(handle, True)
    door.hub.feed(a, b"PUB s 0\r\n\r\n")
    door.hub.feed(b, b"PUB other 0\r\n\r\n")
    assert (door.hub.is_stalled(a), door.hub.is_stalled(b)) == (True, False)
    door.hub.tick()
    assert door.hub.is_stalled(a)
    door.interest.pause_sink(handle, False)
    assert not door.hub.is_stalled(a)
    assert len(sink.messages()) == 1


def test_removing_a_paused_sink_frees_its_publishers() -> None:
    door = Recorder()
    handle = door.interest.add_sink(b"s", Collector())
    a = door.client()
    door.interest.pause_sink(handle, True)
    door.hub.feed(a, b"PUB s 0\r\n\r\n")
    door.interest.remove_sink(handle)
    assert not door.hub.is_stalled(a)


def asked(door: Recorder) -> list[object]:
    return [call[2] for call in door.calls if call[0] == "may_publish"]


def test_a_guarded_connection_is_asked_once_per_allowed_subject_and_each_time_when_denied() -> None:
    door = Recorder()
    a = door.client(guarded=True, verbose=True)
    door.verdicts[b"secret"] = _hub.DENIED
    door.hub.feed(a, b"SUB > 1\r\n" + 3 * b"PUB ok 0\r\n\r\n" + 2 * b"PUB secret 0\r\n\r\n")
    assert door.sent(a) == 3 * b"+OK\r\nMSG ok 1 0\r\n\r\n"
    assert asked(door) == [b"ok", b"secret", b"secret"]


def test_a_choosy_connection_is_asked_about_reply_subjects_once_for_all_that_begin_alike() -> None:
    door = Recorder()
    a = door.client(choosy=True)
    door.verdicts |= {b"in.once.1": _hub.ALLOWED_ONCE, b"else.where": _hub.DENIED}
    replies = [b"in.box.1", b"in.box.2", b"in.once.1", b"in.once.1", b"else.where", b"in.box.x.1"]
    door.hub.feed(a, b"SUB ok 1\r\n" + b"".join(b"PUB ok %b 0\r\n\r\n" % each for each in replies))
    told = [call[2] for call in door.calls if call[0] == "may_reply"]
    assert told == [b"in.box.1", b"in.once.1", b"in.once.1", b"else.where", b"in.box.x.1"]
    heard = [line.split()[3] for line in door.sent(a).split(b"\r\n") if line.startswith(b"MSG")]
    assert heard == [each for each in replies if each != b"else.where"]


def test_a_guarded_connection_is_asked_about_schedules() -> None:
    door = Recorder()
    a, b = door.client(guarded=True), door.client()
    for headers in (b"A: b", b"Nats-Schedule: bad", b"Nats-Schedule: good"):
        block = b"NATS/1.0\r\n%b\r\n\r\n" % headers
        said = b"HPUB ok %d %d\r\n%b\r\n" % (len(block), len(block), block)
        door.hub.feed(b, said)
        door.hub.feed(a, b"SUB ok 1\r\n" + said + b"UNSUB 1\r\n")
    heard = door.sent(a)
    assert b"good" in heard
    assert b"bad" not in heard
    assert [call[1] for call in door.calls if call[0] == "may_schedule"] == [a, a]


def test_subscriptions_that_come_and_go_do_not_make_a_guarded_connection_ask_again() -> None:
    door = Recorder()
    a, b = door.client(guarded=True), door.client()
    door.hub.feed(a, b"PUB ok 0\r\n\r\n")
    door.hub.feed(b, b"SUB ok 1\r\n")
    door.hub.feed(a, b"PUB ok 0\r\n\r\n")
    assert door.sent(b) == b"MSG ok 1 0\r\n\r\n"
    assert asked(door) == [b"ok"]


def test_an_answer_for_one_message_is_asked_for_again() -> None:
    door = Recorder()
    a = door.client(guarded=True)
    door.verdicts[b"once"] = _hub.ALLOWED_ONCE
    door.hub.feed(a, b"SUB once 1\r\n" + 3 * b"PUB once 0\r\n\r\n")
    assert door.sent(a) == 3 * b"MSG once 1 0\r\n\r\n"
    assert asked(door) == 3 * [b"once"]


def test_a_guard_may_subscribe_move_or_close_while_it_is_asked() -> None:
    door = Recorder()
    other = Interest()
    a, b = door.client(guarded=True), door.client()
    seen = Collector()
    other.add_sink(b"x", seen)

    def answer(cid: int, subject: bytes) -> int:
        if subject == b"x":
            door.hub.move(cid, other)
        elif subject == b"y":
            door.hub.subscribe(b, b"y", b"", b"1")
        else:
            door.hub.close_connection(cid, 200)
        return _hub.ALLOWED

    door.may_publish = answer  # type: ignore[method-assign]
    door.hub.feed(a, b"PUB x 0\r\n\r\n")
    assert [message[0] for message in seen.messages()] == [b"x"]
    door.hub.move(a, door.interest)
    door.hub.feed(a, b"PUB y 0\r\n\r\nPUB z 0\r\n\r\nPUB y 0\r\n\r\n")
    assert door.sent(b) == b"MSG y 1 0\r\n\r\n"
    assert door.hub.connections() == [b]


@pytest.mark.parametrize("reply", [b"_R_.x", b"_GR_.x", b"$JS.ACK.S.C.1"])
def test_a_clients_reply_subject_must_not_be_one_that_servers_make_up(reply: bytes) -> None:
    door = Recorder()
    a = door.client(verbose=True)
    door.hub.feed(a, b"SUB x 1\r\nPUB x %s 0\r\n\r\nPUB x _R 0\r\n\r\n" % reply)
    assert door.sent(a) == (
        b"-ERR 'Permissions Violation for Publish with Reply of \"%s\"'\r\n"
        b"+OK\r\nMSG x 1 _R 0\r\n\r\n" % reply
    )


def test_denied_subjects_pass_a_wildcard_subscription_by() -> None:
    door = Recorder()
    a, b = door.client(), door.client()
    assert door.hub.subscribe(b, b"x.>", b"", b"1", (b"x.secret.>", b"x.*.key"))
    subjects = [b"x.a", b"x.secret.b", b"x.secret", b"x.c.key", b"x.c.keys"]
    for _ in range(2):
        door.hub.feed(a, b"".join(b"PUB %s 0\r\n\r\n" % subject for subject in subjects))
        shown = [line.split()[1] for line in door.sent(b).splitlines() if line]
        assert shown == [b"x.a", b"x.secret", b"x.c.keys"]
    assert not door.interest.has_interest(b"x.secret.b")


@pytest.mark.parametrize("queue", [b"", b"q"])
def test_a_denied_subject_is_denied_beside_one_that_is_not(queue: bytes) -> None:
    door = Recorder()
    door.hub.subscribe(door.client(), b"x.*", queue, b"1", (b"x.secret",))
    subjects = [b"x.a", b"x.secret", b"x.b", b"x.secret"]
    sent = [door.hub.publish(door.interest, subject, b"", b"", b"") for subject in subjects]
    assert sent == [1, 0, 1, 0]


def test_a_denied_member_of_a_queue_group_leaves_the_message_to_another() -> None:
    door = Recorder()
    a, b = door.client(), door.client()
    door.hub.subscribe(a, b"x.*", b"q", b"1", (b"x.secret",))
    door.hub.subscribe(b, b"x.*", b"q", b"2")
    for _ in range(20):
        door.hub.publish(door.interest, b"x.secret", b"", b"", b"")
    door.hub.flush()
    assert (door.sent(a), door.sent(b).count(b"MSG")) == (b"", 20)
    door.hub.unsubscribe(b, b"2", 0)
    assert door.hub.publish(door.interest, b"x.secret", b"", b"", b"") == 0


def test_what_is_shown_under_a_denied_subject_is_denied_too() -> None:
    door = Recorder()
    a = door.client()
    door.hub.subscribe(a, b"inbox", b"", b"1", (b"secret.>",))
    sent = [
        door.hub.publish(door.interest, b"inbox", b"", b"", b"", shown=shown)
        for shown in (b"secret.x", b"public.x")
    ]
    assert sent == [0, 1]


def test_an_illegal_denied_pattern_is_refused() -> None:
    door = Recorder()
    a = door.client()
    with pytest.raises(ValueError, match="not a subject"):
        door.hub.subscribe(a, b"x", b"", b"1", (b"a..b",))


def test_reply_subjects_delivered_to_a_tracked_connection_are_told_before_it_is_asked() -> None:
    door = Recorder()
    a, b = door.client(), door.client(guarded=True, track_replies=True)
    door.hub.feed(b, b"SUB ask 1\r\n")
    door.hub.feed(a, b"PUB ask in.1 0\r\n\r\nPUB ask 0\r\n\r\nPUB ask in.2 0\r\n\r\n")
    door.calls.clear()
    door.hub.publish(door.interest, b"ask", b"in.3", b"", b"")
    door.hub.feed(b, b"PUB in.3 0\r\n\r\n")
    assert door.calls == [("delivered_reply", b, b"in.3"), ("may_publish", b, b"in.3")]


def test_interest_ends_for_a_watcher_with_the_last_delivery_or_the_connection() -> None:
    door = Recorder()
    heard: list[bool] = []
    door.interest.watch(b"x", b"", heard.append)
    a = door.client()
    door.hub.feed(a, b"SUB x 1\r\nUNSUB 1 1\r\nPUB x 0\r\n\r\n")
    assert heard == [True, False]
    door.hub.feed(a, b"SUB x 1\r\nUNSUB 1\r\nSUB x 1\r\n")
    door.hub.close_connection(a, 200)
    assert heard == 3 * [True, False]


def test_a_fed_connection_gives_its_output_away_in_pieces() -> None:
    door = Recorder()
    a = door.client()
    door.on_output = lambda cid: None  # type: ignore[method-assign]
    door.hub.write(a, b"0123456789")
    assert (door.hub.take(a, 4), door.hub.take(a, 100), door.hub.take(a)) == (
        b"0123",
        b"456789",
        b"",
    )


def test_a_connection_moves_to_another_subject_space_before_it_subscribes() -> None:
    door = Recorder()
    other = Interest()
    a, b = door.client(), door.client()
    door.hub.feed(a, b"PUB x 0\r\n\r\n")
    door.hub.move(a, other)
    door.hub.feed(a, b"SUB x 1\r\nPUB x 0\r\n\r\n")
    door.hub.feed(b, b"PUB x 0\r\n\r\n")
    assert door.sent(a) == b"MSG x 1 0\r\n\r\n"
    with pytest.raises(ValueError, match="subscriptions"):
        door.hub.move(a, door.interest)


def test_a_connection_may_have_a_payload_limit_of_its_own() -> None:
    door = Recorder()
    a, b = door.client(max_payload=10), door.client()
    door.hub.feed(b, b"PUB x 11\r\n" + b"y" * 11 + b"\r\n")
    door.hub.feed(a, b"PUB x 10\r\n" + b"y" * 10 + b"\r\nPUB x 11\r\n")
    assert door.calls == [("error", a, _hub.PAYLOAD_TOO_LARGE), ("closed", a, _hub.PROTOCOL_ERROR)]


def test_any_connection_may_be_closed_while_output_is_handed_over() -> None:
    door = Recorder(max_pending=10_000)
    interest, sink = door.interest, Collector()
    handle = interest.add_sink(b"s", sink)
    first, second, third = door.client(), door.client(), door.client()
    interest.pause_sink(handle, True)
    for cid in (first, second, third):
        door.hub.feed(cid, b"PUB s 0\r\n\r\n")
    door.on_output = lambda cid: [  # type: ignore[method-assign]
        door.hub.close_connection(other, 200) for other in (first, second, third)
    ]
    interest.pause_sink(handle, False)
    door.hub.poll()
    assert door.hub.connections() == []


def test_feeding_a_connection_inside_its_own_callback_is_refused() -> None:
    door = Recorder()
    a = door.client()
    door.on_pong = lambda cid: door.hub.feed(cid, b"PING\r\n")  # type: ignore[method-assign]
    door.hub.feed(a, b"PONG\r\n")
    assert door.calls == [("closed", a, _hub.INTERNAL_ERROR)]


def test_a_client_whose_outbox_overflows_is_closed_and_its_memory_freed() -> None:
    door = Recorder(max_pending=10_000)
    a, slow = door.client(), door.client()
    door.hub.feed(slow, b"SUB x 1\r\n")
    door.on_output = lambda cid: None  # type: ignore[method-assign]
    for _ in range(30):
        door.hub.feed(a, b"PUB x 1000\r\n" + b"y" * 1000 + b"\r\n")
    assert ("closed", slow, _hub.SLOW_CONSUMER) in door.calls
    assert door.interest.nodes() == 1
    assert door.hub.stats()["slow_consumers"] == 1
    assert door.hub.connections() == [a]


def test_a_publisher_waits_for_a_client_that_is_nearly_full() -> None:
    door = Recorder(max_pending=10_000)
    a, slow = door.client(), door.client()
    door.hub.feed(slow, b"SUB x 1\r\n")
    take = door.on_output
    door.on_output = lambda cid: None  # type: ignore[method-assign]
    for _ in range(8):
        door.hub.feed(a, b"PUB x 1000\r\n" + b"y" * 1000 + b"\r\n")
    assert door.hub.is_stalled(a)
    assert 0 < door.hub.room(door.interest, b"x") < 5000
    take(slow)
    assert not door.hub.is_stalled(a)
    assert door.hub.room(door.interest, b"x") == 10_000
    assert [door.hub.connection_stats(cid)["stalls"] for cid in (a, slow)] == [1, 0]
    assert door.hub.stats()["stalled_clients"] == 1


def test_closing_inside_a_callback_drops_the_rest_of_the_input() -> None:
    door = Recorder()
    a, b = door.client(), door.client()
    door.hub.feed(b, b"SUB x 1\r\n")

    def hang_up(cid: int, options: bytes) -> None:
        door.hub.close_connection(cid, 200)
        door.hub.close_connection(b, 201)

    door.on_connect = hang_up  # type: ignore[method-assign]
    door.hub.feed(a, b"PUB x 0\r\n\r\nCONNECT {}\r\nPUB x 0\r\n\r\n")
    assert door.calls[-2:] == [("closed", a, 200), ("closed", b, 201)]
    assert door.sent(b) == b"MSG x 1 0\r\n\r\n"
    assert door.hub.connections() == []


def test_frames_are_sent_under_their_own_subject_with_their_reply() -> None:
    frames_module = pytest.importorskip("millstream.kernel._frames")
    door = Recorder()
    a = door.client()
    door.hub.feed(a, b"SUB inbox 1\r\n")
    batch = Batch()
    batch.add(b"s.1", b"", b"", b"one")
    batch.add(b"s.2", b"", b"NATS/1.0\r\n\r\n", b"two")
    encoded = frames_module.encode_batch(batch, 0, 2, 1, 10, 0, None, 0, True)
    frames = frames_module.Frames(encoded, [0, int.from_bytes(encoded[4:8], "little")])
    routes, replies = [b"inbox"] * 2, [b"ack.1", b"ack.2"]
    sent = door.hub.publish_frames(door.interest, routes, frames, 0, replies)
    door.hub.flush()
    assert sent == 2
    assert door.sent(a) == (
        b"MSG s.1 1 ack.1 3\r\none\r\nHMSG s.2 1 ack.2 12 15\r\nNATS/1.0\r\n\r\ntwo\r\n"
    )


def test_frames_with_several_routes_leave_in_their_own_order() -> None:
    frames_module = pytest.importorskip("millstream.kernel._frames")
    door = Recorder()
    a, b = door.client(), door.client()
    door.hub.feed(a, b"SUB one 1\r\nSUB two 2\r\n")
    door.hub.feed(b, b"SUB other 1\r\n")
    batch = Batch()
    for at in range(5):
        batch.add(b"s", b"", b"", b"%d" % at)
    encoded = frames_module.encode_batch(batch, 0, 5, 1, 10, 0, None, 0, True)
    size = int.from_bytes(encoded[4:8], "little")
    frames = frames_module.Frames(encoded, [at * size for at in range(5)])
    routes = [b"two", b"other", b"one", b"two"]
    assert door.hub.publish_frames(door.interest, routes, frames, 1, [b"r"] * 4) == 4
    door.hub.flush()
    assert door.sent(a) == (b"MSG s 2 r 1\r\n1\r\nMSG s 1 r 1\r\n3\r\nMSG s 2 r 1\r\n4\r\n")
    assert door.sent(b) == b"MSG s 1 r 1\r\n2\r\n"
    with pytest.raises(IndexError, match="no such frames"):
        door.hub.publish_frames(door.interest, routes, frames, 2, [b"r"] * 4)


def test_a_subscription_that_ends_between_two_frames_gets_the_first_alone() -> None:
    frames_module = pytest.importorskip("millstream.kernel._frames")
    door = Recorder()
    a = door.client()
    door.hub.feed(a, b"SUB inbox 1\r\nUNSUB 1 1\r\n")
    batch = Batch()
    for body in (b"1", b"2"):
        batch.add(b"s", b"", b"", body)
    encoded = frames_module.encode_batch(batch, 0, 2, 1, 10, 0, None, 0, True)
    frames = frames_module.Frames(encoded, [0, int.from_bytes(encoded[4:8], "little")])
    route = b"inbox"
    assert door.hub.publish_frames(door.interest, [route, route], frames, 0, [b"", b""]) == 1
    door.hub.flush()
    assert door.sent(a) == b"MSG s 1 1\r\n1\r\n"


def test_a_subject_is_heard_until_the_last_subscription_has_its_maximum() -> None:
    door = Recorder()
    a, b = door.client(), door.client()
    assert door.hub.heard_for(door.interest, b"x") == 0
    door.hub.feed(a, b"SUB x 1\r\nUNSUB 1 3\r\nSUB x g 2\r\nUNSUB 2 2\r\n")
    door.hub.feed(b, b"SUB x g 1\r\nUNSUB 1 3\r\n")
    assert door.hub.heard_for(door.interest, b"x") == 5
    for left in (4, 3):
        door.hub.publish(door.interest, b"x", b"", b"", b"")
        assert door.hub.heard_for(door.interest, b"x") == left
    door.hub.feed(b, b"SUB > 2\r\n")
    assert door.hub.heard_for(door.interest, b"x") > 1 << 30


def test_a_frames_extras_go_through_the_decoration_into_its_headers() -> None:
    frames_module = pytest.importorskip("millstream.kernel._frames")
    seen = []

    def decorate(headers: bytes, tag: bytes, node: bytes, meta: bytes) -> bytes:
        seen.append((headers, tag, node, meta))
        return b"NATS/1.0\r\nT: t\r\n\r\n"

    door = Recorder(decorate=decorate)
    a = door.client()
    door.hub.feed(a, b"SUB inbox 1\r\n")
    batch = Batch()
    batch.add(b"s", b"", b"", b"body", tag=b"tag", node=b"node", meta=b"{}")
    encoded = frames_module.encode_batch(batch, 0, 1, 1, 10, 0, None, 0, True)
    door.hub.publish_frames(door.interest, [b"inbox"], frames_module.Frames(encoded, [0]), 0, [b""])
    door.hub.flush()
    assert seen == [(b"", b"tag", b"node", b"{}")]
    assert door.sent(a) == b"HMSG s 1 18 22\r\nNATS/1.0\r\nT: t\r\n\r\nbody\r\n"


def test_a_call_that_another_thread_posts_is_made_in_the_next_turn_before_sinks_are_served() -> (
    None
):
    door = Recorder()
    heard: list[str] = []

    class Sink:
        def deliver(self, batch: Batch) -> None:
            heard.append("sink")

    def called() -> None:
        heard.append("posted")
        door.hub.publish(door.interest, b"x", b"", b"", b"")
        assert door.hub.defer(lambda: heard.append("deferred"))

    door.interest.add_sink(b"x", Sink())
    thread = threading.Thread(target=door.hub.post, args=(called,))
    thread.start()
    thread.join()
    assert heard == []
    assert select.select([door.hub.fd], [], [], 5)[0]  # the loop is woken for it
    door.hub.poll()
    assert heard == ["posted", "sink", "deferred"]


def test_a_posted_call_that_fails_does_not_keep_others_from_being_made() -> None:
    door = Recorder()
    heard: list[int] = []
    door.hub.post(lambda: 1 // 0)
    door.hub.post(lambda: heard.append(1))
    door.hub.poll()
    assert heard == [1]


def test_a_closed_hub_takes_no_call_and_makes_those_that_it_took() -> None:
    door = Recorder()
    heard: list[int] = []
    assert door.hub.post(lambda: heard.append(1))
    door.hub.close()
    assert heard == [1]
    assert not door.hub.post(lambda: heard.append(2))


def test_a_record_is_sent_with_headers_that_tell_what_it_is() -> None:
    door = Recorder()
    a = door.client()
    door.hub.feed(a, b"SUB inbox 1\r\n")
    batch = Batch()
    batch.add(b"s.1", b"", b"", b"one")
    batch.add(b"s.2", b"", b"NATS/1.0\r\nA: b\r\n\r\n", b"")
    encoded = _frames.encode_batch(batch, 0, 2, 1, 9, 1_500_000_000, None, 0, True)
    frames = _frames.Frames(encoded, [0, int.from_bytes(encoded[4:8], "little")])
    about = b"Nats-Stream: S\r\nNats-Subject: "
    for i in range(2):
        assert door.hub.publish_record(door.interest, b"inbox", frames, i, about) == 1
    door.hub.flush()
    told = b"Nats-Sequence: %d\r\nNats-Time-Stamp: 1970-01-01T00:00:01.5Z\r\n\r\n"
    first = b"NATS/1.0\r\n" + about + b"s.1\r\n" + told % 9
    second = b"NATS/1.0\r\nA: b\r\n" + about + b"s.2\r\n" + told % 10
    assert door.sent(a) == b"HMSG inbox 1 %d %d\r\n%sone\r\nHMSG inbox 1 %d %d\r\n%s\r\n" % (
        len(first), len(first) + 3, first, len(second), len(second), second,
    )  # fmt: skip
    with pytest.raises(IndexError):
        door.hub.publish_record(door.interest, b"inbox", frames, 2, about)


def test_a_record_that_is_told_of_shows_its_extras_as_headers_too() -> None:
    door = Recorder(decorate=lambda headers, tag, node, meta: b"NATS/1.0\r\nT: %s\r\n\r\n" % tag)
    a = door.client()
    door.hub.feed(a, b"SUB inbox 1\r\n")
    batch = Batch()
    batch.add(b"s", b"", b"", b"body", tag=b"tag")
    frames = _frames.Frames(_frames.encode_batch(batch, 0, 1, 1, 9, 0, None, 0, True), [0])
    door.hub.publish_record(door.interest, b"inbox", frames, 0, b"Nats-Subject: ")
    door.hub.flush()
    assert b"NATS/1.0\r\nT: tag\r\nNats-Subject: s\r\nNats-Sequence: 9\r\n" in door.sent(a)


def test_counters_add_up() -> None:
    door = Recorder()
    a = door.client()
    door.hub.feed(a, b"SUB x 1\r\nSUB x 2\r\nPUB x 3\r\nabc\r\n")
    stats = door.hub.connection_stats(a)
    assert (stats["in_msgs"], stats["in_bytes"], stats["out_msgs"], stats["out_bytes"]) == (
        1,
        3,
        2,
        6,
    )
    assert stats["subscriptions"] == 2


def test_a_closed_hub_holds_no_descriptor() -> None:
    before = set(os.listdir("/proc/self/fd"))
    door = Recorder()
    door.client()
    door.hub.close()
    door.hub.close()
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_client_that_asks_and_never_reads_its_answers_is_closed_as_slow() -> None:
    door = Recorder(max_pending=1_000)
    a = door.client()
    door.on_output = lambda cid: None  # type: ignore[method-assign]
    door.hub.feed(a, 200 * b"PING\r\n")
    assert ("closed", a, _hub.SLOW_CONSUMER) in door.calls
