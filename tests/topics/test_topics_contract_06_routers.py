"""Contract, section 6: routers, sentence by sentence."""

from pathlib import Path
from typing import Any

import pytest
from topics_api import Api, Events
from topics_api import data_of as data
from topics_api import put_router as put

from millstream.http.request import Caller

DEFINED = {
    "source": "a",
    "dest": "b",
    "preserve_node": True,
    "preserve_tag": True,
    "filter": None,
    "allow_cycle": False,
    "guarantee": "at_least_once",
}


async def topic_names(api: Api) -> list[str]:
    _, answer = await api.call("GET", "/v0/topics")
    return [topic["topic"] for topic in answer["topics"]]


# -- PUT -----------------------------------------------------------------------------------------


async def test_s6_put_creates_with_defaults_and_answers_201_with_every_field(api: Api) -> None:
    status, answer = await put(api)
    assert isinstance(answer.pop("performance")["server_total_ms"], float)
    assert (status, answer) == (201, {"router": "r", "created": True, **DEFINED})


async def test_s6_a_second_put_answers_200_and_may_change_all_but_the_ends(api: Api) -> None:
    await put(api)
    await api.write("a", 1)
    await api.diff("b")
    status, answer = await put(
        api, preserve_node=False, preserve_tag=False, filter="x*", allow_cycle=True,
        guarantee="exactly_once",
    )  # fmt: skip
    assert (status, answer["created"]) == (200, False)
    assert answer["filter"] == ["tag", "Glob", "x*"]
    _, shown = await api.call("GET", "/v0/routers/r")
    assert (shown["guarantee"], shown["preserve_node"], shown["allow_cycle"]) == (
        "exactly_once",
        False,
        True,
    )
    assert shown["forwarded_total"] == 1


async def test_s6_a_change_keeps_cursor_and_total(api: Api) -> None:
    await put(api)
    await api.write("a", 1, 2)
    await api.diff("b")
    await put(api, filter=["tag", "Eq", "x"])
    await api.write("a", 3)
    assert await data(api, "b") == [1, 2]
    _, shown = await api.call("GET", "/v0/routers/r")
    assert shown["forwarded_total"] == 2


@pytest.mark.parametrize(
    ("wish", "shown"),
    [
        ("x", ["tag", "Eq", "x"]),
        ("x*", ["tag", "Glob", "x*"]),
        (["tag", "Eq", "x*"], ["tag", "Eq", "x*"]),
        (["tag", "Glob", "x*"], ["tag", "Glob", "x*"]),
        (None, None),
    ],
)
async def test_s6_a_filter_is_shown_in_its_full_form(api: Api, wish: Any, shown: Any) -> None:
    _, answer = await put(api, filter=wish)
    assert answer["filter"] == shown


@pytest.mark.parametrize("wish", [["tag", "Glob", "x"], ["tag", "Eq"], ["node", "Eq", "x"], 5])
async def test_s6_a_filter_that_is_none_is_400(api: Api, wish: Any) -> None:
    body = {"source": "a", "dest": "b", "filter": wish}
    assert await api.error("PUT", "/v0/routers/r", body) == (400, "invalid_request")
    assert await topic_names(api) == []


@pytest.mark.parametrize("name", ["a->b", "a-%3Eb", "R.1_x:y-z"])
async def test_s6_a_router_name_may_hold_an_arrow_raw_or_encoded(api: Api, name: str) -> None:
    status, answer = await put(api, name)
    assert (status, answer["router"]) == (201, name.replace("%3E", ">"))


@pytest.mark.parametrize("name", ["-r", "a b", "%3Er", "r" * 256, "a%2Fb"])
async def test_s6_a_bad_router_name_is_400(api: Api, name: str) -> None:
    name = name.replace(" ", "%20")
    body = {"source": "a", "dest": "b"}
    assert await api.error("PUT", f"/v0/routers/{name}", body) == (400, "invalid_request")


