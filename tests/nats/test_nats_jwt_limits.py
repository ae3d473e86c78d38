"""What an operator grants an account by JWT holds, and nats-server says the same of each case."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import nkeys as signing
import pytest

from millstream.accounts.jwt import Refused, Trust
from support.jwt_makers import AccountHolder, Holder, Operator, UserHolder
from support.server_process import OURS, THEIRS, Wire, started

OPERATOR = Operator()
SYSTEM = OPERATOR.account("system")
OTHER = OPERATOR.account("other", exports=[{"subject": "o.>", "type": "stream"}])
ADMIN = UserHolder(SYSTEM, "admin", 0, {"bearer_token": True})
USER_KEY = Holder(signing.PREFIX_BYTE_USER).public
NO_LIMIT: dict[str, Any] = dict.fromkeys(
    ("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1
) | {"wildcards": True}
MAIN = OPERATOR.account("main", limits=NO_LIMIT | {"mem_storage": -1, "disk_storage": -1})
STREAM = {"subject": "s", "type": "stream"}
SERVICE = {"subject": "q", "type": "service"}
TAKEN = {"subject": "o.a", "account": OTHER.public, "type": "stream"}
BYTES = {"mem_storage": 1000, "disk_storage": 2000}


@contextmanager
def serving(
    program: tuple[str, ...], *lines: str, accounts: tuple[AccountHolder, ...] = (MAIN,)
) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as made:
        preload = "\n".join(f"{a.public}: {a.token}" for a in (SYSTEM, OTHER, *accounts))
        conf = Path(made) / "nats.conf"
        conf.write_text(
            f"operator: {OPERATOR.token}\nsystem_account: {SYSTEM.public}\nresolver: MEMORY\n"
            f"resolver_preload {{\n{preload}\n}}\n"
            f'jetstream {{ store_dir: "{made}/js" }}\n' + "\n".join(lines)
        )
        with started("-c", str(conf), program=program) as running:
            yield running.ready()


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, str]]:
    with ExitStack() as stack:
        ours, theirs = (stack.enter_context(serving(program)) for program in (OURS, THEIRS))
        # nats-server takes newer JWTs only of accounts that somebody has asked for.
        assert let_in(ours, tenant())
        assert let_in(theirs, tenant())
        yield ours, theirs


class Speaker(Wire):
    """A client that asks."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url)
        self._asked = 0
        asked = {"verbose": False, "headers": True, "no_responders": True, "jwt": token}
        self.say(f"CONNECT {json.dumps(asked)}")

    def ask(self, subject: str, body: Any = "") -> Any:
        text = body if isinstance(body, str) else json.dumps(body)
        self._asked += 1
        inbox = f"_INBOX.{self._asked}"
        self.say(f"SUB {inbox} {self._asked}\r\nUNSUB {self._asked} 1")
        self.say(f"PUB {subject} {inbox} {len(text)}\r\n{text}")
        for line in self.lines():
            if line.startswith("NATS/1.0 503"):
                return {"error": "nobody answers"}
            if line.startswith("{"):
                return json.loads(line)
        raise AssertionError("hung up")


_ISSUED = iter(range(1_700_000_000, 1_800_000_000))


def updated(url: str, **nats: Any) -> Any:
    whole = {"limits": NO_LIMIT, "type": "account", "version": 2, **nats}
    token = OPERATOR.sign_claims(MAIN.public, "main", whole, iat=next(_ISSUED))
    with Speaker(url, ADMIN.token) as admin:
        assert admin.answers() == []
        return admin.ask(f"$SYS.REQ.ACCOUNT.{MAIN.public}.CLAIMS.UPDATE", token)


def limits(**more: Any) -> dict[str, Any]:
    return {"limits": NO_LIMIT | more}


