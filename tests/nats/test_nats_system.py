"""What the system account hears and asks, and what every client may ask about itself."""

import contextlib
import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from guarded_sessions import Client, GuardedSessions

from millstream.accounts.account import Account
from millstream.accounts.credentials import Credentials, User
from millstream.accounts.permissions import Permissions, Responses, Rule
from millstream.nats.system.system import System
from support.peers import nats_server

LIMITED = Permissions(
    publish=Rule.of(["a.>", "$SYS.REQ.USER.INFO"], ["a.secret"]),
    subscribe=Rule.of(["b", "c q", "_INBOX.>"], queues=True),
    responses=Responses(2, 30.0),
)
BUILT_IN = 4  # requests that every account's clients may ask
CONFIG = """
accounts {
  SYS { users = [{user: admin, password: secret}] }
  A { users = [
    {user: a, password: secret}
    {user: limited, password: secret, permissions: {
      publish: {allow: ["a.>", "$SYS.REQ.USER.INFO"], deny: ["a.secret"]}
      subscribe: {allow: ["b", "c q", "_INBOX.>"]}
      allow_responses: {max: 2, expires: "30s"}}}
  ] }
}
system_account: SYS
"""


class Observed(GuardedSessions):
    """A server with a system account, and its administrator."""

    def __init__(self) -> None:
        users = [
            User("admin", "secret", account="$SYS"),
            User("a", "secret", account="A"),
            User("limited", "secret", account="A", permissions=LIMITED),
        ]
        super().__init__(Credentials(users), [Account("A")])
        self.reloads = 0
        self.system = System(
            self.sessions,
            self.clock,
            endpoints={"VARZ": lambda asked: {"asked": asked}, "CONNZ": lambda asked: asked},
            orders={"RELOAD": self._reload},
        )
        self.admin = self.user("admin")
        self.id = self.system.card.id

    def _reload(self) -> None:
        self.reloads += 1

    def ask(self, subject: str, body: object = None, by: Client | None = None) -> Any:
        """Request and return the answer, None when there was none."""
        client = by or self.admin
        text = b"" if body is None else json.dumps(body).encode()
        heard = client.tell(
            b"SUB _INBOX.9 99\r\nPUB %s _INBOX.9 %d\r\n%s\r\n" % (subject.encode(), len(text), text)
        )
        client.tell(b"UNSUB 99\r\n")
        return next(iter(bodies(heard)), None)


def bodies(heard: bytes) -> list[Any]:
    """Return the JSON payloads among what was heard."""
    return [json.loads(line) for line in heard.split(b"\r\n") if line.startswith(b"{")]


@pytest.fixture
def observed() -> Iterator[Observed]:
    serving = Observed()
    yield serving
    serving.close()


def test_connecting_and_leaving_are_told(observed: Observed) -> None:
    observed.admin.tell(b"SUB $SYS.ACCOUNT.*.CONNECT 1\r\nSUB $SYS.ACCOUNT.*.DISCONNECT 2\r\n")

    client = observed.user("a", name="app", lang="python", version="1")
    came = observed.admin.said()
    client.tell(b"PUB x 3\r\nabc\r\n")
    client.socket.close()
    observed.settle()
    went = observed.admin.said()

    assert came.startswith(b"MSG $SYS.ACCOUNT.A.CONNECT 1 ")
    (event,) = bodies(came)
    assert event["type"] == "io.nats.server.advisory.v1.client_connect"
    assert event["server"]["id"] == observed.id
    assert {"acc": "A", "user": "a", "name": "app", "lang": "python", "ver": "1"}.items() <= event[
        "client"
    ].items()
    (left,) = bodies(went)
    assert left["type"] == "io.nats.server.advisory.v1.client_disconnect"
    assert left["reason"] == "Client Closed"
    assert left["sent"] == {"msgs": 1, "bytes": 3}
    assert "stop" in left["client"]


def test_a_client_that_is_not_believed_is_told_of(observed: Observed) -> None:
    observed.admin.tell(b"SUB $SYS.SERVER.*.CLIENT.AUTH.ERR 1\r\n")

    observed.client().connect(user="a", **{"pass": "wr0ng"})

    said = observed.admin.said()
    (event,) = bodies(said)
    assert event["reason"] == "Authentication Failure"
    assert event["client"]["user"] == "a"
    assert b"wr0ng" not in said


