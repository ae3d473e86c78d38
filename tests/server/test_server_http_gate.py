"""Who may do what at the HTTP door: every route, every scope, and ways around them."""

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from millstream.accounts.api_keys import ApiKey, make_key, parse_keys
from millstream.accounts.credentials import Credentials, User
from millstream.clock import SystemClock
from millstream.http.request import Request
from millstream.http.response import Response, StreamedResponse
from millstream.server.access.key_file import KeyFile
from millstream.server.build import build
from millstream.server.command_line.serve_options import load_serve
from millstream.server.http_parts import routes
from millstream.server.options.config_error import ConfigError
from millstream.server.server import Server

# What a key needs, as the contract says; a route that is not listed here fails the first test.
NEEDS = {
    ("GET", "/v0/health"): None,
    ("GET", "/v0/ready"): None,
    ("GET", "/readyz"): None,
    ("GET", "/healthz"): None,
    ("GET", "/"): None,
    ("GET", "/ui/{file}"): None,
    ("GET", "/ui/{folder}/{file}"): None,
    ("GET", "/monitoring"): None,
    ("GET", "/v0/login"): None,
    ("GET", "/v0/whoami"): "",  # any key: it learns about itself alone
    ("GET", "/v0/feed"): "read",
    ("GET", "/v0/feed/past"): "read",
    ("GET", "/v0/access"): "admin",
    ("GET", "/v0/flow"): "read",
    ("GET", "/v0/pipelines"): "read",
    ("GET", "/v0/consumers"): "read",
    ("GET", "/v0/topics/{topic}/consumers"): "read",
    ("GET", "/v0/topics/{topic}/consumers/{consumer}"): "read",
    ("PUT", "/v0/topics/{topic}/consumers/{consumer}"): "admin",
    ("DELETE", "/v0/topics/{topic}/consumers/{consumer}"): "delete",
    ("POST", "/v0/topics/{topic}/consumers/{consumer}/pause"): "admin",
    ("POST", "/v0/topics/{topic}/consumers/{consumer}/reset"): "admin",
    ("POST", "/v0/topics/{topic}/browse"): "read",
    ("POST", "/v0/publish"): "write",
    ("POST", "/v0/request"): "write",
    ("DELETE", "/connz/{cid}"): "admin",
    ("GET", "/openapi.json"): None,
    ("GET", "/v0/ws"): "",  # any key: each message is judged on its own
    ("GET", "/v0/metrics"): "read",
    ("GET", "/v0/topics"): "read",
    ("GET", "/v0/topics/{topic}"): "read",
    ("POST", "/v0/topics/{topic}/diff"): "read",
    ("GET", "/v0/topics/{topic}/tail"): "read",
    ("GET", "/v0/topics/{topic}/plan"): "read",
    ("GET", "/v0/topics/{topic}/frames"): "read",
    ("POST", "/v0/watch"): "read",
    ("POST", "/v0/topics/{topic}"): "write",
    ("POST", "/v0/topics/{topic}/stage"): "write",
    ("POST", "/v0/topics/{topic}/hold"): "read",
    ("POST", "/v0/topics/{topic}/commit"): "write",
    ("POST", "/v0/topics/{topic}/abort"): "write",
    ("GET", "/v0/routers"): "read",
    ("GET", "/v0/routers/{router}"): "read",
    ("PUT", "/v0/routers/{router}"): "admin",
    ("DELETE", "/v0/routers/{router}"): "delete",
    ("POST", "/v0/topics/{topic}/ack"): "write",
    ("POST", "/v0/topics/{topic}/nack"): "write",
    ("POST", "/v0/topics/{topic}/extend"): "write",
    ("POST", "/v0/topics/{topic}/claim"): "read+write",
    ("GET", "/v0/topics/{topic}/work"): "read+write",
    ("POST", "/v0/topics/{topic}/redrive"): "read+write+delete",
    ("DELETE", "/v0/topics/{topic}"): "delete",
    ("POST", "/v0/topics/{topic}/delete"): "delete",
    ("PUT", "/v0/topics/{topic}"): "admin",
    ("GET", "/metrics"): "read",
    ("GET", "/varz"): "read",
    ("GET", "/jsz"): "read",
    ("GET", "/connz"): "read",
    ("GET", "/accountz"): "read",
    ("GET", "/accstatz"): "read",
    ("GET", "/subsz"): "read",
    ("GET", "/ipqueuesz"): "read",
    ("GET", "/raftz"): "read",
    ("GET", "/stacksz"): "read",
    ("GET", "/subscriptionsz"): "read",
    ("GET", "/routez"): "read",
    ("GET", "/leafz"): "read",
    ("GET", "/gatewayz"): "read",
}
BOUND = ("GET", "/v0/watch/{wid}")  # belongs to the key that opened it, whatever its scopes
SCOPES = ("read", "write", "delete", "admin")
SUBSETS = [set(chosen) for size in range(5) for chosen in itertools.combinations(SCOPES, size)]