@pytest.mark.parametrize(
    "body",
    [
        {"source": "a"},
        {"dest": "b"},
        {"source": "a", "dest": "a"},
        {"source": "a b", "dest": "b"},
        {"source": "a", "dest": "-b"},
        {"source": "a", "dest": ""},
        {"source": "a", "dest": "b", "guarantee": "twice"},
        {"source": "a", "dest": "b", "allow_cycle": "yes"},
    ],
)
async def test_s6_a_body_that_cannot_be_carried_out_is_400_and_leaves_no_topic(
    api: Api, body: Any
) -> None:
    assert await api.error("PUT", "/v0/routers/r", body) == (400, "invalid_request")
    assert await topic_names(api) == []


async def test_s6_the_body_must_be_json(api: Api) -> None:
    assert await api.error("PUT", "/v0/routers/r", b"{}", headers={}) == (
        415,
        "unsupported_media_type",
    )


async def test_s6_source_and_dest_are_created_with_the_router(api: Api) -> None:
    await put(api)
    assert await topic_names(api) == ["a", "b"]


async def test_s6_create_dest_false_needs_the_destination(api: Api) -> None:
    body = {"source": "a", "dest": "b", "create_dest": False}
    status, answer = await api.call("PUT", "/v0/routers/r", body)
    assert (status, answer["error"]["code"]) == (404, "topic_not_found")
    assert answer["error"]["detail"]["topic"] == "b"
    assert await topic_names(api) == []
    await api.call("PUT", "/v0/topics/b")
    status, answer = await api.call("PUT", "/v0/routers/r", body)
    assert status == 201
    assert "create_dest" not in answer


async def test_s6_a_destination_has_one_source(api: Api) -> None:
    await put(api)
    status, answer = await put(api, "s", source="c")
    assert (status, answer["error"]["code"]) == (409, "topic_exists_incompatible")
    assert answer["error"]["detail"] == {"topic": "b", "reason": "router_dest_fan_in"}
    assert await topic_names(api) == ["a", "b"]
    assert (await put(api, "second", source="a"))[0] == 201


async def test_s6_a_router_cannot_be_pointed_elsewhere(api: Api) -> None:
    await put(api)
    status, answer = await put(api, dest="c")
    assert (status, answer["error"]["code"]) == (409, "topic_exists_incompatible")
    assert answer["error"]["detail"] == {
        "router": "r",
        "reason": "router_repoint_forbidden",
        "existing_source": "a",
        "existing_dest": "b",
    }
    assert await topic_names(api) == ["a", "b"]


async def test_s6_above_the_cap_a_new_router_is_429_and_a_known_one_is_not(api: Api) -> None:
    api.topics.routers.most = 1
    await put(api)
    answer = await api.send("PUT", "/v0/routers/s", {"source": "c", "dest": "d"})
    assert (answer.status, dict(answer.headers)[b"Retry-After"]) == (429, b"1")
    assert b'"limit":"max_routers","max":1' in answer.body
    assert await topic_names(api) == ["a", "b"]
    assert (await put(api))[0] == 200


async def test_s6_a_router_that_would_need_more_topics_than_there_may_be_leaves_none(
    api: Api,
) -> None:
    api.topics.topic_limit.most = 1
    body = {"source": "a", "dest": "b"}
    assert await api.error("PUT", "/v0/routers/r", body) == (429, "throttled")
    assert await topic_names(api) == []


async def test_s6_a_cycle_is_409_and_names_the_way_round_from_the_new_source(api: Api) -> None:
    await put(api, "ab")
    await put(api, "bc", source="b", dest="c")
    status, answer = await put(api, "ca", source="c", dest="a")
    assert (status, answer["error"]["code"]) == (409, "router_cycle")
    assert answer["error"]["detail"] == {"cycle": ["c", "a", "b", "c"]}
    assert (await put(api, "ca", source="c", dest="a", allow_cycle=True))[0] == 201
    assert (await put(api, "ab", allow_cycle=True))[0] == 200
    assert (await put(api, "ab"))[0] == 409  # its own edge aside, the others still close the ring