def test_no_other_account_hears_events_or_gets_answers(observed: Observed) -> None:
    client = observed.user("a")
    client.tell(b"SUB > 1\r\n")

    observed.user("a")
    observed.system.events.tell_statsz()  # type: ignore[union-attr]
    observed.settle()

    assert client.said() == b""
    client.tell(b"UNSUB 1\r\nSUB _INBOX.> 2\r\n")
    assert observed.ask("$SYS.REQ.SERVER.PING", by=observed.user("limited")) is None
    for subject in ("$SYS.REQ.SERVER.PING", f"$SYS.REQ.SERVER.{observed.id}.KICK"):
        heard = client.tell(b'PUB %s _INBOX.1 9\r\n{"cid":1}\r\n' % subject.encode())
        assert b"503" in heard
        assert bodies(heard) == []
    assert observed.admin.tell(b"PING\r\n") == b"PONG\r\n"


def test_figures_departure_and_end_are_told(observed: Observed) -> None:
    observed.admin.tell(b"SUB $SYS.SERVER.*.* 1\r\nSUB $SYS.ACCOUNT.*.SERVER.CONNS 2\r\n")
    events = observed.system.events
    assert events is not None
    events.tell_statsz()
    events.tell_connections()
    observed.system.leaving()
    observed.system.shutting_down()
    said = observed.admin.said()

    subjects = re.findall(rb"MSG \$SYS\.(\S+)", said)
    assert [s.rpartition(b".")[2] for s in subjects] == [
        b"STATSZ",
        b"CONNS",
        b"LAMEDUCK",
        b"SHUTDOWN",
    ]
    stats, conns = bodies(said)[:2]
    assert stats["statsz"]["connections"] == 1
    assert (conns["acc"], conns["conns"]) == ("$SYS", 1)


def test_the_server_answers_for_itself(observed: Observed) -> None:
    for subject in ("$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.STATSZ"):
        answer = observed.ask(subject)
        assert answer["server"]["id"] == observed.id
        assert answer["statsz"]["connections"] == 1
    assert observed.ask(f"$SYS.REQ.SERVER.{observed.id}.IDZ")["id"] == observed.id
    varz = observed.ask(f"$SYS.REQ.SERVER.{observed.id}.VARZ", {"Exact_Match": True, "x": 1})
    assert varz["data"] == {"asked": {"exact_match": True}}
    assert observed.ask("$SYS.REQ.SERVER.PING.VARZ")["data"] == {"asked": {}}
    assert observed.ask("$SYS.REQ.SERVER.OTHER.VARZ") is None
    assert observed.ask(f"$SYS.REQ.SERVER.{observed.id}.NONSENSE") is None
    refused = observed.ask("$SYS.REQ.SERVER.PING.VARZ", [1])
    assert refused["error"]["code"] == 400


def test_a_request_for_another_server_is_not_answered(observed: Observed) -> None:
    name = observed.sessions.info.server_name
    for wanted, answered in (
        ({"server_name": name}, True),
        ({"server_name": name[:5]}, True),
        ({"server_name": name[:5], "exact_match": True}, False),
        ({"cluster": "other"}, False),
        ({"host": "127.0.0.1"}, True),
        ({"domain": "hub"}, False),
        ({"tags": ["x"]}, False),
    ):
        assert (observed.ask("$SYS.REQ.SERVER.PING", wanted) is not None) is answered, wanted


def test_a_client_can_be_kicked(observed: Observed) -> None:
    client = observed.user("a")
    cid = client.info["client_id"]

    answer = observed.ask(f"$SYS.REQ.SERVER.{observed.id}.KICK", {"cid": cid})

    assert "error" not in answer
    assert client.said() == b"<closed>"
    for wrong in (cid, None):
        again = observed.ask(f"$SYS.REQ.SERVER.{observed.id}.KICK", {"cid": wrong})
        assert again["error"]["description"] == "no such client or leafnode id"
    assert observed.ask(f"$SYS.REQ.SERVER.{observed.id}.KICK", {"cid": "1"}) is None


def test_a_reload_can_be_ordered(observed: Observed) -> None:
    observed.ask(f"$SYS.REQ.SERVER.{observed.id}.RELOAD")

    assert observed.reloads == 1


