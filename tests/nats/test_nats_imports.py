"""Accounts are apart, and share what they export: as with nats-server, and where we say more."""

import contextlib
import json
from collections.abc import Iterator

import pytest
from guarded_sessions import Client, GuardedSessions
from two_servers import Step, conversation, ours, reference

from millstream.accounts.account import Account, Export, Import, ResponseType
from millstream.accounts.credentials import Credentials, User
from millstream.accounts.permissions import Permissions, Rule

CONFIG = """
accounts {
  A {
    users = [{user: a, password: secret}]
    exports = [
      {stream: "s.pub.>"}, {stream: "s.priv.>", accounts: [B]}, {stream: "t.*.*"}
      {service: "svc.one"}, {service: "svc.priv", accounts: [B]}, {service: "req.*.*"}
      {service: "svc.many", response_type: stream}, {service: "svc.chunks", response_type: chunked}
      {service: "wild.>"}
    ]
  }
  B {
    users = [
      {user: b, password: secret}
      {user: limited, password: secret, permissions: {
        publish: {allow: ["one"]}, subscribe: {allow: ["_INBOX.>", "s.priv.ok"]}}}
    ]
    imports = [
      {stream: {account: A, subject: "s.pub.>"}, prefix: "imp"}
      {stream: {account: A, subject: "s.priv.>"}}
      {stream: {account: A, subject: "t.*.*"}, to: "turned.$2.$1"}
      {service: {account: A, subject: "svc.one"}, to: "one"}
      {service: {account: A, subject: "svc.priv"}}
      {service: {account: A, subject: "svc.many"}}
      {service: {account: A, subject: "svc.chunks"}}
      {service: {account: A, subject: "req.*.*"}, to: "my.$2.$1"}
      {service: {account: A, subject: "wild.>"}}
    ]
    exports = [{service: "one"}, {stream: "imp.s.pub.>"}]
  }
  C {
    users = [{user: c, password: secret}]
    imports = [
      {stream: {account: A, subject: "s.pub.x"}, to: "renamed.x"}
      {service: {account: B, subject: "one"}, to: "through"}
    ]
  }
  D { users = [{user: d, password: secret}] }
}
"""


def pub(subject: str, reply: str = "", body: str = "x") -> bytes:
    return f"PUB {subject} {reply} {len(body)}\r\n{body}\r\n".encode()


def sub(subject: str, sid: int = 1, queue: str = "") -> bytes:
    return f"SUB {subject} {queue} {sid}\r\n".encode()


CASES: dict[str, list[Step]] = {
    "accounts do not hear each other": [
        *((name, sub(">")) for name in "abcd"),
        *((name, pub("plain") + pub("s.pub.y", "r")) for name in "bcd"),
    ],
    "a stream comes under a prefix": [
        ("b", sub("imp.>", 1)),
        ("d", sub("imp.>", 1)),
        ("a", pub("s.pub.x") + pub("s.pub.y.z") + pub("s.other") + pub("imp.s.pub.x")),
    ],
    "a stream comes to a wildcard": [("b", sub(">", 1)), ("a", pub("s.pub.x") + pub("s.priv.y"))],
    "a stream comes to a literal": [
        ("b", sub("imp.s.pub.x", 1)),
        ("a", pub("s.pub.x") + pub("s.pub.y")),
    ],
    "a private stream comes only to those it is exported to": [
        ("b", sub("s.priv.>", 1)),
        ("c", sub("s.priv.>", 1)),
        ("a", pub("s.priv.x")),
    ],
    "a stream is renamed": [("c", sub("renamed.*", 1)), ("a", pub("s.pub.x") + pub("s.pub.y"))],
    "a stream's wildcards change places": [("b", sub("turned.>", 1)), ("a", pub("t.1.2"))],
    "a stream's reply stays": [("b", sub("imp.>", 1)), ("a", pub("s.pub.x", "answer.here"))],
    "a queue group hears a stream once": [
        ("b", sub("imp.>", 1, "q")),
        ("a", pub("s.pub.x") + pub("s.pub.x")),
    ],
    "unsubscribing ends a stream": [
        ("b", sub("imp.>", 1)),
        ("a", pub("s.pub.x")),
        ("b", b"UNSUB 1\r\n"),
        ("a", sub("_INBOX.1") + pub("s.pub.x", "_INBOX.1")),
    ],
    "what is imported cannot be published back": [
        ("a", sub(">")),
        ("b", pub("imp.s.pub.x") + pub("s.priv.y") + pub("s.pub.x")),
    ],
    "a request without an answerer is told so": [
        ("b", sub("_INBOX.>", 1) + pub("one", "_INBOX.1")),
        ("b#2", sub("_INBOX.>", 1) + pub("nobody", "_INBOX.2")),
    ],
    "an export nobody imports is not reached": [
        ("a", sub("svc.>")),
        ("d", sub("_INBOX.>") + pub("svc.one", "_INBOX.1") + pub("one", "_INBOX.1")),
        ("c", sub("_INBOX.>") + pub("svc.priv", "_INBOX.1")),
        ("b", sub("_INBOX.>") + pub("svc.one", "_INBOX.1")),
    ],
    "a request without a reply": [("a", sub("svc.one")), ("b", pub("one"))],
    "a limited user reaches what it may": [
        ("a", sub("svc.>") + sub("req.>", 2)),
        ("limited", pub("one") + pub("svc.priv") + pub("my.1.2")),
    ],
    "a limited user hears what it may": [
        ("limited", sub("s.priv.ok", 1) + sub("s.priv.>", 2) + sub("imp.>", 3)),
        ("a", pub("s.priv.ok") + pub("s.priv.no") + pub("s.pub.x")),
    ],
}


