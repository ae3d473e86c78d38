"""Event streams: frames in order, resumption, heartbeats, ends, and nothing that injects."""

import asyncio
import base64
from typing import Any

import msgspec
import pytest
from topics_api import Events

from millstream.http.request import Caller


def event_id(cursors: dict[str, int]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursors)).rstrip(b"=").decode()


async def tail(api: Any, target: str, **headers: str) -> Events:
    return Events(await api.send("GET", target, headers=headers))


async def watch(api: Any, topics: dict[str, Any], **fields: Any) -> str:
    status, answer = await api.call("POST", "/v0/watch", {"topics": topics, **fields})
    assert status == 200, answer
    return str(answer["stream_url"])


async def seqs(events: Events) -> list[int]:
    name, data = await events.named()
    assert name == "record", (name, data)
    return [record["$seq"] for record in data["records"]]


async def test_a_tail_starts_at_the_head_and_delivers_what_comes(api: Any) -> None:
    await api.write("t", "old")
    events = await tail(api, "/v0/topics/t/tail")
    assert await events.next() == {"retry": "2000"}
    assert await events.named() == ("caught-up", {"topic": "t", "head_seq": 1})
    await api.write("t", {"x": 1})
    fields = await events.next()
    ms = api.clock.time_ns() // 1_000_000
    assert fields == {
        "id": event_id({"t": 2}),
        "event": "record",
        "data": '{"topic":"t","from_seq":1,"head_seq":2,'
        f'"records":[{{"$seq":2,"$ts":{ms},"data":{{"x":1}}}}],"to_seq":2}}',
    }
    assert (await events.named())[0] == "caught-up"
    await events.close()


async def test_a_tail_from_a_sequence_sends_the_whole_backlog_in_one_frame(api: Any) -> None:
    await api.write("t", *range(5))
    events = await tail(api, "/v0/topics/t/tail?from_seq=2")
    assert await seqs(events) == [3, 4, 5]
    assert (await events.named())[0] == "caught-up"
    await events.close()


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("tag=eu:1", [1]),
        ("tag=eu:*", [1, 2]),
        ("tag=", [4]),
        ("node=n1", [2, 4]),
        ("node=", [1, 2, 3, 4]),
        ("subject=orders.*", [1, 3]),
        ("subject=t", [2, 4]),
        ("since=1500", [3, 4]),
        ("until=1500", [1, 2]),
        ("since=1000&until=2000", [1, 2]),
        ("tag=eu:*&node=n1", [2]),
        ("filter=%7B%22node%22:%22n1%22%7D", [1, 3]),
        ("filter=%7B%22tag%22:%22us%22,%22node%22:%22n1%22%7D&tag=eu:*", [1]),
        ("filter=%7B%7D", [1, 2, 3, 4]),
    ],
)
async def test_a_tail_filters_as_a_diff_does(api: Any, query: str, found: list[int]) -> None:
    await api.call("PUT", "/v0/topics/t", {"subjects": ["orders.>"]})
    first = [
        {"data": 1, "tag": "eu:1", "node": "n1", "subject": "orders.a"},
        {"data": 2, "tag": "eu:2"},
    ]
    second = [{"data": 3, "tag": "us", "node": "n1", "subject": "orders.b"}, {"data": 4}]
    api.clock.set_wall(1_000_000_000)
    await api.call("POST", "/v0/topics/t", {"records": first})
    api.clock.advance(1)
    await api.call("POST", "/v0/topics/t", {"records": second})
    events = await tail(api, f"/v0/topics/t/tail?from_seq=0&{query}")
    assert await seqs(events) == found
    assert await events.named() == ("caught-up", {"topic": "t", "head_seq": 4})
    await events.close()


