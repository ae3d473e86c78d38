"""Section 8 of the contract: the frames of a watch, with exact members, ids and order."""

import re
from typing import Any

import msgspec
import pytest
from test_topics_contract_08_watch import cursor, id_of, stream, watch
from topics_api import Api

from millstream.http.response import StreamedResponse

# -- POST ----------------------------------------------------------------------------------------


async def test_s8_the_answer_of_a_watch_has_exactly_these_members(api: Api) -> None:
    await api.call("PUT", "/v0/topics/a", {"cap_records": 2})
    await api.write("a", 1, 2, 3)
    status, answer = await api.call("POST", "/v0/watch", {"topics": {"a": {"from_seq": 1}}})
    assert isinstance(answer.pop("performance")["server_total_ms"], float)
    wid = answer["wid"]
    assert (status, answer) == (
        200,
        {
            "wid": wid,
            "stream_url": f"/v0/watch/{wid}",
            "session_ttl_ms": 300_000,
            "topics": {"a": {"from_seq": 1, "head_seq": 3, "earliest_seq": 2}},
        },
    )


async def test_s8_a_lenient_watch_is_one_of_the_topics_that_are_there(api: Api) -> None:
    await api.write("a", 1)
    body = {"topics": {"absent": {}, "a": {}}}
    status, answer = await api.call("POST", "/v0/watch?lenient=true", body)
    assert (status, list(answer["topics"])) == (200, ["a"])
    events = await stream(api, answer["wid"])
    name, _ = await events.named()
    fields = await events.next()
    assert (name, fields["event"], cursor(fields["id"])) == ("record", "caught-up", {"a": 1})
    await events.close()
    status, answer = await api.call("POST", "/v0/watch", body)
    assert (status, answer["error"]["detail"]["topic"]) == (404, "absent")


@pytest.mark.parametrize("is_held", [False, True])
async def test_s8_making_a_watch_removes_those_that_nobody_reads_any_more(
    api: Api, is_held: bool
) -> None:
    await api.write("a", 1)
    api.topics.max_watch_sessions = 1
    events = await stream(api, (await watch(api, {"a": {}}))["wid"])
    await events.named()
    if not is_held:
        await events.close()
    body = {"topics": {"a": {}}}
    api.clock.advance(300.0)
    assert (await api.send("POST", "/v0/watch", body)).status == 429
    api.clock.advance(0.001)
    assert (await api.send("POST", "/v0/watch", body)).status == (429 if is_held else 200)
    await events.close()


# -- the stream ------------------------------------------------------------------------------------


async def test_s8_a_stream_is_these_bytes(api: Api) -> None:
    await api.write("a", {"x": [1, 2]}, node="n")
    opened = await watch(api, {"a": {}})
    answer = await api.send("GET", opened["stream_url"])
    assert isinstance(answer, StreamedResponse)
    assert await anext(answer.chunks) == b"retry: 2000\n\n"
    now, event_id = api.topics.now_ms(), id_of({"a": 1}).encode()
    assert b"=" not in event_id
    assert await anext(answer.chunks) == (
        b'id: %b\nevent: record\ndata: {"topic":"a","from_seq":0,"head_seq":1,"records":['
        b'{"$seq":1,"$ts":%d,"$node":"n","data":{"x":[1,2]}}],"to_seq":1}\n\n'
        b'id: %b\nevent: caught-up\ndata: {"topic":"a","head_seq":1}\n\n'
    ) % (event_id, now, event_id)
    await answer.chunks.aclose()  # type: ignore[attr-defined]


async def test_s8_an_id_is_url_safe_without_padding_and_names_every_topic(api: Api) -> None:
    names = ["a", "b:-", "c" * 40]
    for name in names:
        await api.write(name, 1)
    events = await stream(api, (await watch(api, {name: {} for name in names}))["wid"])
    for _ in range(2 * len(names)):
        fields = await events.next()
        if "id" in fields:
            assert re.fullmatch(r"[A-Za-z0-9_-]+", fields["id"])
            assert set(cursor(fields["id"])) == set(names)
    await events.close()