@pytest.fixture(scope="module")
def real() -> Iterator[int]:
    """The port of a nats-server with this configuration."""
    with reference(CONFIG) as port:
        yield port


@pytest.mark.parametrize("case", CASES)
def test_accounts_hear_what_they_hear_with_nats_server(real: int, case: str) -> None:
    with contextlib.ExitStack() as stack:
        theirs = conversation(real, CASES[case], stack)

    assert ours(CONFIG, CASES[case]) == theirs


class Services:
    """An owner ``a`` of services, and ``b`` who asks."""

    def __init__(self, export: Export, item: Import) -> None:
        users = [User("a", "secret", account="A"), User("b", "secret", account="B")]
        users.append(User("c", "secret", account="C"))
        accounts = [
            Account("A", exports=(export,)),
            Account("B", imports=(item,)),
            Account("C", imports=(item,)),
        ]
        self.serving = GuardedSessions(Credentials(users), accounts)
        self.owner, self.asks = self.serving.user("a"), self.serving.user("b")
        self.asks.tell(sub("_INBOX.>"))

    def asked(self, subject: str = "ask") -> list[str]:
        """Ask once; returns the reply subjects that the owner sees."""
        self.asks.tell(pub(subject, "_INBOX.1"))
        return [line.split()[3] for line in _lines(self.owner.said()) if line.startswith("HMSG")]

    def close(self) -> None:
        self.serving.close()


def _lines(data: bytes) -> list[str]:
    return data.decode().split("\r\n")


@pytest.fixture
def make() -> Iterator[object]:
    made: list[Services] = []

    def build(export: Export, item: Import) -> Services:
        made.append(Services(export, item))
        return made[-1]

    yield build
    for services in made:
        services.close()


def test_one_answer_comes_back_and_no_more(make: object) -> None:
    services = make(Export("svc", True), Import("A", "svc", True, to="ask"))  # type: ignore[operator]
    services.owner.tell(sub("svc"))

    reply = services.asked()[0]
    services.owner.tell(pub(reply, "", "first") + pub(reply, "", "second"))

    assert reply.startswith("_R_.")
    assert "_INBOX" not in reply
    assert services.asks.said() == b"MSG _INBOX.1 1 5\r\nfirst\r\n"


@pytest.mark.parametrize("kind", [ResponseType.STREAM, ResponseType.CHUNKED])
def test_a_stream_of_answers_ends_with_an_empty_one(make: object, kind: ResponseType) -> None:
    export = Export("svc", True, response_type=kind)
    services = make(export, Import("A", "svc", True, to="ask"))  # type: ignore[operator]
    services.owner.tell(sub("svc"))

    reply = services.asked()[0]
    services.owner.tell(b"".join(pub(reply, "", body) for body in ("1", "2", "", "3")))

    heard = services.asks.said()
    assert heard == b"MSG _INBOX.1 1 1\r\n1\r\nMSG _INBOX.1 1 1\r\n2\r\nMSG _INBOX.1 1 0\r\n\r\n"


def test_an_answer_that_comes_too_late_is_dropped(make: object) -> None:
    export = Export("svc", True, response_seconds=5)
    services = make(export, Import("A", "svc", True, to="ask"))  # type: ignore[operator]
    services.owner.tell(sub("svc"))

    reply = services.asked()[0]
    services.serving.pass_time(5)
    services.owner.tell(pub(reply))

    assert services.asks.said() == b""


def test_wildcards_of_a_service_change_places(make: object) -> None:
    item = Import("A", "req.*.*", True, to="my.$2.$1")
    services = make(Export("req.*.*", True), item)  # type: ignore[operator]
    services.owner.tell(sub("req.>"))

    services.asks.tell(pub("my.x.y", "_INBOX.1"))

    assert services.owner.said().startswith(b"HMSG req.y.x 1 _R_.")


def _info(owner: Client) -> dict[str, object]:
    line = next(li for li in _lines(owner.said()) if li.startswith("Nats-Request-Info: "))
    told: dict[str, object] = json.loads(line.partition(" ")[2])
    return told


