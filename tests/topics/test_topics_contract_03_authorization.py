"""Section 3 of the contract: who may do what, one test for each of its sentences."""

import hashlib
import hmac
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from topics_server import Asked, asked

from millstream.accounts.api_keys import SCOPES, ApiKeyRing, BadKeys, parse_keys

RECORDS = {"records": [{"data": 1}]}
WORKER = {"node": "w", "seqs": []}
READ: list[tuple[str, str, object]] = [
    ("GET", "/v0/topics", None),
    ("GET", "/v0/topics/t", None),
    ("POST", "/v0/topics/t/diff", {}),
    ("GET", "/v0/routers", None),
    ("GET", "/v0/routers/r", None),
    ("POST", "/v0/watch", {"topics": {"t": {}}}),
    ("GET", "/v0/metrics", None),
]
WRITE: list[tuple[str, str, object]] = [
    ("POST", "/v0/topics/t", RECORDS),
    ("POST", "/v0/topics/q/ack", WORKER),
    ("POST", "/v0/topics/q/nack", WORKER),
    ("POST", "/v0/topics/q/extend", {**WORKER, "lease_ms": 1000}),
]
BOTH: list[tuple[str, str, object]] = [
    ("POST", "/v0/topics/q/claim", {"node": "w"}),
    ("GET", "/v0/topics/q/work?node=w", None),
]
DELETE: list[tuple[str, str, object]] = [
    ("POST", "/v0/topics/t/delete", {"before_seq": 1}),
    ("DELETE", "/v0/routers/r", None),
    ("DELETE", "/v0/topics/t", None),
]
ADMIN: list[tuple[str, str, object]] = [
    ("PUT", "/v0/topics/t", {}),
    ("PUT", "/v0/routers/r", {"source": "t", "dest": "copy"}),
]
TABLE = [
    (scopes, *route)
    for scopes, group in (
        ({"read"}, READ), ({"write"}, WRITE), ({"read", "write"}, BOTH),
        ({"delete"}, DELETE), ({"admin"}, ADMIN),
    )
    for route in group
]  # fmt: skip


async def furnished(door: Asked) -> Asked:
    """Have a log t, a queue q and a router r, made by a key named full."""
    for path, body in (
        ("topics/t", {}),
        ("topics/q", {"type": "queue"}),
        ("routers/r", {"source": "t", "dest": "copy"}),
    ):
        assert await door.status("PUT", f"/v0/{path}", "full", body=body) == 201
    return door


# -- the list of keys ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "scopes", "prefixes"),
    [
        ("s", SCOPES, ()),
        ("s:read", {"read"}, ()),
        ("s:rw:a.|b.", {"read", "write"}, ("a.", "b.")),
        ("s::a.", SCOPES, ("a.",)),
        ("s:read:tenant:1:|x", {"read"}, ("tenant:1:", "x")),
    ],
)
def test_s03_a_key_is_secret_scopes_and_prefixes_split_at_most_twice(
    entry: str, scopes: set[str], prefixes: tuple[str, ...]
) -> None:
    (key,) = parse_keys(entry)
    assert (set(key.scopes), key.prefixes) == (set(scopes), prefixes)
    assert key.digest == hashlib.sha256(b"s").digest()


@pytest.mark.parametrize(
    ("words", "scope"),
    [("read r READ R", "read"), ("write w W", "write"), ("delete del d DEL", "delete"),
     ("admin a Admin", "admin")],
)  # fmt: skip
def test_s03_each_scope_has_its_words_in_any_case(words: str, scope: str) -> None:
    for word in words.split():
        assert parse_keys(f"s:{word}")[0].scopes == {scope}


def test_s03_rw_is_both_scopes_are_joined_by_plus_and_none_means_all() -> None:
    assert parse_keys("s:rw")[0].scopes == {"read", "write"}
    assert parse_keys("s:r+d+a")[0].scopes == {"read", "delete", "admin"}
    assert parse_keys("s:")[0].scopes == parse_keys("s")[0].scopes == SCOPES


def test_s03_empty_entries_are_skipped() -> None:
    assert len(parse_keys(",a,,b:read,")) == 2


@pytest.mark.parametrize("entry", ["s:+", "s:++", "s:reed", "s:read+x"])
def test_s03_scopes_that_are_none_or_unknown_are_refused(entry: str) -> None:
    with pytest.raises(BadKeys):
        parse_keys(entry)


