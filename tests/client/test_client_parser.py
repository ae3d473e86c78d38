import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.headers import decode, encode
from millstream.client.parser import (
    MAX_LINE,
    Err,
    Info,
    Message,
    Ok,
    Parser,
    Ping,
    Pong,
    ProtocolError,
)

BLOCK = b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n"
WIRE = (
    b'INFO {"server_id":"X"} \r\n+OK\r\nPING\r\nPONG\r\n'
    b"MSG orders.new 7 5\r\nhello\r\n"
    b"MSG orders.new 7 _INBOX.1 0\r\n\r\n"
    b"HMSG a 1 %d %d\r\n%s\r\n\r\n"
    % (len(BLOCK), len(BLOCK) + 2, BLOCK)
    + b"-ERR 'Unknown Protocol Operation'\r\n"
)
OPS = [
    Info(b'{"server_id":"X"}'),
    Ok(),
    Ping(),
    Pong(),
    Message("orders.new", b"hello", sid=7),
    Message("orders.new", b"", "_INBOX.1", sid=7),
    Message("a", b"\r\n", raw_headers=BLOCK, sid=1),
    Err("Unknown Protocol Operation"),
]


@given(st.lists(st.integers(0, len(WIRE)), max_size=8))
def test_operations_are_the_same_however_the_network_cuts_the_bytes(cuts: list[int]) -> None:
    parser = Parser()
    edges = [0, *sorted(cuts), len(WIRE)]
    ops = [op for a, b in itertools.pairwise(edges) for op in parser.feed(WIRE[a:b])]
    assert ops == OPS


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"MSG a 1\r\n",
        b"MSG a x 1\r\n",
        b"HMSG a 1 9 4\r\n",
        b"MSG a 1 2\r\nabcd\r\n",
        b"x" * (MAX_LINE + 1),
    ],
)
def test_what_is_not_the_protocol_is_refused(wire: bytes) -> None:
    with pytest.raises(ProtocolError):
        Parser().feed(wire)


def test_headers_keep_every_value_of_a_name_in_order() -> None:
    assert decode(encode({"A": ["1", "2"], "B": "x: y"})) == (
        None,
        {"A": ["1", "2"], "B": ["x: y"]},
    )


def test_inline_status_is_read_from_the_first_line() -> None:
    assert decode(b"NATS/1.0 503\r\n\r\n") == (503, {})
    assert decode(b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\n\r\n")[0] == 100


@pytest.mark.parametrize("headers", [{"A:": "1"}, {"": "1"}, {"A": "1\r\nB: 2"}])
def test_a_header_cannot_smuggle_in_another_line(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="header"):
        encode(headers)


def test_a_message_that_does_not_end_where_its_size_says_is_refused() -> None:
    with pytest.raises(ProtocolError, match="does not end"):
        Parser().feed(b"MSG orders 1 2\r\nabcd\r\n")
