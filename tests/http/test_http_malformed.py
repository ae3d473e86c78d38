"""What arrives malformed is refused once and the connection ends; valid controls are answered."""

import asyncio

import pytest

from millstream.clock import ManualClock
from millstream.http.door import HttpDoor
from millstream.http.limits import Limits
from millstream.http.request import Request
from millstream.http.response import Answer, Response
from support import scale

H = b"Host: a\r\n"
POST = b"POST / HTTP/1.1\r\n" + H
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
LAST = b"\r\n0\r\n\r\n"

REFUSED: dict[str, bytes] = {
    "length and chunked": POST
    + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": POST
    + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "two equal lengths": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "list of lengths": POST + b"Content-Length: 5, 5\r\n\r\nhello",
    "length +5": POST + b"Content-Length: +5\r\n\r\nhello",
    "length -5": POST + b"Content-Length: -5\r\n\r\nhello",
    "length 0x5": POST + b"Content-Length: 0x5\r\n\r\nhello",
    "length 5_0": POST + b"Content-Length: 5_0\r\n\r\nhello",
    "length 5 5": POST + b"Content-Length: 5 5\r\n\r\nhello",
    "length 5.0": POST + b"Content-Length: 5.0\r\n\r\nhello",
    "length empty": POST + b"Content-Length: \r\n\r\nhello",
    "length word": POST + b"Content-Length: five\r\n\r\nhello",
    "length overflow": POST + b"Content-Length: 99999999999999999999999\r\n\r\nhello",
    "length above the limit": POST + b"Content-Length: 67108865\r\n\r\n",
    "length with a space before the colon": POST + b"Content-Length : 5\r\n\r\nhello",
    "coding xchunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding identity": POST + b"Transfer-Encoding: identity\r\n\r\nhello",
    "coding chunked, gzip": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "coding gzip, chunked": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coding twice": POST + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n0\r\n\r\n",
    "coding chunked then identity": POST
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "coding quoted": POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "coding empty": POST + b"Transfer-Encoding: \r\n\r\n0\r\n\r\n",
    "coding with a vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "coding over HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bare LF everywhere": b"GET / HTTP/1.1\nHost: a\n\n" + b"x" * 20000,
    "bare LF after the request line": b"GET / HTTP/1.1\nHost: a\r\n\r\n",
    "bare LF in the headers": b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
    "bare CR in the headers": b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\n" + H + b"X: b\r\n c\r\n\r\n",
    "folded header by tab": b"GET / HTTP/1.1\r\n" + H + b"X: b\r\n\tc\r\n\r\n",
    "space before the first header": b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
    "space before a colon": b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "header without colon": b"GET / HTTP/1.1\r\n" + H + b"Foo\r\n\r\n",
    "header without name": b"GET / HTTP/1.1\r\n" + H + b": b\r\n\r\n",
    "NUL in a value": b"GET / HTTP/1.1\r\n" + H + b"X: a\0b\r\n\r\n",
    "NUL in a name": b"GET / HTTP/1.1\r\n" + H + b"X\0: b\r\n\r\n",
    "control character in a value": b"GET / HTTP/1.1\r\n" + H + b"X: a\x01b\r\n\r\n",
    "name with a bracket": b"GET / HTTP/1.1\r\n" + H + b"X[]: b\r\n\r\n",
    "name with a high byte": b"GET / HTTP/1.1\r\n" + H + b"X\xe9: b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "host with a path": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "host with credentials": b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\n" + H + b"\r\n",
    "HTTP/2.0 without its preface": b"GET / HTTP/2.0\r\n" + H + b"\r\n",
    "HTTP/11": b"GET / HTTP/11\r\n" + H + b"\r\n",
    "http/1.1": b"GET / http/1.1\r\n" + H + b"\r\n",
    "two spaces after the method": b"GET  / HTTP/1.1\r\n" + H + b"\r\n",
    "two spaces after the target": b"GET /  HTTP/1.1\r\n" + H + b"\r\n",
    "tab after the method": b"GET\t/ HTTP/1.1\r\n" + H + b"\r\n",
    "space after the version": b"GET / HTTP/1.1 \r\n" + H + b"\r\n",
    "unknown method": b"FOO / HTTP/1.1\r\n" + H + b"\r\n",
    "method in lower case": b"get / HTTP/1.1\r\n" + H + b"\r\n",
    "no method": b" / HTTP/1.1\r\n" + H + b"\r\n",
    "NUL in the target": b"GET /\0 HTTP/1.1\r\n" + H + b"\r\n",
    "control character in the target": b"GET /\x01 HTTP/1.1\r\n" + H + b"\r\n",
    "high byte in the target": b"GET /\xff HTTP/1.1\r\n" + H + b"\r\n",
    "fragment in the target": b"GET /a#b HTTP/1.1\r\n" + H + b"\r\n",
    "target without slash": b"GET a HTTP/1.1\r\n" + H + b"\r\n",
    "connect": b"CONNECT a:1 HTTP/1.1\r\n" + H + b"\r\n",
    "expectation of something else": POST + b"Expect: magic\r\nContent-Length: 1\r\n\r\nx",
    "chunk size 0x5": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "chunk size +5": CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n",
    "chunk size -5": CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n",
    "chunk size with a space": CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n",
    "chunk size after a space": CHUNKED + b" 5\r\nhello\r\n0\r\n\r\n",
    "chunk size empty": CHUNKED + b"\r\nhello\r\n0\r\n\r\n",
    "chunk size with an underscore": CHUNKED + b"0_5\r\nhello\r\n0\r\n\r\n",
    "chunk size too large": CHUNKED + b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "chunk above the limit": CHUNKED + b"4000001\r\n",
    "chunk size ended by LF": CHUNKED + b"5\nhello\r\n0\r\n\r\n",
    "chunk data ended by LF": CHUNKED + b"5\r\nhello\n0\r\n\r\n",
    "chunk data without end": CHUNKED + b"5\r\nhello0\r\n\r\n",
    "chunk longer than its size": CHUNKED + b"5\r\nhelloXX\r\n0\r\n\r\n",
    "chunk extension with LF": CHUNKED + b"5;a\nb\r\nhello\r\n0\r\n\r\n",
    "chunk extension endless": CHUNKED + b"5;" + b"a" * 300,
    "last chunk ended by LF": CHUNKED + b"5\r\nhello\r\n0\r\n\n",
    "trailer without colon": CHUNKED + b"5\r\nhello\r\n0\r\nX\r\n\r\n",
    "header block too large": b"GET / HTTP/1.1\r\n" + H + b"X: " + b"a" * 16384 + b"\r\n\r\n",
    "header block without end": b"GET / HTTP/1.1\r\n" + H + b"X: " + b"a" * 20000,
    "too many headers": b"GET / HTTP/1.1\r\n" + H + b"X: a\r\n" * 64 + b"\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x01" * 200,
    "garbage": b"\xff" * 100,
}

