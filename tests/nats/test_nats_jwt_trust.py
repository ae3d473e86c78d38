"""Whom an operator's file and JWTs keep out stays out, here and at nats-server.

What is not followed is named in the log.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nkeys as signing
import pytest

from support.jwt_makers import AccountHolder, Holder, Operator, UserHolder
from support.server_process import OURS, THEIRS, Started, Wire, started

OPERATOR = Operator()
SYSTEM, PINNED, OTHER = (OPERATOR.account(name) for name in ("system", "pinned", "other"))


def file(operator: Operator, accounts: tuple[AccountHolder, ...], *lines: str) -> str:
    preload = "\n".join(f"{account.public}: {account.token}" for account in accounts)
    more = "\n".join(lines)
    return (
        f"operator: {operator.token}\nresolver: MEMORY\nresolver_preload {{\n{preload}\n}}\n{more}"
    )


@contextmanager
def serving(text: str, program: tuple[str, ...] = OURS) -> Iterator[Started]:
    with tempfile.TemporaryDirectory() as made:
        conf = Path(made) / "nats.conf"
        conf.write_text(text)
        with started("-c", str(conf), program=program) as running:
            yield running


def let_in(url: str, user: UserHolder) -> bool:
    with Wire(url) as client:
        client.say('CONNECT {"verbose":false,"jwt":"' + user.token + '"}')
        return client.answers() == []


def bearer(account: AccountHolder) -> UserHolder:
    return UserHolder(account, "bob", 0, {"bearer_token": True})


@pytest.mark.parametrize("pinned", ["one", "none", "not said"])
def test_users_of_accounts_that_are_not_pinned_stay_outside(pinned: str) -> None:
    lines = {
        "one": (f"resolver_pinned_accounts: [{PINNED.public}]",),
        "none": ("resolver_pinned_accounts: []",),
        "not said": (),
    }[pinned]
    accounts = (SYSTEM, PINNED, OTHER)
    text = file(OPERATOR, accounts, f"system_account: {SYSTEM.public}", *lines)
    seen = []
    for program in (OURS, THEIRS):
        with serving(text, program) as server:
            url = server.ready()
            seen.append([let_in(url, bearer(account)) for account in accounts])
    assert seen[0] == seen[1]
    assert seen[0][1] == (pinned != "none")
    assert seen[0][2] == (pinned == "not said")


def test_where_signing_keys_are_strict_an_account_cannot_sign_users_itself() -> None:
    key = Holder(signing.PREFIX_BYTE_OPERATOR)
    strict = Operator(signing_keys=[key.public], strict_signing_key_usage=True)
    account = strict.account("main")
    limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    signer = Holder(signing.PREFIX_BYTE_ACCOUNT)
    claims = {
        "limits": limits | {"wildcards": True},
        "type": "account",
        "version": 2,
        "signing_keys": [signer.public],
    }
    account.token = key.sign_claims(account.public, "main", claims)
    own = bearer(account)
    by_key = bearer(account)
    grants = {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1}
    by_key.token = signer.sign_claims(
        by_key.public,
        "bob",
        {**grants, "bearer_token": True, "issuer_account": account.public},
    )
    for program in (OURS, THEIRS):
        with serving(file(strict, (account,)), program) as server:
            url = server.ready()
            assert (let_in(url, own), let_in(url, by_key)) == (False, True)


@pytest.mark.parametrize(
    ("asserted", "starts"),
    [("2.10.0", True), ("2.15.1", True), ("2.99.0", False), ("3.0.0", False), ("new", False)],
)
def test_an_operator_who_asks_for_a_newer_server_gets_none(asserted: str, starts: bool) -> None:
    operator = Operator(assert_server_version=asserted)
    for program in (OURS, THEIRS):
        with serving(file(operator, (operator.account("main"),)), program) as server:
            if starts:
                server.ready()
            else:
                server.until("version")
                assert server.exit_code() != 0


def test_another_system_account_than_the_operators_is_refused() -> None:
    operator = Operator(system_account=SYSTEM.public)
    accounts = (operator.account("main"),)
    text = file(operator, accounts, f"system_account: {accounts[0].public}")
    for program in (OURS, THEIRS):
        with serving(text, program) as server:
            server.until("system_account")
            assert server.exit_code() != 0


def test_a_server_does_not_start_with_an_account_that_it_cannot_guard() -> None:
    scope = {"kind": "user_scope", "key": PINNED.public, "template": {"proxy_required": True}}
    guarded = OPERATOR.account("a", signing_keys=[scope])
    with serving(file(OPERATOR, (guarded,))) as server:
        server.until(
            "'nats.signing_keys.template.proxy_required' is not supported: this server trusts no"
        )
        assert server.exit_code() == 1


def test_what_a_jwt_says_and_the_server_does_not_follow_is_named() -> None:
    account = OPERATOR.account("tenant", cluster_traffic="owner", colour="red")
    with serving(file(OPERATOR, (account,))) as server:
        server.until("The JWT of account tenant: 'nats.cluster_traffic' has no effect: it tunes")
        server.until("The JWT of account tenant: 'nats.colour' has no effect: this server knows no")
        url = server.ready()
        spender = UserHolder(account, "bob", 0, {"bearer_token": True, "data": 1000})
        assert let_in(url, spender)
        server.until("The JWT of user bob: 'nats.data' has no effect")