async def test_s8_a_record_frame_says_where_the_reader_was_and_where_it_is(api: Api) -> None:
    records = [{"data": n, "node": "me" if n in (3, 5) else "you"} for n in range(1, 6)]
    await api.call("POST", "/v0/topics/a", {"records": records})
    events = await stream(api, (await watch(api, {"a": {"from_seq": 1}}, node="me"))["wid"])
    _, data = await events.named()
    assert (data["from_seq"], data["to_seq"], data["head_seq"]) == (1, 5, 5)
    assert [record["data"] for record in data["records"]] == [2, 4]
    await events.close()


async def test_s8_records_of_the_watchers_own_node_bring_neither_a_frame_nor_caught_up(
    api: Api,
) -> None:
    await api.write("a", 1)
    opened = await watch(api, {"a": {}}, node="me")
    events = await stream(api, opened["wid"])
    assert [(await events.named())[0] for _ in range(2)] == ["record", "caught-up"]
    await api.write("a", 2, node="me")
    await api.write("a", 3, node="you")
    name, data = await events.named()
    assert (name, [record["$seq"] for record in data["records"]]) == ("record", [3])
    assert data["to_seq"] == 3
    await events.close()


@pytest.mark.parametrize("config", [{}, {"ttl_ms": 60_000}, {"cap_records": 9}])
async def test_s8_caught_up_is_not_said_again_while_nothing_has_come(
    api: Api, config: dict[str, int]
) -> None:
    await api.call("PUT", "/v0/topics/a", config)
    await api.write("a", 1)
    await api.write("b", 1)
    events = await stream(api, (await watch(api, {"a": {}, "b": {}}))["wid"])
    assert [(await events.named())[0] for _ in range(4)] == ["record", "caught-up"] * 2
    for number in range(3):
        await api.write("b", number)
        found = [await events.named() for _ in range(2)]
        assert [(name, data["topic"]) for name, data in found] == [
            ("record", "b"), ("caught-up", "b"),
        ]  # fmt: skip
    await events.close()


async def test_s8_a_loss_later_in_a_connection_has_the_reason_of_the_log(api: Api) -> None:
    await api.call("PUT", "/v0/topics/a", {"cap_records": 1})
    await api.write("a", 1)
    events = await stream(api, (await watch(api, {"a": {}}))["wid"])
    assert [(await events.named())[0] for _ in range(2)] == ["record", "caught-up"]
    await api.write("a", 2, 3, 4)
    fields = await events.next()
    assert fields["event"] == "tombstone"
    assert msgspec.json.decode(fields["data"]) == {
        "topic": "a", "reason": "cap", "gap_from": 2, "gap_to": 3, "earliest_seq": 4,
        "head_seq": 4,
    }  # fmt: skip
    assert cursor(fields["id"]) == {"a": 3}
    name, data = await events.named()
    assert (name, data["from_seq"], [r["$seq"] for r in data["records"]]) == ("record", 3, [4])
    assert (await events.named())[0] == "caught-up"
    await events.close()


async def test_s8_every_connection_has_a_first_read_of_its_own(api: Api) -> None:
    await api.call("PUT", "/v0/topics/a", {"cap_records": 1})
    await api.write("a", 1)
    opened = await watch(api, {"a": {}})
    events = await stream(api, opened["wid"])
    await events.named()
    await events.close()
    await api.write("a", 2, 3)
    events = await stream(api, opened["wid"])
    name, data = await events.named()
    assert (name, data["reason"]) == ("tombstone", "from_seq_too_old")
    await events.close()


async def test_s8_a_reader_of_a_topic_made_anew_is_sent_all_of_it_and_loses_nothing(
    api: Api,
) -> None:
    await api.write("a", 1, 2, 3)
    opened = await watch(api, {"a": {"from_seq": 9}})
    events = await stream(api, opened["wid"])
    await events.next()
    told, record = await events.next(), await events.next()
    assert msgspec.json.decode(told["data"])["gap_to"] == 3
    data = msgspec.json.decode(record["data"])
    assert (data["from_seq"], data["to_seq"], len(data["records"])) == (0, 3, 3)
    await events.close()
    # A client that was cut off between the two frames comes back with the id of the first.
    events = await stream(api, opened["wid"], **{"last-event-id": told["id"]})
    name, data = await events.named()
    assert (name, [record["$seq"] for record in data["records"]]) == ("record", [1, 2, 3])
    await events.close()


