"""Who gets in: every way to say who one is, and more than two hundred ways not to."""

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import bcrypt
import nkeys as signing
import pytest
from guarded_sessions import Client, GuardedSessions

from millstream.accounts.account import Account, AccountLimits
from millstream.accounts.credentials import Credentials, User
from millstream.accounts.jwt import Trust
from millstream.accounts.permissions import Permissions, Rule
from millstream.nats.session import NatsLimits
from support.jwt_makers import Operator

VIOLATION = b"-ERR 'Authorization Violation'\r\n<closed>"
HASHED = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
PAIR = signing.from_seed(signing.encode_seed(bytes(32), signing.PREFIX_BYTE_USER))
PUBLIC = PAIR.public_key.decode()
OPERATOR = Operator()
ACCOUNT = OPERATOR.account("orders")
USER = ACCOUNT.user("alice")


def trusting() -> Credentials:
    trust = Trust([OPERATOR.token])
    trust.add_account(ACCOUNT.token)
    return Credentials(trust=trust)


# How the server is set up, and the account that a witness listens in.
MODES: dict[str, Callable[[], Credentials]] = {
    "password": lambda: Credentials([User("alice", "secret")]),
    "bcrypt": lambda: Credentials([User("alice", HASHED)]),
    "token": lambda: Credentials(token="secret"),
    "nkey": lambda: Credentials([User(nkey=PUBLIC)]),
    "accounts": lambda: Credentials([User("alice", "secret", account="A")]),
    "jwt": trusting,
    "nobody": lambda: Credentials(closed=True),
}


def sign(nonce: str) -> str:
    return base64.urlsafe_b64encode(PAIR.sign(nonce.encode())).decode().rstrip("=")


def connect(**options: object) -> bytes:
    return b"CONNECT " + json.dumps({"verbose": False, **options}).encode() + b"\r\n"