CONTROLS: dict[str, tuple[bytes, int]] = {
    "plain get": (b"GET / HTTP/1.1\r\n" + H + b"\r\n", 1),
    "length 5": (POST + b"Content-Length: 5\r\n\r\nhello", 1),
    "length 005": (POST + b"Content-Length: 005\r\n\r\nhello", 1),
    "length 0": (POST + b"Content-Length: 0\r\n\r\n", 1),
    "chunks": (CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", 1),
    "chunks in capitals": (
        POST + b"Transfer-Encoding: Chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
        1,
    ),
    "chunk extension": (CHUNKED + b"5;a=b\r\nhello\r\n0\r\n\r\n", 1),
    "trailer": (CHUNKED + b"5\r\nhello\r\n0\r\nX: y\r\n\r\n", 1),
    "trailer that names a length": (CHUNKED + b"5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n", 1),
    "get with a body": (b"GET / HTTP/1.1\r\n" + H + b"Content-Length: 3\r\n\r\nabc", 1),
    "pipelined": ((POST + b"Content-Length: 2\r\n\r\nhi") * 3, 3),
    "pipelined after chunks": (CHUNKED + b"1\r\nx\r\n0\r\n\r\nGET / HTTP/1.1\r\n" + H + b"\r\n", 2),
    "nothing after close": (
        b"GET / HTTP/1.1\r\n" + H + b"Connection: close\r\n\r\nGET /2 HTTP/1.1\r\n" + H + b"\r\n",
        1,
    ),
    "an upgrade that is not offered": (
        b"GET / HTTP/1.1\r\n" + H + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        1,
    ),
    "absolute target": (b"GET http://a/b HTTP/1.1\r\n" + H + b"\r\n", 1),
    "options star": (b"OPTIONS * HTTP/1.1\r\n" + H + b"\r\n", 1),
    "empty line first": (b"\r\nGET / HTTP/1.1\r\n" + H + b"\r\n", 1),
    "HTTP/1.0 without host": (b"GET / HTTP/1.0\r\n\r\n", 1),
    "high byte in a value": (b"GET / HTTP/1.1\r\n" + H + b"X: \xe9\r\n\r\n", 1),
    "IPv6 host": (b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 1),
    "64 headers": (b"GET / HTTP/1.1\r\n" + H + b"X: a\r\n" * 63 + b"\r\n", 1),
}


async def echo(request: Request) -> Answer:
    return Response(200, request.body, b"text/plain")


async def exchange(vector: bytes, pieces: int) -> bytes:
    """Send a vector in one piece or byte by byte, close our half, return what comes back."""
    door = HttpDoor(asyncio.get_running_loop(), echo, ManualClock(), Limits(), hosts=None)
    port = await door.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if pieces == 1:
        writer.write(vector)
    else:
        step = max(1, len(vector) // pieces)
        for at in range(0, len(vector), step):
            writer.write(vector[at : at + step])
            await asyncio.sleep(0)
    writer.write_eof()
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    await door.stop()
    return answer


@pytest.mark.parametrize("pieces", [1, 40])
@pytest.mark.parametrize("name", REFUSED)
async def test_a_malformed_request_is_refused_once_and_the_connection_ends(
    name: str, pieces: int
) -> None:
    answer = await exchange(REFUSED[name], pieces)

    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 4")
    assert b"Connection: close\r\n" in answer
    assert b'{"error":{"code":"' in answer


@pytest.mark.parametrize("pieces", [1, 40])
@pytest.mark.parametrize("name", CONTROLS)
async def test_a_valid_control_is_answered(name: str, pieces: int) -> None:
    vector, answers = CONTROLS[name]

    answer = await exchange(vector, pieces)

    assert answer.count(b"HTTP/1.1 200 OK\r\n") == answers
    assert answer.count(b"HTTP/1.1 ") == answers


GOOD = b"GET /good HTTP/1.1\r\n" + H + b"\r\n"
WAYS = ("alone", "after a good one", "before a good one", "in two pieces", "in tens", "after two")
SMUGGLED = [(name, way) for name in REFUSED for way in WAYS]


def pieces_of(vector: bytes, way: str) -> list[bytes]:
    match way:
        case "alone":
            return [vector]
        case "after a good one":
            return [GOOD + vector]
        case "before a good one":
            return [vector + GOOD]
        case "in two pieces":
            return [vector[: len(vector) // 2], vector[len(vector) // 2 :]]
        case "in tens":
            return [vector[at : at + 10] for at in range(0, min(len(vector), 500), 10)] + [
                vector[500:]
            ]
    return [GOOD, GOOD + vector]


def test_there_are_five_hundred_ways_to_smuggle() -> None:
    assert len(SMUGGLED) >= 500


async def test_each_smuggled_request_gets_one_refusal_and_a_close() -> None:
    door = HttpDoor(asyncio.get_running_loop(), echo, ManualClock(), Limits(), hosts=None)
    port = await door.start("127.0.0.1", 0)
    for name, way in SMUGGLED[:: scale.count(7, 1)]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for piece in pieces_of(REFUSED[name], way):
            writer.write(piece)
            await asyncio.sleep(0)
        writer.write_eof()
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        good = {"after a good one": 1, "after two": 2}.get(way, 0)
        assert answer.count(b"HTTP/1.1 ") == good + 1, (name, way, answer)
        last = answer[answer.rindex(b"HTTP/1.1 ") :]
        assert last.startswith(b"HTTP/1.1 4"), (name, way, answer)
        assert b"Connection: close\r\n" in last
    await door.stop()
