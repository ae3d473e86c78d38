"""Section 9 of the contract: the order and the exact members of what a socket says."""

import asyncio
from typing import Any

import pytest
from topics_socket import Site, publish, talk
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from millstream.http.request import Caller


async def test_s9_messages_of_a_topic_have_exactly_these_members(site: Site) -> None:
    await site.api.call("PUT", "/v0/topics/a", {"cap_records": 1})
    await site.api.write("a", 1, 2)
    async with talk(site) as client:
        await client.say("subscribe", topic="a", request_id="r")
        heard: dict[str, Any] = {}
        while "caught_up" not in heard:
            message = await client.hear()
            heard[message["op"]] = message
        await site.api.call("DELETE", "/v0/topics/a")
        heard["topic_deleted"] = await client.until("topic_deleted")
    assert {op: set(message) - {"op"} for op, message in heard.items()} == {
        "subscribed": {"request_id", "topics"},
        "tombstone": {"topic", "reason", "gap_from", "gap_to", "earliest_seq", "head_seq"},
        "record": {"topic", "from_seq", "to_seq", "head_seq", "records"},
        "caught_up": {"topic", "head_seq"},
        "topic_deleted": {"topic", "head_seq", "reason"},
    }


async def test_s9_a_position_above_the_head_reads_a_topic_from_its_beginning(site: Site) -> None:
    await site.api.write("a", 1, 2)
    async with talk(site) as client:
        await client.say("subscribe", topic="a", from_seq=9)
        told = await client.until("tombstone")
        assert (told["reason"], told["gap_from"], told["gap_to"]) == ("recreated", 1, 2)
        record = await client.hear()
        assert (record["op"], record["from_seq"], record["to_seq"]) == ("record", 0, 2)
        assert [each["$seq"] for each in record["records"]] == [1, 2]


async def test_s9_own_records_and_deletes_are_silent(site: Site) -> None:
    await site.api.write("a", 1)
    async with talk(site) as client:
        await client.ask("subscribe", topic="a", node="me")
        await client.until("caught_up")
        await site.api.write("a", 2, node="me")
        await site.api.call("POST", "/v0/topics/a/delete", {"before_seq": 3})
        await site.api.write("a", 3)
        message = await client.hear()
        assert (message["op"], [each["$seq"] for each in message["records"]]) == ("record", [3])


async def test_s9_a_deleted_topic_can_be_subscribed_to_again(site: Site) -> None:
    await site.api.write("a", 1)
    async with talk(site) as client:
        await client.ask("subscribe", topic="a")
        await site.api.call("DELETE", "/v0/topics/a")
        await client.until("topic_deleted")
        await site.api.write("a", "anew")
        await client.ask("subscribe", topic="a")
        record = await client.until("record")
        assert [each["data"] for each in record["records"]] == ["anew"]


async def test_s9_publishing_needs_a_topic_and_records_as_a_write_does(site: Site) -> None:
    async with talk(site) as client:
        for fields in (
            {"records": [{"data": 1}]},
            {"topic": "a"},
            {"topic": "a", "records": [{"tag": "x"}]},
            {"topic": "a", "records": [{"data": 1}], "create": "yes"},
            {"topic": "a", "records": [{"data": 1}], "config": {"type": "pile"}},
        ):
            assert (await client.ask("publish", **fields))["code"] == "invalid_request", fields
        assert site.api.catalog.find("a") is None


async def test_s9_a_publish_to_what_the_key_may_not_touch_creates_nothing(site: Site) -> None:
    site.caller = Caller(prefixes=("mine.",), key="k")
    async with talk(site) as client:
        assert (await client.ask("publish", **publish("theirs", 1)))["code"] == "forbidden"
        assert site.api.catalog.find("theirs") is None
        assert (await client.ask("publish", **publish("mine.a", 1)))["op"] == "ack"


async def test_s9_a_refused_upgrade_takes_no_slot(site: Site) -> None:
    site.api.topics.live.most = 1
    for _ in range(3):
        with pytest.raises(InvalidStatus):
            await connect(site.url(), additional_headers={"Origin": "http://evil.example"})
    assert site.api.topics.live.open == 0
    async with talk(site) as client:
        assert (await client.ask("ping"))["op"] == "pong"


async def test_s9_the_end_of_the_server_tells_a_socket_with_subscriptions_too(site: Site) -> None:
    await site.api.write("a", 1)
    async with talk(site) as client:
        await client.ask("subscribe", topic="a")
        await client.until("caught_up")
        stopping = asyncio.ensure_future(site.door.stop())
        message = await client.hear()
        assert (message["op"], message["code"]) == ("error", "server_shutting_down")
        assert set(message) == {"op", "request_id", "code", "message"}
        with pytest.raises(ConnectionClosed):
            await client.hear()
        await stopping