PUB = b"PUB t 3\r\nbad\r\n"
RAW: dict[str, bytes] = {
    "PUB first": PUB,
    "pub in small letters first": b"pub t 3\r\nbad\r\n",
    "an empty PUB first": b"PUB t 0\r\n\r\n" + PUB,
    "HPUB first": b"HPUB t 12 15\r\nNATS/1.0\r\n\r\nbad\r\n",
    "SUB first": b"SUB > 1\r\n" + PUB,
    "a queue SUB first": b"SUB > q 1\r\n" + PUB,
    "UNSUB first": b"UNSUB 1\r\n" + PUB,
    "PING first": b"PING\r\n" + PUB,
    "PONG first": b"PONG\r\n" + PUB,
    "INFO first": b"INFO {}\r\n" + PUB,
    "+OK first": b"+OK\r\n" + PUB,
    "-ERR first": b"-ERR 'x'\r\n" + PUB,
    "nonsense first": b"NONSENSE\r\n" + PUB,
    "an empty line first": b"\r\n" + PUB,
    "a route's verb first": b"RS+ $G > 1\r\n" + PUB,
    "CONNECT with nothing": b"CONNECT {}\r\n" + PUB,
    "CONNECT with null": b"CONNECT null\r\n" + PUB,
    "CONNECT with a list": b"CONNECT []\r\n" + PUB,
    "CONNECT with a text": b'CONNECT "alice"\r\n' + PUB,
    "CONNECT with half an object": b'CONNECT {"user":"alice"\r\n' + PUB,
    "CONNECT with no argument": b"CONNECT\r\n" + PUB,
    "a name alone": connect(user="alice") + PUB,
    "an empty password": connect(user="alice", **{"pass": ""}) + PUB,
    "a password alone": connect(**{"pass": "secret"}) + PUB,
    "a prefix of the password": connect(user="alice", **{"pass": "secre"}) + PUB,
    "a longer password": connect(user="alice", **{"pass": "secret1"}) + PUB,
    "a password and NUL": connect(user="alice", **{"pass": "secret\0"}) + PUB,
    "NUL and a password": connect(user="alice", **{"pass": "\0secret"}) + PUB,
    "another case": connect(user="alice", **{"pass": "Secret"}) + PUB,
    "a blank more": connect(user="alice", **{"pass": "secret "}) + PUB,
    "the hash itself": connect(user="alice", **{"pass": HASHED}) + PUB,
    "another user": connect(user="bob", **{"pass": "secret"}) + PUB,
    "an empty name": connect(user="", **{"pass": "secret"}) + PUB,
    "a name and NUL": connect(user="alice\0", **{"pass": "secret"}) + PUB,
    "a number for a password": connect(user="alice", **{"pass": 1}) + PUB,
    "true for a password": connect(user="alice", **{"pass": True}) + PUB,
    "a list for a password": connect(user="alice", **{"pass": ["secret"]}) + PUB,
    "an object for a name": connect(user={"$ne": ""}, **{"pass": "secret"}) + PUB,
    "a lone surrogate": b'CONNECT {"user":"alice","pass":"\\ud800"}\r\n' + PUB,
    "a prefix of the token": connect(auth_token="secre") + PUB,
    "a token and NUL": connect(auth_token="secret\0") + PUB,
    "a null token": connect(auth_token=None) + PUB,
    "keys twice, the wrong one last": b'CONNECT {"user":"alice","pass":"secret","pass":"x",'
    b'"auth_token":"secret","auth_token":"x"}\r\n' + PUB,
    "an account": connect(user="alice", account="A", auth_token="secret", **{"pass": "secret"})
    + PUB,
    "a new account": connect(user="alice", new_account=True, **{"pass": "secret"}) + PUB,
    "a public key alone": connect(nkey=PUBLIC) + PUB,
    "an empty signature": connect(nkey=PUBLIC, sig="") + PUB,
    "a signature of nothing": connect(nkey=PUBLIC, sig=sign("")) + PUB,
    "a signature of another nonce": connect(nkey=PUBLIC, sig=sign("AAAAAAAAAAAAAAA")) + PUB,
    "a signature that is none": connect(nkey=PUBLIC, sig="!" * 86) + PUB,
    "an unsigned JWT": connect(jwt=USER.token) + PUB,
    "a JWT that says it needs no signature": connect(
        jwt=".".join(["eyJ0eXAiOiJKV1QiLCJhbGciOiJub25lIn0", USER.token.split(".")[1], ""])
    )
    + PUB,
    "an account's JWT": connect(jwt=ACCOUNT.token) + PUB,
    "a JWT of a stranger": connect(jwt=Operator().account("x").user("eve").token) + PUB,
    "a JWT cut short": connect(jwt=USER.token[:-4]) + PUB,
    "a bearer JWT of a stranger": connect(
        jwt=Operator().account("x").user("eve", bearer_token=True).token
    )
    + PUB,
}