async def test_s8_a_tombstone_comes_before_records_before_caught_up(api: Api) -> None:
    await api.call("PUT", "/v0/topics/a", {"cap_records": 2})
    await api.write("a", 1, 2, 3, 4)
    await api.write("b", 1)
    events = await stream(api, (await watch(api, {"b": {}, "a": {}}, limit=1))["wid"])
    found = [await events.named() for _ in range(6)]
    assert [(name, data["topic"]) for name, data in found] == [
        ("tombstone", "a"), ("record", "a"), ("record", "a"), ("caught-up", "a"),
        ("record", "b"), ("caught-up", "b"),
    ]  # fmt: skip
    await events.close()


async def test_s8_the_end_of_a_topic_has_an_id_too_and_is_told_once(api: Api) -> None:
    await api.write("a", 1)
    await api.write("b", 1, 2)
    opened = await watch(api, {"a": {}, "b": {}})
    events = await stream(api, opened["wid"])
    for _ in range(4):
        await events.named()
    await api.call("DELETE", "/v0/topics/a")
    fields = await events.next()
    assert fields["event"] == "topic-deleted"
    assert cursor(fields["id"]) == {"a": 1, "b": 2}
    await api.write("a", "made anew")  # which is no topic of this watch
    await api.write("b", 3)
    name, data = await events.named()
    assert (name, data["topic"]) == ("record", "b")
    await events.close()


async def test_s8_the_end_of_the_server_is_an_error_with_an_id_a_code_and_a_message(
    api: Api,
) -> None:
    await api.write("a", 1)
    events = await stream(api, (await watch(api, {"a": {"tail": True}}))["wid"])
    await events.named()
    api.topics.stop()
    fields = await events.next()
    data = msgspec.json.decode(fields["data"])
    assert (fields["event"], cursor(fields["id"])) == ("error", {"a": 1})
    assert set(data) == {"code", "message"}
    assert data["code"] == "server_shutting_down"
    assert data["message"]
    with pytest.raises(StopAsyncIteration):
        await events.next()
    await events.close()


@pytest.mark.parametrize(
    ("stored", "given", "first"),
    [({"a": 3, "b": 3}, {"a": 1}, ("a", [2, 3])), ({"a": 3, "b": 3}, {"b": 2, "x": 0}, ("b", [3]))],
)
async def test_s8_an_id_lowers_only_the_topics_that_it_names(
    api: Api, stored: dict[str, int], given: dict[str, int], first: tuple[str, list[int]]
) -> None:
    for name in stored:
        await api.write(name, 1, 2, 3)
    opened = await watch(api, {name: {"from_seq": seq} for name, seq in stored.items()})
    events = await stream(api, opened["wid"], **{"last-event-id": id_of(given)})
    found = [await events.named() for _ in range(3)]
    records = [
        (data["topic"], [r["$seq"] for r in data["records"]])
        for name, data in found
        if name == "record"
    ]
    assert records == [first]
    await events.close()


@pytest.mark.parametrize(
    "last_id",
    ["", "!", "eyJhIjotMX0", "W10", "eyJhIjoieCJ9", "bm9qc29u", id_of({"a": 99})],
)
async def test_s8_an_id_that_says_nothing_useful_is_ignored(api: Api, last_id: str) -> None:
    await api.write("a", 1, 2)
    opened = await watch(api, {"a": {"from_seq": 1}})
    events = await stream(api, opened["wid"], **{"last-event-id": last_id})
    _, data = await events.named()
    assert [record["$seq"] for record in data["records"]] == [2]
    await events.close()


@pytest.mark.parametrize("accept", ["text/html", "application/json", "text/*", "image/png, a/b"])
async def test_s8_a_client_that_accepts_no_events_is_refused(api: Api, accept: str) -> None:
    await api.write("a", 1)
    opened = await watch(api, {"a": {}})
    found = await api.error("GET", opened["stream_url"], headers={"accept": accept})
    assert found == (406, "not_acceptable")


async def test_s8_an_empty_watch_and_one_of_too_many_topics_are_400(api: Api) -> None:
    for topics in ({}, {f"t{n}": {} for n in range(257)}):
        body: dict[str, Any] = {"topics": topics}
        assert await api.error("POST", "/v0/watch", body) == (400, "invalid_request")