class Gated:
    """A server in this process, asked without a socket."""

    def __init__(self, options: Any, parts: Any) -> None:
        self.parts = parts
        self.app = routes(options, parts.facts, parts.http.page, parts.http.gate)

    async def send(
        self, method: str, target: str, *credential: str, body: object = None, **headers: str
    ) -> Response | StreamedResponse:
        path, _, query = target.partition("?")
        pairs = [(b"authorization", each.encode("latin-1")) for each in credential]
        pairs += [(name.encode(), value.encode()) for name, value in headers.items()]
        raw = b"" if body is None else json.dumps(body).encode()
        if body is not None:
            pairs.append((b"content-type", b"application/json"))
        return await self.app(Request(method, path, query, pairs, raw))

    async def status(self, method: str, target: str, *credential: str, **more: Any) -> int:
        answer = await self.send(method, target, *credential, **more)
        if isinstance(answer, StreamedResponse):
            await answer.chunks.aclose()  # type: ignore[attr-defined]
        return answer.status

    async def json(self, method: str, target: str, *credential: str, **more: Any) -> Any:
        answer = await self.send(method, target, *credential, **more)
        assert isinstance(answer, Response)
        return json.loads(answer.body)


@asynccontextmanager
async def gated(directory: Path, conf: str = "", **values: Any) -> AsyncIterator[Gated]:
    file = ""
    if conf:
        (directory / "m.conf").write_text(conf)
        file = str(directory / "m.conf")
    given = {"port": 0, "http_port": 0, "data_dir": directory / "data", **values}
    options = load_serve(given, file).options
    parts = build(options, asyncio.get_running_loop(), SystemClock())
    server = Server(options, parts)
    await server.start()
    try:
        yield Gated(options, parts)
    finally:
        await server.stop()


def bearer(secret: str) -> str:
    return f"Bearer {secret}"


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def target(pattern: str, topic: str = "t") -> str:
    return pattern.replace("{topic}", topic).replace("{wid}", "wid_none").replace("{router}", "r")


async def test_every_route_asks_for_the_scope_of_the_contract(tmp_path: Path) -> None:
    keys = ",".join(f"k{i}:{'+'.join(s)}" for i, s in enumerate(SUBSETS) if s)
    async with gated(tmp_path, api_keys=parse_keys(keys)) as door:
        table = {(route.method, route.pattern) for route in door.app.table}
        assert table == {*NEEDS, BOUND}
        for (method, pattern), needs in NEEDS.items():
            wanted = set(needs.split("+")) if needs else set()
            for number, held in enumerate(SUBSETS):
                credential = [bearer(f"k{number}")] if held else []
                status = await door.status(method, target(pattern), *credential)
                if needs is not None and not held:
                    expected = {401}
                elif wanted <= held:
                    expected = {200, 201, 400, 404, 409, 415}
                else:
                    expected = {403}
                assert status in expected, (method, pattern, held)


async def test_a_key_of_other_names_is_refused_on_every_route_that_names_a_topic(
    tmp_path: Path,
) -> None:
    async with gated(tmp_path, api_keys=parse_keys("mine::a.|b:,all")) as door:
        await door.send("PUT", "/v0/topics/t", bearer("all"))
        for method, pattern in NEEDS:
            if "{topic}" in pattern:
                for name in ("t", "A.x", "%74", "b", "xa.", "a", "%61"):
                    assert await door.status(method, target(pattern, name), bearer("mine")) == 403
                for name in ("a.x", "b:y", "%61.x", "a%2Ex", "b%3Ay"):
                    status = await door.status(method, target(pattern, name), bearer("mine"))
                    assert status not in (401, 403), (method, pattern, name)
        refused = await door.json("GET", "/v0/topics/t", bearer("mine"))
        assert refused["error"]["code"] == "forbidden"
        assert refused["error"]["detail"] == {"topic": "t"}


async def test_a_key_of_some_names_sees_nothing_of_the_whole_server(tmp_path: Path) -> None:
    async with gated(tmp_path, api_keys=parse_keys("mine::a.")) as door:
        for (method, pattern), needs in NEEDS.items():
            if needs and not pattern.startswith("/v0/"):
                assert await door.status(method, pattern, bearer("mine")) == 403


async def test_lists_figures_and_hints_name_only_what_the_key_may_see(tmp_path: Path) -> None:
    async with gated(tmp_path, api_keys=parse_keys("mine::a.,all,w:write")) as door:
        for name in ("a.one", "b.one"):
            await door.send("PUT", f"/v0/topics/{name}", bearer("all"))
        listed = await door.json("GET", "/v0/topics", bearer("mine"))
        assert [topic["topic"] for topic in listed["topics"]] == ["a.one"]
        figures = await door.send("GET", "/v0/metrics", bearer("mine"))
        assert isinstance(figures, Response)
        assert b"a.one" in figures.body
        assert b"b.one" not in figures.body
        watch: dict[str, object] = {"topics": {"a.one": {}, "b.one": {}}}
        refused = await door.json("POST", "/v0/watch", bearer("mine"), body=watch)
        assert refused["error"]["detail"] == {"topic": "b.one"}
        hint = await door.json(
            "POST", "/v0/topics/a.onf/ack", bearer("w"), body={"node": "n", "seqs": [1]}
        )
        assert hint["error"]["detail"] == {"topic": "a.onf"}


async def test_creating_a_topic_with_a_config_by_a_write_needs_admin(tmp_path: Path) -> None:
    async with gated(tmp_path, api_keys=parse_keys("w:write,wa:write+admin")) as door:
        body = {"records": [{"data": 1}], "config": {"cap_records": 5}}
        assert await door.status("POST", "/v0/topics/t", bearer("w"), body=body) == 403
        assert await door.status("POST", "/v0/topics/t", bearer("wa"), body=body) == 201
        plain = {"records": [{"data": 1}]}
        assert await door.status("POST", "/v0/topics/u", bearer("w"), body=plain) == 201


