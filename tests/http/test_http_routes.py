"""The route table: what was found once is found again, and nothing else is."""

import asyncio

import pytest

from millstream.http.request import Request
from millstream.http.response import Answer, Response
from millstream.http.routes import MOST_FOUND, Route, Routes


async def read(request: Request) -> Answer:
    return Response(200, b"read " + request.params["name"].encode())


async def write(request: Request) -> Answer:
    return Response(201, b"wrote " + request.params["name"].encode())


def table() -> Routes:
    return Routes(
        [Route("GET", "/a/{name}", read, "", ""), Route("PUT", "/a/{name}", write, "", "")]
    )


def asked(routes: Routes, method: str, path: str) -> tuple[int, bytes]:
    async def ask() -> Answer:
        return await routes(Request(method, path))

    answer = asyncio.run(ask())
    assert isinstance(answer, Response)
    return answer.status, answer.body if answer.status < 400 else b""


def test_a_path_asked_for_again_is_answered_by_its_own_method_and_name() -> None:
    routes = table()
    for _ in range(3):
        assert asked(routes, "GET", "/a/x") == (200, b"read x")
        assert asked(routes, "PUT", "/a/x") == (201, b"wrote x")
        assert asked(routes, "GET", "/a/y%20z") == (200, b"read y z")
        assert asked(routes, "HEAD", "/a/x") == (200, b"read x")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/a", 404), ("GET", "/a/", 404), ("DELETE", "/a/x", 405), ("GET", "/a/%zz", 400)],
)
def test_what_was_refused_is_refused_again(method: str, path: str, status: int) -> None:
    routes = table()
    assert [asked(routes, method, path)[0] for _ in range(3)] == [status] * 3


def test_what_the_table_remembers_is_bounded() -> None:
    routes = table()
    for number in range(3 * MOST_FOUND):
        routes._find(Request("GET", f"/a/{number}"))
    routes._find(Request("GET", "/a/" + "x" * 1000))
    assert len(routes._found) <= MOST_FOUND
    assert all(len(path) <= 256 for _, path in routes._found)
