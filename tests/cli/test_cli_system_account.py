"""The requests of the system account, asked of our ``nats-server`` and of the real one."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.server_process import OURS, THEIRS, Wire, started

CONF = """
system_account: S
accounts {
  S { users: [{user: s, pass: p}], exports: [{service: "$SYS.DEBUG.SUBSCRIBERS"}] }
  A {
    users: [{user: a, pass: p}]
    jetstream: enabled
    exports: [{service: "svc", accounts: [B]}, {stream: "st.>"}]
    mappings: {"m": [{destination: "n", weight: 30%}]}
  }
  B {
    users: [{user: b, pass: p}]
    imports: [
      {service: {account: A, subject: svc}, to: ask}
      {stream: {account: A, subject: "st.>"}, prefix: "p"}
      {service: {account: S, subject: "$SYS.DEBUG.SUBSCRIBERS"}}
    ]
  }
}
"""


class Server:
    """A running server with a client of every account."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.clients: dict[str, Wire] = {}
        self.id = ""

    def client(self, user: str) -> Wire:
        if user not in self.clients:
            made = self.clients[user] = Wire(self._url)
            options = {"verbose": False, "headers": True, "no_responders": True}
            made.say("CONNECT " + json.dumps({**options, "user": user, "pass": "p"}))
            made.say("SUB _INBOX.* 1")
            assert made.answers() == []
            self.id = made.info["server_id"]
        return self.clients[user]

    def ask(self, user: str, subject: str, body: str = "") -> Any:
        """Return the answer: JSON, the status 503, or None where there was silence."""
        client = self.client(user)
        client.say(f"PUB {subject.replace('<id>', self.id)} _INBOX.r {len(body)}\r\n{body}")
        # The real server answers from another thread: its own answer to a second question,
        # which it takes in order, tells that the first one would have come.
        lines = list(self._until_told(client))
        if "NATS/1.0 503" in lines:
            return 503
        return next((json.loads(x) for x in lines if x[:1] in "{0123456789" and x), None)

    def _until_told(self, client: Wire) -> Iterator[str]:
        client.say("PUB $SYS.REQ.USER.INFO _INBOX.end 0\r\n")
        for line in client.lines():
            if line.startswith("MSG _INBOX.end"):
                next(client.lines())
                return
            yield line


@pytest.fixture(scope="module", params=[OURS, THEIRS], ids=["ours", "theirs"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    program: Sequence[str] = request.param
    with tempfile.TemporaryDirectory() as made:
        conf = Path(made) / "nats.conf"
        conf.write_text(CONF + f'jetstream {{ store_dir: "{made}/js" }}\n')
        with started("-c", str(conf), program=program) as running:
            serving = Server(running.ready())
            for user in "sab":
                serving.client(user)
            serving.client("a").say("SUB x.1 2\r\nSUB x.* q 3")
            assert serving.client("a").answers() == []
            yield serving
            for client in serving.clients.values():
                client.close()


def test_an_account_is_described(server: Server) -> None:
    told = server.ask("s", "$SYS.REQ.ACCOUNT.A.INFO")["data"]
    assert (told["account_name"], told["client_connections"]) == ("A", 1)
    assert told["jetstream_enabled"] is True
    assert told["mappings"]["m"][0] == {"subject": "n", "weight": 30}
    assert {"subject": "svc", "type": "service", "approved_accounts": ["B"]}.items() <= told[
        "exports"
    ][0].items()


def test_the_connections_of_an_account_are_listed(server: Server) -> None:
    told = server.ask("s", "$SYS.REQ.ACCOUNT.A.CONNZ")["data"]
    assert (told["num_connections"], told["total"]) == (1, 1)
    (connection,) = told["connections"]
    assert connection["subscriptions"] == 3


def test_the_subscriptions_of_an_account_are_listed_unasked(server: Server) -> None:
    told = server.ask("s", "$SYS.REQ.ACCOUNT.A.SUBSZ")["data"]
    listed = {item["subject"] for item in told["subscriptions_list"]}
    assert {"x.1", "x.*"} <= listed


def test_the_streams_of_an_account_are_told_alone(server: Server) -> None:
    told = server.ask("s", "$SYS.REQ.ACCOUNT.A.JSZ")["data"]
    assert (told["name"], told["id"], told["memory"], told["storage"]) == ("A", "A", 0, 0)


def test_the_figures_of_accounts_are_told(server: Server) -> None:
    one = server.ask("s", "$SYS.REQ.ACCOUNT.A.STATZ")["data"]["account_statz"]
    assert [(account["acc"], account["conns"]) for account in one] == [("A", 1)]
    every = server.ask("s", "$SYS.REQ.ACCOUNT.PING.STATZ")["data"]["account_statz"]
    assert {account["acc"] for account in every} == {"S", "A", "B"}
    assert set(one[0]["sent"]) == {"msgs", "bytes", "gateways", "routes", "leafs"}
    conns = server.ask("s", "$SYS.REQ.ACCOUNT.A.CONNS")
    assert conns["type"] == "io.nats.server.advisory.v1.account_connections"
    assert set(conns) == {*one[0], "type", "id", "timestamp", "server"}


@pytest.mark.parametrize(
    ("question", "error"),
    [
        ("NOPE.INFO", "Account NOPE does not exist"),
        ("NOPE.JSZ", 'account "NOPE" not found'),
        ("B.JSZ", 'account "B" not jetstream enabled'),
    ],
)
def test_what_is_not_there_is_told_in_the_same_words(
    server: Server, question: str, error: str
) -> None:
    told = server.ask("s", f"$SYS.REQ.ACCOUNT.{question}")["error"]
    assert told == {"code": 500, "description": error}


@pytest.mark.parametrize("question", ["NOPE.STATZ", "NOPE.CONNS"])
def test_nothing_is_told_of_figures_that_nobody_has(server: Server, question: str) -> None:
    assert server.ask("s", f"$SYS.REQ.ACCOUNT.{question}") is None


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        ("s", "$SYS.REQ.ACCOUNT.A.WHAT"),
        ("s", "$SYS.REQ.SERVER.<id>.WHAT"),
        ("s", "$SYS.REQ.CLAIMS.LIST"),
        ("s", "$SYS.REQ.CLAIMS.PACK"),
        ("s", "$SYS.REQ.CLAIMS.UPDATE"),
        ("s", "$SYS.REQ.CLAIMS.DELETE"),
        ("s", "$SYS.REQ.ACCOUNT.A.CLAIMS.LOOKUP"),
        ("a", "$SYS.DEBUG.SUBSCRIBERS"),
        ("a", "$SYS.REQ.SERVER.PING"),
        ("a", "$SYS.REQ.ACCOUNT.B.CONNZ"),
    ],
)
def test_what_nobody_answers_is_told_so(server: Server, user: str, subject: str) -> None:
    assert server.ask(user, subject) == 503


