"""Subject mappings at the door, held against the real nats-server."""

import re

import pytest
from guarded_sessions import GuardedSessions
from two_servers import Step, both

from millstream.accounts.account import Account, Destination, Mapping
from millstream.accounts.claims import account_of_claims
from millstream.accounts.credentials import Credentials, User
from millstream.accounts.jwt import JwtClaims

USERS = """
accounts {
  A {
    users = [ {user: alice, password: secret}, {user: anna, password: secret,
      permissions: {publish: {allow: ["bar", "b.>", "_INBOX.>"]}}} ]
    mappings = { %s }
    exports = [ {service: "svc.real"}, {service: "svc.*.x"}, {stream: "news.>"} ]
  }
  B {
    users = [ {user: bob, password: secret} ]
    imports = [ {service: {account: A, subject: "svc.real"}, to: "ask"},
                {stream: {account: A, subject: "news.>"}} ]
    mappings = { %s }
  }
}
"""
LISTEN = ("alice", b"SUB > 1\r\n")


def agreed(mappings: str, steps: list[Step], of_b: str = "") -> dict[str, bytes]:
    mine, real = both(USERS % (mappings, of_b), steps)
    assert mine == real
    return mine


def test_a_message_goes_where_its_subject_is_mapped_and_only_there() -> None:
    said = agreed('"foo": "bar"', [("alice", b"SUB foo 1\r\nSUB bar 2\r\nPUB foo 2\r\nhi\r\n")])
    assert said["alice"] == b"MSG bar 2 2\r\nhi\r\n"


@pytest.mark.parametrize(
    ("source", "destination", "published", "heard"),
    [
        ("a.*", "b.$1", "a.x", "b.x"),
        ("a.*.*", "b.{{wildcard(2)}}.{{wildcard(1)}}", "a.x.y", "b.y.x"),
        ("a.>", "b.>", "a.x.y.z", "b.x.y.z"),
        ("a.*.>", "c.$1.>", "a.k.y.z", "c.k.y.z"),
        ("a.*", "b.$1.{{partition(10,1)}}", "a.x", None),
        ("a.*.*", "b.{{partition(7,1,2)}}", "a.x.y", None),
        ("a.*", "b.{{split(1,-)}}", "a.x-y-z", "b.x.y.z"),
        ("a.*", "b.{{SplitFromLeft(1,2)}}", "a.12345", "b.12.345"),
        ("a.*", "b.{{SplitFromRight(1,2)}}", "a.12345", "b.123.45"),
        ("a.*", "b.{{SliceFromLeft(1,2)}}", "a.12345", "b.12.34.5"),
        ("a.*", "b.{{SliceFromRight(1,2)}}", "a.12345", "b.1.23.45"),
        ("a.*", "b.$1", "other.x", "other.x"),
        ("a.*", "b.$1", "a.x.y", "a.x.y"),
        ("a.*", "b.{{partition(5)}}", "a.x", None),
    ],
)
def test_every_function_maps_as_in_the_reference(
    source: str, destination: str, published: str, heard: str | None
) -> None:
    said = agreed(
        f'"{source}": "{destination}"', [LISTEN, ("alice", f"PUB {published} 0\r\n\r\n".encode())]
    )
    found = re.fullmatch(rb"MSG (\S+) 1 0\r\n\r\n", said["alice"])
    assert found is not None
    assert heard is None or found[1].decode() == heard


def test_headers_reply_and_order_survive_a_mapping() -> None:
    said = agreed(
        '"foo.*": "bar.$1"',
        [
            LISTEN,
            (
                "alice",
                b"PUB foo.1 inbox 1\r\na\r\nHPUB foo.2 12 14\r\nNATS/1.0\r\n\r\nbb\r\n"
                b"PUB plain 1\r\nc\r\nUNSUB 1\r\nPUB foo.3 1\r\nd\r\n",
            ),
        ],
    )
    assert said["alice"] == (
        b"MSG bar.1 1 inbox 1\r\na\r\nHMSG bar.2 1 12 14\r\nNATS/1.0\r\n\r\nbb\r\n"
        b"MSG plain 1 1\r\nc\r\n"
    )


def test_permissions_are_about_where_a_message_really_goes() -> None:
    said = agreed(
        '"foo": "bar", "b.open": "closed"',
        [LISTEN, ("anna", b"PUB foo 1\r\nx\r\nPUB b.open 1\r\nx\r\nPUB b.else 1\r\nx\r\n")],
    )
    assert said["alice"] == b"MSG bar 1 1\r\nx\r\nMSG b.else 1 1\r\nx\r\n"
    assert said["anna"] == b"-ERR 'Permissions Violation for Publish to \"closed\"'\r\n"


