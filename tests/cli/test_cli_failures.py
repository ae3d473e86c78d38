"""Each command with a wrong name, no server, wrong credentials, no rights, a closed pipe, Ctrl-C.

The table has every command of the tree: one that is new must be added, or the test fails.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from millstream.cli.commands import cli
from millstream.cli.operator.man import walk
from support.broker import millstream
from support.command_line import Ran, run
from support.peers import Peer, free_port

# Commands that talk to a server over NATS: words that are right but for a name that is not there.
NATS = {
    "stream ls": [], "stream info": ["S"], "stream report": [], "stream add": ["S"],
    "stream edit": ["S", "--max-age", "1h", "-f"], "stream copy": ["S", "T"],
    "stream rm": ["S", "-f"], "stream purge": ["S", "-f"], "stream rmm": ["S", "1", "-f"],
    "stream view": ["S"], "stream get": ["S", "1"], "stream gaps": ["S"],
    "stream backup": ["S", "{tmp}/new"], "stream restore": ["{tmp}/saved"],
    "consumer ls": ["S"], "consumer info": ["S", "c"], "consumer report": ["S"],
    "consumer why": ["S", "c"], "consumer add": ["S", "c"],
    "consumer edit": ["S", "c", "--max-pending", "5", "-f"], "consumer rm": ["S", "c", "-f"],
    "consumer next": ["S", "c"], "consumer pause": ["S", "c", "1h"],
    "consumer resume": ["S", "c"], "consumer reset": ["S", "c", "-f"],
    "consumer unpin": ["S", "c", "g"],
    "kv ls": ["B"], "kv info": ["B"], "kv add": ["B"], "kv edit": ["B", "--history", "2"],
    "kv rm": ["B", "-f"], "kv put": ["B", "k", "v"], "kv create": ["B", "k", "v"],
    "kv update": ["B", "k", "v", "1"], "kv del": ["B", "k"], "kv purge": ["B", "k", "-f"],
    "kv revert": ["B", "k", "1", "-f"], "kv compact": ["B", "-f"], "kv get": ["B", "k"],
    "kv history": ["B", "k"], "kv watch": ["B"],
    "object ls": ["F"], "object info": ["F"], "object add": ["F"], "object rm": ["F", "-f"],
    "object put": ["F", "-", "--name", "n"], "object get": ["F", "n"],
    "object seal": ["F", "-f"], "object watch": ["F"],
    "reader ls": ["S"], "reader info": ["S", "r"], "reader rm": ["S", "r", "-f"],
    "schedule add": ["no.such", "x", "--in", "1h"], "schedule ls": ["S"],
    "schedule rm": ["S", "n", "-f"],
    "account info": [], "rtt": [], "latency": [], "events": [], "pub": ["a.b", "x"],
    "sub": ["a.b"], "request": ["a.b", "x"], "reply": ["a.b", "x"],
    "bench core": ["--msgs", "10"], "bench js": ["--msgs", "10"], "bench kv": ["--msgs", "10"],
    "server check connection": [], "server check stream": ["S"],
    "server check consumer": ["S", "c"], "apply": ["-f", "{tmp}/server.yaml", "--yes"], "get": [],
}  # fmt: skip
HTTP = {
    "topic ls": [], "topic info": ["t"], "topic add": ["t"],
    "topic edit": ["t", "--ttl", "1h", "-f"], "topic rm": ["t", "-f"], "topic pub": ["t", "1"],
    "topic view": ["t"], "topic tail": ["t"], "topic purge": ["t", "--before", "5", "-f"],
    "queue ls": [], "queue info": ["t"], "queue add": ["t"],
    "queue edit": ["t", "--lease", "1m", "-f"], "queue rm": ["t", "-f"],
    "queue pub": ["t", "1"], "queue view": ["t"], "queue next": ["t"],
    "router ls": [], "router info": ["r"], "router add": ["r", "a", "b"],
    "router rm": ["r", "-f"], "dlq ls": [], "dlq replay": ["t"], "work": ["t", "--", "true"],
    "server info": [], "server report connections": [], "server report streams": [],
    "server report accounts": [], "account report": [], "server check health": [],
    "server check queue": ["t"], "top": ["--once"], "bench http": ["--msgs", "10"],
    "open": ["--print"],
}  # fmt: skip
# Those that talk to no server, or are tried elsewhere.
ALONE = {
    "serve", "nats-server", "version", "man", "completion", "errors", "doctor", "fsck", "scrub",
    "repair", "dump", "backup", "restore", "server reload", "server drain", "server stop",
    "user add", "user ls", "user rm", "user passwd", "key add", "key list", "key revoke",
    "key disable", "context add", "context ls", "context info", "context select", "context rm",
    "bench spark", "fleet status",
}  # fmt: skip
# Names that need not be there: these commands make, list, or wait for something.
MAKES = {
    "stream ls", "stream report", "stream add", "kv add", "object add", "account info", "rtt",
    "latency", "events", "pub", "sub", "reply", "request", "bench core", "bench js", "bench kv",
    "server check connection", "apply", "get", "stream restore", "topic ls", "topic add",
    "topic pub", "queue ls", "queue add", "queue pub", "router ls", "router add", "dlq ls",
    "server info", "server report connections", "server report streams",
    "server report accounts", "account report", "server check health", "top", "bench http", "open",
}  # fmt: skip
CHECKS = "server check"


def words_of(name: str, tmp: Path) -> list[str]:
    given = {**NATS, **HTTP}[name]
    return [*name.split(), *(word.replace("{tmp}", str(tmp)) for word in given)]


def with_options(words: list[str], *options: str) -> list[str]:
    if "--" in words:
        at = words.index("--")
        return [*words[:at], *options, *words[at:]]
    return [*words, *options]


def call(capsys: pytest.CaptureFixture[str], words: list[str], *options: str) -> Ran:
    return run(capsys, with_options(words, *options), b"x")


@pytest.fixture
def tmp(tmp_path: Path) -> Path:
    (tmp_path / "saved").mkdir()
    config = {"name": "S", "subjects": ["s.>"]}
    state = {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0, "consumer_count": 0}
    (tmp_path / "saved" / "backup.json").write_text(json.dumps({"config": config, "state": state}))
    (tmp_path / "saved" / "stream.tar.s2").write_bytes(b"")
    (tmp_path / "server.yaml").write_text("streams: {A: {subjects: [a.x]}}")
    return tmp_path


def test_the_table_has_every_command() -> None:
    root = click.Context(cli, info_name="millstream")
    known = {name for name, found, _ in walk(cli, root, "") if not isinstance(found, click.Group)}
    pipelines = {name for name in known if name.startswith("pipeline ")}
    assert known - pipelines == {*NATS, *HTTP, *ALONE}


@pytest.mark.parametrize("name", [*NATS, *HTTP])
def test_a_server_that_is_not_there_is_named_in_one_line(
    name: str, tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    url = ["-s", f"nats://127.0.0.1:{port}"] if name in NATS else []
    web = ["--http-url", f"http://127.0.0.1:{port}"] if name in HTTP else []
    done = call(capsys, words_of(name, tmp), *url, *web)
    said = done.out if name.startswith(CHECKS) else done.err
    assert done.code == (2 if name.startswith(CHECKS) else 1), said
    assert f"127.0.0.1:{port}" in said
    assert "serve" in said  # what to do about it
    assert len(said.strip().splitlines()) == 1


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    conf = tmp_path_factory.mktemp("conf") / "server.conf"
    conf.write_text(
        "authorization { users: [ {user: ada, password: s3cret}, "
        "{user: bob, password: b0b, permissions: {publish: nowhere, subscribe: nowhere}} ] }"
    )
    with millstream(extra=["-c", str(conf)]) as running:
        yield running


def doors(name: str, peer: Peer) -> list[str]:
    nats = ["-s", peer.url] if name in NATS else []
    return [*nats, *(["--http-url", f"http://127.0.0.1:{peer.http_port}"] if name in HTTP else [])]


OPEN = ("server check health", "open")  # who is well may be asked by everybody


@pytest.mark.parametrize("name", [name for name in (*NATS, *HTTP) if name not in OPEN])
def test_wrong_credentials_are_told_in_one_line(
    name: str, guarded: Peer, tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = call(
        capsys, words_of(name, tmp), *doors(name, guarded), "--user", "ada", "--password", "x"
    )
    said = done.out if name.startswith(CHECKS) else done.err
    assert done.code == (2 if name.startswith(CHECKS) else 1), said
    assert "credential" in said.lower() or "unauthorized" in said.lower()
    assert len(said.strip().splitlines()) == 1


WAITS = ("sub", "reply", "events", "latency", "bench core", "rtt", "server check connection")


@pytest.mark.parametrize("name", [n for n in (*NATS, *HTTP) if n not in (*OPEN, *WAITS)])
def test_a_user_who_may_not_is_told_so(
    name: str, guarded: Peer, tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    who = ("--user", "bob", "--password", "b0b", "--timeout", "2")
    done = call(capsys, words_of(name, tmp), *doors(name, guarded), *who)
    said = done.out + done.err
    if done.code == 0:  # it shows only what the user may see, which is nothing
        assert name in ("topic ls", "queue ls", "router ls", "dlq ls"), said
        return
    assert "Traceback" not in said
    told = ("permission", "forbidden", "may not", "no reply", "refused", "no router named")
    assert any(word in said.lower() for word in told), said


@pytest.mark.parametrize("name", [name for name in (*NATS, *HTTP) if name not in MAKES])
def test_a_name_that_is_not_there_is_named(
    name: str, ours: Peer, tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--json"]):
        done = call(capsys, words_of(name, tmp), *doors(name, ours), *_json(name, more))
        said = done.out if name.startswith(CHECKS) else done.err
        assert done.code in ((2, 3) if name.startswith(CHECKS) else (1,)), said
        assert "Traceback" not in said
        assert len(said.strip().splitlines()) == 1, said
        assert any(word in said for word in ("no ", "not found", "no stream captures")), said


def _json(name: str, more: list[str]) -> list[str]:
    return [] if name in ("work", "dlq replay") else more


LISTS = [
    *("stream ls", "stream report", "kv ls", "object ls", "topic ls", "queue ls", "router ls"),
    *("consumer report", "server report connections", "server report accounts"),
    *("server report streams", "account info", "server info", "get", "errors", "version"),
]


@pytest.mark.parametrize("name", LISTS)
def test_lists_are_json_when_asked_for(
    name: str, ours: Peer, capsys: pytest.CaptureFixture[str]
) -> None:
    done = call(capsys, name.split(), *doors(name, ours), "--json")
    assert done.code == 0, done.err
    text = [done.out] if name == "get" else done.out.splitlines()
    assert all(isinstance(json.loads(line), dict) for line in text)


@pytest.mark.parametrize("words", [["errors"], ["man"], ["sub", ">"], ["stream", "view", "BIG"]])
def test_a_reader_that_leaves_ends_a_command_quietly(words: list[str], ours: Peer) -> None:
    url = [] if words[0] in ("errors", "man") else ["-s", ours.url]
    with subprocess.Popen(
        [sys.executable, "-m", "millstream", *words, *url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if words[0] == "sub":
            process.stderr.readline()
            process.send_signal(signal.SIGINT)  # nobody publishes: it ends as somebody wants
        process.stdout.close()
        said = process.stderr.read()
        process.wait(60)
    assert b"Traceback" not in said
    assert b"Broken pipe" not in said


@pytest.mark.parametrize(
    "words",
    [["sub", "a.b"], ["reply", "a.b", "x"], ["events"], ["top"], ["kv", "watch", "W"],
     ["object", "watch", "W"], ["topic", "tail", "tailed"]],
)  # fmt: skip
def test_ctrl_c_ends_what_waits_with_130_and_says_nothing(words: list[str], ours: Peer) -> None:
    web = f"http://127.0.0.1:{ours.http_port}"
    is_http = words[0] in ("top", "topic")
    options = ["--http-url", web] if is_http else ["-s", ours.url]
    for made in (["kv", "add", "W"], ["object", "add", "W"]):
        subprocess.run(
            [sys.executable, "-m", "millstream", *made, "-s", ours.url],
            capture_output=True, check=False, timeout=60,
        )  # fmt: skip
    subprocess.run(
        [sys.executable, "-m", "millstream", "topic", "pub", "tailed", "1", "--http-url", web],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    follow = ["--after", "0"] if words[0] == "topic" else []
    with subprocess.Popen(
        [sys.executable, "-m", "millstream", *words, *follow, *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        if words[0] in ("sub", "reply", "events"):
            process.stderr.readline()  # listening
        elif words[0] in ("top", "topic"):
            process.stdout.readline()
        else:
            os.set_blocking(process.stdout.fileno(), True)
            _publish(words[0], ours)
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert b"Traceback" not in process.stderr.read()


def _publish(kind: str, ours: Peer) -> None:
    words = (
        ["kv", "put", "W", "k", "v"] if kind == "kv" else ["object", "put", "W", "-", "--name", "n"]
    )
    subprocess.run(
        [sys.executable, "-m", "millstream", *words, "-s", ours.url],
        input=b"x", capture_output=True, check=True, timeout=60,
    )  # fmt: skip