VERDICTS: dict[str, dict[str, Any]] = {
    "nothing special": {},
    "fewer imports than it has": limits(imports=0) | {"imports": [TAKEN]},
    "as many imports as it has": limits(imports=1) | {"imports": [TAKEN]},
    "fewer exports than it has": limits(exports=1) | {"exports": [STREAM, SERVICE]},
    "as many exports as it has": limits(exports=2) | {"exports": [STREAM, SERVICE]},
    "a wildcard export that is not allowed": limits(exports=9, wildcards=False)
    | {"exports": [{"subject": "s.>", "type": "stream"}]},
    "a wildcard export that is allowed": limits(exports=9)
    | {"exports": [{"subject": "s.>", "type": "stream"}]},
    "wildcards without a limit on exports": limits(wildcards=False)
    | {"exports": [{"subject": "s.>", "type": "stream"}]},
    "plain and tiered limits": limits(disk_storage=5, tiered_limits={"R1": BYTES}),
    "a tier without a name": limits(tiered_limits={"": BYTES}),
    "an export without a subject": {"exports": [{"type": "stream"}]},
    "an export that covers another": {"exports": [{"subject": "s.>", "type": "stream"},
                                                  {"subject": "s.a", "type": "stream"}]},
    "a response type on a stream": {"exports": [STREAM | {"response_type": "Stream"}]},
    "a token position on a plain subject": {"exports": [STREAM | {"account_token_position": 1}]},
    "latency sampled above 100": {"exports": [SERVICE | {"service_latency":
                                                         {"sampling": 101, "results": "l"}}]},
    "latency told to a wildcard": {"exports": [SERVICE | {"service_latency":
                                                          {"sampling": 1, "results": "l.*"}}]},
    "a trace allowed on a stream export": {"exports": [STREAM | {"allow_trace": True}]},
    "a trace allowed on a service export": {"exports": [SERVICE | {"allow_trace": True}]},
    "an import without an account": {"imports": [{"subject": "o.a", "type": "stream"}]},
    "an import with both names": {"imports": [TAKEN | {"to": "x", "local_subject": "y"}]},
    "a stream import that is shared": {"imports": [TAKEN | {"share": True}]},
    "a bad default permission": {"default_permissions": {"pub": {"allow": ["a..b"]}}},
    "a mapping above 100 %": {"mappings": {"a": [{"subject": "b", "weight": 60},
                                                 {"subject": "c", "weight": 60}]}},
    "a signing key of a user": {"signing_keys": [USER_KEY]},
    "cluster traffic by owner": {"cluster_traffic": "owner"},
    "cluster traffic by nobody": {"cluster_traffic": "nobody"},
    "accounts for a callout without users": {"authorization": {"allowed_accounts": [MAIN.public]}},
}  # fmt: skip


@pytest.fixture(scope="module")
def let_in_there() -> Iterator[dict[str, bool]]:
    """Which of these accounts nats-server lets a user of into."""
    made = {case: OPERATOR.account("main", **nats) for case, nats in VERDICTS.items()}
    with serving(THEIRS, accounts=tuple(made.values())) as url:
        yield {
            case: let_in(url, UserHolder(account, "bob", 0, {"bearer_token": True}).token)
            for case, account in made.items()
        }


@pytest.mark.parametrize("case", VERDICTS)
def test_the_same_account_jwts_are_refused(case: str, let_in_there: dict[str, bool]) -> None:
    trust = Trust([OPERATOR.token])
    try:
        trust.add_account(OPERATOR.account("main", **VERDICTS[case]).token)
        refused = ""
    except Refused as error:
        refused = str(error)
    assert bool(refused) != let_in_there[case], refused


def test_a_wrong_jwt_is_refused_with_the_field_and_the_remedy(urls: tuple[str, str]) -> None:
    told = updated(urls[0], **VERDICTS["fewer exports than it has"])["error"]["description"]
    assert "'limits.exports' allows 1 and the account has 2: raise the limit" in told


# -- what limits do ------------------------------------------------------------------------------


def tenant(**nats: Any) -> str:
    return UserHolder(MAIN, "bob", 0, {"bearer_token": True, **nats}).token


def streamed(client: Speaker) -> list[Any]:
    """Play with streams; what is told, without what differs by nature."""

    def create(name: str, **config: Any) -> Any:
        told = client.ask(f"$JS.API.STREAM.CREATE.{name}",
                          {"name": name, "subjects": [name], **config})  # fmt: skip
        return told.get("error") or "created"

    def consume(stream: str, name: str, **config: Any) -> Any:
        told = client.ask(
            f"$JS.API.CONSUMER.CREATE.{stream}.{name}",
            {"stream_name": stream,
             "config": {"name": name, "durable_name": name, "ack_policy": "explicit", **config}},
        )  # fmt: skip
        return told.get("error") or told["config"].get("max_ack_pending")

    seen = [
        create("C", num_replicas=3, max_bytes=100),
        create("A"),
        create("A2", max_bytes=500),
        create("M", storage="memory"),
    ]
    seen += [create("B", max_bytes=1600)]
    seen += [client.ask(name, "x" * 600).get("error") for name in ("A", "A", "A", "M", "M")]
    seen += [consume("A", "c1"), consume("A", "c2", max_ack_pending=50), consume("A2", "c3")]
    seen += [consume("A", "c4"), create("D", max_consumers=7)]
    told = client.ask("$JS.API.INFO")
    seen += [{key: value for key, value in told.items() if key not in ("api", "type")}]
    for name in ("A", "A2", "M", "B", "D"):
        client.ask(f"$JS.API.STREAM.DELETE.{name}")
    return seen