def test_s03_only_digests_are_kept_and_every_key_is_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[bytes] = []
    same = hmac.compare_digest

    def counting(left: bytes, right: bytes) -> bool:
        compared.append(left)
        return same(left, right)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    keys = parse_keys("first,second,third")
    assert not any(word in repr(keys) for word in ("first", "second", "third"))
    ring = ApiKeyRing(keys)
    for secret in (b"first", b"third", b"none"):
        compared.clear()
        ring.find(secret)
        assert len(compared) == 3, secret


async def test_s03_no_token_is_ever_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with asked(tmp_path, "full,s3cret-one:read") as door:
        for key in ("s3cret-one", "s3cret-wrong"):
            await door.status("GET", "/v0/topics", key)
            await door.status("DELETE", "/v0/topics/t", key)
            await door.status("GET", f"/v0/topics?token={key}")
    assert "s3cret" not in caplog.text


# -- the header and ?token= ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Bearer full", 200), ("Bearer   full \t", 200), ("bearer full", 401),
        ("BEARER full", 401), ("Basic full", 401), ("full", 401), ("Bearer", 401),
        ("Bearer ful", 401), ("Bearer FULL", 401),
    ],
)  # fmt: skip
async def test_s03_the_header_is_bearer_and_the_trimmed_token(
    tmp_path: Path, header: str, status: int
) -> None:
    async with asked(tmp_path, "full") as door:
        assert await door.status("GET", "/v0/topics", authorization=header) == status


async def test_a_scheme_in_the_wrong_case_is_told_how_it_is_written(tmp_path: Path) -> None:
    async with asked(tmp_path, "full") as door:
        answer = await door.json("GET", "/v0/topics", authorization="bearer full")
        assert "write the scheme as Bearer" in answer["error"]["message"]


async def test_s03_the_query_may_carry_the_token_only_to_watch_and_work(tmp_path: Path) -> None:
    async with asked(tmp_path, "a b") as door:
        assert await door.status("PUT", "/v0/topics/q", "a b", body={"type": "queue"}) == 201
        watch = await door.json("POST", "/v0/watch", "a b", body={"topics": {"q": {}}})
        for path in (watch["stream_url"], "/v0/topics/q/work"):
            separator = "?node=w&" if path.endswith("work") else "?"
            assert await door.status("GET", f"{path}{separator}token=a+b") == 200
            assert await door.status("GET", f"{path}{separator}token=a%20b&token=x") == 200
            assert await door.status("GET", f"{path}{separator}token=x&token=a+b") == 401
        for path in ("/v0/topics", "/v0/topics/q", "/v0/metrics", "/v0/topics/q/tail"):
            assert await door.status("GET", f"{path}?token=a+b") == 401, path


async def test_s03_without_keys_everything_is_open_and_the_header_is_ignored(
    tmp_path: Path,
) -> None:
    async with asked(tmp_path) as door:
        await furnished(door)
        for _, method, target, body in TABLE:
            assert await door.status(method, target, "whatever", body=body) < 300, target


# -- the table of scopes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scopes", "method", "target", "body"), TABLE, ids=[f"{row[1]} {row[2]}" for row in TABLE]
)
async def test_s03_a_route_needs_exactly_its_scopes(
    tmp_path: Path, scopes: set[str], method: str, target: str, body: object
) -> None:
    missing = [sorted(SCOPES - {scope}) for scope in sorted(scopes)]
    keys = ["full", "enough:" + "+".join(sorted(scopes))]
    keys += [f"lacks-{number}:" + "+".join(words) for number, words in enumerate(missing)]
    async with asked(tmp_path, ",".join(keys)) as door:
        await furnished(door)
        for number in range(len(missing)):
            refusal = await door.json(method, target, f"lacks-{number}", body=body)
            assert refusal["error"]["code"] == "forbidden"
        assert await door.status(method, target, "enough", body=body) < 300


async def test_s03_a_write_with_a_config_needs_admin_only_where_it_creates(tmp_path: Path) -> None:
    configured = {**RECORDS, "config": {"ttl_ms": 1}}
    async with asked(tmp_path, "full,writer:write,maker:write+admin") as door:
        await furnished(door)
        assert await door.status("POST", "/v0/topics/new", "writer", body=configured) == 403
        assert await door.status("GET", "/v0/topics/new", "full") == 404
        assert await door.status("POST", "/v0/topics/t", "writer", body=configured) == 200
        assert await door.status("POST", "/v0/topics/new", "maker", body=configured) == 201
        assert await door.status("POST", "/v0/topics/plain", "writer", body=RECORDS) == 201