async def test_dead_letters_stay_within_the_names_of_the_key(tmp_path: Path) -> None:
    async with gated(tmp_path, api_keys=parse_keys("mine::a.")) as door:
        body = {"type": "queue", "dead_letter": "b.dead"}
        assert await door.status("PUT", "/v0/topics/a.q", bearer("mine"), body=body) == 403


@pytest.mark.parametrize(
    ("prefixes", "subjects", "refused"),
    [
        ("a:", ["secret.>"], "secret.>"),
        ("a:", ["a:orders.>", "secret.x"], "secret.x"),
        ("a:", ["a"], "a"),
        ("a:", ["a:"], None),
        ("a:", ["a:orders.>", "a:jobs"], None),
        ("a:|b.c.", ["b.*.d"], "b.*.d"),
        ("a:|b.c.", ["b.c.>"], None),
        ("a:|b.*", ["b.*"], "b.*"),
    ],
)
async def test_a_key_of_some_names_takes_only_subjects_that_begin_so(
    tmp_path: Path, prefixes: str, subjects: list[str], refused: str | None
) -> None:
    async with gated(tmp_path, api_keys=parse_keys(f"mine::{prefixes},all")) as door:
        mine = bearer("mine")
        put = await door.send("PUT", "/v0/topics/a:1", mine, body={"subjects": subjects})
        if refused is None:
            assert put.status == 201
            return
        write = {"records": [{"data": 1}], "config": {"subjects": subjects}}
        made = await door.send("POST", "/v0/topics/a:2", mine, body=write)
        for answer in (put, made):
            assert isinstance(answer, Response)
            assert answer.status == 403
            error = json.loads(answer.body)["error"]
            assert (error["code"], error["detail"]) == ("forbidden", {"subject": refused})
        assert await door.status("PUT", "/v0/topics/a:1", mine) == 201
        again = {"subjects": subjects}
        assert await door.status("PUT", "/v0/topics/a:1", mine, body=again) == 403
        assert await door.status("PUT", "/v0/topics/a:1", bearer("all"), body=again) == 200


async def test_a_topic_keeps_the_subjects_that_somebody_else_gave_it(tmp_path: Path) -> None:
    async with gated(tmp_path, api_keys=parse_keys("mine::a:,all")) as door:
        mine, given = bearer("mine"), {"subjects": ["secret.>"]}
        assert await door.status("PUT", "/v0/topics/a:1", bearer("all"), body=given) == 201
        kept = await door.json("PUT", "/v0/topics/a:1", mine, body={"cap_records": 5})
        assert (kept["config"]["cap_records"], kept["config"]["subjects"]) == (5, ["secret.>"])
        shown = (await door.json("GET", "/v0/topics/a:1", mine))["config"]
        assert await door.status("PUT", "/v0/topics/a:1", mine, body=shown) == 200
        more = {"subjects": ["secret.>", "other"]}
        assert await door.status("PUT", "/v0/topics/a:1", mine, body=more) == 403


UNKNOWN = [
    ("GET", "/nothing"),
    ("GET", "/v0"),
    ("GET", "/v0/"),
    ("GET", "/v0/topics/t/nothing"),
    ("GET", "/v0/topics/"),
    ("PATCH", "/v0/topics/t"),
    ("GET", "/v0/topics/%zz"),
    ("GET", "//v0/topics"),
    ("GET", "/v0//topics"),
    ("GET", "/V0/topics"),
    ("GET", "/v0/topics/t/../../health"),
    ("OPTIONS", "/v0/topics"),
    ("GET", "*"),
    ("GET", ""),
]


@pytest.mark.parametrize(("method", "path"), UNKNOWN)
async def test_unknown_routes_are_401_before_they_are_404(
    tmp_path: Path, method: str, path: str
) -> None:
    async with gated(tmp_path, api_keys=parse_keys("all")) as door:
        assert await door.status(method, path) == 401
        assert await door.status(method, path, bearer("all")) in (400, 404, 405)


async def test_an_unknown_operation_on_a_topic_needs_write_and_the_name(tmp_path: Path) -> None:
    async with gated(tmp_path, api_keys=parse_keys("r:read,w:write,mine::a.")) as door:
        assert await door.status("GET", "/v0/topics/t/nothing", bearer("r")) == 403
        assert await door.status("GET", "/v0/topics/t/nothing", bearer("w")) == 404
        assert await door.status("GET", "/v0/topics/t/nothing", bearer("mine")) == 403
        assert await door.status("PATCH", "/v0/routers/r", bearer("w")) == 403


