"""Section 9 of the contract: the WebSocket, through a real socket and a client of another make."""

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest
from topics_socket import Site, publish, talk
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from millstream.clock import ManualClock
from millstream.http.door import HttpDoor
from millstream.http.request import Caller, Standing
from millstream.topics.watch.socket import PING_SECONDS, SILENCE_SECONDS


async def test_s9_subscribe_sends_the_backlog_then_what_comes(site: Site) -> None:
    await site.api.write("a", 1, 2)
    async with talk(site) as client:
        answer = await client.ask("subscribe", topic="a")
        assert answer == {
            "op": "subscribed",
            "request_id": 7,
            "topics": {"a": {"from_seq": 0, "head_seq": 2, "earliest_seq": 1}},
        }
        record = await client.until("record")
        assert [each["$seq"] for each in record.pop("records")] == [1, 2]
        assert record == {"op": "record", "topic": "a", "from_seq": 0, "to_seq": 2, "head_seq": 2}
        assert await client.hear() == {"op": "caught_up", "topic": "a", "head_seq": 2}
        await site.api.write("a", 3)
        live = await client.until("record")
        assert [each["data"] for each in live["records"]] == [3]


async def test_s9_topic_adds_to_topics_unless_already_there(site: Site) -> None:
    await site.api.write("a", 1, 2)
    await site.api.write("b", 1)
    async with talk(site) as client:
        answer = await client.ask(
            "subscribe", topic="a", from_seq=0, topics={"a": {"from_seq": 1}, "b": {"tail": True}}
        )
        assert {name: at["from_seq"] for name, at in answer["topics"].items()} == {"a": 1, "b": 1}


async def test_s9_defaults_show_data_and_meta_but_no_tags(site: Site) -> None:
    await site.api.write("a", 0)
    body = {"records": [{"data": 1, "tag": "t", "meta": {"m": 1}, "node": "n"}]}
    await site.api.call("POST", "/v0/topics/a", body)
    async with talk(site) as client:
        await client.say("subscribe", topic="a", from_seq=1)
        (record,) = (await client.until("record"))["records"]
        assert set(record) == {"$seq", "$ts", "$node", "data", "meta"}
        await client.say(
            "subscribe", topic="a", from_seq=1, include_tags=True, include_data=False,
            include_meta=False,
        )  # fmt: skip
        (record,) = (await client.until("record"))["records"]
        assert set(record) == {"$seq", "$ts", "$node", "$tag"}
        await client.say("subscribe", topic="a", from_seq=1, node="n")
        assert (await client.until("caught_up"))["head_seq"] == 2


async def test_s9_limit_cuts_the_backlog_into_frames(site: Site) -> None:
    await site.api.write("a", *range(5))
    async with talk(site) as client:
        await client.say("subscribe", topic="a", limit=2)
        frames = [await client.until("record") for _ in range(3)]
        assert [len(frame["records"]) for frame in frames] == [2, 2, 1]
        assert await client.hear() == {"op": "caught_up", "topic": "a", "head_seq": 5}


async def test_s9_publish_is_acked_with_every_field(site: Site) -> None:
    async with talk(site) as client:
        ack = await client.ask("publish", **publish("new", 1, 2))
        performance = ack.pop("performance")
        assert ack == {
            "op": "ack",
            "request_id": 7,
            "topic": "new",
            "first_seq": 1,
            "last_seq": 2,
            "seqs": [1, 2],
            "head_seq": 2,
            "count": 2,
            "created": True,
            "deduped": False,
        }
        assert performance["server_total_ms"] >= 0
        ack = await client.ask("publish", **publish("new", 3, return_seqs=False))
        assert ack["seqs"] is None
        assert ack["created"] is False


