"""Section 6 of the contract: sentences about routers that stand for themselves."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from topics_api import Api, Events
from topics_api import data_of as data
from topics_api import put_router as put


async def refused(api: Api, name: str, **body: Any) -> tuple[int, str]:
    status, answer = await api.call("PUT", f"/v0/routers/{name}", body)
    return status, answer["error"]["code"]


def held(api: Api, topic: str) -> int:
    """Return how many records a topic holds, without the look that would bring more."""
    return int(api.stream(topic).state().messages)


async def by_itself(api: Api, topic: str, count: int) -> None:
    """Wait until a topic holds so many records that nobody asked for."""
    async with asyncio.timeout(5):
        while held(api, topic) < count:
            api.pass_time(0.05)
            await asyncio.sleep(0)


# -- the order of checks ---------------------------------------------------------------------------


async def test_s6_checks_come_in_the_documented_order(api: Api) -> None:
    """Each step mends what the step before was told of, and nothing that comes later."""
    await put(api, "first", "x", "taken")
    await put(api, "known", "y", "z")
    api.topics.routers.most = 2
    steps: list[tuple[str, dict[str, Any], tuple[int, str]]] = [
        ("-bad", {"source": "no name", "dest": "no name"}, (400, "invalid_request")),
        ("r", {"source": "no name", "dest": "no name"}, (400, "invalid_request")),
        ("r", {"source": "a", "dest": "no name"}, (400, "invalid_request")),
        ("r", {"source": "a", "dest": "b", "create_dest": False}, (404, "topic_not_found")),
        ("known", {"source": "a", "dest": "taken"}, (409, "topic_exists_incompatible")),
        ("known", {"source": "taken", "dest": "x"}, (409, "topic_exists_incompatible")),
        ("r", {"source": "taken", "dest": "x"}, (429, "throttled")),
    ]
    for name, body, found in steps:
        assert await refused(api, name, **body) == found, (name, body)
    api.topics.routers.most = 0
    assert await refused(api, "r", source="taken", dest="x") == (409, "router_cycle")
    names = [stream.name for stream in api.catalog.streams()]
    assert names == ["taken", "x", "y", "z"]


async def test_s6_fan_in_is_told_before_a_router_that_points_elsewhere(api: Api) -> None:
    await put(api, "first", "x", "taken")
    await put(api, "known", "y", "z")
    _, answer = await put(api, "known", "y", "taken")
    assert answer["error"]["detail"]["reason"] == "router_dest_fan_in"
    _, answer = await put(api, "known", "x", "fresh")
    assert answer["error"]["detail"]["reason"] == "router_repoint_forbidden"


async def test_s6_a_routers_own_edge_is_no_other_source_of_its_destination(api: Api) -> None:
    await put(api, "r", "a", "b")
    _, answer = await put(api, "r", "c", "b")
    assert answer["error"]["detail"] == {
        "router": "r",
        "reason": "router_repoint_forbidden",
        "existing_source": "a",
        "existing_dest": "b",
    }


async def test_s6_the_name_is_told_before_equal_ends(api: Api) -> None:
    _, answer = await put(api, "-bad", "a", "a")
    assert "router's name" in answer["error"]["message"]
    _, answer = await put(api, "r", "no name", "no name")
    assert "two topics" in answer["error"]["message"]


@pytest.mark.parametrize("field", ["preserve_node", "preserve_tag", "create_dest", "allow_cycle"])
async def test_s6_flags_are_booleans(api: Api, field: str) -> None:
    body = {"source": "a", "dest": "b", field: "true"}
    assert await api.error("PUT", "/v0/routers/r", body) == (400, "invalid_request")


async def test_s6_a_router_is_durable_once_it_is_answered(api: Api, tmp_path: Path) -> None:
    await put(api, "r->s", filter="x*")
    shutil.copytree(tmp_path / "data", tmp_path / "as it was")  # no clean end
    again = Api(tmp_path / "as it was")
    _, shown = await again.call("GET", "/v0/routers/r->s")
    assert (shown["source"], shown["dest"], shown["filter"]) == ("a", "b", ["tag", "Glob", "x*"])
    again.catalog.close()
    again.store.close()


async def test_s6_a_deleted_router_is_gone_after_a_crash(api: Api, tmp_path: Path) -> None:
    await put(api)
    await api.call("DELETE", "/v0/routers/r")
    shutil.copytree(tmp_path / "data", tmp_path / "as it was")
    again = Api(tmp_path / "as it was")
    assert await again.error("GET", "/v0/routers/r") == (404, "router_not_found")
    again.catalog.close()
    again.store.close()


# -- forwarding ------------------------------------------------------------------------------------


async def test_s6_the_ack_of_the_source_does_not_wait_for_the_copies(api: Api) -> None:
    for n in range(20):
        await put(api, f"r{n}", dest=f"b{n}")
    answer = await api.write("a", 1)
    assert answer["last_seq"] == 1
    assert [held(api, f"b{n}") for n in range(20)] == [0] * 20
    assert await data(api, "b7") == [1]


async def test_s6_copies_come_by_themselves_within_a_tick(api: Api) -> None:
    await put(api)
    await api.write("a", 1)
    await by_itself(api, "b", 1)
    assert await data(api, "b") == [1]


async def test_s6_a_chain_of_two_comes_by_itself_after_its_first_hop(api: Api) -> None:
    await put(api, "ab")
    await put(api, "bc", "b", "c")
    await api.write("a", 1)
    await by_itself(api, "c", 1)
    assert await data(api, "c") == [1]


async def test_s6_a_copy_has_the_sequence_and_the_time_of_its_destination(api: Api) -> None:
    await put(api)
    await api.write("b", "direct", "direct")
    await api.write("a", "routed")
    written = api.topics.now_ms()
    api.pass_time(1)
    copy = (await api.diff("b"))["records"][-1]
    assert copy["$seq"] == 3
    assert copy["$ts"] >= written
    assert (await api.diff("a"))["records"][0]["$seq"] == 1


@pytest.mark.parametrize("preserves_node", [True, False])
@pytest.mark.parametrize("preserves_tag", [True, False])
async def test_s6_node_and_tag_are_kept_as_the_flags_say_and_the_rest_always(
    api: Api, preserves_node: bool, preserves_tag: bool
) -> None:
    await put(api, preserve_node=preserves_node, preserve_tag=preserves_tag)
    record = {"data": {"x": [1]}, "tag": "t", "node": "n", "meta": {"m": 1}}
    await api.call("POST", "/v0/topics/a", {"records": [record]})
    (copy,) = (await api.diff("b", include_tags=True))["records"]
    assert ("$node" in copy, "$tag" in copy) == (preserves_node, preserves_tag)
    assert (copy["data"], copy["meta"]) == ({"x": [1]}, {"m": 1})


@pytest.mark.parametrize(
    ("wish", "passed"),
    [("x", [2]), ("x*", [2, 3]), (["tag", "Glob", "*"], [2, 3, 4]), (["tag", "Eq", "x*"], [])],
)
async def test_s6_untagged_records_never_pass_a_filter(
    api: Api, wish: Any, passed: list[int]
) -> None:
    await put(api, filter=wish)
    tags = [None, "x", "xy", "z"]
    records = [{"data": n, "tag": tag} for n, tag in enumerate(tags, 1)]
    await api.call("POST", "/v0/topics/a", {"records": records})
    assert await data(api, "b") == passed
    _, shown = await api.call("GET", "/v0/routers/r")
    assert shown["forwarded_total"] == len(passed)


async def test_s6_a_full_destination_is_filled_once_it_is_drained(api: Api) -> None:
    await api.call("PUT", "/v0/topics/b", {"cap_records": 1, "discard": "reject"})
    await put(api)
    await api.write("a", 1)
    await api.write("a", 2)
    for value in (1, 2):
        page = await api.diff("b", from_seq=value - 1)
        assert [record["data"] for record in page["records"]] == [value]
        await api.call("POST", "/v0/topics/b/delete", {"before_seq": value + 1})


async def test_s6_a_write_into_a_cycle_returns_and_each_side_holds_1_to_16(api: Api) -> None:
    await put(api, "ab")
    await put(api, "ba", "b", "a", allow_cycle=True)
    async with asyncio.timeout(5):
        await api.write("a", 1)
    await by_itself(api, "a", 2)
    for _ in range(200):
        api.pass_time(0.05)
        await asyncio.sleep(0)
    assert 1 <= held(api, "a") <= 16
    assert 1 <= held(api, "b") <= 16


async def test_s6_a_watch_of_the_destination_is_driven_by_its_own_pass(api: Api) -> None:
    await put(api)
    await api.write("a", 1)
    events = Events(await api.send("GET", "/v0/topics/b/tail?from_seq=0"))
    name, shown = await events.named()
    assert (name, [record["data"] for record in shown["records"]]) == ("record", [1])
    await events.close()


# -- lists -----------------------------------------------------------------------------------------


async def test_s6_filters_of_a_list_are_all_applied(api: Api) -> None:
    await put(api, "r1", "a", "b")
    await put(api, "r2", "a", "c")
    await put(api, "s1", "a", "d")
    for query, names in (
        ("prefix=r&source=a", ["r1", "r2"]),
        ("prefix=r&dest=d", []),
        ("source=a&dest=d", ["s1"]),
        ("source=b", []),
        ("prefix=", ["r1", "r2", "s1"]),
    ):
        _, answer = await api.call("GET", f"/v0/routers?{query}")
        assert [each["router"] for each in answer["routers"]] == names, query
        for each in answer["routers"]:
            assert set(each) == {"router", "source", "dest", "guarantee", "forwarded_total"}