@pytest.mark.parametrize("path", ["/v0/health", "/v0/ready", "/healthz", "/readyz"])
async def test_s03_probes_are_open_unless_probe_auth_is_set(tmp_path: Path, path: str) -> None:
    async with asked(tmp_path / "open", "full") as door:
        assert await door.status("GET", path) == 200
    async with asked(tmp_path / "closed", "full", probe_auth=True) as door:
        assert await door.status("GET", path) == 401
        assert await door.status("GET", path, "full") == 200


async def test_s03_a_websocket_needs_a_valid_key_and_no_scope(tmp_path: Path) -> None:
    upgrade = {
        "upgrade": "websocket", "connection": "Upgrade", "host": "localhost",
        "sec-websocket-version": "13", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    async with asked(tmp_path, "full,deleter:delete") as door:
        assert await door.status("GET", "/v0/ws", **upgrade) == 401
        assert await door.status("GET", "/v0/ws", "wrong", **upgrade) == 401
        assert await door.status("GET", "/v0/ws", "deleter", **upgrade) == 101


async def test_s03_unknown_operations_need_write_on_a_topic_and_admin_on_a_router(
    tmp_path: Path,
) -> None:
    async with asked(tmp_path, "full,reader:read,writer:write,admin:admin") as door:
        await furnished(door)
        for key, topic, router in (
            ("reader", 403, 403), ("writer", 404, 403), ("admin", 403, 405),
        ):  # fmt: skip
            assert await door.status("POST", "/v0/topics/t/unheard", key) == topic
            assert await door.status("PATCH", "/v0/routers/r", key) == router


# -- prefixes --------------------------------------------------------------------------------


async def test_s03_a_prefix_is_compared_by_bytes_on_the_name_in_the_path(tmp_path: Path) -> None:
    async with asked(tmp_path, "full,mine::m:|é") as door:
        for name, status in (
            ("m:a", 201),
            ("m%3Ab", 201),
            ("m", 403),
            ("M:a", 403),
            ("other", 403),
        ):
            assert await door.status("POST", f"/v0/topics/{name}", "mine", body=RECORDS) == status


async def test_s03_one_bad_name_refuses_a_whole_watch_before_404(tmp_path: Path) -> None:
    async with asked(tmp_path, "full,mine::m.") as door:
        assert await door.status("POST", "/v0/topics/m.a", "mine", body=RECORDS) == 201
        body: Any = {"topics": {"m.a": {}, "m.absent": {}, "theirs": {}}}
        answer = await door.json("POST", "/v0/watch", "mine", body=body)
        assert (answer["error"]["code"], answer["error"]["detail"]) == (
            "forbidden", {"topic": "theirs"},
        )  # fmt: skip
        del body["topics"]["theirs"]
        assert await door.status("POST", "/v0/watch", "mine", body=body) == 404


@pytest.mark.parametrize(
    ("name", "source", "dest", "status"),
    [
        ("m.r", "m.a", "m.b", 201), ("m.r", "theirs", "m.b", 403), ("m.r", "m.a", "theirs", 403),
    ],
)  # fmt: skip
async def test_s03_a_router_is_put_only_between_names_of_the_key(
    tmp_path: Path, name: str, source: str, dest: str, status: int
) -> None:
    async with asked(tmp_path, "full,mine::m.") as door:
        body = {"source": source, "dest": dest}
        assert await door.status("PUT", f"/v0/routers/{name}", "mine", body=body) == status
        assert (await door.status("GET", "/v0/topics/theirs", "full")) == 404


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize(
    ("name", "source", "dest"),
    [("theirs", "m.a", "m.b"), ("m.r", "theirs", "m.b"), ("m.r", "m.a", "theirs")],
)
async def test_s03_an_existing_router_is_shown_or_deleted_only_if_all_three_names_match(
    tmp_path: Path, method: str, name: str, source: str, dest: str
) -> None:
    async with asked(tmp_path, "full,mine::m.") as door:
        made = {"source": source, "dest": dest}
        assert await door.status("PUT", f"/v0/routers/{name}", "full", body=made) == 201
        assert await door.status(method, f"/v0/routers/{name}", "mine") == 403
        assert await door.status("GET", f"/v0/routers/{name}", "full") == 200


async def test_s03_lists_hold_only_what_the_key_may_see(tmp_path: Path) -> None:
    async with asked(tmp_path, "full,mine::m.") as door:
        for name, source, dest in (
            ("m.r", "m.a", "m.b"), ("m.s", "m.a", "x"), ("m.t", "y", "m.c"), ("z", "m.a", "m.d"),
        ):  # fmt: skip
            body = {"source": source, "dest": dest}
            assert await door.status("PUT", f"/v0/routers/{name}", "full", body=body) == 201
        topics = await door.json("GET", "/v0/topics", "mine")
        assert [each["topic"] for each in topics["topics"]] == ["m.a", "m.b", "m.c", "m.d"]
        routers = await door.json("GET", "/v0/routers", "mine")
        assert [each["router"] for each in routers["routers"]] == ["m.r"]


async def test_s03_dead_letters_go_only_to_names_of_the_key(tmp_path: Path) -> None:
    async with asked(tmp_path, "full,mine::m.") as door:
        for target, status in (("theirs", 403), ("m.dead", 201)):
            body = {"type": "queue", "max_deliveries": 1, "dead_letter": target}
            assert await door.status("PUT", f"/v0/topics/m.{status}", "mine", body=body) == status


async def test_s03_metrics_need_a_key_with_read_while_health_stays_open(tmp_path: Path) -> None:
    async with asked(tmp_path, "full,writer:write,reader:read") as door:
        for key, status in (("", 401), ("wrong", 401), ("writer", 403), ("reader", 200)):
            assert await door.status("GET", "/v0/metrics", key) == status
        assert await door.status("GET", "/v0/health") == 200


async def test_s03_a_bad_or_missing_key_is_401_and_a_missing_scope_or_name_403(
    tmp_path: Path,
) -> None:
    async with asked(tmp_path, "full,part:read:m.") as door:
        for key, target, code in (
            ("", "/v0/topics/m.a", "unauthorized"), ("x", "/v0/topics/m.a", "unauthorized"),
            ("part", "/v0/topics/other", "forbidden"),
            ("part", "/v0/topics/m.a", "topic_not_found"),
        ):  # fmt: skip
            assert (await door.json("GET", target, key))["error"]["code"] == code
        answer = await door.json("POST", "/v0/topics/m.a", "part", body=RECORDS)
        assert answer["error"]["code"] == "forbidden"


async def test_s03_an_unknown_route_without_a_key_is_401_and_not_404(tmp_path: Path) -> None:
    async with asked(tmp_path, "full") as door:
        assert await door.status("GET", "/v0/nowhere") == 401
        assert await door.status("GET", "/v0/nowhere", "full") == 404


# -- watch sessions --------------------------------------------------------------------------


async def opened(door: Asked, key: str = "") -> Any:
    assert await door.status("POST", "/v0/topics/t", key, body=RECORDS) in (200, 201)
    return await door.json("POST", "/v0/watch", key, body={"topics": {"t": {}}})


async def test_s03_a_watch_opens_only_for_the_key_that_made_it(tmp_path: Path) -> None:
    async with asked(tmp_path, "one,two") as door:
        url = (await opened(door, "one"))["stream_url"]
        assert await door.status("GET", url) == 401
        assert await door.status("GET", url, "two") == 401
        assert await door.status("GET", f"{url}?token=two") == 401
        assert await door.status("GET", url, "one") == 200
        assert await door.status("GET", f"{url}?token=one") == 200


@pytest.mark.parametrize("key", ["", "wrong", "one"])
async def test_s03_an_unknown_wid_is_404_with_or_without_a_key(tmp_path: Path, key: str) -> None:
    async with asked(tmp_path, "one") as door:
        answer = await door.json("GET", "/v0/watch/wid_" + "x" * 22, key)
        assert answer["error"]["code"] == "not_found"


async def test_s03_without_keys_the_wid_alone_opens(tmp_path: Path) -> None:
    async with asked(tmp_path) as door:
        assert await door.status("GET", (await opened(door))["stream_url"]) == 200


async def test_s03_a_wid_is_26_characters_of_which_22_are_random(tmp_path: Path) -> None:
    async with asked(tmp_path) as door:
        wids = {(await opened(door))["wid"] for _ in range(50)}
    assert len(wids) == 50
    assert all(re.fullmatch(r"wid_[A-Za-z0-9_-]{22}", wid) for wid in wids)
