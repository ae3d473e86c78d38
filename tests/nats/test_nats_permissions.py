"""What a client may say and hear: the same as nats-server allows, word for word."""

import contextlib
from collections.abc import Iterator

import pytest
from guarded_sessions import GuardedSessions
from two_servers import Step, conversation, ours, reference

from millstream.accounts.credentials import Credentials, User
from millstream.accounts.permissions import Permissions, Responses, Rule
from millstream.nats.session import NatsLimits

CONFIG = """
authorization {
  users = [
    {user: all, password: secret}
    {user: pub, password: secret, permissions: {
      publish: {allow: ["a.>", "b", "*.one"], deny: ["a.secret.>", "a.hush"]}}}
    {user: quiet, password: secret, permissions: {publish: {deny: ">"}}}
    {user: nodeny, password: secret, permissions: {publish: {deny: ["x.*", "y.>"]}}}
    {user: sub, password: secret, permissions: {
      subscribe: {allow: ["a.>", "_INBOX.>"], deny: ["a.secret", "a.secret.>"]}}}
    {user: deaf, password: secret, permissions: {subscribe: {deny: ["a.secret", "c.>"]}}}
    {user: queue, password: secret, permissions: {
      subscribe: {allow: ["foo", "jobs v1", "jobs v2.*", "bar v*.prod"],
        deny: ["foo dev", "q.> x"]}}}
    {user: noqueue, password: secret, permissions: {subscribe: {deny: ["foo bad", "foo *.dev"]}}}
    {user: answers, password: secret, permissions: {subscribe: "svc", allow_responses: true}}
    {user: thrice, password: secret, permissions: {
      subscribe: "svc", publish: "log", allow_responses: {max: 3, expires: "1m"}}}
    {user: one, password: secret, permissions: {publish: "x", subscribe: "y"}}
  ]
}
"""


def pub(subject: str, reply: str = "") -> bytes:
    return f"PUB {subject} {reply} 1\r\nx\r\n".encode()


def sub(subject: str, sid: int = 1, queue: str = "") -> bytes:
    return f"SUB {subject} {queue} {sid}\r\n".encode()


WITNESS: Step = ("all", sub(">"))
SUBJECTS = (
    *("a", "b", "a.b", "a.b.c", "a.one", "z.one", "a.secret", "a.secret.x", "a.hush", "a.hush.x"),
    *("x", "x.y", "y.z", "y", "c.d", "A.b", "a.>", ">", "*", "x.*", "_INBOX.1", "$JS.API.INFO"),
    *("a.secret.*", "foo", "svc", "log", "é.a", 'a."q"', "a.\x01"),
)
CASES: dict[str, list[Step]] = {
    f"{user} publishes to {subject!r}": [WITNESS, (user, pub(subject))]
    for user in ("pub", "quiet", "nodeny", "one", "answers", "thrice")
    for subject in SUBJECTS
}
CASES |= {
    f"{user} subscribes to {subject!r}": [
        (user, sub(subject)),
        ("all", b"".join(pub(s) for s in ("a.b", "a.secret", "a.secret.x", "c.d", "y", "foo"))),
    ]
    for user in ("sub", "deaf", "one", "queue", "noqueue")
    for subject in SUBJECTS
    if "\x01" not in subject
}
CASES |= {
    f"{user} joins {group!r} at {subject!r}": [
        (user, sub(subject, 1, group)),
        ("all", pub(subject)),
    ]
    for user in ("queue", "noqueue", "sub", "deaf")
    for subject in ("foo", "jobs", "bar", "q.a", "a.b", "a.secret", "a.*", "c.*")
    for group in ("dev", "v1", "v2", "v2.x", "v2.x.y", "v1.prod", "x", "bad", "a.dev", ">")
}
CASES |= {
    "an answer is allowed once": [
        ("answers", sub("svc")),
        ("all", sub("_INBOX.>") + pub("svc", "_INBOX.1")),
        ("answers", pub("_INBOX.1") + pub("_INBOX.1") + pub("_INBOX.2")),
    ],
    "three answers are allowed where three are": [
        ("thrice", sub("svc")),
        ("all", sub("_INBOX.>") + pub("svc", "_INBOX.1") + pub("svc", "_INBOX.2")),
        ("thrice", pub("_INBOX.1") * 2 + pub("_INBOX.2") + pub("_INBOX.1") * 2 + pub("log")),
    ],
    "an answer pipelined behind an unrelated publish": [
        ("answers", sub("svc")),
        ("all", sub("_INBOX.>") + pub("svc", "_INBOX.1")),
        ("answers", pub("other") + pub("_INBOX.1")),
    ],
    "reserved replies are refused": [
        WITNESS,
        ("pub", pub("a.b", "_R_.x") + pub("a.b", "$JS.ACK.x") + pub("a.b", "_GR_.x.y.z")),
        ("all#2", pub("a.b", "_R_.x") + pub("a.b", "ok")),
    ],
    "every denied message is complained of": [
        WITNESS,
        ("pub", pub("x") + pub("x") + pub("a.b") + pub("a.b") + pub("x")),
    ],
    "a verbose client gets no +OK for what is denied": [
        WITNESS,
        ("pub", b'CONNECT {"verbose":true}\r\n' + pub("x") + pub("a.b") + sub("a.b")),
        ("sub", b'CONNECT {"verbose":true}\r\n' + sub("b") + sub("a.b", 2) + b"UNSUB 9\r\n"),
    ],
    "a request to a denied subject gets no answer": [
        WITNESS,
        ("pub", sub("_INBOX.1") + pub("x", "_INBOX.1") + pub("a.b", "_INBOX.1")),
    ],
    "headers make no difference": [
        WITNESS,
        ("pub", b"HPUB x 12 13\r\nNATS/1.0\r\n\r\nx\r\nHPUB a.b 12 13\r\nNATS/1.0\r\n\r\nx\r\n"),
    ],
    "a second CONNECT as somebody else changes what is allowed": [
        WITNESS,
        ("quiet", pub("a.b") + b'CONNECT {"user":"pub"}\r\n' + pub("a.b") + pub("x")),
    ],
    "auto-unsubscribe counts what was delivered, not what was filtered": [
        ("deaf", sub("a.*") + b"UNSUB 1 2\r\n"),
        ("all", pub("a.secret") * 3 + pub("a.b") * 3),
    ],
    "another subscription of the same client is filtered too": [
        ("deaf", sub("a.*", 1) + sub("*.d", 2) + sub("e.>", 3)),
        ("all", pub("a.secret") + pub("a.b") + pub("c.d") + pub("b.d") + pub("e.x")),
    ],
}