SECRET = "s3cret-word"
WRONG_HEADERS = [
    "",
    "Bearer",
    "Bearer ",
    "Bearer  ",
    "Bearer \t",
    "Bearer s3cret-wor",
    "Bearer s3cret-word2",
    "Bearer S3CRET-WORD",
    "Bearer s3cret-word\0",
    "Bearer \0s3cret-word",
    "Bearer s3cret-word,",
    "Bearer s3cret-word:read",
    "Bearer s3cret-word other",
    'Bearer "s3cret-word"',
    "Bearer s3cret%2Dword",
    "Bearer *",
    "Bearer null",
    "Bearer undefined",
    "Bearer nobody",
    "Bearer key:nobody",
    "Bearer env-0",
    "Bearer\ts3cret-word",
    "bearer s3cret-word",
    "BEARER s3cret-word",
    " Bearer s3cret-word",
    "Bearers3cret-word",
    "Token s3cret-word",
    "ApiKey s3cret-word",
    "s3cret-word",
    "Digest username=s3cret-word",
    "Basic",
    "Basic ",
    "Basic s3cret-word",
    "Basic !!!!",
    basic("", ""),
    basic("", SECRET),
    basic(SECRET, ""),
    basic("bearer", SECRET),
    basic("admin", "admin"),
    basic("$G", ""),
    "Basic " + base64.b64encode(SECRET.encode()).decode(),
    "Basic " + base64.b64encode(b"\xff\xfe:\xff").decode(),
    "Bearer " + base64.b64encode(SECRET.encode()).decode(),
    "Bearer " + parse_keys(SECRET)[0].digest.hex(),
    "Bearer " + parse_keys(SECRET)[0].digest.decode("latin-1"),
    "Bearer " + parse_keys(SECRET)[0].id,
    "Bearer \xff\xfe",
    "Bearer Bearer s3cret-word",
]
ATTEMPTS: list[tuple[str, list[str], dict[str, str]]] = [
    *(("/v0/topics", [header], {}) for header in WRONG_HEADERS),
    ("/v0/topics", [], {}),
    ("/v0/topics", [bearer("x"), bearer(SECRET)], {}),
    ("/v0/topics", [bearer(SECRET), bearer("x")], {}),
    ("/v0/topics", [bearer(SECRET), bearer(SECRET)], {}),
    ("/v0/topics", ["", bearer(SECRET)], {}),
    ("/v0/topics", [], {"x-api-key": SECRET}),
    ("/v0/topics", [], {"proxy-authorization": bearer(SECRET)}),
    ("/v0/topics", [], {"x-authorization": bearer(SECRET)}),
    ("/v0/topics", [], {"cookie": f"token={SECRET}"}),
    ("/v0/topics", [], {"x-forwarded-for": "127.0.0.1"}),
    ("/v0/topics", [], {"x-original-url": "/v0/health"}),
    ("/v0/topics", [], {"x-http-method-override": "HEAD"}),
    ("/v0/topics", [], {"host": "127.0.0.1"}),
    (f"/v0/topics?token={SECRET}", [], {}),
    (f"/v0/topics/t?token={SECRET}", [], {}),
    (f"/v0/topics/t/tail?token={SECRET}", [], {}),
    (f"/v0/topics/t/plan?token={SECRET}", [], {}),
    (f"/v0/metrics?token={SECRET}", [], {}),
    (f"/varz?token={SECRET}", [], {}),
    (f"/v0/topics?access_token={SECRET}", [], {}),
    (f"/v0/topics?authorization=Bearer%20{SECRET}", [], {}),
    ("/v0/topics/t/work?node=n&token=", [], {}),
    ("/v0/topics/t/work?node=n&token", [], {}),
    ("/v0/topics/t/work?node=n&token=x", [], {}),
    (f"/v0/topics/t/work?node=n&token=x&token={SECRET}", [], {}),
    (f"/v0/topics/t/work?node=n&Token={SECRET}", [], {}),
    (f"/v0/topics/t/work?node=n&token=Bearer%20{SECRET}", [], {}),
    (f"/v0/topics/t/work?node=n;token={SECRET}", [], {}),
    (f"/v0/topics/t/work?node=n&token=%20{SECRET}", [], {}),
    (f"/v0/topics/t/work?node=n&token={SECRET}%00", [], {}),
    (f"/v0/topics/t/work?node=n&token={SECRET}", [bearer("x")], {}),
    (f"/v0/topics/t/work?node=n&token={SECRET}", [""], {}),
]


def test_there_are_enough_ways_to_try() -> None:
    assert len(ATTEMPTS) >= 75


@pytest.mark.parametrize("conf", ["", "authorization { user: u, password: p }"])
async def test_no_way_around_the_door_is_found(tmp_path: Path, conf: str) -> None:
    async with gated(tmp_path, conf, api_keys=parse_keys(SECRET)) as door:
        queue = {"type": "queue"}
        assert await door.status("PUT", "/v0/topics/t", bearer(SECRET), body=queue) == 201
        for path, credentials, headers in ATTEMPTS:
            for method in ("GET", "HEAD"):
                answer = await door.send(method, path, *credentials, **headers)
                assert answer.status == 401, (method, path, credentials, headers)
                assert isinstance(answer, Response)
                assert SECRET.encode() not in answer.body
                assert json.loads(answer.body)["error"]["code"] == "unauthorized"
        for allowed in (bearer(SECRET), f"Bearer  {SECRET}\t"):
            assert await door.status("GET", "/v0/topics", allowed) == 200
        work = f"/v0/topics/t/work?node=n&token={SECRET}"
        assert await door.status("GET", work) == 200