async def test_a_tail_leaves_out_what_comes_later_too(api: Any) -> None:
    await api.write("t", 1)
    events = await tail(api, "/v0/topics/t/tail?tag=a*")
    assert (await events.named())[0] == "caught-up"
    for number, tag in enumerate(("b", "a1", "ab"), 2):
        body = {"records": [{"data": number, "tag": tag}]}
        assert (await api.call("POST", "/v0/topics/t", body))[0] == 200
        if tag != "b":
            assert await seqs(events) == [number]
            assert (await events.named())[0] == "caught-up"
    await events.close()


@pytest.mark.parametrize(
    "query",
    [
        "since=x", "since=-1", "until=1.5", "until=", "subject=", "subject=a..b", "subject=%3E.a",
        "subject=a%20b", "filter=x", "filter=[]", "filter=%7B%22tag%22:1%7D", "filter=",
        "filter=%7B%22subject%22:%22%22%7D",
    ],
)  # fmt: skip
async def test_a_filter_of_a_tail_that_is_none_is_400(api: Any, query: str) -> None:
    await api.write("t", 1)
    refused = await api.error("GET", f"/v0/topics/t/tail?{query}")
    assert refused == (400, "invalid_request")


async def test_a_tail_goes_on_after_the_last_event_that_the_client_saw(api: Any) -> None:
    await api.write("t", *range(5))
    events = await tail(api, "/v0/topics/t/tail", **{"last-event-id": event_id({"t": 3})})
    assert await seqs(events) == [4, 5]
    await events.close()
    target = "/v0/topics/t/tail?from_seq=1"
    events = await tail(api, target, **{"last-event-id": event_id({"t": 4})})
    assert await seqs(events) == [5]
    await events.close()
    events = await tail(api, target, **{"last-event-id": "%%%"})
    assert await seqs(events) == [2, 3, 4, 5]
    await events.close()


async def test_a_tail_begins_at_the_head_when_the_id_says_nothing_of_the_topic(api: Any) -> None:
    await api.write("t", 1, 2)
    for seen in (event_id({"t": 2**64}), event_id({"other": 1}), "%%%"):
        events = await tail(api, "/v0/topics/t/tail", **{"last-event-id": seen})
        assert (await events.named()) == ("caught-up", {"topic": "t", "head_seq": 2})
        await events.close()


@pytest.mark.parametrize("query", ["", "?from_seq=0"])
async def test_a_client_that_saw_more_than_there_is_reads_the_topic_made_anew(
    api: Any, query: str
) -> None:
    await api.write("t", 1, 2)
    seen = {"last-event-id": event_id({"t": 99})}
    events = await tail(api, f"/v0/topics/t/tail{query}", **seen)
    assert (await events.named())[0] == "tombstone"
    assert await seqs(events) == [1, 2]
    await events.close()


async def caught_up(events: Events) -> None:
    while (await events.named())[0] != "caught-up":
        pass


async def made_anew(api: Any, *data: object) -> None:
    await api.call("DELETE", "/v0/topics/t")
    await api.write("t", *data)


async def test_a_watcher_misses_nothing_of_a_topic_that_was_made_anew_behind_its_back(
    api: Any,
) -> None:
    await api.write("t", 1, 2)
    events = await tail(api, "/v0/topics/t/tail?from_seq=0")
    await caught_up(events)
    await made_anew(api, "a", "b", "c")
    name, told = await events.named()
    assert (name, told["reason"], told["head_seq"]) == ("tombstone", "recreated", 3)
    assert await seqs(events) == [1, 2, 3]
    await caught_up(events)
    await api.write("t", "d")
    assert await seqs(events) == [4]
    await events.close()


async def test_a_session_misses_nothing_of_a_topic_made_anew_between_two_connections(
    api: Any,
) -> None:
    await api.write("t", 1, 2)
    await api.write("u", 1)
    url = await watch(api, {"t": {}, "u": {}})
    events = await tail(api, url)
    await caught_up(events)
    await events.close()
    await made_anew(api, "a", "b", "c")
    events = await tail(api, url, **{"last-event-id": event_id({"t": 2, "u": 1})})
    name, told = await events.named()
    assert (name, told["topic"], told["reason"]) == ("tombstone", "t", "from_seq_too_old")
    assert await seqs(events) == [1, 2, 3]
    await caught_up(events)
    await events.close()


