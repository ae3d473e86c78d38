"""Account JWTs that the server keeps, is handed, asks for and deletes, beside the real server."""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import nats
from support.jwt_makers import AccountHolder, Operator, UserHolder
from support.server_process import OURS, THEIRS, Wire, started

OPERATOR = Operator()
SYSTEM = OPERATOR.account("system")
MAIN = OPERATOR.account("main")
OTHER = OPERATOR.account("other")
NOBODY = OPERATOR.account("nobody")
ADMIN = UserHolder(SYSTEM, "admin", 0, {"bearer_token": True})
ALICE = UserHolder(MAIN, "alice", 0, {"bearer_token": True})
BOB = UserHolder(OTHER, "bob", 0, {"bearer_token": True})
BOTH = pytest.mark.parametrize("program", [OURS, THEIRS], ids=["ours", "theirs"])


@contextmanager
def serving(
    program: Sequence[str], directory: Path, resolver: str, *more: AccountHolder
) -> Iterator[str]:
    conf = directory / "nats.conf"
    listed = "\n".join(f" {each.public}: {each.token}" for each in (SYSTEM, *more))
    conf.write_text(
        f"operator: {OPERATOR.token}\nsystem_account: {SYSTEM.public}\n"
        f"resolver {resolver.replace('DIR', str(directory / 'jwt'))}\n"
        + ("" if "URL" in resolver else f"resolver_preload {{\n{listed}\n}}\n")
    )
    with started("-c", str(conf), program=program) as running:
        yield running.ready()


class Admin:
    """Asks the system account."""

    def __init__(self, client: nats.NATS) -> None:
        self.client = client

    async def raw(self, subject: str, payload: str = "") -> bytes:
        return (await self.client.request(subject, payload.encode(), timeout=5)).data

    async def told(self, subject: str, payload: str = "") -> Any:
        answer = json.loads(await self.raw(subject, payload))
        return answer.get("data", answer.get("error"))


async def as_user(url: str, user: UserHolder) -> nats.NATS:
    token = user.token
    return await nats.connect(
        url,
        user_jwt_cb=lambda: token.encode(),
        signature_cb=lambda nonce: b"",
        allow_reconnect=False,
    )


def enters(url: str, user: UserHolder) -> list[str]:
    """Return what a client hears that says CONNECT and PING at once."""
    with Wire(url) as wire:
        said = '{"verbose":false,"headers":true,"jwt":"' + user.token + '"}'
        wire.say(f"CONNECT {said}\r\nSUB a 1\r\nPUB a 0\r\n")
        return [line for line in wire.answers() if line]


def deletion(by: Operator, *accounts: str) -> str:
    return by.sign_claims(by.public, "delete", {"type": "generic", "accounts": list(accounts)})


async def conversation(url: str) -> list[Any]:
    client = await as_user(url, ADMIN)
    admin, seen = Admin(client), list[Any]()
    try:
        seen.append(enters(url, ALICE))
        seen.append(await admin.told("$SYS.REQ.CLAIMS.UPDATE", MAIN.token))
        seen.append(enters(url, ALICE))
        update = f"$SYS.REQ.ACCOUNT.{OTHER.public}.CLAIMS.UPDATE"
        seen.append((await admin.told(update, MAIN.token))["description"])
        seen.append((await admin.told(update, "junk"))["code"])
        seen.append(await admin.told(update, OTHER.token))
        seen.append(enters(url, BOB))
        seen.append(sorted(await admin.told("$SYS.REQ.CLAIMS.LIST")))
        lookup = f"$SYS.REQ.ACCOUNT.{MAIN.public}.CLAIMS.LOOKUP"
        seen.append((await admin.raw(lookup)).decode())
        missing = NOBODY.public
        seen.append(await admin.raw(f"$SYS.REQ.ACCOUNT.{missing}.CLAIMS.LOOKUP"))
        inbox, packed = client.new_inbox(), []
        subscription = await client.subscribe(inbox)
        await client.publish("$SYS.REQ.CLAIMS.PACK", b"x", reply=inbox)
        while data := (await subscription.next_msg(timeout=5)).data:
            packed.append(data.decode())
        seen.append(sorted(packed))
        delete = "$SYS.REQ.CLAIMS.DELETE"
        seen.append(await admin.told(delete, deletion(OPERATOR, SYSTEM.public)))
        seen.append((await admin.told(delete, deletion(Operator(), OTHER.public)))["code"])
        seen.append(await admin.told(delete, deletion(OPERATOR, OTHER.public)))
        seen.append(enters(url, BOB))
        seen.append(sorted(await admin.told("$SYS.REQ.CLAIMS.LIST")))
    finally:
        await client.close()
    return seen