async def test_a_watch_belongs_to_the_key_that_opened_it(tmp_path: Path) -> None:
    async with gated(tmp_path, api_keys=parse_keys("one,two")) as door:
        await door.send("PUT", "/v0/topics/t", bearer("one"))
        opened = await door.json("POST", "/v0/watch", bearer("one"), body={"topics": {"t": {}}})
        url = opened["stream_url"]
        assert await door.status("GET", url) == 401
        assert await door.status("GET", url, bearer("two")) == 401
        assert await door.status("GET", url, bearer("wrong")) == 401
        assert await door.status("GET", f"{url}?token=two") == 401
        assert await door.status("GET", f"{url}?token=one") == 200
        assert await door.status("GET", url, bearer("one")) == 200
        for credential in ([], [bearer("one")], [bearer("wrong")]):
            assert await door.status("GET", "/v0/watch/wid_none", *credential) == 404


async def test_health_is_told_to_everyone_unless_probes_must_say_who_they_are(
    tmp_path: Path,
) -> None:
    probes = ["/v0/health", "/v0/ready", "/healthz", "/readyz"]
    async with gated(tmp_path, api_keys=parse_keys("all:delete")) as door:
        assert [await door.status("GET", path) for path in probes] == [200] * 4
    async with gated(tmp_path, api_keys=parse_keys("all:delete"), probe_auth=True) as door:
        assert [await door.status("GET", path) for path in probes] == [401] * 4
        assert [await door.status("GET", path, bearer("all")) for path in probes] == [200] * 4
        assert await door.status("GET", "/") == 200


async def test_without_keys_and_users_the_door_is_open_and_headers_are_ignored(
    tmp_path: Path,
) -> None:
    async with gated(tmp_path) as door:
        assert await door.status("GET", "/v0/topics") == 200
        assert await door.status("GET", "/v0/topics", bearer("whatever")) == 200
        assert await door.status("GET", "/nothing") == 404


# -- users ---------------------------------------------------------------------------------


USERS = """
accounts {
  A {
    jetstream: enabled
    users: [
      { user: boss, password: b }
      { user: reader, password: r, permissions { publish: { deny: ">" } } }
      { user: part, password: p, permissions {
          publish: { allow: ["orders.>", "$JS.API.STREAM.CREATE.mine",
                             "$JS.API.STREAM.*.orders.log"] }
          subscribe: { allow: ["orders.>", "mine"], deny: ["orders.secret"] } } }
      { user: ws, password: w, allowed_connection_types: ["WEBSOCKET"] }
    ]
  }
  B { jetstream: enabled, users: [{ user: other, password: o }] }
  C { users: [{ user: poor, password: c }] }
  SYS { users: [{ user: sys, password: s }] }
}
system_account: SYS
"""


async def test_users_bring_their_account_and_stay_in_it(tmp_path: Path) -> None:
    async with gated(tmp_path, USERS) as door:
        boss, other = basic("boss", "b"), basic("other", "o")
        assert await door.status("GET", "/v0/topics") == 401
        assert await door.status("GET", "/v0/topics", basic("boss", "wrong")) == 401
        assert await door.status("GET", "/v0/topics", basic("nobody", "b")) == 401
        assert await door.status("GET", "/v0/topics", basic("ws", "w")) == 401
        assert await door.status("PUT", "/v0/topics/t", boss) == 201
        assert await door.status("GET", "/v0/topics/t", boss) == 200
        assert await door.status("GET", "/v0/topics/t", other) == 404
        assert (await door.json("GET", "/v0/topics", other))["topics"] == []
        for nothing in (basic("poor", "c"), basic("sys", "s")):  # accounts without streams
            assert await door.status("PUT", "/v0/topics/t", nothing) == 403
            assert await door.status("GET", "/v0/topics/t", nothing) == 403


async def test_only_the_system_account_sees_the_whole_server(tmp_path: Path) -> None:
    async with gated(tmp_path, USERS) as door:
        for user in (basic("boss", "b"), basic("part", "p")):
            assert await door.status("GET", "/connz", user) == 403
        assert await door.status("GET", "/connz", basic("sys", "s")) == 200
        assert await door.status("GET", "/connz") == 401


async def test_a_user_reads_what_it_may_hear_and_writes_what_it_may_say(tmp_path: Path) -> None:
    async with gated(tmp_path, USERS) as door:
        boss, part, reader = basic("boss", "b"), basic("part", "p"), basic("reader", "r")
        subjects = {
            "orders.new": [],
            "all": ["orders.>"],
            "open": ["open.>"],
            "mine": [],
        }
        for name, taken in subjects.items():
            body = {"subjects": taken} if taken else {}
            assert await door.status("PUT", f"/v0/topics/{name}", boss, body=body) == 201
        record = {"records": [{"data": 1}]}
        told = {
            name: (
                await door.status("GET", f"/v0/topics/{name}", part),
                await door.status("POST", f"/v0/topics/{name}", part, body=record),
            )
            for name in subjects
        }
        assert told == {
            "orders.new": (200, 200),
            "all": (403, 403),  # orders.secret is in there
            "open": (403, 403),
            "mine": (200, 403),
        }
        listed = await door.json("GET", "/v0/topics", part)
        assert [topic["topic"] for topic in listed["topics"]] == ["mine", "orders.new"]
        watch: dict[str, object] = {"topics": {"orders.new": {}, "all": {}}}
        assert await door.status("POST", "/v0/watch", part, body=watch) == 403
        assert await door.status("GET", "/v0/topics/all", reader) == 200
        for method in ("POST", "PUT", "DELETE"):
            assert await door.status(method, "/v0/topics/all", reader, body=record) == 403
        assert await door.status("DELETE", "/v0/topics/orders.new", part) == 403
        assert await door.status("POST", "/v0/topics/orders.new/delete", part, body={}) == 403


