"""Accounts by JWT while the server runs: a newer one is handed over, or a key alone is trusted."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.jwt_makers import AccountHolder, Operator, UserHolder
from support.server_process import OURS, THEIRS, Wire, started

OPERATOR = Operator()
SYSTEM = OPERATOR.account("system")
MAIN = OPERATOR.account("main")
ADMIN = UserHolder(SYSTEM, "admin", 0, {"bearer_token": True})
ALICE = UserHolder(MAIN, "alice", 0, {"bearer_token": True})


@pytest.fixture(params=["operator", "trusted_keys"])
def trust(request: pytest.FixtureRequest) -> str:
    given = {"operator": OPERATOR.token, "trusted_keys": OPERATOR.public}
    return f"{request.param}: {given[request.param]}"


@pytest.fixture(params=[OURS, THEIRS], ids=["ours", "theirs"])
def url(request: pytest.FixtureRequest, trust: str) -> Iterator[str]:
    program: Sequence[str] = request.param
    with tempfile.TemporaryDirectory() as made:
        conf = Path(made) / "nats.conf"
        conf.write_text(
            f"{trust}\nsystem_account: {SYSTEM.public}\nresolver: MEMORY\n"
            f"resolver_preload {{\n {SYSTEM.public}: {SYSTEM.token}\n"
            f" {MAIN.public}: {MAIN.token}\n}}\n"
        )
        with started("-c", str(conf), program=program) as running:
            yield running.ready()


def connected(url: str, user: UserHolder) -> Wire:
    client = Wire(url)
    client.say('CONNECT {"verbose":false,"headers":true,"jwt":"' + user.token + '"}')
    assert client.answers() == []
    return client


def updated(admin: Wire, account: AccountHolder, token: str) -> Any:
    admin.say("SUB _INBOX.1 1\r\nUNSUB 1 1")
    subject = f"$SYS.REQ.ACCOUNT.{account.public}.CLAIMS.UPDATE"
    admin.say(f"PUB {subject} _INBOX.1 {len(token)}\r\n{token}")
    return next(json.loads(line) for line in admin.lines() if line.startswith("{"))


def claims(**nats: Any) -> str:
    limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    whole = {"limits": limits | {"wildcards": True}, "type": "account", "version": 2, **nats}
    return OPERATOR.sign_claims(MAIN.public, "main", whole, iat=1_700_000_000)


def test_an_account_follows_the_jwt_that_is_handed_over(url: str) -> None:
    with connected(url, ADMIN) as admin, connected(url, ALICE) as alice:
        mapped = claims(mappings={"foo": [{"subject": "bar", "weight": 100}]})
        told = updated(admin, MAIN, mapped)
        assert told["data"] == {"account": MAIN.public, "code": 200, "message": "jwt updated"}
        alice.say("SUB > 1\r\nPUB foo 0\r\n")
        assert [line for line in alice.answers() if line] == ["MSG bar 1 0"]


def test_a_user_that_the_new_jwt_revokes_must_go(url: str) -> None:
    with connected(url, ADMIN) as admin, connected(url, ALICE) as alice:
        updated(admin, MAIN, claims(revocations={ALICE.public: 2_000_000_000}))
        assert list(alice.rest()) == ["-ERR 'User Authentication Revoked'"]


def test_what_does_not_fit_is_refused(url: str) -> None:
    with connected(url, ADMIN) as admin:
        told = updated(admin, SYSTEM, MAIN.token)["error"]
        assert told["description"] == (
            "jwt update resulted in error - subject does not match jwt content"
        )
        stranger = OPERATOR.account("stranger")
        skipped = updated(admin, stranger, stranger.token)["data"]
        assert skipped["message"] == "jwt update skipped"


def test_a_jwt_of_another_operator_changes_nothing(url: str) -> None:
    limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    foreign = Operator().sign_claims(
        MAIN.public, "main", {"limits": limits, "type": "account", "version": 2}
    )
    with connected(url, ADMIN) as admin, connected(url, ALICE) as alice:
        assert updated(admin, MAIN, foreign)["error"]["code"] == 500
        assert alice.answers() == []
