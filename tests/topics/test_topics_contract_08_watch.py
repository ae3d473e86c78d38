"""Section 8 of the contract: watches and their event streams."""

import base64
from typing import Any

import msgspec
import pytest
from topics_api import Api, Events

from millstream.http.response import StreamedResponse
from millstream.topics.watch.event_stream import heartbeat


async def watch(api: Api, topics: dict[str, Any], **more: Any) -> Any:
    status, answer = await api.call("POST", "/v0/watch", {"topics": topics, **more})
    assert status == 200, answer
    return answer


async def stream(api: Api, wid: str, **headers: str) -> Events:
    return Events(await api.send("GET", f"/v0/watch/{wid}", headers=headers))


def cursor(event_id: str) -> dict[str, int]:
    decoded: dict[str, int] = msgspec.json.decode(base64.urlsafe_b64decode(event_id + "==="))
    return decoded


def id_of(positions: dict[str, int]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(positions)).rstrip(b"=").decode()


async def test_s8_a_watch_is_answered_with_where_each_topic_stands(api: Api) -> None:
    await api.write("a", 1, 2)
    answer = await watch(api, {"a": {"tail": True}})
    assert answer["wid"].startswith("wid_")
    assert len(answer["wid"]) == 26
    assert answer["stream_url"] == f"/v0/watch/{answer['wid']}"
    assert answer["session_ttl_ms"] == 300_000
    assert answer["topics"] == {"a": {"from_seq": 2, "head_seq": 2, "earliest_seq": 1}}


async def test_s8_headers_and_the_first_frames(api: Api) -> None:
    await api.write("a", *range(300))
    opened = await watch(api, {"a": {}}, limit=1000)
    answer = await api.send("GET", opened["stream_url"], headers={"accept": "text/event-stream"})
    assert isinstance(answer, StreamedResponse)
    assert answer.content_type.startswith(b"text/event-stream")
    assert (b"Cache-Control", b"no-store") in answer.headers
    assert (b"X-Accel-Buffering", b"no") in answer.headers
    events = Events(answer)
    assert await events.next() == {"retry": "2000"}
    record = await events.next()
    assert record["event"] == "record"
    data = msgspec.json.decode(record["data"])
    assert list(data) == ["topic", "from_seq", "head_seq", "records", "to_seq"]
    assert (data["from_seq"], data["to_seq"], len(data["records"])) == (0, 300, 300)
    assert cursor(record["id"]) == {"a": 300}
    assert (await events.named())[0] == "caught-up"
    await api.write("a", "live")
    name, live = await events.named()
    assert (name, live["records"][0]["data"]) == ("record", "live")
    await events.close()


@pytest.mark.parametrize(
    ("accept", "status"),
    [("", 200), ("text/event-stream", 200), ("*/*", 200), ("a/b, text/event-stream;q=1", 200),
     ("application/json", 406)],
)  # fmt: skip
async def test_s8_what_the_client_must_accept(api: Api, accept: str, status: int) -> None:
    await api.write("a", 1)
    opened = await watch(api, {"a": {}})
    answer = await api.send("GET", opened["stream_url"], headers={"accept": accept})
    assert answer.status == status
    if isinstance(answer, StreamedResponse):
        await Events(answer).close()


async def test_s8_ids_name_all_topics_and_caught_up_comes_once_a_connection(api: Api) -> None:
    await api.write("b", 1)
    await api.write("a", 1)
    opened = await watch(api, {"b": {}, "a": {"tail": True}})
    for _ in range(2):
        events = await stream(api, opened["wid"])
        seen = []
        while len(seen) < 2:
            fields = await events.next()
            if fields.get("event") == "caught-up":
                seen.append(msgspec.json.decode(fields["data"])["topic"])
                assert set(cursor(fields["id"])) == {"a", "b"}
        assert seen == ["a", "b"]
        await events.close()


@pytest.mark.parametrize(
    ("seen", "again"), [({"jobs": 1}, [2, 3]), ({"jobs": 3}, []), ({"other": 0}, []), (None, [])]
)
async def test_s8_last_event_id_only_steps_back(
    api: Api, seen: dict[str, int] | None, again: list[int]
) -> None:
    await api.write("jobs", 1, 2, 3)
    opened = await watch(api, {"jobs": {}})
    events = await stream(api, opened["wid"])
    await events.named()
    await events.close()
    last = "garbage!" if seen is None else id_of(seen)
    events = await stream(api, opened["wid"], **{"last-event-id": last})
    name, data = await events.named()
    if again:
        assert [record["$seq"] for record in data["records"]] == again
    else:
        assert name == "caught-up"
    await events.close()


async def test_s8_a_tombstone_frame(api: Api) -> None:
    await api.call("PUT", "/v0/topics/a", {"cap_records": 1})
    await api.write("a", 1, 2, 3)
    events = await stream(api, (await watch(api, {"a": {}}))["wid"])
    await events.next()
    fields = await events.next()
    assert fields["event"] == "tombstone"
    assert msgspec.json.decode(fields["data"]) == {
        "topic": "a",
        "reason": "from_seq_too_old",
        "gap_from": 1,
        "gap_to": 2,
        "earliest_seq": 3,
        "head_seq": 3,
    }
    assert cursor(fields["id"]) == {"a": 2}
    await events.close()