async def test_a_full_resolver_answers_as_the_reference_does(tmp_path: Path) -> None:
    seen = []
    for name, program in (("ours", OURS), ("theirs", THEIRS)):
        directory = tmp_path / name
        directory.mkdir()
        with serving(program, directory, "{ type: full, dir: 'DIR', allow_delete: true }") as url:
            seen.append(await conversation(url))
        files = sorted(path.name for path in (directory / "jwt").iterdir())
        seen[-1].append(files)
    ours, theirs = seen
    for mine, their in zip(ours, theirs, strict=True):
        if isinstance(mine, dict) and str(mine.get("description", "")).startswith("delete acc"):
            assert mine["code"] == their["code"]  # theirs names the operator
        else:
            assert mine == their
    assert ours[0] == ["-ERR 'Authorization Violation'"]
    assert ours[2] == ["MSG a 1 0"]
    assert ours[1] == {"account": MAIN.public, "code": 200, "message": "jwt updated"}


@BOTH
async def test_what_was_handed_over_is_there_after_a_restart(
    program: Sequence[str], tmp_path: Path
) -> None:
    resolver = "{ type: full, dir: 'DIR' }"
    with serving(program, tmp_path, resolver) as url:
        client = await as_user(url, ADMIN)
        await Admin(client).told("$SYS.REQ.CLAIMS.UPDATE", MAIN.token)
        told = await Admin(client).told("$SYS.REQ.CLAIMS.DELETE", deletion(OPERATOR, MAIN.public))
        assert "delete must be enabled in server config" in told["description"]
        await client.close()
    with serving(program, tmp_path, resolver) as url:
        assert enters(url, ALICE) == ["MSG a 1 0"]


@BOTH
async def test_a_cache_asks_others_for_accounts_that_it_does_not_know(
    program: Sequence[str], tmp_path: Path
) -> None:
    with serving(program, tmp_path, "{ type: cache, dir: 'DIR', timeout: '3s' }") as url:
        client = await as_user(url, ADMIN)
        admin = Admin(client)
        told = await admin.told("$SYS.REQ.CLAIMS.UPDATE", MAIN.token)
        assert told == {
            "account": MAIN.public,
            "code": 200,
            "message": "jwt update cache skipped",
        }

        async def answer(message: Any) -> None:
            asked = message.subject.split(".")[3]
            known = {MAIN.public: MAIN.token}
            await message.respond(known.get(asked, "").encode())

        await client.subscribe("$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP", cb=answer)
        await client.flush()
        entered = await asyncio.to_thread(enters, url, ALICE)
        assert entered == ["MSG a 1 0"]
        told = await admin.told("$SYS.REQ.CLAIMS.UPDATE", MAIN.token)
        assert told["message"] == "jwt updated cache"
        assert MAIN.public in await admin.told("$SYS.REQ.CLAIMS.LIST")
        assert await asyncio.to_thread(enters, url, BOB) == ["-ERR 'Authorization Violation'"]
        await client.close()


@contextmanager
def account_server(tokens: dict[str, str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            token = tokens.get(self.path.rpartition("/")[2])
            self.send_response(200 if token or self.path.endswith("/") else 404)
            self.end_headers()
            self.wfile.write((token or "").encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/jwt/v1/accounts/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@BOTH
def test_accounts_come_from_a_url_with_those_that_they_import_from(
    program: Sequence[str], tmp_path: Path
) -> None:
    owner = OPERATOR.account("owner", exports=[{"subject": "news.>", "type": "stream"}])
    taken = {"subject": "news.>", "account": owner.public, "type": "stream"}
    importer = OPERATOR.account("importer", imports=[taken])
    reader = UserHolder(importer, "reader", 0, {"bearer_token": True})
    writer = UserHolder(owner, "writer", 0, {"bearer_token": True})
    tokens = {each.public: each.token for each in (owner, importer, SYSTEM)}
    with account_server(tokens) as at, serving(program, tmp_path, f": 'URL({at})'") as url:
        with Wire(url) as wire:
            wire.say('CONNECT {"verbose":false,"jwt":"' + reader.token + '"}\r\nSUB news.> 1')
            assert wire.answers() == []
            with Wire(url) as other:
                other.say('CONNECT {"verbose":false,"jwt":"' + writer.token + '"}')
                other.say("PUB news.a 0\r\n")
                assert other.answers() == []
            assert next(wire.lines()) == "MSG news.a 1 0"
        assert enters(url, BOB) == ["-ERR 'Authorization Violation'"]
