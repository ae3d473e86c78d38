"""What a configuration does to clients: the same with our ``nats-server`` and the real one."""

import signal
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.server_process import OURS, THEIRS, Started, Wire, started

both_servers = pytest.mark.parametrize("program", [OURS, THEIRS], ids=["ours", "theirs"])
CONNECT = 'CONNECT {"verbose":false}'


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "nats.conf"


def reload(server: Started, conf: Path, text: str) -> None:
    conf.write_text(text)
    server.tell(signal.SIGHUP)
    server.until("Reloaded server configuration")


def users(permissions: str) -> str:
    return (
        "authorization { users: [ {user: a, pass: secret, permissions: {"
        f"{permissions}}}}}, {{user: b, pass: secret}} ] }}\n"
    )


@both_servers
def test_a_reload_takes_away_subscriptions_that_are_forbidden_now(
    program: Sequence[str], conf: Path
) -> None:
    conf.write_text(users('subscribe: ["x.>", "y", "q.>"]'))
    with started("-c", str(conf), program=program) as server, ExitStack() as stack:
        url = server.ready()
        a, b = (stack.enter_context(Wire(url)) for _ in range(2))
        a.say('CONNECT {"verbose":false,"user":"a","pass":"secret"}')
        a.say("SUB x.1 1\r\nSUB y 2\r\nSUB q.1 workers 3\r\nSUB x.* 4")
        b.say('CONNECT {"verbose":false,"user":"b","pass":"secret"}')
        assert a.answers() == b.answers() == []
        reload(server, conf, users('subscribe: {allow: ["x.>"], deny: "x.2"}'))
        violation = "-ERR 'Permissions Violation for Subscription to"
        assert sorted(a.answers()) == [
            f'{violation} "q.1" using queue "workers" (sid "3")\'',
            f'{violation} "y" (sid "2")\'',
        ]
        b.say("PUB x.1 0\r\n\r\nPUB x.2 0\r\n\r\nPUB y 0\r\n\r\nPUB q.1 0\r\n")
        assert b.answers() == []
        assert sorted(line for line in a.answers() if line) == ["MSG x.1 1 0", "MSG x.1 4 0"]


@both_servers
def test_a_reload_forbids_publishes_of_clients_that_stay(
    program: Sequence[str], conf: Path
) -> None:
    conf.write_text(users('publish: ["x"]'))
    with started("-c", str(conf), program=program) as server, Wire(server.ready()) as a:
        a.say('CONNECT {"verbose":false,"user":"a","pass":"secret"}\r\nPUB x 0\r\n')
        assert a.answers() == []
        reload(server, conf, users('publish: ["z"]'))
        a.say("PUB x 0\r\n\r\nPUB z 0\r\n")
        assert a.answers() == ["-ERR 'Permissions Violation for Publish to \"x\"'"]


@both_servers
def test_a_reload_changes_the_largest_payload(program: Sequence[str], conf: Path) -> None:
    conf.write_text("max_payload: 100\n")
    with started("-c", str(conf), program=program) as server:
        url = server.ready()
        with Wire(url) as old:
            old.say(CONNECT + "\r\nPUB x 50\r\n" + 50 * "x")
            old.answers()
            reload(server, conf, "max_payload: 10\n")
            with Wire(url) as new:
                assert new.info["max_payload"] == 10
            old.say("PUB x 50\r\n" + 50 * "x")
            assert list(old.rest()) == ["-ERR 'Maximum Payload Violation'"]


@both_servers
def test_a_control_line_may_be_as_long_as_configured(program: Sequence[str], conf: Path) -> None:
    conf.write_text("max_control_line: 512\n")
    with started("-c", str(conf), program=program) as server:
        url = server.ready()
        with Wire(url) as client:
            client.say(CONNECT + "\r\nPUB " + 510 * "x" + " 0\r\n")
            client.answers()
            client.say("PUB " + 511 * "x" + " 0\r\n")
            assert list(client.rest()) == ["-ERR 'maximum control line exceeded'"]
        with Wire(url) as client:
            client.say(CONNECT)
            client.answers()
            reload(server, conf, "max_control_line: 2048\n")
            client.say("PUB " + 1500 * "x" + " 0\r\n")
            assert client.answers() == []
            client.say("SUB " + 3000 * "x")
            assert list(client.rest()) == ["-ERR 'maximum control line exceeded'"]


@both_servers
def test_a_reload_changes_the_mappings(program: Sequence[str], conf: Path) -> None:
    conf.write_text("mappings { foo: bar }\n")
    with started("-c", str(conf), program=program) as server, Wire(server.ready()) as client:
        client.say('CONNECT {"verbose":false}\r\nSUB > 1\r\nPUB foo 0\r\n')
        assert client.answers() == ["MSG bar 1 0", ""]
        reload(server, conf, "mappings { foo: other }\n")
        client.say("PUB foo 0\r\n")
        assert client.answers() == ["MSG other 1 0", ""]


@both_servers
def test_without_a_cache_of_matches_messages_go_the_same_ways(
    program: Sequence[str], conf: Path
) -> None:
    conf.write_text("disable_sublist_cache: true\n")
    with started("-c", str(conf), program=program) as server, Wire(server.ready()) as client:
        client.say(CONNECT + "\r\nSUB a.* 1\r\nSUB b 2")
        client.say("PUB a.1 0\r\n\r\nPUB b 0\r\n\r\nPUB a.1 0\r\n\r\nPUB c 0\r\n")
        heard = [line for line in client.answers() if line]
        assert heard == ["MSG a.1 1 0", "MSG b 2 0", "MSG a.1 1 0"]