@pytest.fixture
def serve() -> Iterator[Callable[..., GuardedSessions]]:
    """Make servers that are closed at the end."""
    made: list[GuardedSessions] = []

    def build(*arguments: object, **options: object) -> GuardedSessions:
        made.append(GuardedSessions(*arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for serving in made:
        serving.close()


@pytest.mark.parametrize("attempt", RAW)
@pytest.mark.parametrize("mode", MODES)
def test_nothing_gets_past_the_credentials(
    serve: Callable[..., GuardedSessions], mode: str, attempt: str
) -> None:
    accounts = [Account("A"), Account(ACCOUNT.public)]
    serving = serve(MODES[mode](), accounts)
    heard: list[bytes] = []
    for space in serving.accounts:
        space.interest.add_sink(b">", _Witness(heard))
    client = serving.client()

    said = client.tell(RAW[attempt] + b"SUB > 9\r\nPING\r\n" + PUB)
    serving.pass_time(NatsLimits().handshake_timeout)
    said += client.said()

    assert heard == []
    assert b"MSG " not in said
    assert said.endswith(b"<closed>")
    assert b"+OK" not in said


@pytest.mark.parametrize("attempt", RAW)
def test_nothing_gets_past_the_credentials_byte_by_byte(
    serve: Callable[..., GuardedSessions], attempt: str
) -> None:
    serving = serve(MODES["accounts"](), [Account("A")])
    heard: list[bytes] = []
    for space in serving.accounts:
        space.interest.add_sink(b">", _Witness(heard))
    client = serving.client()

    data = RAW[attempt] + b"SUB > 9\r\nPING\r\n" + PUB
    said = b"".join(client.tell(data[at : at + 1]) for at in range(len(data)))
    serving.pass_time(NatsLimits().handshake_timeout)
    said += client.said()

    assert heard == []
    assert b"MSG " not in said
    assert said.endswith(b"<closed>")
    assert b"+OK" not in said


def test_a_stranger_that_pings_gets_the_error_alone(serve: Callable[..., GuardedSessions]) -> None:
    serving = serve(MODES["accounts"](), [Account("A")])

    assert serving.client().tell(b"PING\r\n") == VIOLATION
    assert serving.client().tell(b"PING\r\nPING\r\n") == VIOLATION
    assert serving.user("alice").tell(b"PING\r\nPING\r\n") == b"PONG\r\nPONG\r\n"


def test_what_follows_a_refused_second_connect_is_not_looked_at(
    serve: Callable[..., GuardedSessions],
) -> None:
    serving = serve(MODES["accounts"](), [Account("A")])
    heard: list[bytes] = []
    for space in serving.accounts:
        space.interest.add_sink(b"t", _Witness(heard))
    for second in (
        connect(user="bob"),
        connect(**{"pass": "no"}),
        connect(account="A"),
        b"CONNECT []\r\n",
    ):
        client = serving.user("alice")
        assert client.tell(second + PUB + b"SUB t 1\r\n").endswith(b"<closed>")

    assert heard == []


class _Witness:
    def __init__(self, heard: list[bytes]) -> None:
        self._heard = heard

    def deliver(self, batch: object) -> None:
        self._heard.append(b"a message")


def test_info_asks_for_credentials_and_gives_a_fresh_nonce(
    serve: Callable[..., GuardedSessions],
) -> None:
    serving = serve(MODES["nkey"]())

    first, second = serving.client().info, serving.client().info

    assert first["auth_required"]
    assert len(first["nonce"]) == 15
    assert first["nonce"] != second["nonce"]
    assert "nonce" not in serve(MODES["password"]()).client().info


def test_the_right_credentials_open(serve: Callable[..., GuardedSessions]) -> None:
    def believed(mode: str, say: Callable[[Client], dict[str, object]]) -> bool:
        client = serve(MODES[mode](), [Account("A"), Account(ACCOUNT.public)]).client()
        return client.connect(**say(client)) == b"" and client.tell(b"PING\r\n") == b"PONG\r\n"

    def signed(client: Client, sign_with: object = PAIR) -> str:
        signature = sign_with.sign(client.info["nonce"].encode())  # type: ignore[attr-defined]
        return base64.urlsafe_b64encode(signature).decode().rstrip("=")

    assert believed("password", lambda _: {"user": "alice", "pass": "secret"})
    assert believed("bcrypt", lambda _: {"user": "alice", "pass": "secret"})
    assert believed("token", lambda _: {"auth_token": "secret"})
    assert believed("nkey", lambda client: {"nkey": PUBLIC, "sig": signed(client)})
    assert believed("accounts", lambda _: {"user": "alice", "pass": "secret"})
    assert believed("jwt", lambda client: {"jwt": USER.token, "sig": signed(client, USER.pair)})


def test_whoever_does_not_say_who_it_is_in_time_is_closed(
    serve: Callable[..., GuardedSessions],
) -> None:
    serving = serve(MODES["password"](), limits=NatsLimits(auth_timeout=2))
    client = serving.client()
    client.tell(b"CONN")

    serving.pass_time(1.5)
    assert client.said() == b""
    serving.pass_time(0.5)
    assert client.said() == b"-ERR 'Authentication Timeout'\r\n<closed>"


def test_a_second_connect_must_be_believed_too(serve: Callable[..., GuardedSessions]) -> None:
    serving = serve(MODES["password"]())
    client = serving.user("alice")
    client.tell(b"SUB t 1\r\n")

    said = client.tell(connect(**{"pass": "wrong"}) + PUB)

    assert said == VIOLATION


def test_a_second_connect_moves_to_the_other_users_account_without_subscriptions(
    serve: Callable[..., GuardedSessions],
) -> None:
    users = [User("a", "secret", account="A"), User("b", "secret", account="B")]
    serving = serve(Credentials(users), [Account("A"), Account("B")])
    client, other = serving.user("a"), serving.user("b")
    client.tell(b"SUB t 1\r\n")

    client.connect(user="b", **{"pass": "secret"})
    client.tell(b"SUB t 2\r\n")
    other.tell(b"PUB t 1\r\nx\r\n")

    assert client.said() == b"MSG t 2 1\r\nx\r\n"
    assert serving.accounts.get("A") is not None
    assert len(serving.accounts.get("A").members) == 0  # type: ignore[union-attr]


def test_no_auth_user_serves_those_who_say_nothing_even_before_connect(
    serve: Callable[..., GuardedSessions],
) -> None:
    users = [User("guest", "x", account="A"), User("alice", "secret")]
    serving = serve(Credentials(users, no_auth_user="guest"), [Account("A")])
    guest, alice = serving.client(), serving.user("alice")
    alice.tell(b"SUB t 1\r\n")

    assert "auth_required" not in guest.info
    assert guest.tell(b"SUB t 1\r\nPUB t 1\r\nx\r\n") == b"+OK\r\n+OK\r\nMSG t 1 1\r\nx\r\n"
    assert alice.said() == b""
    assert serving.client().connect(user="guest", **{"pass": "wrong"}) == VIOLATION


def test_a_jwt_users_time_runs_out(serve: Callable[..., GuardedSessions]) -> None:
    trust = Trust([OPERATOR.token])
    trust.add_account(ACCOUNT.token)
    serving = serve(Credentials(trust=trust), [Account(ACCOUNT.public)])
    ends = serving.clock.time_ns() // 10**9 + 60
    user = ACCOUNT.user("brief", exp=ends)
    client = serving.client()
    signature = base64.urlsafe_b64encode(user.pair.sign(client.info["nonce"].encode())).decode()
    assert client.connect(jwt=user.token, sig=signature) == b""

    serving.pass_time(59)
    client.said()
    serving.pass_time(1)

    assert client.said() == b"-ERR 'User Authentication Expired'\r\n<closed>"


def test_a_jwt_users_hours_end(serve: Callable[..., GuardedSessions]) -> None:
    trust = Trust([OPERATOR.token])
    trust.add_account(ACCOUNT.token)
    serving = serve(Credentials(trust=trust), [Account(ACCOUNT.public)])
    now = serving.clock.time_ns() // 10**9
    start, end = (f"{datetime.fromtimestamp(now + s, UTC):%H:%M:%S}" for s in (-60, 60))
    hours = {"times": [{"start": start, "end": end}], "times_location": "UTC"}
    user = ACCOUNT.user("worker", bearer_token=True, **hours)
    client = serving.client()
    assert client.connect(jwt=user.token) == b""

    serving.pass_time(59)
    assert client.said() == b""
    serving.pass_time(2)

    assert client.said() == b"-ERR 'User Authentication Expired'\r\n<closed>"


def test_a_jwt_accounts_time_runs_out(serve: Callable[..., GuardedSessions]) -> None:
    trust = Trust([OPERATOR.token])
    serving = serve(Credentials(trust=trust), [Account(ACCOUNT.public)])
    ends = serving.clock.time_ns() // 10**9 + 60
    claims = {"type": "account", "version": 2}
    trust.add_account(OPERATOR.sign_claims(ACCOUNT.public, "orders", claims, exp=ends))
    client = serving.client()
    assert client.connect(jwt=ACCOUNT.user("any", bearer_token=True).token) == b""

    serving.pass_time(60)

    assert client.said() == b"-ERR 'Account Authentication Expired'\r\n<closed>"


def test_an_account_takes_only_so_many_connections_subscriptions_and_bytes(
    serve: Callable[..., GuardedSessions],
) -> None:
    limits = AccountLimits(max_connections=2, max_subscriptions=3, max_payload=5)
    users = [User("a", "secret", account="A")]
    serving = serve(Credentials(users), [Account("A", limits=limits)])
    first, second = serving.user("a"), serving.user("a")

    third = serving.client().connect(user="a", **{"pass": "secret"})
    assert third == b"-ERR 'maximum account active connections exceeded'\r\n<closed>"
    assert first.tell(b"SUB x 1\r\nSUB x 2\r\n") == b""
    assert second.tell(b"SUB x 1\r\nSUB x 2\r\n") == b"-ERR 'maximum subscriptions exceeded'\r\n"
    assert first.tell(b"PUB y 5\r\n12345\r\n") == b""
    assert first.tell(b"PUB y 6\r\n123456\r\n") == b"-ERR 'Maximum Payload Violation'\r\n<closed>"
    assert serving.user("a").tell(b"PING\r\n") == b"PONG\r\n"


def test_guests_are_counted_before_they_say_anything(
    serve: Callable[..., GuardedSessions],
) -> None:
    known = Credentials([User("guest", "x", account="A")], no_auth_user="guest")
    serving = serve(known, [Account("A", limits=AccountLimits(max_connections=1))])
    first, second = serving.client(), serving.client()

    assert first.tell(b"PING\r\n") == b"PONG\r\n"
    assert second.connect() == b"-ERR 'maximum account active connections exceeded'\r\n<closed>"
    assert serving.client().tell(PUB) == VIOLATION


def test_a_reload_drops_those_who_changed_and_keeps_the_others(
    serve: Callable[..., GuardedSessions],
) -> None:
    users = {name: User(name, "secret") for name in ("stays", "changes", "goes")}
    serving = serve(Credentials(users.values()))
    clients = {name: serving.user(name) for name in users}
    stranger = serving.client()

    dropped = serving.reload(Credentials([users["stays"], User("changes", "other")]))

    assert dropped == 2
    assert clients["stays"].tell(b"PING\r\n") == b"PONG\r\n"
    assert clients["changes"].said() == VIOLATION
    assert clients["goes"].said() == VIOLATION
    assert stranger.connect(user="changes", **{"pass": "other"}) == b""


def test_a_reload_that_drops_many_of_one_address_keeps_the_others(
    serve: Callable[..., GuardedSessions],
) -> None:
    changed = bcrypt.hashpw(b"other", bcrypt.gensalt(4)).decode()
    serving = serve(Credentials([User("changes", HASHED), User("stays", HASHED)]))
    going = [serving.user("changes") for _ in range(15)]
    stays = serving.user("stays")

    dropped = serving.reload(Credentials([User("changes", changed), User("stays", HASHED)]))

    assert dropped == len(going)
    assert stays.tell(b"PING\r\n") == b"PONG\r\n"


def test_a_reload_drops_whoever_loses_its_account_and_limits_whoever_gets_other_permissions(
    serve: Callable[..., GuardedSessions],
) -> None:
    users = [User("a", "secret", account="A"), User("b", "secret")]
    serving = serve(Credentials(users), [Account("A")])
    a, b = serving.user("a"), serving.user("b")
    limited = Permissions(publish=Rule.of(["x"]))

    serving.reload(Credentials([users[0], User("b", "secret", permissions=limited)]))

    assert a.said() == VIOLATION
    assert b.tell(b"PUB x 0\r\n\r\nPUB y 0\r\n\r\n") == (
        b"-ERR 'Permissions Violation for Publish to \"y\"'\r\n"
    )


def test_a_subscription_that_must_hide_more_keeps_what_is_left_of_its_maximum(
    serve: Callable[..., GuardedSessions],
) -> None:
    serving = serve(Credentials([User("b", "secret")]))
    b = serving.user("b")
    b.tell(b"SUB x.* 1\r\nUNSUB 1 3\r\nPUB x.1 0\r\n\r\n")
    hiding = Permissions(subscribe=Rule.of(deny=["x.2"]))

    serving.reload(Credentials([User("b", "secret", permissions=hiding)]))

    said = b.tell(b"".join(b"PUB x.%d 0\r\n\r\n" % number for number in (2, 3, 4, 5)))
    assert said == b"MSG x.3 1 0\r\n\r\nMSG x.4 1 0\r\n\r\n"


def test_no_secret_is_logged_or_shown(
    serve: Callable[..., GuardedSessions], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    serving = serve(Credentials([User("alice", "s3cr3t")], token="t0k3n"))
    serving.client().connect(user="alice", **{"pass": "wr0ng"}, auth_token="t0k3n")
    client = serving.user("alice", "s3cr3t")
    session = serving.sessions.all()[-1]
    client.tell(b"PUB x 99999999\r\n")

    shown = caplog.text + repr(vars(session)) + repr(serving.reception._credentials._by_name)
    for secret in ("s3cr3t", "t0k3n", "wr0ng"):
        assert secret not in shown