async def test_s9_publish_takes_the_fields_of_a_write(site: Site) -> None:
    async with talk(site) as client:
        missing = await client.ask("publish", **publish("gone", 1, create=False))
        assert (missing["op"], missing["code"]) == ("error", "topic_not_found")
        made = await client.ask("publish", **publish("kept", 1, config={"cap_records": 3}))
        assert made["created"] is True
        assert site.api.stream("kept").config.max_msgs == 3
        first = await client.ask("publish", **publish("kept", 2, idempotency_key="k", node="n"))
        again = await client.ask("publish", **publish("kept", 2, idempotency_key="k"))
        assert (first["deduped"], again["deduped"]) == (False, True)
        assert again["seqs"] == first["seqs"]
        page = await site.api.diff("kept", from_seq=1)
        assert [record.get("$node") for record in page["records"]] == ["n"]


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
async def test_s9_the_ack_comes_before_the_records_of_the_same_publish(
    site: Site, durability: str
) -> None:
    async with talk(site) as client:
        await client.ask("publish", **publish("a", 0, config={"durability": durability}))
        await client.ask("subscribe", topic="a", tail=True)
        await client.until("caught_up")
        for number in range(20):
            await client.say("publish", request_id=number, **publish("a", number))
        order = []
        while len(order) < 40:
            message = await client.hear()
            if message["op"] == "ack":
                order.append(("ack", message["first_seq"]))
            elif message["op"] == "record":
                order += [("record", each["$seq"]) for each in message["records"]]
        for seq in range(2, 22):
            assert order.index(("ack", seq)) < order.index(("record", seq))


async def test_s9_the_ack_comes_first_even_when_the_socket_is_about_to_look_for_records(
    site: Site,
) -> None:
    await site.api.write("a", 0)
    async with talk(site) as client:
        await client.ask("subscribe", topic="a", tail=True)
        await client.until("caught_up")
        commits = site.api.held = asyncio.Queue()
        await client.say("publish", request_id=1, **publish("a", 1))
        async with asyncio.timeout(5):
            commit = await commits.get()
        # Something else wakes the socket in the turn of the loop in which its write is committed:
        # it looks for records before the publish goes on.
        site.api.topics.audiences.of(site.api.stream("a")).tell_later()
        site.api.held = None
        commit()
        assert [(await client.hear())["op"] for _ in range(2)] == ["ack", "record"]


async def test_s9_nothing_but_the_ack_comes_after_unsubscribing(site: Site) -> None:
    await site.api.write("a", 1)
    await site.api.write("b", 1)
    async with talk(site) as client:
        await client.ask("subscribe", topics={"a": {}, "b": {}})
        for _ in range(2):
            await client.until("caught_up")
        answer = await client.ask("unsubscribe", topic="a", topics=["b", "never"])
        assert answer == {"op": "unsubscribed", "request_id": 7, "topics": ["b", "a"]}
        await client.say("publish", request_id=8, **publish("a", 2))
        assert (await client.hear())["op"] == "ack"
        await client.silence()


async def test_s9_ping_is_answered_as_message_and_as_frame(site: Site) -> None:
    async with talk(site) as client:
        assert await client.ask("ping") == {"op": "pong", "request_id": 7}
        async with asyncio.timeout(5):
            await (await client.connection.ping(b"there?"))


@pytest.mark.parametrize("request_id", [None, 0, "x", [1], {"a": {"b": None}}, 1.5, True])
async def test_s9_any_request_id_is_echoed(site: Site, request_id: object) -> None:
    async with talk(site) as client:
        await client.say("ping", request_id=request_id)
        assert await client.hear() == {"op": "pong", "request_id": request_id}


async def test_s9_an_absent_request_id_is_null(site: Site) -> None:
    async with talk(site) as client:
        await client.say("ping")
        assert await client.hear() == {"op": "pong", "request_id": None}


@pytest.mark.parametrize(
    ("text", "code", "request_id"),
    [
        ("{", "invalid_json", None),
        ("", "invalid_json", None),
        ("[]", "invalid_json", None),
        ('{"op":"dance","request_id":3}', "invalid_json", 3),
        ('{"request_id":3}', "invalid_json", 3),
        ('{"op":"publish","request_id":3}', "invalid_request", 3),
        ('{"op":"publish","topic":"a","records":[],"request_id":3}', "invalid_request", 3),
        ('{"op":"publish","topic":"no/name","records":[{"data":1}]}', "invalid_request", None),
        ('{"op":"subscribe","request_id":3}', "invalid_request", 3),
        ('{"op":"subscribe","topic":"a","from_seq":-1}', "invalid_request", None),
        ('{"op":"subscribe","topic":"missing"}', "topic_not_found", None),
        ('{"op":"unsubscribe"}', "invalid_request", None),
    ],
)
async def test_s9_an_error_keeps_the_socket_open(
    site: Site, text: str, code: str, request_id: object
) -> None:
    await site.api.write("a", 1)
    async with talk(site) as client:
        await client.connection.send(text)
        answer = await client.hear()
        assert (answer["op"], answer["code"], answer["request_id"]) == ("error", code, request_id)
        assert answer["message"]
        assert (await client.ask("ping"))["op"] == "pong"