def test_the_owner_learns_the_account_and_more_only_if_shared(make: object) -> None:
    plain = make(Export("svc", True), Import("A", "svc", True, to="ask"))  # type: ignore[operator]
    plain.owner.tell(sub("svc"))
    plain.asks.tell(pub("ask", "_INBOX.1"))
    assert _info(plain.owner) == {"acc": "B"}

    shared = make(Export("svc", True), Import("A", "svc", True, to="ask", share=True))  # type: ignore[operator]
    shared.owner.tell(sub("svc"))
    shared.asks.tell(pub("ask", "_INBOX.1"))
    told = _info(shared.owner)
    assert (told["acc"], told["user"], told["host"]) == ("B", "b", "127.0.0.1")


def test_a_client_cannot_say_that_it_is_somebody_else(make: object) -> None:
    services = make(Export("svc", True), Import("A", "svc", True, to="ask"))  # type: ignore[operator]
    services.owner.tell(sub("svc"))
    for block in (
        b'NATS/1.0\r\nNats-Request-Info: {"acc":"A"}\r\nX: y\r\n\r\n',
        b'NATS/1.0\r\nnats-request-info: {"acc":"A"}\r\n\r\n',
        b'NATS/1.0\r\n: {}\r\nNats-Request-Info: {"acc":"A"}\r\n\r\n',
    ):
        services.asks.tell(b"HPUB ask _INBOX.1 %d %d\r\n%s\r\n" % (len(block), len(block), block))
        heard = services.owner.said()
        assert heard.lower().count(b"nats-request-info") == 1
        assert b'{"acc":"B"}' in heard


def test_two_who_ask_get_their_own_answers(make: object) -> None:
    services = make(Export("svc", True), Import("A", "svc", True, to="ask"))  # type: ignore[operator]
    services.owner.tell(sub("svc"))
    other = services.serving.user("c")
    other.tell(sub("_INBOX.>"))

    first = services.asked()[0]
    other.tell(pub("ask", "_INBOX.1"))
    second = next(li.split()[3] for li in _lines(services.owner.said()) if li.startswith("HMSG"))
    services.owner.tell(pub(second, "", "for c") + pub(first, "", "for b"))

    assert services.asks.said() == b"MSG _INBOX.1 1 5\r\nfor b\r\n"
    assert other.said() == b"MSG _INBOX.1 1 5\r\nfor c\r\n"


def test_an_import_that_is_not_allowed_carries_nothing(make: object) -> None:
    export = Export("svc", True, accounts=("C",))
    services = make(export, Import("A", "svc", True, to="ask"))  # type: ignore[operator]
    services.owner.tell(sub(">"))
    other = services.serving.user("c")

    services.asks.tell(pub("ask", "_INBOX.1"))
    assert services.owner.said() == b""
    other.tell(pub("ask"))
    assert services.owner.said().startswith(b"HMSG svc 1 ")


def test_imports_that_go_round_are_left_out() -> None:
    def account(name: str, other: str) -> Account:
        return Account(name, exports=(Export("x", True),), imports=(Import(other, "x", True),))

    users = [User("a", "secret", account="A")]
    serving = GuardedSessions(Credentials(users), [account("A", "B"), account("B", "A")])
    client = serving.user("a")

    assert client.tell(sub("_INBOX.1") + pub("x", "_INBOX.1")).startswith(b"HMSG _INBOX.1 1 ")
    serving.close()


def test_a_reload_takes_imports_away_and_brings_new_ones() -> None:
    users = [User("a", "secret", account="A"), User("b", "secret", account="B")]
    offers = Account("A", exports=(Export("s.>"), Export("t.>")))
    takes = Account("B", imports=(Import("A", "s.>"),))
    serving = GuardedSessions(Credentials(users), [offers, takes])
    a, b = serving.user("a"), serving.user("b")
    b.tell(sub(">"))
    a.tell(pub("s.1") + pub("t.1"))
    assert b.said() == b"MSG s.1 1 1\r\nx\r\n"

    serving.reload(Credentials(users), [offers, Account("B", imports=(Import("A", "t.>"),))])
    a.tell(pub("s.2") + pub("t.2"))

    assert b.said() == b"MSG t.2 1 1\r\nx\r\n"
    serving.close()


def test_a_denial_holds_for_what_is_imported() -> None:
    denied = Permissions(subscribe=Rule.of(deny=["s.secret"]))
    users = [
        User("a", "secret", account="A"),
        User("b", "secret", account="B", permissions=denied),
    ]
    accounts = [
        Account("A", exports=(Export("s.>"),)),
        Account("B", imports=(Import("A", "s.>"),)),
    ]
    serving = GuardedSessions(Credentials(users), accounts)
    a, b = serving.user("a"), serving.user("b")
    b.tell(sub("s.>"))

    a.tell(pub("s.secret") + pub("s.open"))

    assert b.said() == b"MSG s.open 1 1\r\nx\r\n"
    serving.close()
