import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers import acks
from millstream.consumers.config import ConsumerConfig
from millstream.consumers.pull import requests
from millstream.consumers.pull.requests import BadPull, WaitingLine


def parse(body: bytes, **config: int) -> requests.PullRequest:
    return requests.parse(b"inbox", body, ConsumerConfig(**config), now=10.0)


@pytest.mark.parametrize(("body", "batch"), [(b"", 1), (b"5", 5), (b'{"batch":7}', 7), (b"zz", 1)])
def test_a_request_is_empty_a_number_or_an_object(body, batch):
    assert parse(body).batch == batch


@pytest.mark.parametrize(
    ("body", "config", "status"),
    [
        (b"{", {}, "400 Bad Request - unexpected end of JSON input"),
        (
            b'{"expires":300,"idle_heartbeat":200}',
            {},
            "400 Bad Request - heartbeat value too large",
        ),
        (b'{"batch":9}', {"max_batch": 5}, "409 Exceeded MaxRequestBatch of 5"),
        (b'{"max_bytes":9}', {"max_bytes": 5}, "409 Exceeded MaxRequestMaxBytes of 5"),
        (
            b'{"expires":9000000000}',
            {"max_expires": 5_000_000_000},
            "409 Exceeded MaxRequestExpires of 5s",
        ),
    ],
)
def test_a_request_beyond_the_rules_gets_the_status_it_deserves(body, config, status):
    with pytest.raises(BadPull, match=status):
        parse(body, **config)


def test_the_line_is_served_in_turns():
    line = WaitingLine()
    one, two = parse(b"2"), parse(b"3")
    line.add(one)
    line.add(two)
    line.requeue(one)
    assert (list(line), line.wanted()) == ([two, one], 5)


def test_the_lowest_priority_number_goes_first_and_its_equals_in_turns():
    line = WaitingLine(prioritized=True)
    config = {"priority_policy": "prioritized", "priority_groups": ("g",)}
    last, one, two = (
        parse(b'{"batch":2,"group":"g","priority":%d}' % number, **config) for number in (2, 1, 1)
    )
    for request in (last, one, two):
        line.add(request)
    assert list(line) == [one, two, last]
    line.requeue(one)
    assert list(line) == [two, one, last]


asked_for = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from([0, 0, 10, 25])), min_size=1, max_size=5
)


def line_of(asked: list[tuple[int, int]]) -> WaitingLine:
    line = WaitingLine()
    for at, (batch, max_bytes) in enumerate(asked):
        body = b'{"batch":%d,"max_bytes":%d}' % (batch, max_bytes)
        line.add(requests.parse(b"%d" % at, body, ConsumerConfig(), now=10.0))
    return line


def left_of(line: WaitingLine) -> list[tuple[bytes, int, int, int]]:
    return [(each.reply, each.batch, each.served, each.bytes_left) for each in line]


@given(asked_for, st.integers(1, 30), st.integers(1, 30))
def test_many_rounds_at_once_are_as_one_message_after_the_other(asked, first, second):
    one, many = (line_of([(batch, 0) for batch, _ in asked]) for _ in range(2))
    for count in (first, second):
        assert many.is_even(count)
        slow, quick = one.share([0] * count), many.share_evenly(count)
        assert slow.routes == quick.routes
        assert {each.reply for each in slow.served} == {each.reply for each in quick.served}
        assert left_of(one) == left_of(many)


@given(asked_for, st.lists(st.sampled_from([4, 10, 12]), max_size=20))
def test_a_parcel_is_shared_out_as_its_messages_one_by_one_would_be(asked, sizes):
    whole, single = line_of(asked), line_of(asked)
    shares = whole.share(sizes)
    routes: list[bytes] = []
    ended: list[tuple[int, bytes, str]] = []
    for size in sizes:
        one = single.share([size])
        ended += [(len(routes) + e.after, e.request.reply, e.status) for e in one.ended]
        routes += one.routes
    assert shares.routes == routes
    assert [(e.after, e.request.reply, e.status) for e in shares.ended] == ended
    assert left_of(whole) == left_of(single)


def test_a_message_that_is_too_large_for_everybody_is_refused():
    assert line_of([(3, 10), (3, 20)]).share([9, 9, 30]).is_refused
    assert not line_of([(3, 10), (3, 0)]).share([9, 9, 30]).is_refused
    assert not line_of([(1, 10)]).share([9, 9]).is_refused


