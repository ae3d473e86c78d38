"""The parser alone: how bytes are cut into pieces never changes what they mean."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_http_malformed import CONTROLS, REFUSED

from millstream.http.limits import Limits
from millstream.http.parser import Refusal, RequestParser
from millstream.http.request import Request

FIRST = {
    "a get": b"GET /first HTTP/1.1\r\nHost: a\r\n\r\n",
    "a body": b"POST /first HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    "chunks": b"POST /first HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n0\r\n\r\n",
}


def parse(pieces: list[bytes]) -> list[tuple[str, str, bytes] | int]:
    """Return each request, and the status of the refusal that ended the connection."""
    parser, found = RequestParser(Limits()), []
    for piece in pieces:
        parser.feed(piece)
        while (event := parser.next()) is not None:
            if isinstance(event, Refusal):
                return [*found, event.status]
            found.append((event.method, event.path, event.body))
    return found


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(at), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if b > a]


def test_there_are_hundreds_of_refused_cases() -> None:
    assert len(REFUSED) * (len(FIRST) + 4) > 500


@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_request_is_refused_however_it_is_cut(name: str) -> None:
    vector, dice = REFUSED[name], random.Random(name)
    whole = parse([vector])
    assert len(whole) == 1
    assert whole[0] in range(400, 500)
    assert parse([vector[i : i + 1] for i in range(len(vector))]) == whole
    for _ in range(2):
        cuts = [dice.randrange(len(vector) + 1) for _ in range(3)]
        assert parse(cut(vector, cuts)) == whole


@pytest.mark.parametrize("before", FIRST)
@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_request_behind_a_good_one_is_refused_alone(name: str, before: str) -> None:
    found = parse([FIRST[before] + REFUSED[name]])
    assert [event[1] for event in found[:-1]] == ["/first"]  # type: ignore[index]
    assert found[-1] in range(400, 500)


@pytest.mark.parametrize("name", CONTROLS)
def test_a_valid_request_means_the_same_however_it_is_cut(name: str) -> None:
    vector, _ = CONTROLS[name]
    whole = parse([vector])
    assert whole
    assert not isinstance(whole[-1], int)
    assert parse([vector[i : i + 1] for i in range(len(vector))]) == whole


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(0, 260), max_size=4), st.booleans())
def test_no_bytes_crash_the_parser_or_mean_two_things(
    noise: bytes, cuts: list[int], in_body: bool
) -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\n"
    data = head + (b"Transfer-Encoding: chunked\r\n\r\n" if in_body else b"") + noise
    whole = parse([data])
    assert parse(cut(data, [at % (len(data) + 1) for at in cuts])) == whole


GOOD = [
    *FIRST.values(),
    b"POST /first?a=1&b=2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nxyz",
    b"POST /second HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
    b"GET /third HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"GET /large HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 2000 + b"\r\n\r\n",
]


def meanings(parser: RequestParser, piece: bytes) -> list[tuple[object, ...]]:
    parser.feed(piece)
    found: list[tuple[object, ...]] = []
    while (event := parser.next()) is not None:
        assert not isinstance(event, Refusal)
        found.append(
            (event.method, event.path, event.query, event.headers, event.body, event.keep_alive)
        )
        event.params, event.peer = {"topic": "t"}, "192.0.2.1"  # what was done with it stays there
    return found


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(GOOD), max_size=12))
def test_a_head_that_comes_again_means_what_it_meant_alone(requests: list[bytes]) -> None:
    parser = RequestParser(Limits())
    for request in requests:
        assert meanings(parser, request) == meanings(RequestParser(Limits()), request)


def test_a_request_that_comes_again_knows_nothing_of_the_one_before() -> None:
    parser = RequestParser(Limits())
    for _ in range(3):
        parser.feed(GOOD[3])
        request = parser.next()
        assert request is not None
        assert not isinstance(request, Refusal)
        assert (request.params, request.peer) == ({}, "")
        request.params, request.peer = {"topic": "t"}, "192.0.2.1"


def test_a_client_that_expects_to_be_told_is_noticed_every_time() -> None:
    head, body = GOOD[4][:-2], GOOD[4][-2:]
    parser = RequestParser(Limits())
    for _ in range(3):
        parser.feed(head)
        assert parser.next() is None
        assert (parser.in_body, parser.expects_continue) == (True, True)
        parser.feed(body)
        request = parser.next()
        assert request is not None
        assert not isinstance(request, Refusal)
        assert (request.body, parser.expects_continue) == (b"hi", False)


def test_what_a_connection_remembers_of_heads_is_bounded() -> None:
    parser = RequestParser(Limits())
    for number in range(100):
        meanings(parser, b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number)
        meanings(parser, GOOD[-1])
    assert len(parser._known) <= 4
    assert all(len(head) <= 1024 for head in parser._known)


def test_the_first_of_a_repeated_header_counts_also_when_the_head_comes_again() -> None:
    parser = RequestParser(Limits())
    for _ in range(3):
        parser.feed(b"GET / HTTP/1.1\r\nHost: a\r\nX: first\r\nY: y\r\nX: second\r\n\r\n")
        request = parser.next()
        assert request is not None
        assert not isinstance(request, Refusal)
        assert (request.header(b"x"), request.header(b"y"), request.header(b"z")) == (
            b"first", b"y", None,
        )  # fmt: skip


HEAD = b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"


def acquainted(head: bytes = HEAD, body: bytes = b"hello") -> RequestParser:
    """Return a parser that has seen this head before."""
    parser = RequestParser(Limits())
    parser.feed(head + body)
    assert isinstance(parser.next(), Request)
    return parser


def test_a_known_head_and_all_of_its_body_are_one_request() -> None:
    parser = acquainted()
    request = parser.whole(HEAD + b"world")
    assert request is not None
    assert (request.method, request.path, request.query) == ("POST", "/a", {"b": "c"})
    assert request.body == b"world"
    assert (parser.buffered, parser.in_body, parser.in_head) == (0, False, False)


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"hell",
        HEAD + b"hello!",
        HEAD + b"hello" + HEAD,
        b"\r\n" + HEAD + b"hello",
        HEAD[:-2],
        HEAD.replace(b"x", b"y") + b"hello",
        b"",
    ],
)
def test_anything_else_is_left_to_be_fed(data: bytes) -> None:
    parser = acquainted()
    assert parser.whole(data) is None
    assert parser.buffered == 0


def test_nothing_is_whole_while_something_else_is_under_way() -> None:
    parser = acquainted()
    parser.feed(HEAD[:10])
    assert parser.whole(HEAD + b"hello") is None
    parser = acquainted()
    parser.feed(HEAD)
    assert parser.next() is None
    assert parser.whole(HEAD + b"hello") is None


def test_chunks_and_expectations_are_never_whole() -> None:
    chunked = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert acquainted(chunked, b"0\r\n\r\n").whole(chunked) is None
    expects = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n"
    assert acquainted(expects, b"").whole(expects) is None


def test_a_length_may_have_thousands_of_zeros_before_it() -> None:
    parser = RequestParser(Limits())
    length = b"0" * 5000 + b"5"
    parser.feed(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + length + b"\r\n\r\nhello")
    request = parser.next()
    assert isinstance(request, Request)
    assert request.body == b"hello"
