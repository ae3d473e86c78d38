"""The message commands as a user runs them: a process each, against a real nats-server."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from millstream.client import connect
from support.nats_server import RunningServer, nats_server

LIMIT = 30


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with nats_server("--jetstream") as running:
        yield running


def command(server: RunningServer | None, *words: str) -> tuple[list[str], dict[str, str]]:
    environment = {k: v for k, v in os.environ.items() if k != "NATS_URL"}
    if server is not None:
        environment["NATS_URL"] = server.url
    return [sys.executable, "-m", "millstream", *words], environment


def millstream(
    server: RunningServer | None, *words: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    line, environment = command(server, *words)
    return subprocess.run(
        line, env=environment, input=stdin, capture_output=True, timeout=LIMIT, check=False
    )


@contextmanager
def listening(server: RunningServer, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command that first says on stderr that it is ready."""
    line, environment = command(server, *words)
    process = subprocess.Popen(
        line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        try:
            assert process.stderr is not None
            assert b" on " in process.stderr.readline()
            yield process
        finally:
            process.kill()


def test_what_pub_sends_sub_prints(server: RunningServer) -> None:
    with listening(server, "sub", "orders.*", "--count", "1") as sub:
        sent = millstream(server, "pub", "orders.new", '{"id":1}', "-H", "Kind: test")
        assert sent.stdout == b"published 1 to orders.new\n"
        assert sub.communicate(timeout=LIMIT)[0] == b'orders.new\n  Kind: test\n  {"id":1}\n'
        assert sub.returncode == 0


def test_sub_prints_one_json_object_a_line(server: RunningServer) -> None:
    with listening(server, "sub", "j", "--count", "2", "--json") as sub:
        millstream(server, "pub", "j", "-H", "A: 1", "text", "--reply", "r")
        millstream(server, "pub", "j", stdin=b"\xff\x00")
        lines = sub.communicate(timeout=LIMIT)[0].splitlines()
    assert [json.loads(line) for line in lines] == [
        {"subject": "j", "reply": "r", "headers": {"A": ["1"]}, "payload": "text"},
        {"subject": "j", "payload": {"$base64": "/wA="}},
    ]


def test_pub_sends_each_line_of_its_input(server: RunningServer) -> None:
    with listening(server, "sub", "l", "--count", "3", "--raw") as sub:
        sent = millstream(server, "pub", "l", "--lines", "--json", stdin=b"a\n\nb\r\n")
        assert json.loads(sent.stdout) == {"subject": "l", "published": 3, "stored": 0}
        assert sub.communicate(timeout=LIMIT)[0] == b"a\n\nb\n"


def test_sub_ends_when_nothing_arrives_in_time(server: RunningServer) -> None:
    done = millstream(server, "sub", "silence", "--timeout", "0.05")
    assert (done.returncode, done.stdout) == (0, b"")


def test_a_reader_that_leaves_ends_the_pipe_quietly(server: RunningServer) -> None:
    with listening(server, "sub", "pipe") as sub:
        assert sub.stdout is not None
        sub.stdout.close()
        with connect(server.url) as client:
            while sub.poll() is None:
                client.publish("pipe", b"x")
                client.flush()
        assert sub.stderr is not None
        assert sub.stderr.read() == b""


def test_request_prints_what_reply_answers(server: RunningServer) -> None:
    with listening(server, "reply", "add", "three", "--count", "1") as replier:
        answer = millstream(server, "request", "add", "1+2", "--raw")
        assert answer.stdout == b"three\n"
        assert b"1+2" in replier.communicate(timeout=LIMIT)[0]


def test_reply_can_echo(server: RunningServer) -> None:
    with listening(server, "reply", "echo", "--echo", "--count", "1"):
        answer = millstream(server, "request", "echo", "-", "--json", stdin=b"hello")
        assert json.loads(answer.stdout)["payload"] == "hello"


def test_pub_waits_for_the_stream_when_asked_to(server: RunningServer) -> None:
    with connect(server.url) as client:
        body = b'{"name":"ORDERS","subjects":["stored.>"],"storage":"memory"}'
        client.request("$JS.API.STREAM.CREATE.ORDERS", body)
    assert millstream(server, "pub", "stored.a", "1", "--ack").stdout == (
        b"stored in ORDERS as seq 1\n"
    )
    again = millstream(server, "pub", "stored.a", "1", "--ack", "--json")
    assert json.loads(again.stdout) == {"stream": "ORDERS", "seq": 2}
    refused = millstream(
        server, "pub", "stored.a", "1", "--ack", "-H", "Nats-Expected-Last-Sequence: 9"
    )
    assert refused.stderr == b"millstream: not stored: wrong last sequence: 2\n"
    nowhere = millstream(server, "pub", "unstored", "1", "--ack")
    assert nowhere.stderr == (b"millstream: no stream captures 'unstored', so nothing was stored\n")
    assert (refused.returncode, nowhere.returncode) == (1, 1)


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["request", "nobody", "x"], 1, b"millstream: nobody answers requests on 'nobody'\n"),
        (["pub", "a b", "x"], 1, b"millstream: a subject holds no white space: 'a b'\n"),
        (["pub", "a.>", "x"], 2, b"messages go to one subject: 'a.>' holds a wildcard"),
        (["request", "a.*.b", "x"], 2, b"messages go to one subject: 'a.*.b' holds a wildcard"),
        (["pub", "a", "x", "-H", "wrong"], 2, b"a header is written 'Name: value'"),
        (["pub", "a", "x", "--ack", "--reply", "r"], 2, b"exclude each other"),
        (["reply", "a"], 2, b"give either an answer or --echo"),
        (["pbu", "a"], 2, b"no command named 'pbu': did you mean 'pub'?"),
        (["sub", "a", "-s", "http://h"], 1, b"cannot speak http://: use nats:// or tls://"),
    ],
)
def test_a_mistake_is_answered_in_one_line_with_the_fix(
    server: RunningServer, words: list[str], code: int, complaint: bytes
) -> None:
    done = millstream(server, *words)
    assert done.returncode == code
    assert complaint in done.stderr
    assert b"Traceback" not in done.stderr


def test_without_a_server_the_message_says_how_to_start_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"nats://127.0.0.1:{taken.getsockname()[1]}"
    done = millstream(None, "pub", "-s", url, "a", "b")
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"millstream: cannot reach {url}: connection refused. "
        "Start a server with `millstream serve`, or name another with --url\n"
    )


def test_serve_refuses_an_open_address_before_it_touches_anything() -> None:
    done = millstream(None, "serve", "--host", "0.0.0.0")
    assert done.returncode == 1
    assert done.stderr.startswith(b"millstream: refusing to listen on 0.0.0.0 without credentials")


def test_version_is_told_to_people_and_programs() -> None:
    assert millstream(None, "version").stdout.startswith(b"millstream 0.1.0 (Python 3.")
    assert json.loads(millstream(None, "version", "--json").stdout)["version"] == "0.1.0"
    assert millstream(None, "--version").stdout == b"millstream 0.1.0\n"


def test_every_command_has_help() -> None:
    listed = millstream(None, "--help").stdout.decode().partition("Commands:\n")[2]
    for line in listed.splitlines():
        done = millstream(None, line.split()[0], "--help")
        assert (done.returncode, done.stdout[:6]) == (0, b"Usage:")
    assert millstream(None, "pub", "-h").stdout == millstream(None, "pub", "--help").stdout
