"""Section 9 of the contract: sentences about the WebSocket that stand for themselves."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from topics_server import asked
from topics_socket import Site, Talk, publish, talk
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from millstream.delivery.governor import Measures
from millstream.http.limits import Limits
from millstream.http.request import Caller

UPGRADE = {
    "host": "localhost",
    "upgrade": "websocket",
    "connection": "Upgrade",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    "sec-websocket-version": "13",
}


async def records(client: Talk, count: int) -> list[list[Any]]:
    """Return the data of the next record messages, as many as hold ``count`` records."""
    found: list[list[Any]] = []
    while sum(map(len, found)) < count:
        message = await client.until("record")
        found.append([record.get("data") for record in message["records"]])
    return found


# -- the upgrade -------------------------------------------------------------------------------


async def test_s9_a_key_is_needed_at_the_upgrade_once_there_are_keys(tmp_path: Path) -> None:
    async with asked(tmp_path, "full,reader:read:x") as door:
        assert await door.status("GET", "/v0/ws", **UPGRADE) == 401
        assert await door.status("GET", "/v0/ws", "wrong", **UPGRADE) == 401
        assert await door.status("GET", "/v0/ws?token=full", **UPGRADE) == 401
        for key in ("full", "reader"):
            assert await door.status("GET", "/v0/ws", key, **UPGRADE) == 101


async def test_s9_sockets_count_with_event_streams_for_a_key_too(site: Site) -> None:
    await site.api.write("a", 1)
    site.caller = Caller(key="one")
    site.api.topics.live.per_key = 1
    async with talk(site):
        refused = await site.api.send("GET", "/v0/topics/a/tail", caller=site.caller)
        assert refused.status == 429
        with pytest.raises(InvalidStatus) as told:
            await connect(site.url())
        error = msgspec.json.decode(told.value.response.body)["error"]
        assert error["detail"] == {"limit": "max_sse_connections_per_key", "max": 1}


# -- subscribe ---------------------------------------------------------------------------------


async def test_s9_a_record_message_holds_1000_records_unless_asked(site: Site) -> None:
    await site.api.write("a", *range(1001))
    async with talk(site) as client:
        await client.say("subscribe", topic="a")
        assert [len(each) for each in await records(client, 1001)] == [1000, 1]
        await client.say("subscribe", topic="a", limit=400)
        assert [len(each) for each in await records(client, 1001)] == [400, 400, 201]
        await client.say("subscribe", topic="a", limit=5000)
        assert [len(each) for each in await records(client, 1001)] == [1000, 1]


async def test_s9_a_record_message_holds_a_mebibyte_unless_asked(site: Site) -> None:
    for _ in range(3):
        await site.api.write("a", "x" * 400_000)
    async with talk(site) as client:
        await client.say("subscribe", topic="a")
        assert [len(each) for each in await records(client, 3)] == [2, 1]
        await client.say("subscribe", topic="a", max_batch_bytes=1)
        assert [len(each) for each in await records(client, 3)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("asked_for", "shown"),
    [
        ({}, {"data", "meta"}),
        ({"include_tags": True}, {"data", "meta", "$tag"}),
        ({"include_meta": False}, {"data"}),
        ({"include_data": False}, {"meta"}),
        ({"include_data": None, "include_tags": None, "include_meta": None}, {"data", "meta"}),
    ],
)
async def test_s9_a_subscription_says_what_is_shown(
    site: Site, asked_for: dict[str, Any], shown: set[str]
) -> None:
    record = {"data": 1, "tag": "t", "meta": {"m": 1}}
    await site.api.call("POST", "/v0/topics/a", {"records": [record]})
    async with talk(site) as client:
        await client.say("subscribe", topic="a", **asked_for)
        message = await client.until("record")
        assert set(message["records"][0]) == {"$seq", "$ts", *shown}
        assert set(message) == {"op", "topic", "from_seq", "to_seq", "head_seq", "records"}


@pytest.mark.parametrize("node", ["me", ["me", "you"]])
async def test_s9_records_of_a_subscribers_own_node_are_left_out(
    site: Site, node: str | list[str]
) -> None:
    mixed = [{"data": 1, "node": "me"}, {"data": 2}, {"data": 3, "node": "me"}]
    await site.api.call("POST", "/v0/topics/a", {"records": mixed})
    async with talk(site) as client:
        await client.say("subscribe", topic="a", node=node)
        message = await client.until("record")
        assert [record["data"] for record in message["records"]] == [2]
        assert (message["from_seq"], message["to_seq"]) == (0, 3)


@pytest.mark.parametrize(
    ("wish", "start"),
    [({}, 0), ({"from_seq": 2}, 2), ({"tail": True}, 3), ({"tail": True, "from_seq": 1}, 3)],
)
async def test_s9_topic_and_each_of_topics_begin_where_they_say(
    site: Site, wish: dict[str, Any], start: int
) -> None:
    await site.api.write("a", 1, 2, 3)
    async with talk(site) as client:
        for answer in (
            await client.ask("subscribe", topic="a", **wish),
            await client.ask("subscribe", topics={"a": wish}),
        ):
            assert answer["topics"]["a"] == {"from_seq": start, "head_seq": 3, "earliest_seq": 1}


async def test_s9_without_lenient_one_missing_topic_subscribes_to_none(site: Site) -> None:
    await site.api.write("a", 1)
    async with talk(site) as client:
        answer = await client.ask("subscribe", topics={"a": {}, "missing": {}})
        assert answer["code"] == "topic_not_found"
        await client.silence()


async def test_s9_no_tail_is_missed_whatever_comes_while_subscribing(site: Site) -> None:
    await site.api.write("a", 0)
    async with talk(site) as client:
        for turn in range(20):
            first = 1 + turn * 10
            await client.say("subscribe", topic="a", tail=True, request_id=turn)
            writes = [site.api.write("a", n) for n in range(first, first + 10)]
            await asyncio.gather(*writes)
            seen: list[int] = []
            start = None
            while start is None or start + len(seen) < first + 10:
                message = await client.hear()
                if message["op"] == "subscribed":
                    start = message["topics"]["a"]["from_seq"]
                elif message["op"] == "record":
                    seen += [record["$seq"] for record in message["records"]]
            assert seen == list(range(start + 1, first + 11))
            await client.ask("unsubscribe", topic="a")


# -- publish and what the server says --------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "seqs"),
    [({}, [1, 2]), ({"return_seqs": None}, [1, 2]), ({"return_seqs": False}, None)],
)
async def test_s9_an_ack_has_exactly_these_members(
    site: Site, wish: dict[str, Any], seqs: list[int] | None
) -> None:
    async with talk(site) as client:
        answer = await client.ask("publish", **publish("a", "x", "y", **wish))
        assert isinstance(answer.pop("performance")["server_total_ms"], float)
        assert answer == {
            "op": "ack",
            "request_id": 7,
            "topic": "a",
            "first_seq": 1,
            "last_seq": 2,
            "seqs": seqs,
            "head_seq": 2,
            "count": 2,
            "created": True,
            "deduped": False,
        }


async def test_s9_an_error_has_exactly_these_members(site: Site) -> None:
    async with talk(site) as client:
        answer = await client.ask("subscribe", topic="missing")
        assert set(answer) == {"op", "request_id", "code", "message"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (publish("full", 2), "topic_full"),
        (publish("full", 1, 2, 3), "record_too_large"),
        (publish("a", *[1] * 10_001), "batch_too_large"),
        (publish("a", "x" * (1 << 19), "x" * ((1 << 20) - 1)), "record_too_large"),
        (publish("a", 1, idempotency_key="k" * 257), "invalid_request"),
        (publish("a", 1, node="n" * 129), "invalid_request"),
        (publish("-a", 1), "invalid_request"),
    ],
)
async def test_s9_other_errors_have_the_code_of_the_http_answer(
    site: Site, body: dict[str, Any], code: str
) -> None:
    await site.api.call("PUT", "/v0/topics/full", {"cap_records": 1, "discard": "reject"})
    await site.api.write("full", 1)
    site.door.limits = Limits(body_bytes=4 << 20)
    async with talk(site) as client:
        answer = await client.ask("publish", **body)
        assert (answer["op"], answer["code"]) == ("error", code)
        assert (await client.ask("ping"))["op"] == "pong"


async def test_s9_pressure_refuses_a_publish_unless_it_disables_backpressure(site: Site) -> None:
    site.api.topics.scheduler._governor.measures = Measures(1.0, refuses=True)
    async with talk(site) as client:
        assert (await client.ask("publish", **publish("a", 1)))["code"] == "throttled"
        answer = await client.ask("publish", **publish("a", 1, disable_backpressure=True))
        assert answer["op"] == "ack"


async def test_s9_a_fragmented_text_message_is_one_message(site: Site) -> None:
    async with talk(site, compression=None) as client:
        await client.connection.send(iter(['{"op":"pi', "ng", '","request_id":5}']))
        assert await client.hear() == {"op": "pong", "request_id": 5}


async def test_s9_unsubscribing_from_what_was_never_subscribed_names_nothing(site: Site) -> None:
    async with talk(site) as client:
        answer = await client.ask("unsubscribe", topics=["x", "y"])
        assert answer == {"op": "unsubscribed", "request_id": 7, "topics": []}


async def test_s9_a_second_subscription_to_a_topic_begins_anew(site: Site) -> None:
    await site.api.write("a", 1, 2)
    async with talk(site) as client:
        for _ in range(2):
            await client.ask("subscribe", topic="a", from_seq=1)
            assert await records(client, 1) == [[2]]