@pytest.mark.parametrize("subject", ["$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ"])
def test_a_client_sees_the_connections_of_its_own_account(server: Server, subject: str) -> None:
    told = server.ask("b", subject)["data"]
    assert (told["num_connections"], told["total"]) == (1, 1)
    assert told["connections"][0]["subscriptions"] == 1


def test_a_client_sees_the_figures_of_its_own_account(server: Server) -> None:
    told = server.ask("b", "$SYS.REQ.ACCOUNT.PING.STATZ")["data"]["account_statz"]
    assert [account["acc"] for account in told] == ["B"]


def test_subscribers_are_counted(server: Server) -> None:
    count = "$SYS.REQ.ACCOUNT.NSUBS"
    assert server.ask("s", count, '{"acc":"A","subject":"x.1"}') == 2
    assert server.ask("s", count, '{"acc":"A","subject":"x.>"}') == 2
    assert server.ask("s", count, '{"acc":"NOPE","subject":"x.1"}') is None
    assert server.ask("s", "$SYS.DEBUG.SUBSCRIBERS", "x.1") == 0
    assert server.ask("b", "$SYS.DEBUG.SUBSCRIBERS", "_INBOX.z") == 1


@pytest.mark.parametrize("what", ["EXPVARZ", "IPQUEUESZ", "RAFTZ", "PROFILEZ", "LEAFZ"])
def test_every_question_of_monitoring_has_an_answer(server: Server, what: str) -> None:
    assert isinstance(server.ask("s", f"$SYS.REQ.SERVER.PING.{what}")["data"], dict)


@pytest.mark.parametrize(
    ("order", "error"),
    [("LDM", "no such client id"), ("KICK", "no such client or leafnode id")],
)
def test_an_order_about_nobody_is_refused(server: Server, order: str, error: str) -> None:
    told = server.ask("s", f"$SYS.REQ.SERVER.<id>.{order}", '{"cid":999}')
    assert told["error"] == {"code": 500, "description": error}


def test_a_jwt_for_an_account_of_the_file_is_refused(server: Server) -> None:
    told = server.ask("s", "$SYS.REQ.ACCOUNT.A.CLAIMS.UPDATE")["error"]
    assert told == {
        "account": "A",
        "code": 500,
        "description": "jwt update error - request body is empty",
    }
    again = server.ask("s", "$SYS.REQ.ACCOUNT.A.CLAIMS.UPDATE", "junk")["error"]
    assert again["description"].startswith("jwt update resulted in error - ")


def test_the_figures_of_the_server_have_the_same_names(server: Server) -> None:
    told = server.ask("s", "$SYS.REQ.SERVER.<id>.STATSZ")["statsz"]
    assert {
        *("start", "mem", "cores", "cpu", "connections", "total_connections", "active_accounts"),
        *("subscriptions", "sent", "sent_to_clients", "received", "received_from_clients"),
        *("slow_consumers", "active_servers", "jetstream"),
    } <= set(told)