GRANTS: dict[str, dict[str, Any]] = {
    "any number of bytes": {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1},
    "bytes alone": BYTES,
    "no memory": {"disk_storage": 2000},
    "no disk": {"mem_storage": 1000},
    "two streams": BYTES | {"streams": 2},
    "one consumer": BYTES | {"consumer": 1},
    "few pending": BYTES | {"max_ack_pending": 10},
    "small streams": BYTES | {"disk_max_stream_bytes": 400, "mem_max_stream_bytes": 300},
    "bounded streams": BYTES | {"max_bytes_required": True},
    "a tier for one copy": {"tiered_limits": {"R1": BYTES | {"streams": 2}}},
    "tiers for one and three copies": {
        "tiered_limits": {"R1": BYTES | {"consumer": 1}, "R3": {"disk_storage": 5000}}
    },
    "a tier for three copies alone": {"tiered_limits": {"R3": {"disk_storage": 5000}}},
}


@pytest.mark.parametrize("case", GRANTS)
def test_streams_keep_to_what_the_operator_grants(case: str, urls: tuple[str, str]) -> None:
    seen = []
    for url in urls:
        assert "data" in updated(url, **limits(**GRANTS[case]))
        with Speaker(url, tenant()) as client:
            seen.append(streamed(client))
    different = [pair for pair in zip(*seen, strict=True) if pair[0] != pair[1]]
    assert not different, json.dumps(different)


def let_in(url: str, token: str) -> bool:
    with Speaker(url, token) as client:
        return client.answers() == []


CONNECTIONS: dict[str, dict[str, Any]] = {
    "no limit": limits(),
    "nobody": limits(conn=0),
    "one": limits(conn=1),
    "nothing said": {"limits": {}},
}


@pytest.mark.parametrize("case", CONNECTIONS)
def test_as_many_connections_as_the_operator_grants(case: str, urls: tuple[str, str]) -> None:
    seen = []
    for url in urls:
        updated(url, **CONNECTIONS[case])
        with Speaker(url, tenant()) as first:
            seen.append((first.answers() == [], let_in(url, tenant())))
    assert seen[0] == seen[1]


def test_whoever_came_last_goes_when_fewer_may_connect(urls: tuple[str, str]) -> None:
    for url in urls:
        updated(url)
        with Speaker(url, tenant()) as first, Speaker(url, tenant()) as last:
            assert first.answers() == last.answers() == []
            updated(url, **limits(conn=1))
            assert list(last.rest()) == ["-ERR 'maximum account active connections exceeded'"]
            assert first.answers() == []


USERS: dict[str, dict[str, Any]] = {
    "no limit": {},
    "one subscription": {"subs": 1},
    "small payloads": {"payload": 3},
    "no payloads": {"payload": 0},
    "data": {"data": 1},
    "a proxy": {"proxy_required": True},
    "a bad network": {"src": ["nowhere"]},
    "bad hours": {"times": [{"start": "25:00:00", "end": "x"}]},
    "a text as a limit": {"subs": "1"},
    "an unknown kind of connection": {"allowed_connection_types": ["PIGEON"]},
    "leaf nodes alone": {"allowed_connection_types": ["LEAFNODE"]},
    "a permission without sense": {"pub": {"allow": ["a..b"]}},
    "another type": {"type": "authorization_response"},
    "a newer version": {"version": 3},
}


@pytest.mark.parametrize("case", USERS)
def test_users_keep_to_what_their_jwt_grants(case: str, urls: tuple[str, str]) -> None:
    seen = []
    for url in urls:
        updated(url)
        with Speaker(url, tenant(**USERS[case])) as client:
            told = [line for line in client.answers() if line]
            if not told:
                client.say("SUB a 1\r\nSUB b 2\r\nPUB a 5\r\nhello")
                told = [line for line in client.answers() if line]
        seen.append([line.partition(" for ")[0] for line in told])
    assert seen[0] == seen[1]