async def test_a_session_that_was_not_opened_yet_belongs_to_the_topic_that_it_was_made_for(
    api: Any,
) -> None:
    await api.write("t", 1, 2)
    url = await watch(api, {"t": {"tail": True}})
    await made_anew(api, "a", "b", "c")
    events = await tail(api, url)
    assert (await events.named())[0] == "tombstone"
    assert await seqs(events) == [1, 2, 3]
    await events.close()


async def test_who_has_read_nothing_yet_is_not_told_that_the_topic_was_made_anew(api: Any) -> None:
    await api.write("t", 1, 2)
    url = await watch(api, {"t": {}})
    await made_anew(api, "a")
    events = await tail(api, url)
    assert await seqs(events) == [1]
    await events.close()


async def test_refusals_of_a_tail(api: Any) -> None:
    assert await api.error("GET", "/v0/topics/no/tail") == (404, "topic_not_found")
    json = {"accept": "application/json"}
    assert await api.error("GET", "/v0/topics/no/tail", headers=json) == (406, "not_acceptable")
    await api.write("t", 1)
    assert await api.error("GET", "/v0/topics/t/tail?from_seq=x") == (400, "invalid_request")


async def test_the_connection_cap_is_exact_and_slots_come_back(api: Any) -> None:
    await api.write("t", 1)
    api.topics.live.most = 1
    events = await tail(api, "/v0/topics/t/tail")
    assert await api.error("GET", "/v0/topics/t/tail") == (429, "throttled")
    await events.close()
    await events.close()
    assert api.topics.sse_connections == 0
    await (await tail(api, "/v0/topics/t/tail")).close()


async def test_a_watch_shows_where_each_topic_stands(api: Any) -> None:
    await api.write("a", 1, 2)
    body = {"topics": {"a": {"tail": True}}, "from": "tail"}
    status, answer = await api.call("POST", "/v0/watch", body)
    assert status == 200
    assert answer["wid"].startswith("wid_")
    assert len(answer["wid"]) == 26
    assert answer["stream_url"] == "/v0/watch/" + answer["wid"]
    assert answer["session_ttl_ms"] == 300_000
    assert answer["topics"] == {"a": {"from_seq": 2, "head_seq": 2, "earliest_seq": 1}}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"topics": {}}, 400, "invalid_request"),
        ({"topics": {str(n): {} for n in range(257)}}, 400, "invalid_request"),
        ({}, 400, "invalid_request"),
        ({"topics": {"a": {"from_seq": -1}}}, 400, "invalid_request"),
        ({"topics": {"no": {}}}, 404, "topic_not_found"),
    ],
)
async def test_a_bad_watch_is_refused(api: Any, body: object, status: int, code: str) -> None:
    await api.write("a", 1)
    assert await api.error("POST", "/v0/watch", body) == (status, code)


async def test_a_lenient_watch_drops_unknown_topics(api: Any) -> None:
    await api.write("a", 1)
    body = {"topics": {"a": {}, "no": {}}}
    assert list((await api.call("POST", "/v0/watch?lenient=true", body))[1]["topics"]) == ["a"]


async def test_one_forbidden_name_refuses_the_whole_watch(api: Any) -> None:
    caller = Caller(prefixes=("a",))
    body = {"topics": {"a": {}, "b": {}}}
    assert await api.error("POST", "/v0/watch", body, caller=caller) == (403, "forbidden")


async def test_topics_are_drained_in_name_order_and_then_followed(api: Any) -> None:
    await api.write("b", 1)
    await api.write("a", 1, 2)
    events = await tail(api, await watch(api, {"b": {}, "a": {}}))
    names = [await events.named() for _ in range(4)]
    assert [(name, data["topic"]) for name, data in names] == [
        ("record", "a"),
        ("caught-up", "a"),
        ("record", "b"),
        ("caught-up", "b"),
    ]
    await api.write("b", 2)
    assert (await events.named())[1]["topic"] == "b"
    await events.close()