def test_a_requester_hears_that_nobody_is_where_its_request_went() -> None:
    said = agreed('"foo": "bar"', [("alice", b"SUB inbox 1\r\nPUB foo inbox 0\r\n\r\n")])
    assert b"Nats-Subject: bar\r\n" in said["alice"]


def test_a_mapped_message_is_not_mapped_again() -> None:
    said = agreed('"a": "b", "b": "c"', [LISTEN, ("alice", b"PUB a 0\r\n\r\n")])
    assert said["alice"] == b"MSG b 1 0\r\n\r\n"


def test_a_share_that_is_given_to_nobody_is_lost() -> None:
    mapped = '"a": [{destination: "a", weight: "0%"}, {destination: "b", weight: "0%"}]'
    said = agreed(mapped, [LISTEN, ("alice", b"PUB a 0\r\n\r\nPUB other 0\r\n\r\n")])
    assert said["alice"] == b"MSG other 1 0\r\n\r\n"


def test_a_destination_of_another_cluster_leaves_the_subject_alone() -> None:
    mapped = '"a": [{destination: "b", weight: "100%", cluster: "west"}]'
    said = agreed(mapped, [LISTEN, ("alice", b"PUB a 0\r\n\r\n")])
    assert said["alice"] == b"MSG a 1 0\r\n\r\n"


def test_a_service_is_asked_where_its_owner_maps_it() -> None:
    steps = [
        ("alice", b"SUB svc.v2 1\r\n"),
        ("bob", b"SUB inbox 1\r\nPUB ask inbox 2\r\nhi\r\n"),
    ]
    said = agreed('"svc.real": "svc.v2"', steps)
    assert said["alice"].startswith(b"HMSG svc.v2 1 _R_")


def test_who_imports_a_stream_hears_what_its_owner_mapped_and_maps_nothing_itself() -> None:
    steps = [("bob", b"SUB > 1\r\n"), ("alice", b"PUB old.x 1\r\n1\r\nPUB news.y 1\r\n2\r\n")]
    said = agreed('"old.*": "news.$1"', steps, of_b='"news.>": "mine.>"')
    assert said["bob"] == b"MSG news.x 1 1\r\n1\r\nMSG news.y 1 1\r\n2\r\n"


def test_an_account_without_mappings_is_left_alone() -> None:
    said = agreed('"foo": "bar"', [("bob", b"SUB foo 1\r\nPUB foo 0\r\n\r\n")])
    assert said["bob"] == b"MSG foo 1 0\r\n\r\n"


def known() -> Credentials:
    return Credentials([User("alice", "secret", account="A")])


def test_a_reload_maps_messages_of_clients_that_are_connected() -> None:
    serving = GuardedSessions(known(), [Account("A")])
    try:
        alice = serving.user("alice")
        assert alice.tell(b"SUB > 1\r\nPUB a 0\r\n\r\n") == b"MSG a 1 0\r\n\r\n"
        mapped = Account("A", mappings=(Mapping("a", (Destination("b"),)),))
        assert serving.reload(known(), [mapped]) == 0
        assert alice.tell(b"PUB a 0\r\n\r\n") == b"MSG b 1 0\r\n\r\n"
        serving.reload(known(), [Account("A")])
        assert alice.tell(b"PUB a 0\r\n\r\n") == b"MSG a 1 0\r\n\r\n"
    finally:
        serving.close()


def test_a_mapping_that_cannot_work_is_left_out_and_the_others_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = Mapping("x.*", (Destination("y.{{wildcard(3)}}"),))
    account = Account("A", mappings=(broken, Mapping("a", (Destination("b"),))))
    serving = GuardedSessions(known(), [account])
    try:
        said = serving.user("alice").tell(b"SUB > 1\r\nPUB x.1 0\r\n\r\nPUB a 0\r\n\r\n")
    finally:
        serving.close()
    assert said == b"MSG x.1 1 0\r\n\r\nMSG b 1 0\r\n\r\n"
    assert "mapping left out account=A from=x.*" in caplog.text


def test_an_account_jwt_brings_its_mappings() -> None:
    listed = {
        "foo": [{"subject": "bar"}],
        "w": [{"subject": "v", "weight": 20}, {"subject": "u", "weight": 30, "cluster": "west"}],
    }
    account = account_of_claims(JwtClaims("O", "A", "team", 0, 0, 0, {"mappings": listed}))
    assert account.mappings == (
        Mapping("foo", (Destination("bar"),)),
        Mapping("w", (Destination("v", 20),)),
    )