async def test_s6_an_allowed_cycle_stops_by_itself(api: Api) -> None:
    await put(api, "ab")
    await put(api, "ba", source="b", dest="a", allow_cycle=True)
    await api.write("a", 1)
    for _ in range(20):
        await api.diff("b")
        await api.diff("a")
    assert 1 <= len(await data(api, "a")) <= 16
    assert 1 <= len(await data(api, "b")) <= 16


# -- GET, list, DELETE -----------------------------------------------------------------------------


async def test_s6_get_shows_the_definition_and_an_up_to_date_total(api: Api) -> None:
    await put(api)
    await api.write("a", 1, 2)
    status, answer = await api.call("GET", "/v0/routers/r")
    assert isinstance(answer.pop("performance")["server_total_ms"], float)
    assert (status, answer) == (200, {"router": "r", **DEFINED, "forwarded_total": 2})


async def test_s6_an_unknown_router_is_404_by_name(api: Api) -> None:
    status, answer = await api.call("GET", "/v0/routers/x->y")
    assert (status, answer["error"]["code"]) == (404, "router_not_found")
    assert answer["error"]["detail"] == {"router": "x->y"}


async def test_s6_the_list_is_by_name_filtered_and_paged(api: Api) -> None:
    await put(api, "r2")
    await put(api, "r1", dest="c")
    await put(api, "s", source="b", dest="d")
    _, answer = await api.call("GET", "/v0/routers")
    assert answer["routers"][0] == {
        "router": "r1",
        "source": "a",
        "dest": "c",
        "guarantee": "at_least_once",
        "forwarded_total": 0,
    }
    assert [r["router"] for r in answer["routers"]] == ["r1", "r2", "s"]
    for query, names in (("prefix=r", ["r1", "r2"]), ("source=b", ["s"]), ("dest=c", ["r1"])):
        _, answer = await api.call("GET", f"/v0/routers?{query}")
        assert [r["router"] for r in answer["routers"]] == names
    _, page = await api.call("GET", "/v0/routers?page_size=2")
    assert [r["router"] for r in page["routers"]] == ["r1", "r2"]
    _, page = await api.call("GET", f"/v0/routers?cursor={page['next_cursor']}")
    assert [r["router"] for r in page["routers"]] == ["s"]
    assert "next_cursor" not in page


async def test_s6_delete_is_idempotent_and_leaves_the_copies(api: Api) -> None:
    await put(api)
    await api.write("a", 1)
    await api.diff("b")
    status, answer = await api.call("DELETE", "/v0/routers/r")
    assert isinstance(answer.pop("performance")["server_total_ms"], float)
    assert (status, answer) == (200, {"router": "r", "deleted": True})
    _, answer = await api.call("DELETE", "/v0/routers/r")
    assert answer["deleted"] is False
    await api.write("a", 2)
    assert await data(api, "b") == [1]


async def test_s6_deleting_a_topic_takes_its_routers_along_and_names_them_sorted(api: Api) -> None:
    await put(api, "z")
    await put(api, "m", source="b", dest="c")
    _, answer = await api.call("DELETE", "/v0/topics/b")
    assert answer["routers_removed"] == ["m", "z"]
    _, answer = await api.call("GET", "/v0/routers")
    assert answer["routers"] == []


# -- forwarding as seen on the wire ---------------------------------------------------------------


async def test_s6_a_router_copies_nothing_from_before_it_was_made(api: Api) -> None:
    await api.write("a", "old")
    await put(api)
    await api.write("a", "new")
    assert await data(api, "b") == ["new"]


async def test_s6_diff_state_claim_and_watch_show_a_copy_right_after_the_source_ack(
    api: Api,
) -> None:
    await api.call("PUT", "/v0/topics/q", {"type": "queue"})
    await put(api)
    await put(api, "rq", dest="q")
    _, opened = await api.call("POST", "/v0/watch", {"topics": {"b": {}}})
    events = Events(await api.send("GET", opened["stream_url"]))
    await api.write("a", 1)
    assert await data(api, "b") == [1]
    await api.write("a", 2)
    _, state = await api.call("GET", "/v0/topics/b")
    assert state["head_seq"] == 2
    await api.write("a", 3)
    _, claimed = await api.call("POST", "/v0/topics/q/claim", {"node": "n", "max": 9})
    assert [job["data"] for job in claimed["claimed"]] == [1, 2, 3]
    name, first = await events.named()
    assert (name, [r["data"] for r in first["records"]]) == ("record", [1, 2, 3])
    await events.close()


