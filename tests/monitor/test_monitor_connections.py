"""/connz and /subsz sort, cut and filter as asked."""

from typing import Any

import pytest
from monitor_facts import busy_server, get

from millstream.errors import BadRequest
from millstream.monitor import connz


async def cids(query: str) -> list[int]:
    status, body = await get(busy_server(), "/connz", query)
    assert status == 200, body
    return [each["cid"] for each in body["connections"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [1, 2, 3]),
        ("sort=cid", [1, 2, 3]),
        ("sort=start", [1, 2, 3]),
        ("sort=subs", [3, 2, 1]),
        ("sort=pending", [2, 3, 1]),
        ("sort=msgs_to", [3, 1, 2]),
        ("sort=msgs_from", [1, 3, 2]),
        ("sort=bytes_to", [1, 3, 2]),
        ("sort=last", [2, 3, 1]),
        ("sort=idle", [3, 1, 2]),
        ("sort=uptime", [1, 2, 3]),
        ("state=closed", [8, 9]),
        ("state=closed&sort=stop", [9, 8]),
        ("state=closed&sort=reason", [9, 8]),
        ("state=any", [1, 2, 3, 8, 9]),
        ("state=ALL&limit=2&offset=3", [8, 9]),
        ("limit=1&offset=1", [2]),
        ("limit=-1&offset=-5", [1, 2, 3]),
        ("offset=9", []),
        ("cid=2", [2]),
        ("cid=8", []),
        ("cid=8&state=all", [8]),
        ("user=ann", [1]),
        ("user=bob", []),
        ("acc=A&state=all", [1, 9]),
        ("acc=nobody", []),
    ],
)
async def test_connections_are_chosen_and_ordered(query: str, expected: list[int]) -> None:
    assert await cids(query) == expected


async def test_totals_count_all_and_the_page_what_is_shown() -> None:
    _, body = await get(busy_server(), "/connz", "limit=2")
    assert (body["total"], body["num_connections"], body["limit"]) == (3, 2, 2)
    _, body = await get(busy_server(), "/connz", "cid=2")
    assert (body["num_connections"], body["limit"]) == (1, 1)


async def test_a_closed_connection_says_when_and_why() -> None:
    _, body = await get(busy_server(), "/connz", "state=closed")
    first: dict[str, Any] = body["connections"][0]
    assert (first["reason"], first["uptime"], first["stop"]) == (
        "Stale Connection",
        "6s",
        "2023-11-14T22:14:19Z",
    )
    _, body = await get(busy_server(), "/connz")
    assert "reason" not in body["connections"][0]


async def test_users_accounts_and_subscriptions_are_shown_only_when_asked_for() -> None:
    _, body = await get(busy_server(), "/connz")
    one, _, three = body["connections"]
    assert not {"authorized_user", "account"} & set(one)
    assert "subscriptions_list" not in three
    _, body = await get(busy_server(), "/connz", "auth=1&subs=1")
    one, _, three = body["connections"]
    assert (one["authorized_user"], one["account"]) == ("ann", "A")
    assert three["subscriptions_list"] == ["orders.*", "jobs.>"]
    _, body = await get(busy_server(), "/connz", "subs=detail")
    assert body["connections"][2]["subscriptions_list_detail"][1] == {
        "account": "$G",
        "account_tag": "$G",
        "subject": "jobs.>",
        "qgroup": "workers",
        "sid": "2",
        "msgs": 4,
        "max": 9,
        "cid": 3,
    }


def test_connections_can_be_filtered_by_what_they_listen_to() -> None:
    wish = connz.ConnzQuery(acc="$G", filter_subject="orders.new")
    shown = connz.describe(busy_server(), wish)
    assert [each["cid"] for each in shown["connections"]] == [2, 3]
    with pytest.raises(BadRequest):
        connz.describe(busy_server(), connz.ConnzQuery(filter_subject="orders.new"))


async def test_subsz_sums_the_subject_spaces() -> None:
    _, body = await get(busy_server(), "/subsz")
    assert (body["num_subscriptions"], body["num_inserts"]) == (4, 5)
    assert body["cache_hit_rate"] == 0.25
    assert (body["max_fanout"], body["avg_fanout"]) == (2, 2.0)
    assert "subscriptions_list" not in body
    _, body = await get(busy_server(), "/subsz", "acc=A")
    assert (body["num_subscriptions"], body["cache_hit_rate"]) == (1, 0.0)


@pytest.mark.parametrize("path", ["/subsz", "/subscriptionsz"])
async def test_subsz_lists_subscriptions_that_a_publish_would_reach(path: str) -> None:
    _, body = await get(busy_server(), path, "subs=1&test=orders.new")
    assert [each["subject"] for each in body["subscriptions_list"]] == ["orders.*", "orders.new"]
    assert body["total"] == 2
    _, body = await get(busy_server(), path, "subs=1&limit=1&offset=1")
    assert [each["subject"] for each in body["subscriptions_list"]] == ["jobs.>"]
    assert body["total"] == 3