def test_accounts_can_be_asked_about(observed: Observed) -> None:
    client = observed.user("a")
    client.tell(b"SUB x 1\r\nPUB x 2\r\nhi\r\n")

    conns = observed.ask("$SYS.REQ.ACCOUNT.A.CONNS")
    assert conns["type"] == "io.nats.server.advisory.v1.account_connections"
    assert (conns["acc"], conns["conns"]) == ("A", 1)
    assert conns["num_subscriptions"] == 1 + BUILT_IN
    assert {"msgs": 1, "bytes": 2}.items() <= conns["received"].items()
    assert observed.ask("$SYS.REQ.ACCOUNT.A.CONNZ")["data"] == {"acc": "A"}
    listed = observed.ask("$SYS.REQ.ACCOUNT.PING.STATZ")["data"]["account_statz"]
    assert {account["acc"] for account in listed} == {"A", "$SYS"}


def test_an_account_remembers_what_past_clients_moved(observed: Observed) -> None:
    client = observed.user("a")
    client.tell(b"PUB x 2\r\nhi\r\n")
    client.socket.close()
    observed.user("a")

    told = observed.ask("$SYS.REQ.ACCOUNT.A.STATZ")["data"]["account_statz"][0]

    assert (told["conns"], told["received"]["msgs"], told["received"]["bytes"]) == (1, 1, 2)


def test_one_client_can_be_sent_away(observed: Observed) -> None:
    old, new = observed.user("a", protocol=0), observed.user("a", protocol=1)

    for client in (old, new):
        order = {"cid": client.info["client_id"]}
        observed.ask(f"$SYS.REQ.SERVER.{observed.id}.LDM", order)

    assert old.said() == b""
    assert json.loads(new.said().removeprefix(b"INFO "))["ldm"] is True


def test_a_client_learns_who_it_is(observed: Observed) -> None:
    plain, limited = observed.user("a"), observed.user("limited")

    assert observed.ask("$SYS.REQ.USER.INFO", by=plain)["data"] == {
        "user": "a",
        "account": "A",
        "account_name": "A",
    }
    limited.tell(b"SUB _INBOX.> 1\r\n")
    (told,) = bodies(limited.tell(b"PUB $SYS.REQ.USER.INFO _INBOX.1 0\r\n\r\n"))
    assert told["data"]["permissions"] == {
        "publish": {"allow": ["a.>", "$SYS.REQ.USER.INFO"], "deny": ["a.secret"]},
        "subscribe": {"allow": ["b", "c q", "_INBOX.>"]},
        "responses": {"max": 2, "ttl": 30_000_000_000},
    }


def test_answers_have_the_fields_that_nats_server_gives(observed: Observed) -> None:
    observed.admin.tell(b"SUB $SYS.ACCOUNT.A.CONNECT 1\r\n")
    limited = observed.user("limited")
    limited.tell(b"SUB _INBOX.> 1\r\n")
    (ours,) = bodies(limited.tell(b"PUB $SYS.REQ.USER.INFO _INBOX.1 0\r\n\r\n"))
    (our_event,) = bodies(observed.admin.said())
    with nats_server(config=CONFIG) as peer, contextlib.ExitStack() as stack:
        admin = _connect(stack, peer.port, "admin")
        _heard(admin, b"SUB $SYS.ACCOUNT.A.CONNECT 1\r\nPING\r\n", b"PONG")
        client = _connect(stack, peer.port, "limited")
        question = b"SUB _INBOX.> 1\r\nPUB $SYS.REQ.USER.INFO _INBOX.1 0\r\n\r\n"
        (theirs,) = bodies(_heard(client, question, b'"ttl"'))
        (their_event,) = bodies(_heard(admin, b"", b"client_connect"))

    for told in (ours, theirs):  # nats-server gives lists in no order
        for rule in ("publish", "subscribe"):
            told["data"]["permissions"][rule]["allow"].sort()
    assert ours["data"] == theirs["data"]
    assert set(ours["server"]) == set(theirs["server"])
    assert set(our_event) == set(their_event)
    assert set(our_event["client"]) >= set(their_event["client"]) - {"rtt"}


def _connect(stack: contextlib.ExitStack, port: int, user: str) -> socket.socket:
    made = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
    line = {"verbose": False, "user": user, "pass": "secret", "headers": True}
    _heard(made, b"CONNECT " + json.dumps(line).encode() + b"\r\nPING\r\n", b"PONG")
    return made


def _heard(client: socket.socket, data: bytes, until: bytes) -> bytes:
    client.sendall(data)
    heard = b""
    while not (until in heard and heard.endswith(b"\r\n")):
        heard += client.recv(1 << 16)
    return heard