async def test_s6_a_copy_shows_no_trace_of_its_source_but_what_is_preserved(api: Api) -> None:
    await put(api)
    record = {"data": 1, "tag": "t", "node": "n", "meta": {"k": 1}}
    await api.call("POST", "/v0/topics/a", {"records": [record]})
    (copy,) = (await api.diff("b", include_tags=True))["records"]
    assert copy.pop("$ts") > 0
    assert copy == {"$seq": 1, "$tag": "t", "$node": "n", "data": 1, "meta": {"k": 1}}


async def test_s6_exactly_once_marks_wrap_a_meta_that_cannot_take_them(api: Api) -> None:
    await put(api, guarantee="exactly_once")
    full = {f"k{n}": n for n in range(64)}
    metas: list[Any] = [{"k": 1}, None, [1, 2], full]
    records = [{"data": n, "meta": meta} for n, meta in enumerate(metas)]
    await api.call("POST", "/v0/topics/a", {"records": records})
    found = [record["meta"] for record in (await api.diff("b"))["records"]]
    source = api.stream("a").incarnation
    assert [meta["_topics_router"]["source_seq"] for meta in found] == [1, 2, 3, 4]
    assert found[0]["_topics_router"] == {
        "idempotency_key": f"router:r:{source}:{source}:1",
        "router": "r",
        "source_topic": "a",
        "source_topic_id": source,
        "source_epoch": source,
        "source_seq": 1,
    }
    assert found[0]["k"] == 1
    assert set(found[1]) == {"_topics_router"}
    assert found[2]["_topics_original_meta"] == [1, 2]
    assert found[3]["_topics_original_meta"] == full


async def test_s6_a_full_reject_destination_waits_and_a_trimmed_source_leaves_a_tombstone(
    api: Api,
) -> None:
    await api.call("PUT", "/v0/topics/a", {"cap_records": 2})
    await api.call("PUT", "/v0/topics/b", {"cap_records": 1, "discard": "reject"})
    await put(api)
    for n in range(6):
        await api.write("a", n)
        await api.diff("b")
    assert await data(api, "b") == [0]
    await api.call("POST", "/v0/topics/b/delete", {"before_seq": 99})
    page = await api.diff("b", from_seq=1)
    assert page["tombstone"]["reason"] == "source_trim"
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (2, 4)
    assert [r["data"] for r in page["records"]] == [4]


async def test_s6_routers_and_their_copies_survive_a_restart(api: Api, tmp_path: Path) -> None:
    await put(api, filter="x")
    await api.call("POST", "/v0/topics/a", {"records": [{"data": 1, "tag": "x"}]})
    await api.diff("b")
    await api.write("b", "direct")
    api.catalog.close()
    api.store.close()
    again = Api(tmp_path / "data")
    assert await data(again, "b") == [1, "direct"]
    _, shown = await again.call("GET", "/v0/routers/r")
    assert (shown["filter"], shown["forwarded_total"]) == (["tag", "Eq", "x"], 1)
    again.catalog.close()
    again.store.close()


# -- who may --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "source", "dest"),
    [("mine.r", "mine.a", "b"), ("mine.r", "a", "mine.b"), ("r", "mine.a", "mine.b")],
)
async def test_s6_a_scoped_key_cannot_route_from_or_into_what_it_may_not(
    api: Api, name: str, source: str, dest: str
) -> None:
    mine = Caller(prefixes=("mine.",), key="k")
    body = {"source": source, "dest": dest}
    assert await api.error("PUT", f"/v0/routers/{name}", body, caller=mine) == (403, "forbidden")
    assert await topic_names(api) == []
    await put(api, name, source, dest)
    for method in ("GET", "DELETE"):
        refused = await api.error(method, f"/v0/routers/{name}", caller=mine)
        assert refused == (403, "forbidden")
    _, listed = await api.call("GET", "/v0/routers", caller=mine)
    assert listed["routers"] == []


