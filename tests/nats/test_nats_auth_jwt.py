"""Users by JWT: nats-server and we believe the same ones, and grant them the same."""

import base64
import contextlib
import json
import socket
from dataclasses import dataclass
from typing import Any

import nkeys as signing

from millstream.accounts.credentials import Credentials, Presented
from millstream.accounts.jwt import Trust
from millstream.nats.system.user_info import shown_permissions
from support.jwt_makers import AccountHolder, Holder, Operator, UserHolder
from support.peers import nats_server

OPERATOR = Operator()
SIGNER, SCOPED = Holder(signing.PREFIX_BYTE_ACCOUNT), Holder(signing.PREFIX_BYTE_ACCOUNT)
REVOKED = Holder(signing.PREFIX_BYTE_USER)
ASK = "$SYS.REQ.USER.INFO"
TEMPLATE = {
    "pub": {"allow": ["u.{{name()}}.>", "t.{{tag(team)}}", ASK], "deny": ["u.{{name()}}.no"]},
    "sub": {"allow": ["{{account-name()}}.>", "_INBOX.>"]},
    "subs": 7,
}
SCOPE = {"kind": "user_scope", "key": SCOPED.public, "role": "r", "template": TEMPLATE}
ACCOUNT = OPERATOR.account(
    "main",
    signing_keys=[SIGNER.public, SCOPE],
    revocations={REVOKED.public: 2_000_000_000},
    default_permissions={"pub": {"deny": ["by.default"]}},
)
SYSTEM = OPERATOR.account("system")
STRICT = OPERATOR.account(
    "strict",
    limits={
        **dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1),
        "wildcards": True,
        "disallow_bearer": True,
    },
)


@dataclass(frozen=True)
class Case:
    """A user's token, and the key that signs the nonce (None: nobody signs)."""

    token: str
    pair: Any


def user(account: AccountHolder = ACCOUNT, *, signed: bool = True, **nats: Any) -> Case:
    made = UserHolder(account, "alice", nats.pop("exp", 0), nats)
    return Case(made.token, made.pair if signed else None)


def signed_by(holder: Holder, key: Holder | None = None, **nats: Any) -> Case:
    mine = key or Holder(signing.PREFIX_BYTE_USER)
    claims = {"type": "user", "version": 2, "issuer_account": ACCOUNT.public, **nats}
    return Case(holder.sign_claims(mine.public, "alice", claims), mine.pair)


def limited(**more: Any) -> dict[str, Any]:
    return {"subs": -1, "data": -1, "payload": -1, **more}


CASES: dict[str, Case] = {
    "a plain user": user(),
    "an unsigned nonce": user(signed=False),
    "a bearer": user(signed=False, bearer_token=True),
    "a bearer that signs": user(bearer_token=True),
    "a bearer where none may be": user(STRICT, signed=False, bearer_token=True),
    "a signer where no bearer may be": user(STRICT),
    "permissions of its own": user(pub={"allow": ["a.>", ASK]}, sub={"deny": ["b"]}),
    "leave to answer": user(resp={"max": 3, "ttl": 5_000_000_000}),
    "leave to answer beside more": user(
        pub={"allow": [ASK]}, resp={"max": 3, "ttl": 5_000_000_000}
    ),
    "a time long past": user(exp=1_600_000_100),
    "a time yet to come": user(exp=4_000_000_000),
    "an address that fits": user(src=["127.0.0.0/8"]),
    "an address that does not": user(src=["10.0.0.0/8"]),
    "two addresses, one of which fits": user(src=["10.0.0.0/8", "127.0.0.1/32"]),
    "the kind of connection": user(allowed_connection_types=["STANDARD"]),
    "another kind of connection": user(allowed_connection_types=["WEBSOCKET"]),
    "all hours": user(times=[{"start": "00:00:00", "end": "23:59:59"}]),
    "a revoked user": signed_by(SIGNER, REVOKED),
    "a signing key": signed_by(SIGNER, **limited()),
    "a signing key and permissions": signed_by(SIGNER, **limited(pub={"allow": ["x", ASK]})),
    "a scoped key": signed_by(SCOPED, tags=["team:x", "team:y"]),
    "a scoped key without the tag": signed_by(SCOPED),
    "a scoped key and permissions of its own": signed_by(SCOPED, pub={"allow": ["x"]}),
    "a scoped key and limits of its own": signed_by(SCOPED, **limited()),
    "a scoped key and a bearer": signed_by(SCOPED, bearer_token=True),
    "a key that the account does not list": signed_by(Holder(signing.PREFIX_BYTE_ACCOUNT)),
    "an account that nobody knows": user(OPERATOR.account("unknown")),
    "an account of another operator": user(Operator().account("main")),
    "the nonce signed by somebody else": Case(user().token, Holder(signing.PREFIX_BYTE_USER).pair),
}


def ours(case: Case) -> dict[str, Any] | None:
    """Return the permissions that we grant, None when we do not believe it."""
    trust = Trust([OPERATOR.token])
    for account in (ACCOUNT, STRICT):
        trust.add_account(account.token)
    presented = Presented(jwt=case.token, signature=_signature(case, "n"), nonce="n")
    identity = Credentials(trust=trust).identify(presented, now=1_800_000_000)
    return None if identity is None else shown_permissions(identity.permissions)


def _signature(case: Case, nonce: str) -> str:
    if case.pair is None:
        return ""
    return base64.urlsafe_b64encode(case.pair.sign(nonce.encode())).decode().rstrip("=")


def theirs(case: Case, port: int) -> dict[str, Any] | None:
    """Return the permissions that nats-server grants, None when it does not let in."""
    with contextlib.closing(socket.create_connection(("127.0.0.1", port), 5)) as wire:
        reader = wire.makefile("rb")
        nonce = json.loads(reader.readline().removeprefix(b"INFO "))["nonce"]
        options = {"verbose": False, "jwt": case.token, "sig": _signature(case, nonce)}
        question = b"SUB _INBOX.1 1\r\nPUB $SYS.REQ.USER.INFO _INBOX.1 0\r\n\r\nPING\r\n"
        wire.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
        if not reader.readline().startswith(b"PONG"):
            return None
        wire.sendall(question)
        told = None
        for line in reader:
            if line.startswith(b"{"):
                told = json.loads(line)["data"].get("permissions", {})
                break
            if b"Permissions Violation" in line:
                return {"unknown": True}
        reader.close()
    return told


def test_the_same_users_are_believed_and_may_do_the_same() -> None:
    accounts = (ACCOUNT, STRICT, SYSTEM)
    preload = "\n".join(f"{account.public}: {account.token}" for account in accounts)
    config = f"operator: {OPERATOR.token}\nresolver: MEMORY\nresolver_preload {{\n{preload}\n}}"
    config += f"\nsystem_account: {SYSTEM.public}"
    different = {}
    with nats_server(config=config) as peer:
        for name, case in CASES.items():
            here, there = _ordered(ours(case)), _ordered(theirs(case, peer.port))
            same = (here is None) == (there is None)
            if there is not None and "unknown" not in there:
                same = same and here == there
            if not same:
                different[name] = (here, there)

    assert different == {}


def _ordered(permissions: dict[str, Any] | None) -> dict[str, Any] | None:
    """Lists come in no order, and empty rules may be shown or not."""
    if permissions is None:
        return None
    for rule in permissions.values():
        for listed in rule.values() if isinstance(rule, dict) else ():
            if isinstance(listed, list):
                listed.sort()
    return {name: rule for name, rule in permissions.items() if rule}
