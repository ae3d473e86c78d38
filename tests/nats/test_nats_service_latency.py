"""Response times of exported services, as nats-server tells them."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from guarded_sessions import Client, GuardedSessions

from millstream.accounts.account import Account, Export, Import, Latency
from millstream.accounts.claims import account_of_claims
from millstream.accounts.credentials import Credentials, User
from millstream.accounts.jwt import JwtClaims
from millstream.nats.accounts.service_latency import sampled_by
from support.server_process import OURS, THEIRS, Wire, started

CONFIG = """
accounts {
  A { users: [{user: a, password: secret}]
      exports: [{service: "svc", latency: {sampling: %s, subject: "took"}}] }
  B { users: [{user: b, password: secret}]
      imports: [{service: {account: A, subject: "svc"}, to: "ask", share: true}] }
}
"""


both_servers = pytest.mark.parametrize("program", [OURS, THEIRS], ids=["ours", "theirs"])


def told(program: Sequence[str], conf: Path, asked: str, sampling: str = "100%") -> Any:
    """Return what the owner of the service is told of what ``b`` asked."""
    conf.write_text(CONFIG % sampling)
    with started("-c", str(conf), program=program) as server, ExitStack() as stack:
        url = server.ready()
        owner, asker = (stack.enter_context(Wire(url)) for _ in range(2))
        for client, user in ((owner, "a"), (asker, "b")):
            client.say(
                f'CONNECT {{"verbose":false,"headers":true,"user":"{user}","pass":"secret"}}'
            )
        owner.say("SUB took 1\r\nSUB _INBOX.end 2")
        assert owner.answers() == []
        asker.say(asked)
        asker.answers()
        # The real server tells from another thread; what it is asked later, it answers later.
        owner.say("PUB $SYS.REQ.USER.INFO _INBOX.end 0\r\n")
        heard = []
        for line in owner.lines():
            if line.startswith("MSG _INBOX.end"):
                break
            heard.append(line)
    (event,) = [json.loads(line) for line in heard if line.startswith("{")]
    assert {"type", "id", "timestamp", "start", "service", "system", "total"} <= set(event)
    return event


@both_servers
def test_a_request_without_a_reply_subject_is_told_as_a_bad_one(
    program: Sequence[str], tmp_path: Path
) -> None:
    event = told(program, tmp_path / "nats.conf", "PUB ask 0\r\n")
    assert (event["status"], event["description"]) == (400, "Bad Request")
    assert {"acc": "B", "user": "b"}.items() <= event["requestor"].items()


@both_servers
def test_a_request_that_nobody_takes_is_told(program: Sequence[str], tmp_path: Path) -> None:
    event = told(program, tmp_path / "nats.conf", "SUB in 1\r\nPUB ask in 0\r\n")
    assert (event["status"], event["description"]) == (503, "Service Unavailable")


@both_servers
def test_headers_can_ask_for_a_measurement(program: Sequence[str], tmp_path: Path) -> None:
    blocks = [f"NATS/1.0\r\n{name}: 1\r\n\r\n" for name in ("X-B3-Sampled", "Other")]
    asks = [f"HPUB ask in {len(block)} {len(block)}\r\n{block}" for block in blocks]
    event = told(program, tmp_path / "nats.conf", "\r\n".join(asks), sampling="headers")
    assert event["header"] == {"X-B3-Sampled": ["1"]}


class Answering(GuardedSessions):
    """A service of one account, and a client of another that uses it."""

    def __init__(self, latency: Latency) -> None:
        users = [User("a", "secret", account="A"), User("b", "secret", account="B")]
        accounts = [
            Account("A", exports=(Export("svc", True, latency=latency),)),
            Account("B", imports=(Import("A", "svc", True),)),
        ]
        super().__init__(Credentials(users), accounts)
        self.service: Client = self.user("a")
        self.asker: Client = self.user("b")
        self.service.tell(b"SUB took 1\r\nSUB svc 2\r\n")

    def asked(self) -> bytes:
        """Ask, and return where the service shall answer."""
        self.asker.tell(b"SUB in 1\r\nPUB svc in 0\r\n\r\n")
        return self.service.said().split(b" ")[3]


@pytest.fixture
def answering() -> Iterator[Answering]:
    serving = Answering(Latency("took"))
    yield serving
    serving.close()


def test_an_answer_is_timed(answering: Answering) -> None:
    reply = answering.asked()
    answering.clock.advance(1.5)
    told = answering.service.tell(b"PUB %s 2\r\nok\r\n" % reply)
    event = json.loads(told.split(b"\r\n")[1])
    assert event["type"] == "io.nats.server.metric.v1.service_latency"
    assert (event["status"], event["service"], event["total"]) == (200, 1.5e9, 1.5e9)
    assert event["requestor"] == {"acc": "B"}
    assert event["responder"]["user"] == "a"
    assert answering.asker.said().startswith(b"MSG in 1")


def test_an_answer_that_does_not_come_in_time_is_told(answering: Answering) -> None:
    answering.asked()
    answering.clock.advance(121.0)
    answering.asker.tell(b"PUB svc in 0\r\n\r\n")
    event = json.loads(answering.service.said().split(b"\r\n")[1])
    assert (event["status"], event["description"]) == (504, "Service Timeout")


def test_an_answer_that_nobody_waits_for_any_more_is_told(answering: Answering) -> None:
    reply = answering.asked()
    answering.asker.tell(b"UNSUB 1\r\n")
    told = answering.service.tell(b"PUB %s 2\r\nok\r\n" % reply)
    assert json.loads(told.split(b"\r\n")[1])["status"] == 408


@pytest.mark.parametrize(
    ("headers", "asks"),
    [
        ({"Uber-Trace-Id": ["479fefe9525eddb:5adb976bfc1f95c1:479fefe9525eddb:1"]}, True),
        ({"Uber-Trace-Id": ["479fefe9525eddb:5adb976bfc1f95c1:479fefe9525eddb:0"]}, False),
        ({"X-B3-Sampled": ["1"]}, True),
        ({"X-B3-Sampled": ["0"], "X-B3-Traceid": ["80f1"]}, False),
        ({"X-B3-Traceid": ["80f198ee56343ba864fe8b2a57d3eff7"]}, True),
        ({"B3": ["80f1-e457-1-05e3"]}, True),
        ({"B3": ["80f1-e457-0-05e3"]}, False),
        ({"B3": ["0"]}, False),
        ({"Traceparent": ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]}, True),
        ({"Traceparent": ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"]}, False),
        ({"Other": ["1"]}, False),
        ({}, False),
    ],
)
def test_trace_headers_say_whether_to_measure(headers: dict[str, list[str]], asks: bool) -> None:
    assert bool(sampled_by(headers)) is asks


def test_an_account_jwt_says_where_to_tell() -> None:
    exports = [
        {"subject": "a", "type": "service", "service_latency": {"sampling": 20, "results": "t"}},
        {
            "subject": "b",
            "type": "service",
            "service_latency": {"sampling": "headers", "results": "t"},
        },
        {"subject": "c", "type": "service"},
    ]
    account = account_of_claims(JwtClaims("O", "A", "team", 0, 0, 0, {"exports": exports}))
    assert [e.latency for e in account.exports] == [Latency("t", 20), Latency("t", 0), None]