def test_who_is_chosen_gets_everything_wherever_it_stands():
    line = line_of([(3, 0), (2, 0)])
    _, second = line
    shares = line.share([0] * 4, second)
    assert (shares.routes, left_of(line)) == ([b"1", b"1"], [(b"0", 3, 0, 0)])


@pytest.mark.parametrize(
    ("body", "pending", "unanswered", "helped"),
    [
        (b'{"batch":5,"group":"g"}', 0, 0, 5),
        (b'{"batch":5,"group":"g","min_pending":8}', 10, 0, 3),
        (b'{"batch":2,"group":"g","min_pending":8}', 10, 0, 2),
        (b'{"batch":5,"group":"g","min_pending":8}', 7, 0, 0),
        (b'{"batch":5,"group":"g","min_ack_pending":2}', 9, 1, 0),
        (b'{"batch":5,"group":"g","min_ack_pending":2}', 9, 2, 5),
        (b'{"batch":5,"group":"g","min_pending":8,"min_ack_pending":2}', 8, 1, 1),
    ],
)
def test_an_overflow_request_helps_while_enough_is_left(body, pending, unanswered, helped):
    config = {"priority_policy": "overflow", "priority_groups": ("g",)}
    assert parse(body, **config).helps_with(pending, unanswered) == helped


def test_deadlines_are_expiry_or_heartbeat_whichever_comes_first():
    request = parse(b'{"expires":4000000000,"idle_heartbeat":1000000000}')
    assert request.next_deadline == 11.0
    request.note_activity(13.5)
    assert request.next_deadline == 14.0


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"", acks.Ack()),
        (b"+ACK", acks.Ack()),
        (b"-NAK", acks.Nak(0.0)),
        (b'-NAK {"delay":1500000000}', acks.Nak(1.5)),
        (b'-NAK {"Delay":1000000000,"delay":null}', acks.Nak(1.0)),
        (b'-NAK {"delay":1000000000,"delay":1.5}', acks.Nak(0.0)),
        (b"-NAK " + b'{"delay":' * 3000, acks.Nak(0.0)),
        (b"-NAK 1m2s", acks.Nak(62.0)),
        (b"+WPI", acks.InProgress()),
        (b"+TERM too bad", acks.Term("too bad")),
        (b"+NXT 5", acks.Next(b"5")),
        (b"hello", None),
    ],
)
def test_answers_are_read_as_the_reference_reads_them(body, answer):
    assert acks.parse(body) == answer


def test_only_a_whole_ack_subject_names_a_sequence():
    assert acks.stream_seq(b"$JS.ACK.S.C.1.42.7.1700000000.0") == 42
    assert acks.stream_seq(b"$JS.ACK.S.C.1.x.7.1700000000.0") == 0
    assert acks.stream_seq(b"$JS.ACK.S.C") == 0


def test_a_client_that_says_null_says_nothing():
    body = (
        b'{"batch":200,"expires":30000000000,"no_wait":null,"max_bytes":0,"min_pending":null,'
        b'"min_ack_pending":null,"group":null,"id":null,"Priority":null}'
    )
    request = requests.parse(b"inbox", body, ConsumerConfig(name="c"), 1.0)
    assert (request.batch, request.expires_at, request.group) == (200, 31.0, "")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"batch":"5"}', "json: cannot unmarshal string into Go struct field .batch of type int"),
        (b'{"batch":', "unexpected end of JSON input"),
        (b'{"id":5}', "json: cannot unmarshal number into Go struct field .id of type string"),
        (b"{} x", "invalid character 'x' after top-level value"),
    ],
)
def test_what_no_request_can_say_is_refused_in_the_words_of_the_reference(body, why):
    with pytest.raises(requests.BadPull) as refused:
        requests.parse(b"inbox", body, ConsumerConfig(name="c"), 1.0)
    assert (refused.value.code, refused.value.description) == (400, f"Bad Request - {why}")


def test_a_bare_number_is_read_as_atoi_reads_it():
    def batch(body):
        return requests.parse(b"inbox", body, ConsumerConfig(name="c"), 1.0).batch

    assert [batch(body) for body in (b"+5", b"1_0", b"5x", b"99999999999999999999")] == [5, 1, 1, 1]