async def test_s9_a_binary_message_is_unsupported(site: Site) -> None:
    async with talk(site) as client:
        await client.connection.send(b'{"op":"ping"}')
        assert (await client.hear())["code"] == "unsupported_message"
        assert (await client.ask("ping"))["op"] == "pong"


async def test_s9_a_lenient_subscription_drops_what_is_missing(site: Site) -> None:
    await site.api.write("a", 1)
    async with talk(site) as client:
        answer = await client.ask("subscribe", topics={"a": {}, "missing": {}}, lenient=True)
        assert list(answer["topics"]) == ["a"]


async def test_s9_a_loss_is_told_with_the_reason_of_the_log(site: Site) -> None:
    await site.api.call("PUT", "/v0/topics/a", {"cap_records": 3})
    await site.api.write("a", *range(5))
    async with talk(site) as client:
        await client.say("subscribe", topic="a")
        assert await client.until("tombstone") == {
            "op": "tombstone",
            "topic": "a",
            "reason": "cap",
            "gap_from": 1,
            "gap_to": 2,
            "earliest_seq": 3,
            "head_seq": 5,
        }
        record = await client.hear()
        assert [each["$seq"] for each in record["records"]] == [3, 4, 5]


async def test_s9_a_deleted_topic_is_told_and_the_rest_goes_on(site: Site) -> None:
    await site.api.write("a", 1)
    await site.api.write("b", 1)
    async with talk(site) as client:
        await client.ask("subscribe", topics={"a": {}, "b": {}})
        for _ in range(2):
            await client.until("caught_up")
        await site.api.call("DELETE", "/v0/topics/a")
        assert await client.until("topic_deleted") == {
            "op": "topic_deleted",
            "topic": "a",
            "head_seq": 0,
            "reason": "deleted",
        }
        await site.api.write("b", 2)
        assert (await client.until("record"))["topic"] == "b"


async def test_s9_shutdown_is_an_error_and_a_close(site: Site) -> None:
    async with talk(site) as client:
        await client.ask("ping")
        stopping = asyncio.ensure_future(site.door.stop())
        assert (await client.hear())["code"] == "server_shutting_down"
        with pytest.raises(ConnectionClosed) as closed:
            await client.hear()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
        async with asyncio.timeout(5):
            await stopping


async def test_s9_a_socket_counts_as_an_event_stream_and_its_slot_comes_back(site: Site) -> None:
    site.api.topics.live.most = 1
    async with talk(site) as client:
        await client.ask("ping")
        with pytest.raises(InvalidStatus) as refused:
            await connect(site.url())
        response = refused.value.response
        assert response.status_code == 429
        assert response.headers["Retry-After"] == "1"
        error = msgspec.json.decode(response.body)["error"]
        assert error["detail"] == {"limit": "max_sse_connections", "max": 1}
    async with asyncio.timeout(5):
        while site.api.topics.live.open:  # noqa: ASYNC110 - the server's end closes by itself
            await asyncio.sleep(0)
    async with talk(site) as client:
        await client.ask("ping")


@pytest.mark.parametrize(
    ("scopes", "op", "fields", "code"),
    [
        ("read", "publish", publish("mine", 1), "forbidden"),
        ("write", "subscribe", {"topic": "mine"}, "forbidden"),
        ("read+write", "subscribe", {"topic": "other"}, "forbidden"),
        ("read+write", "subscribe", {"topics": {"mine": {}, "other": {}}}, "forbidden"),
        ("read+write", "publish", publish("other", 1), "forbidden"),
        ("read+write", "publish", publish("mine", 1, config={}), "forbidden"),
        ("read+write+admin", "publish", publish("mine", 1, config={}), None),
        ("write", "publish", publish("mine", 1), None),
        ("read", "subscribe", {"topic": "mine"}, None),
    ],
)
async def test_s9_scopes_and_prefixes_are_checked_for_each_message(
    site: Site, scopes: str, op: str, fields: dict[str, Any], code: str | None
) -> None:
    await site.api.write("mine", 1)
    await site.api.write("other", 1)
    site.caller = Caller(prefixes=("mine",), key="k", scopes=frozenset(scopes.split("+")))
    async with talk(site) as client:
        answer = await client.ask(op, **fields)
        assert answer.get("code") == code, answer