async def test_a_reconnect_goes_on_where_the_session_stands(api: Any) -> None:
    await api.write("jobs", 1, 2, 3)
    url = await watch(api, {"jobs": {}})
    events = await tail(api, url)
    assert await seqs(events) == [1, 2, 3]
    await events.close()
    events = await tail(api, url)
    assert (await events.named())[0] == "caught-up"
    await events.close()
    events = await tail(api, url, **{"last-event-id": event_id({"jobs": 1, "x": 9})})
    assert await seqs(events) == [2, 3]
    await events.close()
    events = await tail(api, url, **{"last-event-id": event_id({"jobs": 99})})
    assert (await events.named())[0] == "caught-up"
    await events.close()


async def test_a_connection_that_nobody_reads_any_more_takes_nothing_from_the_next_one(
    api: Any,
) -> None:
    await api.write("t", 1)
    await api.write("u", 1)
    url = await watch(api, {"t": {}, "u": {}})
    half_open, again = await tail(api, url), await tail(api, url)
    for events in (half_open, again):
        await caught_up(events)
        await caught_up(events)
    await api.write("t", 2)
    for events in (half_open, again):
        assert await seqs(events) == [2]
        await caught_up(events)
    await api.call("DELETE", "/v0/topics/u")
    for events in (half_open, again):
        assert (await events.named())[0] == "topic-deleted"
    await again.close()
    await api.write("t", 3)
    assert await seqs(half_open) == [3]
    third = await tail(api, url)
    assert await seqs(third) == [3]
    for events in (half_open, third):
        await events.close()


async def test_a_session_stays_while_any_of_its_connections_is_open(api: Any) -> None:
    await api.write("t", 1)
    url = await watch(api, {"t": {}})
    older, newer = await tail(api, url), await tail(api, url)
    await newer.close()
    api.clock.advance(301)
    again = await tail(api, url)
    for events in (older, again):
        await events.close()
    api.clock.advance(301)
    assert await api.error("GET", url) == (404, "not_found")


async def test_a_gap_is_reported_before_the_records_after_it(api: Any) -> None:
    await api.call("PUT", "/v0/topics/t", {"cap_records": 2})
    await api.write("t", 1, 2, 3, 4)
    events = await tail(api, await watch(api, {"t": {}}))
    assert await events.named() == (
        "tombstone",
        {
            "topic": "t",
            "reason": "from_seq_too_old",
            "gap_from": 1,
            "gap_to": 2,
            "earliest_seq": 3,
            "head_seq": 4,
        },
    )
    assert await seqs(events) == [3, 4]
    await events.close()


async def test_a_watcher_that_lost_everything_hears_that_it_has_caught_up_again(api: Any) -> None:
    await api.call("PUT", "/v0/topics/t", {"ttl_ms": 1000})
    events = await tail(api, "/v0/topics/t/tail")
    assert (await events.named())[0] == "caught-up"
    await api.write("t", 1)
    api.pass_time(2)
    name, lost = await events.named()
    assert (name, lost["reason"], lost["gap_to"]) == ("tombstone", "ttl", 1)
    assert (await events.named()) == ("caught-up", {"topic": "t", "head_seq": 1})
    await events.close()


async def test_a_later_gap_has_its_own_reason(api: Any) -> None:
    await api.call("PUT", "/v0/topics/t", {"cap_records": 2})
    await api.write("t", 1)
    events = await tail(api, await watch(api, {"t": {}}))
    assert await seqs(events) == [1]
    await api.write("t", 2, 3, 4, 5)
    await events.named()
    name, data = await events.named()
    assert (name, data["reason"], data["gap_from"], data["gap_to"]) == ("tombstone", "cap", 2, 3)
    await events.close()


