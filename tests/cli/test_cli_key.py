"""``millstream key``, and a served HTTP door that believes the keys it hands out."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

LIMIT = 20.0
ENVIRONMENT = "environment-s3cret"


def key(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MILLSTREAM_DATA_DIR": str(directory)}
    command = [sys.executable, "-m", "millstream", "key", *words]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )


@contextmanager
def serving(directory: Path, *words: str, **environment: str) -> Iterator[tuple[str, int, Path]]:
    """Run a server; gives where HTTP is, and the file of everything that it said."""
    ports, said = directory / "ports", directory / "said.log"
    command = [sys.executable, "-m", "millstream", "serve", "--port", "0", "--http-port", "0"]
    command += ["--data-dir", str(directory / "data"), "--ports-file-dir", str(ports), *words]
    with said.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + LIMIT
        while not (found := list(ports.glob(f"*{process.pid}.ports"))):
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.02)
        host, _, port = json.loads(found[0].read_text())["monitoring"][0][7:].rpartition(":")
        yield host, int(port), said
    finally:
        process.terminate()
        process.wait(LIMIT)


def ask(
    door: tuple[str, int, Path], method: str, path: str, secret: str = "", body: object = None
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(door[0], door[1], timeout=LIMIT)
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_a_secret_is_shown_once_and_the_list_never_has_it(tmp_path: Path) -> None:
    made = key(tmp_path, "add", "--name", "one", "--scopes", "rw", "--prefix", "a.")
    secret = made.stdout.strip()
    assert made.returncode == 0
    assert secret.startswith("msk_")
    assert secret not in made.stderr
    listed = key(tmp_path, "list")
    assert listed.stdout == "one\tread+write\ta.\t$G\n"
    assert key(tmp_path, "revoke", "one").returncode == 0
    assert key(tmp_path, "list").stdout == ""


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["add", "--name", "two words"], "a name is one word"),
        (["add", "--scopes", "all"], "a scope must be read, write"),
        (["add", "--scopes", "+"], "the scopes must name"),
        (["add", "--prefix", ""], "a prefix is not empty"),
        (["revoke", "nobody"], "there is no key named 'nobody'"),
    ],
)
def test_a_mistake_is_told_in_one_line(tmp_path: Path, words: list[str], complaint: str) -> None:
    done = key(tmp_path / "data", *words)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert not (tmp_path / "data" / "api-keys.json").exists()


def test_two_keys_of_one_name_are_refused(tmp_path: Path) -> None:
    assert key(tmp_path, "add", "--name", "one").returncode == 0
    again = key(tmp_path, "add", "--name", "one")
    assert (again.returncode, again.stdout) == (2, "")
    assert len(key(tmp_path, "list").stdout.splitlines()) == 1


def test_a_served_stream_ends_when_its_key_is_revoked(tmp_path: Path) -> None:
    secret = key(tmp_path / "data", "add", "--name", "one").stdout.strip()
    with serving(tmp_path, MILLSTREAM_API_KEYS=f"{ENVIRONMENT}:read") as door:
        assert ask(door, "GET", "/v0/topics")[0] == 401
        assert ask(door, "GET", "/nothing")[0] == 401
        assert ask(door, "GET", "/v0/health")[0] == 200
        assert ask(door, "GET", "/v0/topics", ENVIRONMENT)[0] == 200
        assert ask(door, "PUT", "/v0/topics/t", ENVIRONMENT)[0] == 403
        assert ask(door, "PUT", "/v0/topics/t", secret)[0] == 201
        told = ask(door, "GET", "/varz", ENVIRONMENT)[1]
        stream = http.client.HTTPConnection(door[0], door[1], timeout=LIMIT)
        stream.request("GET", "/v0/topics/t/tail", headers={"Authorization": f"Bearer {secret}"})
        events = stream.getresponse()
        assert events.status == 200
        assert key(tmp_path / "data", "revoke", "one").returncode == 0
        revoked = time.monotonic()  # from here on: to start a command takes a busy machine a while
        assert b"unauthorized" in events.read()  # returns when the server ends the stream
        assert time.monotonic() - revoked < 5
        stream.close()
        assert ask(door, "GET", "/v0/topics", secret)[0] == 401
        said = door[2].read_bytes()
    for shown in (told, said, door[2].read_bytes()):
        assert secret.encode() not in shown
        assert ENVIRONMENT.encode() not in shown


def test_a_believed_request_does_not_vouch_for_the_next_on_its_connection(tmp_path: Path) -> None:
    head = "GET /v0/topics HTTP/1.1\r\nHost: localhost\r\n"
    believed = f"{head}Authorization: Bearer {ENVIRONMENT}\r\n\r\n"
    split = f"{head}authorization: Bearer\r\n {ENVIRONMENT}\r\n\r\n"
    with (
        serving(tmp_path, MILLSTREAM_API_KEYS=ENVIRONMENT) as door,
        socket.create_connection(door[:2], LIMIT) as client,
    ):
        client.sendall((believed + f"{head}\r\n" + believed + split).encode())
        client.shutdown(socket.SHUT_WR)
        told = b"".join(iter(lambda: client.recv(65536), b""))
    statuses = [int(part[:3]) for part in told.split(b"HTTP/1.1 ")[1:]]
    assert statuses[:3] == [200, 401, 200]
    assert statuses[3] in (400, 401)


def test_a_server_with_users_asks_http_clients_too(tmp_path: Path) -> None:
    conf = tmp_path / "m.conf"
    conf.write_text("authorization { token: t0ken }")
    with serving(tmp_path, "--config", str(conf)) as door:
        assert ask(door, "GET", "/v0/topics")[0] == 401
        assert ask(door, "GET", "/varz")[0] == 401
        assert ask(door, "GET", "/v0/topics", "t0ken")[0] == 200


def test_keys_that_nobody_can_follow_stop_the_start_without_being_shown(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "millstream", "serve", "--data-dir", str(tmp_path / "data")]
    environment = {**os.environ, "TOPICS_API_KEYS": "hunter2:hunter3"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 1
    assert "TOPICS_API_KEYS: entry 1: a scope must be" in done.stderr
    assert "hunter" not in done.stderr + done.stdout