@pytest.fixture(scope="module")
def real() -> Iterator[int]:
    """The port of a nats-server with this configuration."""
    with reference(CONFIG) as port:
        yield port


def test_every_case_ends_as_with_nats_server(real: int) -> None:
    different = {}
    for name, steps in CASES.items():
        with contextlib.ExitStack() as stack:
            theirs = conversation(real, steps, stack)
        here = ours(CONFIG, steps)
        if here != theirs:
            different[name] = (here, theirs)

    assert different == {}
    assert len(CASES) > 400


def test_a_subscription_of_too_many_tokens_is_refused_as_by_nats_server() -> None:
    steps: list[Step] = [("all", sub("a.b.c") + sub("a.b.c.d", 2) + sub("a.b.>", 3))]
    limit = "max_sub_tokens: 3"
    with reference(f"{limit}\n{CONFIG}") as port, contextlib.ExitStack() as stack:
        theirs = conversation(port, steps, stack)

    assert ours(CONFIG, steps, NatsLimits(max_subject_tokens=3)) == theirs
    assert b"too many tokens" in theirs["all"]


def test_leave_to_answer_does_not_lift_a_denial() -> None:
    permissions = Permissions(
        publish=Rule.of(deny=["_INBOX.secret"]), responses=Responses(max_messages=5)
    )
    users = [User("answers", "secret", permissions=permissions), User("all", "secret")]
    serving = GuardedSessions(Credentials(users))
    answers, asks = serving.user("answers"), serving.user("all")
    answers.tell(sub("svc"))
    asks.tell(sub("_INBOX.>") + pub("svc", "_INBOX.secret") + pub("svc", "_INBOX.open"))
    answers.said()

    said = answers.tell(pub("_INBOX.secret") + pub("_INBOX.open"))

    assert said == b"-ERR 'Permissions Violation for Publish to \"_INBOX.secret\"'\r\n"
    assert asks.said() == b"MSG _INBOX.open 1 1\r\nx\r\n"
    serving.close()


def test_leave_to_answer_ends_with_its_time() -> None:
    permissions = Permissions(responses=Responses(max_messages=-1, seconds=10))
    users = [User("answers", "secret", permissions=permissions), User("all", "secret")]
    serving = GuardedSessions(Credentials(users))
    answers, asks = serving.user("answers"), serving.user("all")
    answers.tell(sub("svc"))
    asks.tell(sub("_INBOX.>") + pub("svc", "_INBOX.1"))
    answers.said()

    assert answers.tell(pub("_INBOX.1") * 5) == b""
    serving.pass_time(10)
    assert b"Permissions Violation" in answers.tell(pub("_INBOX.1"))
    serving.close()