async def test_s9_a_revoked_key_loses_its_socket(site: Site) -> None:
    standing = Standing()
    site.caller = Caller(key="k", standing=standing)
    await site.api.write("a", 1)
    async with talk(site) as client:
        await client.ask("subscribe", topic="a")
        standing.revoked = True
        site.api.topics.wake()
        assert (await client.until("error"))["code"] == "unauthorized"
        with pytest.raises(ConnectionClosed) as closed:
            await client.hear()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


async def test_s9_a_message_above_the_limit_ends_the_socket(site: Site) -> None:
    async with talk(site, compression=None) as client:
        await client.connection.send("x" * ((1 << 20) + 1))
        with pytest.raises(ConnectionClosed) as closed:
            await client.hear()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


async def test_s9_a_small_message_that_inflates_above_the_limit_ends_the_socket(
    site: Site,
) -> None:
    async with talk(site) as client:
        await client.connection.send("x" * ((1 << 20) + 1))  # about a kilobyte on the wire
        with pytest.raises(ConnectionClosed) as closed:
            await client.hear()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


async def test_s9_compressed_sockets_read_and_write_alike(site: Site) -> None:
    long = "long " * 1000
    async with talk(site) as packed, talk(site, compression=None) as plain:
        assert packed.connection.response is not None
        assert "Sec-WebSocket-Extensions" in packed.connection.response.headers
        await packed.ask("publish", **publish("a", long))
        for client in (packed, plain):
            await client.ask("subscribe", topic="a")
            assert (await client.until("record"))["records"][0]["data"] == long


async def test_s9_a_client_that_reads_nothing_costs_bounded_memory_and_nobody_else(
    site: Site,
) -> None:
    await site.api.write("a", 0)
    async with talk(site, compression=None) as slow, talk(site, compression=None) as quick:
        for client in (slow, quick):
            await client.ask("subscribe", topic="a", tail=True)
        slow.connection.transport.pause_reading()
        seen = 0
        for _ in range(150):
            await site.api.write("a", *["x" * 1000] * 100)  # 100 kB to each
        while seen < 15_000:
            seen += len((await quick.until("record"))["records"])
        assert site.door.stalled() == 1
        slow.connection.transport.resume_reading()
        seen = 0
        while seen < 15_000:
            seen += len((await slow.until("record"))["records"])


async def test_s9_a_flood_of_messages_is_answered_in_order(site: Site) -> None:
    async with talk(site) as client:
        for number in range(500):
            await client.say("ping", request_id=number)
        assert [(await client.hear())["request_id"] for _ in range(500)] == list(range(500))


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"Upgrade": None}, 400),
        ({"Connection": "close"}, 400),
        ({"Sec-WebSocket-Key": "short"}, 400),
        ({"Sec-WebSocket-Version": "12"}, 400),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://127.0.0.1"}, 101),
        ({}, 101),
    ],
)
async def test_s9_a_request_that_is_no_upgrade_or_comes_from_elsewhere_is_refused(
    site: Site, change: dict[str, str | None], status: int
) -> None:
    headers: dict[str, str | None] = {
        "Host": "127.0.0.1",
        "Upgrade": "websocket",
        "Connection": "keep-alive, Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        **change,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value)
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(f"GET /v0/ws HTTP/1.1\r\n{lines}\r\n".encode())
    async with asyncio.timeout(5):
        head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert (b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head) == (status == 101)


async def test_s9_frames_before_the_answer_are_refused(site: Site) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(
        b"GET /v0/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        b"\x89\x80abcd"
    )
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert site.api.topics.live.open == 0


async def test_s9_a_silent_client_is_asked_and_then_dropped(site: Site) -> None:
    clock = ManualClock()
    door = HttpDoor(asyncio.get_running_loop(), site.api.routes, clock)
    port = await door.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"GET /v0/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    async with asyncio.timeout(20):
        await reader.readuntil(b"\r\n\r\n")
        clock.advance(PING_SECONDS)
        door.sweep()
        assert await reader.readexactly(2) == b"\x89\x00"
        clock.advance(SILENCE_SECONDS - PING_SECONDS)
        door.sweep()
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
    writer.close()
    await door.stop()


async def test_s9_a_filter_leaves_records_out(site: Site) -> None:
    records = [{"data": n, "tag": "even" if n % 2 == 0 else "odd"} for n in range(6)]
    await site.api.call("POST", "/v0/topics/a", {"records": records})
    async with talk(site) as client:
        await client.say("subscribe", topic="a", filter={"tag": "odd"})
        record = await client.until("record")
        assert [each["data"] for each in record["records"]] == [1, 3, 5]
        assert record["to_seq"] == 6
