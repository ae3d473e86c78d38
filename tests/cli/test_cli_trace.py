"""What ``-V``, ``-D`` and ``-DV`` put into the log: the same lines as nats-server's."""

import json
import re
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.server_process import OURS, THEIRS, Started, Wire, started

both_servers = pytest.mark.parametrize("program", [OURS, THEIRS], ids=["ours", "theirs"])
TALK = (
    'CONNECT {"verbose":false,"headers":true,"user":"joe","pass":"s3cr3t","name":"app",'
    '"lang":"py","version":"1"}\r\n'
    "SUB foo 1\r\nPUB foo 5\r\nhello\r\n"
)


def traced(server: Started) -> list[str]:
    """Return the lines about clients without what differs from run to run."""
    found = []
    for line in server.lines:
        shown = re.sub(r"^\[\d+\] \S+ \S+ ", "", line)
        if not re.match(r"\[(TRC|DBG)\] 127\.0\.0\.1:\d+ - cid:", shown):
            continue
        # A server asks back a second or two after a client came, if it is still there by then.
        if not re.search(r"DELSUB|->> \[PING\]|<<- \[PONG\]|Ping Timer", shown):
            found.append(re.sub(r"127\.0\.0\.1:\d+ - cid:\d+", "CLIENT", shown))
    return found


def conversation(program: Sequence[str], *flags: str, talk: str = TALK) -> list[str]:
    with started(*flags, program=program) as server:
        url = server.ready()
        with Wire(url) as client:
            client.say(talk + "PUB last.one 0\r\n\r\nPING")
            for line in client.lines():
                if line == "PONG":
                    break
        if "-D" in flags:  # a server told to stop first would have closed the client itself
            server.until("Client connection closed")
        server.finish()
        return traced(server)


@both_servers
def test_a_trace_shows_both_directions(program: Sequence[str]) -> None:
    assert conversation(program, "-V") == [
        '[TRC] CLIENT - <<- [CONNECT {"verbose":false,"headers":true,"user":"joe",'
        '"pass":"[REDACTED]","name":"app","lang":"py","version":"1"}]',
        '[TRC] CLIENT - "v1:py:app" - "$G/user:joe" - <<- [SUB foo 1]',
        '[TRC] CLIENT - "v1:py:app" - "$G/user:joe" - <<- [PUB foo 5]',
        '[TRC] CLIENT - "v1:py:app" - "$G/user:joe" - <<- MSG_PAYLOAD: ["hello"]',
        '[TRC] CLIENT - "v1:py:app" - "$G/user:joe" - ->> [MSG foo 1 5]',
        '[TRC] CLIENT - "v1:py:app" - "$G/user:joe" - ->> MSG_PAYLOAD: ["hello"]',
        '[TRC] CLIENT - "v1:py:app" - "$G/user:joe" - <<- [PUB last.one 0]',
        '[TRC] CLIENT - "v1:py:app" - "$G/user:joe" - <<- [PING]',
        '[TRC] CLIENT - "v1:py:app" - "$G/user:joe" - ->> [PONG]',
    ]


@both_servers
def test_debug_tells_who_comes_and_goes(program: Sequence[str]) -> None:
    assert conversation(program, "-D") == [
        "[DBG] CLIENT - Client connection created",
        '[DBG] CLIENT - "v1:py:app" - "$G/user:joe" - Client connection closed: Client Closed',
    ]


@both_servers
@pytest.mark.parametrize("flag", ["-DV", "-DVV"])
def test_both_can_be_asked_for_at_once(program: Sequence[str], flag: str) -> None:
    found = conversation(program, flag)
    assert found[0] == "[DBG] CLIENT - Client connection created"
    assert any("<<- [PUB foo 5]" in line for line in found)


@both_servers
def test_headers_alone_and_short_payloads_can_be_asked_for(
    program: Sequence[str], tmp_path: Path
) -> None:
    conf = tmp_path / "nats.conf"
    talk = (
        'CONNECT {"verbose":false,"headers":true}\r\n'
        "HPUB foo 18 23\r\nNATS/1.0\r\nA: b\r\n\r\nhello\r\nPUB foo 5\r\nhello\r\n"
    )
    conf.write_text("trace_headers: true\n")
    shown = [x for x in conversation(program, "-c", str(conf), talk=talk) if "PAYLOAD" in x]
    assert shown == [r'[TRC] CLIENT - <<- MSG_PAYLOAD: ["NATS/1.0\r\nA: b"]']
    conf.write_text("trace: true\nmax_traced_msg_len: 3\n")
    shown = [x for x in conversation(program, "-c", str(conf)) if "<<- MSG_PAYLOAD" in x]
    assert shown == ['[TRC] CLIENT - "v1:py:app" - "$G/user:joe" - <<- MSG_PAYLOAD: ["hel..."]']


@both_servers
def test_refusals_are_traced(program: Sequence[str]) -> None:
    found = conversation(program, "-V", talk='CONNECT {"verbose":true}\r\nSUB a..b 1\r\n')
    assert "[TRC] CLIENT - ->> [OK]" in found
    assert "[TRC] CLIENT - ->> [-ERR Invalid Subject]" in found


def test_without_flags_nothing_of_a_conversation_is_logged() -> None:
    assert conversation(OURS) == []


def test_a_mapping_is_traced(tmp_path: Path) -> None:
    conf = tmp_path / "nats.conf"
    conf.write_text("trace: true\nmappings { foo: bar }\n")
    assert any("<<- [MAPPING foo -> bar]" in x for x in conversation(OURS, "-c", str(conf)))


@both_servers
def test_round_trips_are_measured_soon_after_connecting(
    program: Sequence[str], tmp_path: Path
) -> None:
    with started("-m", "-1", program=program) as server:
        monitor = server.until(r"Starting http monitor on \S+:(\d+)")[1]
        with Wire(server.ready()) as client:
            client.say('CONNECT {"verbose":false}\r\nPING')
            lines = client.lines(answer_pings=False)
            heard = [next(lines), next(lines)]
            assert sorted(heard) == ["PING", "PONG"]  # to a slow client in this order
            client.say("PONG\r\nPING")
            assert next(lines) == "PONG"
            with urllib.request.urlopen(f"http://127.0.0.1:{monitor}/connz") as answer:
                (connection,) = json.load(answer)["connections"]
        assert re.fullmatch(r"[\d.]+(ms|µs|s|ns)", connection["rtt"])


@both_servers
def test_the_end_of_a_subscription_is_traced(program: Sequence[str]) -> None:
    talk = (
        'CONNECT {"verbose":false}\r\nSUB a 1\r\nSUB b 2\r\nSUB c 3\r\n'
        "UNSUB 1\r\nUNSUB 2 1\r\nPUB b 1\r\nx\r\nUNSUB 9\r\nUNSUB 3 5"
    )
    with started("-DV", program=program) as server:
        with Wire(server.ready()) as client:
            client.say(talk)
            assert "MSG b 2 1" in client.answers()
        server.until(r"DELSUB 3")
        found = [line.partition(" - cid:")[2].partition(" - ")[2] for line in server.lines]
    ends = [at for at, line in enumerate(found) if "DELSUB" in line]
    assert [found[at] for at in ends] == ["<-> [DELSUB 1]", "<-> [DELSUB 2]", "<-> [DELSUB 3]"]
    before = [found[at - 1] for at in ends]
    assert before[0] == "<<- [UNSUB 1]"
    assert before[1] == '->> MSG_PAYLOAD: ["x"]'
    assert before[2] == "Client connection closed: Client Closed"