async def test_a_user_is_told_the_closest_topic_that_it_may_read(tmp_path: Path) -> None:
    async with gated(tmp_path, USERS) as door:
        boss, part = basic("boss", "b"), basic("part", "p")
        assert await door.status("PUT", "/v0/topics/orders.new", boss) == 201
        assert await door.status("PUT", "/v0/topics/orders.secret", boss) == 201
        body = {"records": [{"data": 1}], "create": False}
        for name in ("orders.news", "orders.secre"):
            answer = await door.json("POST", f"/v0/topics/{name}", part, body=body)
            assert answer["error"]["detail"] == {"topic": name, "did_you_mean": "orders.new"}


async def test_a_user_has_a_topic_take_only_what_it_may_hear(tmp_path: Path) -> None:
    async with gated(tmp_path, USERS) as door:
        part, path = basic("part", "p"), "/v0/topics/orders.log"
        for subject in ("secret.>", "orders.>", "orders.*", "orders.secret"):
            answer = await door.json("PUT", path, part, body={"subjects": [subject]})
            assert answer["error"]["code"] == "forbidden", answer
            assert answer["error"]["detail"] == {"subject": subject}
        body = {"records": [{"data": 1}], "config": {"subjects": ["secret.>"]}}
        answer = await door.json("POST", path, part, body=body)
        assert answer["error"]["detail"] == {"subject": "secret.>"}
        subjects = {"subjects": ["orders.new.>", "mine"]}
        assert await door.status("PUT", path, part, body=subjects) == 201


async def test_a_stream_ends_when_its_topic_takes_what_the_user_may_not_hear(
    tmp_path: Path,
) -> None:
    async with gated(tmp_path, USERS) as door:
        boss, part = basic("boss", "b"), basic("part", "p")
        await door.send("PUT", "/v0/topics/mine", boss)
        answer = await door.send("GET", "/v0/topics/mine/tail", part)
        events = asyncio.create_task(everything(answer))
        record = {"records": [{"data": "before"}]}
        assert await door.status("POST", "/v0/topics/mine", boss, body=record) == 200
        more = {"subjects": ["open.>"]}
        assert await door.status("PUT", "/v0/topics/mine", boss, body=more) == 200
        record = {"records": [{"data": "after", "subject": "open.x"}]}
        assert await door.status("POST", "/v0/topics/mine", boss, body=record) == 200
        told = await asyncio.wait_for(events, 5)
        assert b'"code":"forbidden"' in told
        assert b"before" in told
        assert b"after" not in told


async def test_the_token_of_the_nats_door_is_a_bearers(tmp_path: Path) -> None:
    async with gated(tmp_path, "authorization { token: t0ken }") as door:
        assert await door.status("GET", "/v0/topics") == 401
        assert await door.status("GET", "/v0/topics", bearer("t0ken")) == 200
        assert await door.status("GET", "/varz", bearer("t0ken")) == 200
        assert await door.status("GET", "/v0/topics", bearer("t0keN")) == 401


async def test_users_that_cannot_come_over_http_leave_it_closed(tmp_path: Path) -> None:
    nkey = "UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR"
    async with gated(tmp_path, f'authorization {{ users: [{{ nkey: "{nkey}" }}] }}') as door:
        assert await door.status("GET", "/v0/topics") == 401
        assert await door.status("GET", "/v0/topics", basic(nkey, "")) == 401


async def test_a_guest_has_the_rights_of_its_user_unless_keys_are_handed_out(
    tmp_path: Path,
) -> None:
    conf = """
    authorization { users: [{ user: g, password: g, permissions { publish: { deny: ">" } } }] }
    no_auth_user: g
    """
    async with gated(tmp_path, conf) as door:
        assert await door.status("GET", "/v0/topics") == 200
        assert await door.status("PUT", "/v0/topics/t") == 403
    async with gated(tmp_path, conf, api_keys=parse_keys("k")) as door:
        assert await door.status("GET", "/v0/topics") == 401


async def test_other_users_after_a_reload_end_what_the_old_ones_opened(tmp_path: Path) -> None:
    async with gated(tmp_path, "authorization { user: u, password: p }") as door:
        await door.send("PUT", "/v0/topics/t", basic("u", "p"))
        answer = await door.send("GET", "/v0/topics/t/tail", basic("u", "p"))
        events = asyncio.create_task(everything(answer))
        await asyncio.sleep(0)
        reception = door.parts.guards.reception
        door.parts.http.gate.check()
        assert not events.done()
        reception.apply(Credentials([User("u", "other")]))
        door.parts.http.gate.check()
        assert b"unauthorized" in await asyncio.wait_for(events, 5)
        assert await door.status("GET", "/v0/topics/t", basic("u", "p")) == 401
        assert await door.status("GET", "/v0/topics/t", basic("u", "other")) == 200


# -- revocation ----------------------------------------------------------------------------


async def everything(answer: Response | StreamedResponse) -> bytes:
    assert isinstance(answer, StreamedResponse), answer
    chunks = [chunk async for chunk in answer.chunks]
    await answer.chunks.aclose()  # type: ignore[attr-defined]
    return b"".join(chunks)


def hand_out(directory: Path, *names: str) -> dict[str, str]:
    made: dict[str, str] = {}
    with KeyFile(directory).changed() as keys:
        for name in names:
            key, made[name] = make_key(name)
            keys.append(key)
    return made


