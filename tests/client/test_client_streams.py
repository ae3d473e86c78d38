"""Read plans and ranges from the client's side, over a real NATS server and over HTTP."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from millstream.client import connect
from millstream.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectFailed,
    InvalidUrl,
    PermissionDenied,
)
from millstream.client.streams import (
    HttpStreams,
    NatsStreams,
    PlannedSegment,
    ReadPlan,
    ReadRefused,
    StreamMissing,
    Tail,
    open_streams,
)
from support.nats_server import nats_server

Answer = Callable[[str, dict[str, int]], tuple[int, bytes]]
PLAN = {
    "stream": "ORDERS",
    "incarnation": 7,
    "first_seq": 1,
    "last_seq": 9,
    "gaps": [[2, 3, "corruption"]],
    "segments": [
        {"path": "/d/1.data", "idx_path": "/d/1.idx", "base_seq": 1, "last_seq": 6, "bytes": 10}
    ],
    "tail": {"from_seq": 7, "to_seq": 9},
}
PARSED = ReadPlan(
    "ORDERS",
    7,
    1,
    9,
    Tail(7, 9),
    [PlannedSegment("/d/1.data", "/d/1.idx", 1, 6, 10)],
    [(2, 3, "corruption")],
)


def told(status: int, code: object, **more: object) -> tuple[int, bytes]:
    return status, json.dumps({"error": {"code": code, "message": "why", **more}}).encode()


@contextmanager
def http_answering(answer: Answer) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """Serve ``answer(call, query)``; yields the address and what was asked with which key."""
    asked: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            path, _, query = self.path.partition("?")
            pairs = (pair.split("=") for pair in query.split("&"))
            status, body = answer(path.rpartition("/")[2], {k: int(v) for k, v in pairs})
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def nats_answering(answer: Answer) -> Iterator[str]:
    """Answer ``$MILLSTREAM.API`` behind a real NATS server; yields its url."""
    with nats_server() as server, connect(server.url) as responder:
        requests = responder.subscribe("$MILLSTREAM.API.>")
        responder.flush()

        def respond() -> None:
            while True:
                request = requests.next(timeout=30)
                call = request.subject.split(".")[2].lower()
                if call == "stop":
                    return
                _, body = answer("frames" if call == "read" else call, json.loads(request.payload))
                responder.publish(request.reply or "", body)
                responder.flush()

        thread = threading.Thread(target=respond)
        thread.start()
        try:
            yield server.url
        finally:
            with connect(server.url) as other:
                other.publish("$MILLSTREAM.API.STOP", b"")
                other.flush()
            thread.join()


@contextmanager
def answering(door: str, answer: Answer) -> Iterator[str]:
    if door == "nats":
        with nats_answering(answer) as url:
            yield url
    else:
        with http_answering(answer) as (host, _):
            yield f"http://{host}"


@pytest.fixture(params=["nats", "http"])
def door(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_plan_and_a_range_come_back(door: str) -> None:
    queries: list[tuple[str, dict[str, int]]] = []

    def answer(call: str, query: dict[str, int]) -> tuple[int, bytes]:
        queries.append((call, query))
        return 200, json.dumps(PLAN).encode() if call == "plan" else b"\xf7frames"

    with answering(door, answer) as url:
        streams = open_streams(url)
        assert streams.plan("ORDERS") == PARSED
        assert streams.read("ORDERS", 7, 9, 100) == b"\xf7frames"
        streams.close()
    assert queries == [
        ("plan", {"from_seq": 0}),
        ("frames", {"from_seq": 7, "to_seq": 9, "max_bytes": 100}),
    ]


def test_the_pages_of_a_long_plan_are_joined(door: str) -> None:
    def answer(call: str, query: dict[str, int]) -> tuple[int, bytes]:
        first = query["from_seq"] or 1
        segment = {"path": f"{first}", "idx_path": "i", "base_seq": first, "last_seq": first + 1}
        page = PLAN | {"segments": [segment]}
        if first < 5:
            page["next_from_seq"] = first + 2
        return 200, json.dumps(page).encode()

    with answering(door, answer) as url:
        streams = open_streams(url)
        plan = streams.plan("ORDERS")
        streams.close()
    assert [segment.base_seq for segment in plan.segments] == [1, 3, 5]
    assert plan.next_from_seq is None


def test_a_missing_stream_is_named_with_the_closest_one(door: str) -> None:
    code = 404 if door == "nats" else "topic_not_found"
    with answering(door, lambda *_: told(404, code, detail={"did_you_mean": "ORDERS"})) as url:
        streams = open_streams(url)
        with pytest.raises(StreamMissing, match="no stream named 'ORDER'; did you mean 'ORDERS'"):
            streams.plan("ORDER")
        with pytest.raises(StreamMissing):
            streams.read("ORDER", 1, 2)
        streams.close()


def test_an_answer_of_something_else_is_not_taken_for_a_plan(door: str) -> None:
    with answering(door, lambda *_: (200, b'{"hello": 1}')) as url:
        streams = open_streams(url)
        with pytest.raises(ReadRefused, match="cannot read the server's answer"):
            streams.plan("ORDERS")
        streams.close()


def test_a_server_without_plans_says_so() -> None:
    with nats_server() as server:
        streams = NatsStreams(server.url)
        with pytest.raises(ReadRefused, match="not a millstream server"):
            streams.plan("ORDERS")
        streams.close()


@pytest.mark.parametrize("url", ["nats://127.0.0.1:9", "http://127.0.0.1:9"])
def test_a_server_that_is_not_there_is_named(url: str) -> None:
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:9"):
        open_streams(url).plan("ORDERS")


def test_a_connection_lost_in_between_is_opened_again() -> None:
    with http_answering(lambda *_: (200, json.dumps(PLAN).encode())) as (host, _):
        streams = HttpStreams(f"http://{host}")
        streams.plan("ORDERS")
        assert streams._connection is not None
        streams._connection.sock.close()  # what an idle timeout or a restart does
        assert streams.plan("ORDERS") == PARSED
        streams.close()


@pytest.mark.parametrize(
    ("status", "error"), [(401, AuthenticationFailed), (403, PermissionDenied), (502, ReadRefused)]
)
def test_http_refusals_have_names(status: int, error: type[ClientError]) -> None:
    with http_answering(lambda *_: (status, b"<html>")) as (host, _):
        streams = HttpStreams(f"http://{host}")
        with pytest.raises(error):
            streams.plan("ORDERS")
        streams.close()


def test_a_server_without_the_route_is_told_from_one_without_the_stream() -> None:
    with http_answering(lambda *_: told(404, "not_found")) as (host, _):
        streams = HttpStreams(f"http://{host}")
        with pytest.raises(ReadRefused, match="use its nats:// url"):
            streams.read("ORDERS", 1, 2)
        streams.close()


def test_the_key_in_the_url_is_sent_and_the_name_is_escaped() -> None:
    with http_answering(lambda *_: (200, json.dumps(PLAN).encode())) as (host, asked):
        for who in ("k%2F1@", "me:secret@", ""):
            streams = HttpStreams(f"http://{who}{host}")
            streams.plan("a/b c")
            streams.close()
    assert asked == [
        ("/v0/topics/a%2Fb%20c/plan?from_seq=0", "Bearer k/1"),
        ("/v0/topics/a%2Fb%20c/plan?from_seq=0", "Basic bWU6c2VjcmV0"),
        ("/v0/topics/a%2Fb%20c/plan?from_seq=0", None),
    ]


def test_a_url_that_cannot_be_used_is_shown_without_its_secret() -> None:
    with pytest.raises(InvalidUrl) as caught:
        HttpStreams("http://secret@")
    assert "secret" not in str(caught.value)


def test_a_door_that_speaks_otherwise_is_told() -> None:
    with nats_server() as plain:
        where = plain.url.partition("://")[2]
        for url, why in (
            (f"http://{where}", r"cannot read .*: no HTTP is spoken there; .* nats://$"),
            (f"https://{where}", r"cannot read .*: no TLS is spoken there; use http://$"),
            (f"tls://{where}", r"TLS with .* failed: no TLS is spoken there; use nats://$"),
        ):
            with pytest.raises(ConnectFailed, match=why):
                open_streams(url).names()
