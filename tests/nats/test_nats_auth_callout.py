"""A service says who clients are: the same service on both servers, in a file and by JWTs."""

import asyncio
import base64
import json
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import nkeys as signing
import pytest
from configured_pair import Place, both
from nacl.public import Box, PrivateKey, PublicKey
from nats.aio.client import Client

import nats
from millstream.accounts import nkeys
from millstream.accounts.nkeys import Role
from support.jwt_makers import AccountHolder, Holder, Operator, UserHolder
from support.server_process import OURS, THEIRS, started

SUBJECT = "$SYS.REQ.USER.AUTH"
ISSUER = Holder(signing.PREFIX_BYTE_ACCOUNT)
CURVE = PrivateKey.generate()
XKEY = nkeys.encode(Role.CURVE, bytes(CURVE.public_key))
CONFIG = f"""
accounts {{
  AUTH {{ users: [ {{user: auth, password: secret}} ] }}
  APP {{ users: [ {{user: known, password: secret}} ] }}
  FREE {{ users: [ {{user: free, password: secret}} ] }}
}}
authorization {{
  timeout: 2
  auth_callout {{ issuer: {ISSUER.public}, account: AUTH, auth_users: [auth], MORE }}
}}
"""


def body_of(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))


def shape(value: Any) -> Any:
    """Return the fields of a request; texts that differ between servers are left out."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in sorted(value.items())}
    return type(value).__name__


def sealed(text: str, server: str) -> bytes:
    box = Box(CURVE, PublicKey(nkeys.decode(server, Role.CURVE)))
    nonce = secrets.token_bytes(24)
    return b"xkv1" + nonce + box.encrypt(text.encode(), nonce).ciphertext


def unsealed(data: bytes, server: str) -> str:
    box = Box(CURVE, PublicKey(nkeys.decode(server, Role.CURVE)))
    assert data.startswith(b"xkv1")
    return box.decrypt(data[28:], data[4:28]).decode()


class Service:
    """Decides by the name of the user; keeps what it was asked."""

    def __init__(self, client: Client, issuer: Holder, xkey: str = "") -> None:
        self.client = client
        self.issuer = issuer
        self.xkey = xkey
        self.asked: list[dict[str, Any]] = []
        self.accounts: dict[str, str] = {}

    async def start(self) -> "Service":
        await self.client.subscribe(SUBJECT, cb=self._answer)
        await self.client.flush()
        return self

    async def _answer(self, message: Any) -> None:
        server_key = (message.headers or {}).get("Nats-Server-Xkey", "")
        text = unsealed(message.data, server_key) if self.xkey else message.data.decode()
        request = body_of(text)
        self.asked.append(request)
        user = request["nats"]["connect_opts"].get("user", "")
        if user == "silent":
            return
        answer = self.response(request, user)
        data = sealed(answer, server_key) if self.xkey and answer else answer.encode()
        await message.respond(data)

    def response(self, request: dict[str, Any], user: str) -> str:
        nats_part, server = request["nats"], request["nats"]["server_id"]["id"]
        if user == "nothing":
            return ""
        about = nats_part["user_nkey"] if user != "other" else "U" + "A" * 55
        said: dict[str, Any] = {"type": "authorization_response", "version": 2}
        if user == "bad":
            said["error"] = "not today"
        else:
            said["jwt"] = self.token(about, user)
        audience = server if user != "elsewhere" else "NSOMEBODY"
        return self.issuer.sign_claims(about, "", said, aud=audience)

    def token(self, about: str, user: str) -> str:
        claims: dict[str, Any] = {"type": "user", "version": 2, "subs": -1, "data": -1}
        claims |= {"payload": -1, "pub": {"deny": ["denied"]}, **self.accounts}
        signer = Holder(signing.PREFIX_BYTE_ACCOUNT) if user == "forged" else self.issuer
        account = "NOWHERE" if user == "lost" else "APP"
        return signer.sign_claims(about, f"named-{user}", claims, aud=account)


async def entry(url: str, user: str, **more: Any) -> Any:
    """Return what becomes of a client: the account and rights it got, or how it was refused."""
    host, _, port = url.removeprefix("nats://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    named = {"user": user, "pass": "secret"} if user else {}
    asked = {"verbose": False, "headers": True, "protocol": 1, "name": "n", **named, **more}
    said = [f"CONNECT {json.dumps(asked)}", "SUB i 1", "PUB $SYS.REQ.USER.INFO i 0", ""]
    said += ["PUB denied 0", "", "PING", ""]
    try:
        await reader.readline()
        writer.write("\r\n".join(said).encode())
        heard = (await reader.readuntil(b"PONG\r\n")).decode()
        while '{"server"' not in heard:
            heard += (await reader.readline()).decode()
    except (asyncio.IncompleteReadError, ConnectionResetError) as error:
        partial = getattr(error, "partial", b"")
        return partial.decode().strip().lower()
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    lines = heard.splitlines()
    told = next(json.loads(line) for line in lines if line.startswith('{"server"'))["data"]
    errors = [line for line in lines if line.startswith("-ERR")]
    return told["account"], (told.get("permissions") or {}).get("publish"), errors


USERS = ("alice", "known", "free", "bad", "nothing", "other", "elsewhere", "forged", "lost", "")


def scenario(xkey: str = "") -> Callable[[Place], Awaitable[list[Any]]]:
    async def play(place: Place) -> list[Any]:
        service = await Service(await place.client("auth"), ISSUER, xkey).start()
        seen: list[Any] = [await entry(place.url, user) for user in USERS]
        seen.append([shape(each["nats"]) for each in service.asked])
        seen.append([(each["aud"], each["sub"] == ISSUER.public) for each in service.asked])
        seen.append([each["nats"]["connect_opts"] | {"version": ""} for each in service.asked])
        keys = ("host", "kind", "type", "user", "name")
        clients = [each["nats"]["client_info"] for each in service.asked]
        seen.append([{key: each.get(key) for key in keys} for each in clients])
        return seen

    return play


@pytest.mark.parametrize(
    ("more", "xkey"),
    [("", ""), (f"xkey: {XKEY}", XKEY), ("allowed_accounts: [APP]", "")],
    ids=["plain", "sealed", "allowed"],
)
async def test_a_service_of_a_file_decides_as_with_the_reference(
    tmp_path: Path, more: str, xkey: str
) -> None:
    seen = await both(
        tmp_path, CONFIG.replace(", MORE", f", {more}" if more else ""), scenario(xkey)
    )
    assert seen[0][0] == "APP"


async def test_no_answer_is_a_refusal(tmp_path: Path) -> None:
    async def play(place: Place) -> list[Any]:
        await Service(await place.client("auth"), ISSUER).start()
        return ["authorization" in await entry(place.url, "silent")]

    await both(tmp_path, CONFIG.replace(", MORE", "").replace("timeout: 2", "timeout: 1"), play)


async def test_the_service_itself_cannot_ask_in_the_servers_name(tmp_path: Path) -> None:
    async def play(place: Place) -> list[Any]:
        client = await place.client("auth")
        errors: list[str] = []

        async def complain(error: Exception) -> None:
            errors.append(str(error).lower())

        client._error_cb = complain
        await client.publish(SUBJECT, b"x")
        await client.flush()
        for _ in range(100):
            if errors:
                break
            await asyncio.sleep(0.01)
        return errors

    assert await both(tmp_path, CONFIG.replace(", MORE", ""), play)


@pytest.mark.parametrize("program", [OURS, THEIRS], ids=["ours", "theirs"])
async def test_a_service_of_an_operators_account_places_users_where_it_may(
    program: Sequence[str], tmp_path: Path
) -> None:
    operator = Operator()
    system, app, closed = (operator.account(name) for name in ("system", "app", "closed"))
    auth = AccountHolder(operator, "auth", {})
    service_user = UserHolder(auth, "service", 0, {})
    sentinel = UserHolder(auth, "sentinel", 0, {"bearer_token": True, "sub": {"deny": [">"]}})
    limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    terms = {"auth_users": [service_user.public], "allowed_accounts": [app.public]}
    claims = {"limits": limits | {"wildcards": True}, "type": "account", "version": 2}
    auth.token = operator.sign_claims(auth.public, "auth", claims | {"authorization": terms})
    listed = "\n".join(f"{each.public}: {each.token}" for each in (system, app, closed, auth))
    conf = tmp_path / "nats.conf"
    conf.write_text(
        f"operator: {operator.token}\nsystem_account: {system.public}\nresolver: MEMORY\n"
        f"resolver_preload {{\n{listed}\n}}\n"
    )
    creds = tmp_path / "service.creds"
    creds.write_text(service_user.creds_file())
    with started("-c", str(conf), program=program) as running:
        url = running.ready()
        client = await nats.connect(url, user_credentials=str(creds), allow_reconnect=False)
        service = await Service(client, auth).start()
        service.token = lambda about, user: (app if user != "bad2" else closed).sign_claims(  # type: ignore[method-assign]
            about, user, {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1}
        )
        shown = {"jwt": sentinel.token}
        placed = await entry(url, "alice", **shown)
        assert placed[0] == app.public
        assert "authorization" in await entry(url, "bad2", **shown)
        assert service.asked[0]["nats"]["connect_opts"]["jwt"] == sentinel.token
        assert service.asked[0]["sub"] == auth.public
        await client.close()
