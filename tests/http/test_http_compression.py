"""Answers and bodies that travel packed, within limits."""

import asyncio
import gzip
import zlib

import cramjam
import pytest

from millstream.http import compression
from millstream.http.compression import (
    BUSY,
    MOST_MEMBERS,
    NotPacked,
    TooLarge,
    chosen,
    compressed,
    pack,
    unpack,
)
from millstream.http.request import Request
from millstream.http.response import Answer, Response, StreamedResponse


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        (None, None),
        (b"", None),
        (b"identity", None),
        (b"gzip", b"gzip"),
        (b"gzip, deflate, br", b"gzip"),
        (b"gzip, zstd", b"zstd"),
        (b"GZIP;q=0.5, zstd;q=0", b"gzip"),
        (b"gzip; q=0.000, zstd ; q = 0", None),
        (b"*", None),
        (b"gzip;q=0.001", b"gzip"),
    ],
)
def test_the_best_coding_that_the_client_reads_is_chosen(
    accept: bytes | None, coding: bytes | None
) -> None:
    assert chosen(accept) == coding


@pytest.mark.parametrize("size", [compression.SMALLEST, BUSY + 1])
@pytest.mark.parametrize("coding", [b"gzip", b"zstd"])
async def test_a_large_answer_is_packed(coding: bytes, size: int) -> None:
    async def app(request: Request) -> Answer:
        return Response(201, b"x" * size, headers=((b"A", b"b"),))

    answer = await compressed(app)(Request("GET", "/", headers=[(b"accept-encoding", coding)]))
    assert isinstance(answer, Response)
    assert answer.status == 201
    assert (b"Content-Encoding", coding) in answer.headers
    assert (b"Vary", b"Accept-Encoding") in answer.headers
    assert (b"A", b"b") in answer.headers
    assert unpack(coding, answer.body, size) == b"x" * size


async def test_small_answers_streams_and_heads_go_as_they_are() -> None:
    async def nothing() -> object:
        yield b""

    answers: list[Answer] = [
        Response(200, b"x" * (compression.SMALLEST - 1)),
        StreamedResponse(nothing()),  # type: ignore[arg-type]
    ]
    for given in answers:

        async def app(request: Request, given: Answer = given) -> Answer:
            return given

        packed = compressed(app)
        asked = Request("GET", "/", headers=[(b"accept-encoding", b"gzip")])
        assert await packed(asked) is given

    async def large(request: Request) -> Answer:
        return Response(200, b"x" * 5000)

    for request in (
        Request("HEAD", "/", headers=[(b"accept-encoding", b"gzip")]),
        Request("GET", "/"),
    ):
        answer = await compressed(large)(request)
        assert isinstance(answer, Response)
        assert answer.body == b"x" * 5000


@pytest.mark.parametrize("coding", [b"gzip", b"zstd"])
@pytest.mark.parametrize("size", [0, 1, 1000, 70_000, 999_999, 1_000_000])
def test_a_body_is_unpacked_up_to_its_limit(coding: bytes, size: int) -> None:
    assert unpack(coding, pack(coding, b"x" * size), 1_000_000) == b"x" * size


@pytest.mark.parametrize("coding", [b"gzip", b"zstd"])
@pytest.mark.parametrize("size", [1_000_001, 200_000_000])
def test_a_bomb_is_refused(coding: bytes, size: int) -> None:
    bomb = (
        bytes(cramjam.zstd.compress(b"\0" * size)) if coding == b"zstd"
        else zlib.compress(b"\0" * size, wbits=31)
    )  # fmt: skip
    with pytest.raises(TooLarge):
        unpack(coding, bomb, 1_000_000)


@pytest.mark.parametrize("coding", [b"gzip", b"zstd"])
@pytest.mark.parametrize("damage", ["garbage", "cut", "trailing"])
def test_what_is_not_packed_is_told(coding: bytes, damage: str) -> None:
    whole = pack(coding, bytes(range(256)) * 100)
    text = {"garbage": b"hello", "cut": whole[:-3], "trailing": whole + b"hello"}[damage]
    with pytest.raises(NotPacked):
        unpack(coding, text, 1_000_000)


def test_a_gzip_body_of_several_members_is_unpacked_whole() -> None:
    whole = bytes(range(256)) * 4096
    for size in (1, 1000, 65_536, 1_000_000):
        parts = [whole[at : at + size] for at in range(0, min(len(whole), 200 * size), size)]
        body = b"".join(gzip.compress(part) for part in parts)
        assert unpack(b"gzip", body, 2**21) == b"".join(parts)
    empty = gzip.compress(b"")
    assert unpack(b"gzip", empty + gzip.compress(b"x") + empty, 1) == b"x"


def test_all_members_together_stay_within_the_limit() -> None:
    body = gzip.compress(b"x" * 500_000) * 2
    assert len(unpack(b"gzip", body, 1_000_000)) == 1_000_000
    with pytest.raises(TooLarge):
        unpack(b"gzip", body, 999_999)
    with pytest.raises(TooLarge):
        unpack(b"gzip", body + gzip.compress(b"x"), 1_000_000)


@pytest.mark.parametrize("rest", [b"\0", b"junk", gzip.compress(b"x", mtime=0)[:-1], b"\x1f\x8b"])
def test_what_follows_a_member_must_be_another_one(rest: bytes) -> None:
    with pytest.raises(NotPacked, match="cut short or followed"):
        unpack(b"gzip", gzip.compress(b"x") + rest, 1_000_000)


def test_members_that_hold_nothing_are_counted_too() -> None:
    empty = gzip.compress(b"")
    assert unpack(b"gzip", empty * MOST_MEMBERS, 1) == b""
    with pytest.raises(NotPacked, match="at most"):
        unpack(b"gzip", empty * (MOST_MEMBERS + 1), 1)


def test_packing_runs_beside_the_loop_when_it_takes_long() -> None:
    async def app(request: Request) -> Answer:
        return Response(200, b"y" * (BUSY * 4))

    async def run() -> None:
        asked = Request("GET", "/", headers=[(b"accept-encoding", b"zstd")])
        answer = await compressed(app)(asked)
        assert isinstance(answer, Response)
        assert len(answer.body) < BUSY

    asyncio.run(run())