@pytest.mark.parametrize(
    ("source", "dest"), [("hidden.a", "mine.b"), ("mine.a", "hidden.b"), ("hidden.a", "hidden.b")]
)
async def test_s6_a_router_with_a_hidden_end_does_not_name_it(
    api: Api, source: str, dest: str
) -> None:
    mine = Caller(prefixes=("mine.",), key="k")
    await put(api, "mine.r", source, dest)
    for method in ("GET", "DELETE"):
        status, answer = await api.call(method, "/v0/routers/mine.r", caller=mine)
        assert (status, answer["error"]["detail"]) == (403, {"router": "mine.r"})
        assert "hidden" not in str(answer)
    body = {"source": "mine.x", "dest": "mine.y"}
    status, answer = await api.call("PUT", "/v0/routers/mine.r", body, caller=mine)
    assert (status, answer["error"]["code"]) == (409, "topic_exists_incompatible")
    assert "hidden" not in str(answer)
    shown = {"existing_source": source, "existing_dest": dest}
    assert answer["error"]["detail"] == {
        "router": "mine.r",
        "reason": "router_repoint_forbidden",
        **{which: topic for which, topic in shown.items() if topic.startswith("mine.")},
    }


async def test_s6_a_way_round_through_a_hidden_topic_is_not_named(api: Api) -> None:
    mine = Caller(prefixes=("mine.",), key="k")
    await put(api, "one", "mine.b", "hidden")
    await put(api, "two", "hidden", "mine.a")
    body = {"source": "mine.a", "dest": "mine.b"}
    status, answer = await api.call("PUT", "/v0/routers/mine.r", body, caller=mine)
    assert (status, answer["error"]["code"]) == (409, "router_cycle")
    assert "hidden" not in str(answer)
    assert "detail" not in answer["error"]
    status, answer = await api.call("PUT", "/v0/routers/mine.r", body)
    assert answer["error"]["detail"] == {"cycle": ["mine.a", "mine.b", "hidden", "mine.a"]}


async def test_s6_ends_are_named_only_to_whoever_may_read_them(api: Api) -> None:
    await put(api, "r", "mine.a", "mine.b")
    body = {"source": "mine.x", "dest": "mine.y"}
    blind = Caller(prefixes=("mine.",), key="k", scopes=frozenset(("admin",)))
    _, answer = await api.call("PUT", "/v0/routers/r", body, caller=Caller(key="k"))
    assert answer["error"]["detail"]["existing_source"] == "mine.a"
    await put(api, "mine.r", "mine.a", "mine.c")
    _, answer = await api.call("PUT", "/v0/routers/mine.r", body, caller=blind)
    assert "mine.a" not in str(answer)
    body = {"source": "mine.b", "dest": "mine.a"}  # which it named itself
    _, answer = await api.call("PUT", "/v0/routers/mine.back", body, caller=blind)
    assert answer["error"]["detail"] == {"cycle": ["mine.b", "mine.a", "mine.b"]}


async def test_s6_a_user_needs_to_read_the_source_and_to_write_the_destination(api: Api) -> None:
    def narrowed(scope: str, topic: str) -> Caller:
        allowed = {("read", "open"), ("write", "open"), ("write", "closed")}
        return Caller(key="u", covers=lambda name: (scope, name) in allowed)

    user = Caller(key="u", covers=lambda name: name in ("open", "closed"), narrowed=narrowed)
    body = {"source": "open", "dest": "other"}  # not one that it may create
    assert await api.error("PUT", "/v0/routers/r", body, caller=user) == (403, "forbidden")
    body = {"source": "closed", "dest": "open"}
    assert await api.error("PUT", "/v0/routers/r", body, caller=user) == (403, "forbidden")
    body = {"source": "open", "dest": "closed"}
    assert (await api.call("PUT", "/v0/routers/r", body, caller=user))[0] == 201


async def test_s6_metrics_count_the_routers(api: Api) -> None:
    await put(api)
    answer = await api.send("GET", "/v0/metrics")
    assert b"topics_routers 1\n" in answer.body