def revoke(directory: Path, name: str) -> None:
    with KeyFile(directory).changed() as keys:
        keys[:] = [key for key in keys if key.id != name]


async def test_a_revoked_key_loses_every_stream_within_five_seconds(tmp_path: Path) -> None:
    data = tmp_path / "data"
    secret = hand_out(data, "gone", "kept")
    async with gated(tmp_path) as door:
        gone, kept = bearer(secret["gone"]), bearer(secret["kept"])
        await door.send("PUT", "/v0/topics/t", gone)
        await door.send("PUT", "/v0/topics/q", gone, body={"type": "queue"})
        opened = await door.json("POST", "/v0/watch", gone, body={"topics": {"t": {}}})
        streams = [
            asyncio.create_task(everything(await door.send("GET", path, gone)))
            for path in ("/v0/topics/t/tail", opened["stream_url"], "/v0/topics/q/work?node=n")
        ]
        poll = {"from_seq": 0, "wait_ms": 30_000}
        waiting = asyncio.create_task(door.status("POST", "/v0/topics/t/diff", gone, body=poll))
        other = asyncio.create_task(everything(await door.send("GET", "/v0/topics/t/tail", kept)))
        await asyncio.sleep(0)
        revoke(data, "gone")
        for told in await asyncio.wait_for(asyncio.gather(*streams), 5):
            assert b'event: error\ndata: {"code":"unauthorized"' in told
        assert await asyncio.wait_for(waiting, 5) == 401
        assert await door.status("GET", "/v0/topics", gone) == 401
        assert await door.status("GET", opened["stream_url"], gone) == 401
        assert not other.done()
        assert await door.status("GET", "/v0/topics", kept) == 200
        other.cancel()


async def test_the_first_key_closes_an_open_door_and_the_last_does_not_open_it(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    async with gated(tmp_path) as door:
        await door.send("PUT", "/v0/topics/t")
        events = asyncio.create_task(everything(await door.send("GET", "/v0/topics/t/tail")))
        await asyncio.sleep(0)
        secret = hand_out(data, "one")["one"]
        door.parts.http.gate.check()
        assert b"unauthorized" in await asyncio.wait_for(events, 5)
        assert await door.status("GET", "/v0/topics") == 401
        assert await door.status("GET", "/v0/topics", bearer(secret)) == 200
        KeyFile(data).path.unlink()
        door.parts.http.gate.check()
        assert await door.status("GET", "/v0/topics") == 401
        assert await door.status("GET", "/v0/topics", bearer(secret)) == 401


async def test_a_name_handed_out_again_does_not_inherit_watches(tmp_path: Path) -> None:
    data = tmp_path / "data"
    old = bearer(hand_out(data, "one")["one"])
    async with gated(tmp_path) as door:
        await door.send("PUT", "/v0/topics/t", old)
        opened = await door.json("POST", "/v0/watch", old, body={"topics": {"t": {}}})
        revoke(data, "one")
        new = bearer(hand_out(data, "one")["one"])
        door.parts.http.gate.check()
        assert await door.status("GET", "/v0/topics/t", new) == 200
        assert await door.status("GET", opened["stream_url"], new) == 401


async def test_a_key_belongs_to_one_account(tmp_path: Path) -> None:
    with KeyFile(tmp_path / "data").changed() as keys:
        made = {name: make_key(name, account=name) for name in ("A", "C", "nowhere")}
        keys.extend(key for key, _ in made.values())
    async with gated(tmp_path, USERS) as door:
        secret = {name: bearer(secret) for name, (_, secret) in made.items()}
        assert await door.status("PUT", "/v0/topics/t", secret["A"]) == 201
        assert await door.status("GET", "/v0/topics/t", basic("boss", "b")) == 200
        assert await door.status("GET", "/v0/topics/t", basic("other", "o")) == 404
        assert await door.status("GET", "/varz", secret["A"]) == 403
        for name in ("C", "nowhere"):  # no streams, no account
            assert await door.status("PUT", "/v0/topics/t", secret[name]) == 403
            assert await door.status("GET", "/v0/topics", secret[name]) == 403


async def test_an_empty_list_of_keys_keeps_everyone_out(tmp_path: Path) -> None:
    hand_out(tmp_path / "data")
    async with gated(tmp_path) as door:
        assert await door.status("GET", "/v0/topics") == 401


async def test_a_key_whose_rights_change_is_judged_anew(tmp_path: Path) -> None:
    data = tmp_path / "data"
    secret = bearer(hand_out(data, "one")["one"])
    async with gated(tmp_path) as door:
        assert await door.status("PUT", "/v0/topics/t", secret) == 201
        with KeyFile(data).changed() as keys:
            keys[0] = ApiKey("one", keys[0].digest, frozenset(("read",)), ("a.",))
        door.parts.http.gate.check()
        assert await door.status("PUT", "/v0/topics/a.x", secret) == 403
        assert await door.status("GET", "/v0/topics/t", secret) == 403
        assert await door.status("GET", "/v0/topics", secret) == 200


async def test_a_damaged_file_changes_nothing_while_the_server_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    secret = bearer(hand_out(data, "one")["one"])
    async with gated(tmp_path) as door:
        KeyFile(data).path.write_bytes(b"{")
        door.parts.http.gate.check()
        door.parts.http.gate.check()
        assert await door.status("GET", "/v0/topics", secret) == 200
        assert await door.status("GET", "/v0/topics") == 401
        assert caplog.text.count("the old ones still count") == 1


@pytest.mark.parametrize(("text", "mode"), [(b"{", 0o600), (b'{"version":1,"keys":[]}', 0o640)])
async def test_a_file_that_cannot_be_trusted_stops_the_start(
    tmp_path: Path, text: bytes, mode: int
) -> None:
    path = KeyFile(tmp_path).path
    path.write_bytes(text)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=r"api-keys\.json"):
        KeyFile(tmp_path).read()


