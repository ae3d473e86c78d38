"""Section 8 of the contract: sentences about watches that stand for themselves."""

from typing import Any

import pytest
from test_topics_contract_08_watch import stream, watch
from topics_api import Api


async def frames(api: Api, **wishes: Any) -> list[list[dict[str, Any]]]:
    """Return the records of each frame that a new watch of ``a`` gets until it has caught up."""
    events = await stream(api, (await watch(api, {"a": {}}, **wishes))["wid"])
    found: list[list[dict[str, Any]]] = []
    while (named := await events.named())[0] == "record":
        found.append(named[1]["records"])
    assert named[0] == "caught-up"
    await events.close()
    return found


@pytest.mark.parametrize(
    ("wish", "sizes"),
    [({}, [256, 1]), ({"limit": None}, [256, 1]), ({"limit": 200}, [200, 57])],
)
async def test_s8_a_frame_holds_256_records_unless_asked(
    api: Api, wish: dict[str, Any], sizes: list[int]
) -> None:
    await api.write("a", *range(257))
    assert [len(each) for each in await frames(api, **wish)] == sizes


async def test_s8_a_frame_holds_256_kibibytes_unless_asked(api: Api) -> None:
    await api.write("a", *["x" * 100_000] * 3)
    assert [len(each) for each in await frames(api)] == [2, 1]
    assert [len(each) for each in await frames(api, max_batch_bytes=1)] == [1, 1, 1]
    assert [len(each) for each in await frames(api, max_batch_bytes=1 << 20)] == [3]


@pytest.mark.parametrize(
    ("wish", "shown"),
    [
        ({}, {"data", "meta"}),
        ({"include_tags": True}, {"data", "meta", "$tag"}),
        ({"include_meta": False}, {"data"}),
        ({"include_data": False}, {"meta"}),
        ({"include_tags": None, "include_meta": None, "include_data": None}, {"data", "meta"}),
        ({"consistency": "eventual"}, {"data", "meta"}),
        ({"consistency": "strong"}, {"data", "meta"}),
    ],
)
async def test_s8_a_watch_says_what_is_shown(
    api: Api, wish: dict[str, Any], shown: set[str]
) -> None:
    record = {"data": 1, "tag": "t", "meta": {"m": 1}, "node": "n"}
    await api.call("PUT", "/v0/topics/a", {"durability": "fsync"})  # a strong one shows it at once
    await api.call("POST", "/v0/topics/a", {"records": [record]})
    ((seen,),) = await frames(api, **wish)
    assert set(seen) == {"$seq", "$ts", "$node"} | shown