async def test_the_end_of_the_last_topic_ends_the_stream(api: Any) -> None:
    await api.write("t", 1)
    events = await tail(api, await watch(api, {"t": {"tail": True}}))
    await events.named()
    await api.call("DELETE", "/v0/topics/t")
    assert await events.named() == (
        "topic-deleted",
        {"topic": "t", "head_seq": 0, "reason": "deleted"},
    )
    with pytest.raises(StopAsyncIteration):
        await events.next()
    await events.close()


async def test_shutdown_ends_an_idle_stream_with_a_reason(api: Any) -> None:
    await api.write("t", 1)
    events = await tail(api, "/v0/topics/t/tail")
    await events.named()
    waiting = asyncio.create_task(events.named())
    await asyncio.sleep(0.01)
    api.topics.stop()
    name, data = await waiting
    assert (name, data["code"]) == ("error", "server_shutting_down")
    with pytest.raises(StopAsyncIteration):
        await events.next()
    await events.close()


async def test_an_idle_stream_sends_heartbeats(api: Any) -> None:
    await api.write("t", 1)
    events = await tail(api, "/v0/topics/t/tail?heartbeat_ms=5")
    await events.named()
    for _ in range(2):
        assert (await events.next())["comment"].startswith(": hb ")
    await events.close()


async def test_own_records_are_silent_in_a_watch(api: Any) -> None:
    await api.write("t", 1, 2, node="me")
    events = await tail(api, await watch(api, {"t": {}}, node="me"))
    assert await events.named() == ("caught-up", {"topic": "t", "head_seq": 2})
    await events.close()


async def test_a_watch_can_leave_out_data(api: Any) -> None:
    body = {"records": [{"data": 1, "tag": "x", "meta": {"k": 1}}]}
    await api.call("POST", "/v0/topics/t", body)
    url = await watch(api, {"t": {}}, include_data=False, include_tags=True, include_meta=False)
    events = await tail(api, url)
    record = (await events.named())[1]["records"][0]
    assert set(record) == {"$seq", "$ts", "$tag"}
    await events.close()


async def test_sessions_are_capped_and_idle_ones_go(api: Any) -> None:
    await api.write("t", 1)
    api.topics.max_watch_sessions = 1
    url = await watch(api, {"t": {}})
    body = {"topics": {"t": {}}}
    status, answer = await api.call("POST", "/v0/watch", body)
    assert (status, answer["error"]["detail"]) == (429, {"limit": "max_watch_sessions", "max": 1})
    api.pass_time(300.001)
    assert await api.error("GET", url) == (404, "not_found")
    assert (await api.call("POST", "/v0/watch", body))[0] == 200


async def test_a_session_belongs_to_the_key_that_opened_it(api: Any) -> None:
    await api.write("t", 1)
    url = await watch(api, {"t": {}})
    assert await api.error("GET", url, caller=Caller(key="other")) == (401, "unauthorized")
    assert await api.error("GET", "/v0/watch/wid_nope") == (404, "not_found")


@pytest.mark.parametrize(
    "poison", ["a\nevent: forged", "a\r\n\r\ndata: x", "a\u2028b", "\x00", "a\rid: 5", "\u0085"]
)
async def test_no_text_in_a_record_can_forge_an_event(api: Any, poison: str) -> None:
    body = {
        "records": [
            {"data": {poison: poison}, "tag": poison, "node": poison, "meta": {"m": poison}}
        ]
    }
    await api.call("POST", "/v0/topics/t", body)
    events = await tail(api, "/v0/topics/t/tail?from_seq=0")
    await events.next()
    both = await anext(events.answer.chunks)
    assert both.count(b"\n") == 2 * 4
    assert b"\r" not in both
    chunk = both.split(b"\n\n")[0]
    data = msgspec.json.decode(chunk.split(b"\ndata: ")[1])
    assert data["records"][0]["data"] == {poison: poison}
    assert data["records"][0]["$tag"] == poison
    await events.close()