def test_the_file_is_for_its_owner_alone_and_holds_no_secret(tmp_path: Path) -> None:
    secret = hand_out(tmp_path, "one")["one"]
    path = KeyFile(tmp_path).path
    assert path.stat().st_mode & 0o777 == 0o600
    assert secret.encode() not in path.read_bytes()
    assert [key.id for key in KeyFile(tmp_path).read()] == ["one"]


async def test_a_key_has_only_so_many_requests_under_way_but_streams_do_not_count(
    tmp_path: Path,
) -> None:
    keys = parse_keys("one,two")
    async with gated(tmp_path, api_keys=keys, max_inflight_per_key=2) as door:
        await door.send("PUT", "/v0/topics/t", bearer("one"))
        tails = [await door.send("GET", "/v0/topics/t/tail", bearer("one")) for _ in range(3)]
        polls = [
            asyncio.ensure_future(
                door.send("POST", "/v0/topics/t/diff", bearer("one"), body={"wait_ms": 30_000})
            )
            for _ in range(2)
        ]
        await asyncio.sleep(0)
        answer = await door.json("GET", "/v0/topics", bearer("one"))
        assert answer["error"]["detail"] == {"limit": "max_inflight_per_key", "max": 2}
        assert await door.status("GET", "/v0/nowhere", bearer("one")) == 429
        assert await door.status("GET", "/v0/topics", bearer("two")) == 200
        await door.send("POST", "/v0/topics/t", bearer("two"), body={"records": [{"data": 1}]})
        assert [each.status for each in await asyncio.gather(*polls)] == [200, 200]
        assert await door.status("GET", "/v0/topics", bearer("one")) == 200
        for tail in tails:
            assert isinstance(tail, StreamedResponse)
            await tail.chunks.aclose()  # type: ignore[attr-defined]


# -- what a key of some names sees, on every way there is ----------------------------------------


def ways(door: Gated) -> list[tuple[str, str, object]]:
    """Return a request for each route, aimed at what the key may not see, by path or by body."""
    record = {"records": [{"data": 1}]}
    theirs: list[tuple[str, str, object]] = [
        ("POST", "/v0/watch", {"topics": {"mine.a": {}, "theirs": {}}}),
        ("POST", "/v0/watch?lenient=true", {"topics": {"theirs": {}}}),
        ("PUT", "/v0/routers/mine.r", {"source": "mine.a", "dest": "theirs"}),
        ("PUT", "/v0/routers/mine.r", {"source": "theirs", "dest": "mine.a"}),
        ("PUT", "/v0/routers/theirs", {"source": "mine.a", "dest": "mine.b"}),
        ("GET", "/v0/routers/theirs", None),
        ("DELETE", "/v0/routers/theirs", None),
        ("PUT", "/v0/topics/mine.q", {"type": "queue", "dead_letter": "theirs"}),
        ("POST", "/v0/topics/mine.dead/redrive", {"to": "theirs"}),
        ("POST", "/v0/topics/mine.new", record | {"config": {"dead_letter": "theirs"}}),
    ]
    for route in door.app.table:
        if "{topic}" in route.pattern:
            body = record if route.method == "POST" else None
            names = ("theirs", "%74heirs", "theirs%00", "..%2Ftheirs")
            theirs += [(route.method, target(route.pattern, name), body) for name in names]
    return theirs


async def test_a_key_of_some_names_finds_no_way_to_others(tmp_path: Path) -> None:
    async with gated(tmp_path, api_keys=parse_keys("scoped::mine.,all")) as door:
        for name in ("theirs", "mine.a", "mine.dead"):
            body = {"records": [{"data": f"secret of {name}", "tag": "t"}]}
            await door.send("POST", f"/v0/topics/{name}", bearer("all"), body=body)
        made = {"source": "theirs", "dest": "theirs.too"}
        assert await door.status("PUT", "/v0/routers/theirs", bearer("all"), body=made) == 201
        for method, path, body in ways(door):
            answer = await door.send(method, path, bearer("scoped"), body=body)
            assert isinstance(answer, Response), (method, path)
            assert answer.status >= 400, (method, path, answer)
            assert b"secret of theirs" not in answer.body
        for path in ("/v0/topics", "/v0/topics?prefix=t", "/v0/routers", "/v0/metrics"):
            answer = await door.send("GET", path, bearer("scoped"))
            assert isinstance(answer, Response)
            assert b"theirs" not in answer.body, path
        state = await door.json("GET", "/v0/topics/theirs", bearer("all"))
        assert (state["count"], state["head_seq"]) == (1, 1)
        names = [
            each["topic"]
            for each in (await door.json("GET", "/v0/topics", bearer("all")))["topics"]
        ]
        assert names == ["millstream-audit", "mine.a", "mine.dead", "theirs", "theirs.too"]