async def test_s8_a_deleted_topic_ends_and_the_last_one_ends_the_stream(api: Api) -> None:
    await api.write("a", 1)
    await api.write("b", 1)
    events = await stream(api, (await watch(api, {"a": {}, "b": {}}))["wid"])
    for _ in range(4):
        await events.named()
    await api.call("DELETE", "/v0/topics/a")
    assert await events.named() == (
        "topic-deleted",
        {"topic": "a", "head_seq": 0, "reason": "deleted"},
    )
    await api.call("DELETE", "/v0/topics/b")
    assert (await events.named())[1]["topic"] == "b"
    with pytest.raises(StopAsyncIteration):
        await events.next()
    await events.close()


@pytest.mark.parametrize(
    ("body", "query", "status"),
    [
        ({"topics": {}}, "", 400),
        ({"topics": {"absent": {}}}, "", 404),
        ({"topics": {"absent": {}, "a": {}}}, "?lenient=true", 200),
        ({"topics": {"a": {"from_seq": -1}}}, "", 400),
    ],
)
async def test_s8_refusals(api: Api, body: object, query: str, status: int) -> None:
    await api.write("a", 1)
    assert (await api.call("POST", f"/v0/watch{query}", body))[0] == status


async def test_s8_a_filter_leaves_records_out_and_moves_the_cursor(api: Api) -> None:
    records = [{"data": n, "tag": "even" if n % 2 == 0 else "odd"} for n in range(6)]
    await api.call("POST", "/v0/topics/a", {"records": records})
    opened = await watch(api, {"a": {}}, filter={"tag": "ev*"})
    events = await stream(api, opened["wid"])
    _, data = await events.named()
    assert [record["data"] for record in data["records"]] == [0, 2, 4]
    assert data["to_seq"] == 6
    assert (await events.named())[0] == "caught-up"
    await events.close()


async def test_s8_topics_come_in_the_order_of_their_names_each_drained_first(api: Api) -> None:
    for name in ("b", "a", "c"):
        await api.write(name, 1, 2, 3)
    opened = await watch(api, {"c": {}, "a": {}, "b": {}}, limit=2)
    events = await stream(api, opened["wid"])
    found = [await events.named() for _ in range(9)]
    assert [(name, data["topic"]) for name, data in found] == [
        (name, topic) for topic in "abc" for name in ("record", "record", "caught-up")
    ]
    await events.close()


async def test_s8_a_reconnect_goes_on_after_what_was_sent(api: Api) -> None:
    await api.write("a", 1, 2)
    opened = await watch(api, {"a": {}})
    events = await stream(api, opened["wid"])
    await events.named()
    await events.close()
    await api.write("a", 3)
    events = await stream(api, opened["wid"])
    _, data = await events.named()
    assert [record["$seq"] for record in data["records"]] == [3]
    await events.close()


async def test_s8_a_watcher_that_owns_every_record_hears_only_that_it_has_caught_up(
    api: Api,
) -> None:
    body = {"records": [{"data": 1}, {"data": 2}], "node": "me"}
    await api.call("POST", "/v0/topics/a", body)
    opened = await watch(api, {"a": {}}, node="me")
    events = await stream(api, opened["wid"])
    name, data = await events.named()
    assert (name, data) == ("caught-up", {"topic": "a", "head_seq": 2})
    await events.close()


async def test_s8_deleted_records_are_silent_in_the_stream(api: Api) -> None:
    await api.write("a", 1, 2, 3)
    await api.call("POST", "/v0/topics/a/delete", {"before_seq": 3})
    events = await stream(api, (await watch(api, {"a": {}}))["wid"])
    name, data = await events.named()
    assert (name, [record["$seq"] for record in data["records"]]) == ("record", [3])
    await events.close()


async def test_s8_a_heartbeat_is_a_comment_without_an_id(api: Api) -> None:
    await api.write("a", 1)
    opened = await watch(api, {"a": {"tail": True}}, heartbeat_ms=1)
    events = await stream(api, opened["wid"])
    assert (await events.named())[0] == "caught-up"
    assert await events.next() == {"comment": f": hb {api.topics.now_ms()}"}
    await events.close()


@pytest.mark.parametrize(
    ("asked", "given"), [(None, 15_000), (0, 1000), (999, 1000), (20_000, 20_000), (99_999, 60_000)]
)
async def test_s8_the_heartbeat_is_clamped(api: Api, asked: int | None, given: int) -> None:
    api.topics.shortest_heartbeat_ms = 1000
    assert heartbeat(api.topics, asked) == given


async def test_s8_shutdown_is_a_last_frame_and_the_end(api: Api) -> None:
    await api.write("a", 1)
    events = await stream(api, (await watch(api, {"a": {"tail": True}}))["wid"])
    await events.named()
    api.topics.stop()
    name, data = await events.named()
    assert (name, data["code"]) == ("error", "server_shutting_down")
    with pytest.raises(StopAsyncIteration):
        await events.next()
    await events.close()


async def test_s8_a_session_that_nobody_reads_goes_after_its_time(api: Api) -> None:
    await api.write("a", 1)
    idle, held = [(await watch(api, {"a": {}}))["wid"] for _ in range(2)]
    events = await stream(api, held)
    await events.named()
    api.clock.advance(300.001)
    assert await api.error("GET", f"/v0/watch/{idle}") == (404, "not_found")
    await events.close()
    await (await stream(api, held)).close()
