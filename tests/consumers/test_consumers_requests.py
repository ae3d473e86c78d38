import pytest

from millstream.consumers import acks, requests
from millstream.consumers.config import ConsumerConfig
from millstream.consumers.requests import BadPull, WaitingLine


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
        (b"-NAK 1m2s", acks.Nak(62.0)),
        (b"+WPI", acks.Progress()),
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
