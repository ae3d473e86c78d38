"""Diff: cursors, filters, budgets, tombstones and long polls."""

import asyncio
from typing import Any, Self

import msgspec
import pytest
from topics_api import Events

from millstream.http.request import Caller
from millstream.kernel._batch import Batch
from millstream.message import NewRecord
from millstream.store.log.log import Gap
from millstream.streams.config.config import StreamConfig
from millstream.streams.state import StreamState
from millstream.topics.page.page import MOST_PASSED_OVER
from millstream.topics.page.tombstone import start_reading
from support.waiting import eventually


def data(page: Any) -> list[object]:
    return [record["data"] for record in page["records"]]


async def test_an_empty_diff_reads_from_the_start(api: Any) -> None:
    await api.write("t", "a", "b")
    status, page = await api.call("POST", "/v0/topics/t/diff")
    performance = page.pop("performance")
    ms = api.clock.time_ns() // 1_000_000
    assert status == 200
    assert page == {
        "topic": "t",
        "records": [{"$seq": 1, "$ts": ms, "data": "a"}, {"$seq": 2, "$ts": ms, "data": "b"}],
        "next_from_seq": 2,
        "head_seq": 2,
        "earliest_seq": 1,
        "caught_up": True,
        "tombstone": None,
        "lag": 0,
    }
    assert performance["records_scanned"] == 2


async def test_a_limit_leaves_the_rest_for_the_next_read(api: Any) -> None:
    await api.write("t", *range(5))
    page = await api.diff("t", limit=2)
    assert (data(page), page["next_from_seq"], page["caught_up"], page["lag"]) == (
        [0, 1],
        2,
        False,
        3,
    )
    page = await api.diff("t", from_seq=2)
    assert (data(page), page["caught_up"]) == ([2, 3, 4], True)
    assert (await api.diff("t", from_seq=5))["next_from_seq"] == 5


@pytest.mark.parametrize(("limit", "count"), [(0, 256), (None, 256), (5000, 1000), (1, 1)])
async def test_the_limit_is_clamped(api: Any, limit: int | None, count: int) -> None:
    await api.write("t", *range(1200))
    assert len((await api.diff("t", limit=limit))["records"]) == count


@pytest.mark.parametrize(
    "body",
    [
        {"from_seq": -1},
        {"from_seq": "1"},
        {"from_seq": 2**64},
        {"limit": 2**32},
        {"limit": 1.5},
        {"wait_ms": -1},
        {"node": 5},
        {"include_tags": "yes"},
        {"filter": 5},
        [],
    ],
)
async def test_a_bad_field_is_refused(api: Any, body: object) -> None:
    await api.write("t", 1)
    assert await api.error("POST", "/v0/topics/t/diff", body) == (400, "invalid_request")


async def test_a_bad_body_is_refused_before_a_missing_topic(api: Any) -> None:
    assert (await api.error("POST", "/v0/topics/no/diff", b"{"))[0] == 400
    assert await api.error("POST", "/v0/topics/no/diff", {}) == (404, "topic_not_found")
    text = {"content-type": "text/plain"}
    assert (await api.error("POST", "/v0/topics/no/diff", b"{}", headers=text))[0] == 415


async def test_records_of_the_readers_own_nodes_are_passed_over_in_silence(api: Any) -> None:
    for node in ("a", "b", "a", "c", "a"):
        await api.write("t", node, node=node)
    page = await api.diff("t", node="a")
    assert (data(page), page["next_from_seq"], page["caught_up"]) == (["b", "c"], 5, True)
    page = await api.diff("t", node=["a", "b"], limit=1)
    assert (data(page), page["next_from_seq"]) == (["c"], 4)
    await api.call("PUT", "/v0/topics/t", {"dedupe_node": False})
    assert len(data(await api.diff("t", node="a"))) == 5


async def test_filters_narrow_what_is_read(api: Any) -> None:
    config = StreamConfig.from_request({"name": "S", "subjects": ["s.>"]})
    await api.catalog.create(config)
    start = api.clock.time_ns() // 1_000_000
    for n, (tag, node, subject) in enumerate(
        [("x:1", "a", "s.1"), ("x:2", "b", "s.2"), ("y", "a", "s.2"), ("", "", "s.3.4")]
    ):
        record = {"data": n, "tag": tag, "node": node, "subject": subject}
        await api.call("POST", "/v0/topics/S", {"records": [record]})
        api.pass_time(1)
    for wish, found in (
        ({"tag": "x:1"}, [0]),
        ({"tag": "x:*"}, [0, 1]),
        ({"node": "a"}, [0, 2]),
        ({"subject": "s.2"}, [1, 2]),
        ({"subject": "s.*"}, [0, 1, 2]),
        ({"subject": "s.>", "tag": "y"}, [2]),
        ({"since": start + 1000}, [1, 2, 3]),
        ({"until": start + 1000}, [0]),
        ({}, [0, 1, 2, 3]),
    ):
        page = await api.diff("S", filter=wish)
        assert (data(page), page["next_from_seq"]) == (found, 4), wish


async def test_tags_are_shown_on_request_and_meta_unless_refused(api: Any) -> None:
    body = {"records": [{"data": 1, "tag": "t", "meta": {"k": "v"}}]}
    await api.call("POST", "/v0/topics/t", body)
    record = (await api.diff("t"))["records"][0]
    assert ("$tag" in record, record["meta"]) == (False, {"k": "v"})
    record = (await api.diff("t", include_tags=True, include_meta=False))["records"][0]
    assert (record["$tag"], "meta" in record) == ("t", False)


async def test_a_byte_budget_ends_a_page_but_one_record_always_comes(api: Any) -> None:
    await api.write("t", "x" * 100, "y" * 100, "z" * 10)
    page = await api.diff("t", max_batch_bytes=1)
    assert (len(page["records"]), page["next_from_seq"]) == (1, 1)
    page = await api.diff("t", max_batch_bytes=204)
    assert (len(page["records"]), page["next_from_seq"]) == (2, 2)
    big = ["b" * 700_000] * 3
    await api.write("u", *big)
    assert len((await api.diff("u"))["records"]) == 1
    assert len((await api.diff("u", max_batch_bytes=2**40))["records"]) == 3


async def test_one_record_above_the_byte_budget_comes_to_who_passes_over_others_too(
    api: Any,
) -> None:
    body = {"records": [{"data": "x" * 100, "tag": tag} for tag in ("a", "b", "b")]}
    await api.call("POST", "/v0/topics/t", body)
    page = await api.diff("t", max_batch_bytes=1, filter={"tag": "b"})
    assert (len(page["records"]), page["next_from_seq"]) == (1, 2)


async def test_a_cap_leaves_a_tombstone(api: Any) -> None:
    await api.call("PUT", "/v0/topics/t", {"cap_records": 3})
    for n in range(1, 6):
        await api.write("t", n)
    page = await api.diff("t")
    assert page["tombstone"] == {
        "gap_from": 1,
        "gap_to": 2,
        "reason": "cap",
        "missed_estimate": 2,
        "earliest_seq": 3,
        "head_seq": 5,
    }
    assert (data(page), page["earliest_seq"], page["caught_up"]) == ([3, 4, 5], 3, True)
    assert (await api.diff("t", from_seq=2))["tombstone"] is None
    assert (await api.diff("t", from_seq=1))["tombstone"]["gap_from"] == 2


async def test_time_to_live_leaves_a_tombstone(api: Any) -> None:
    await api.call("PUT", "/v0/topics/t", {"ttl_ms": 150})
    await api.write("t", 1, 2, 3)
    api.pass_time(0.2)
    await api.write("t", 4)
    page = await api.diff("t")
    tombstone = page["tombstone"]
    assert (tombstone["gap_from"], tombstone["gap_to"], tombstone["reason"]) == (1, 3, "ttl")
    assert (data(page), page["earliest_seq"]) == ([4], 4)


async def test_expired_records_are_not_shown_even_before_they_are_trimmed(api: Any) -> None:
    await api.call("PUT", "/v0/topics/t", {"ttl_ms": 150})
    await api.write("t", 1)
    api.clock.advance(0.15)
    assert data(await api.diff("t")) == [1]
    api.clock.advance(0.001)
    page = await api.diff("t")
    assert (data(page), page["next_from_seq"]) == ([], 1)


async def test_a_position_above_the_head_means_a_recreated_topic(api: Any) -> None:
    await api.write("t", "a", "b")
    page = await api.diff("t", from_seq=9)
    assert page["tombstone"] == {
        "gap_from": 1,
        "gap_to": 2,
        "reason": "recreated",
        "missed_estimate": 2,
        "earliest_seq": 1,
        "head_seq": 2,
    }
    assert data(page) == ["a", "b"]


async def test_deleted_records_are_passed_over_in_silence(api: Any) -> None:
    await api.write("t", 1, 2, 3, 4)
    await api.stream("t").delete([1, 3, 4])
    page = await api.diff("t")
    assert (data(page), page["tombstone"], page["next_from_seq"]) == ([2], None, 4)
    assert (page["earliest_seq"], page["caught_up"]) == (2, True)


def state(gaps: tuple[Gap, ...], first: int = 1, last: int = 9, floor: int = 0) -> StreamState:
    return StreamState(9, 0, first, last, last, 0, 0, 0, floor, gaps)


def test_damage_within_the_log_is_reported_where_the_reader_meets_it() -> None:
    holed = state((Gap(4, 5, "corruption"),), floor=5)
    start = start_reading(holed, 0)
    assert (start.cursor, start.tombstone, start.stop_before) == (0, None, 4)
    start = start_reading(holed, 3)
    assert start.tombstone is not None
    assert (start.tombstone.gap_from, start.tombstone.gap_to) == (4, 5)
    assert (start.tombstone.reason, start.cursor, start.stop_before) == ("corruption", 5, None)
    assert start_reading(holed, 5).tombstone is None


def test_cap_and_time_to_live_together_are_mixed_and_source_trims_come_last() -> None:
    both = state((Gap(1, 2, "cap"), Gap(3, 4, "ttl")), first=5, floor=4)
    assert start_reading(both, 0).tombstone.reason == "mixed"  # type: ignore[union-attr]
    assert start_reading(both, 2).tombstone.reason == "ttl"  # type: ignore[union-attr]
    trimmed = state((Gap(1, 4, "source_trim"),), first=5, floor=4)
    assert start_reading(trimmed, 0).tombstone.reason == "source_trim"  # type: ignore[union-attr]


def test_a_floor_counts_for_what_its_reason_took_from_the_position_on() -> None:
    floors = {"cap": 2, "ttl": 4, "delete": 9}
    aged = StreamState(5, 0, 5, 9, 9, 0, 0, 0, 4, (), floors)
    assert start_reading(aged, 0).tombstone.reason == "mixed"  # type: ignore[union-attr]
    assert start_reading(aged, 2).tombstone.reason == "ttl"  # type: ignore[union-attr]


def test_between_the_last_loss_and_the_earliest_record_nothing_is_said() -> None:
    deleted_further = state((Gap(1, 2, "cap"),), first=5, floor=2)
    start = start_reading(deleted_further, 2)
    assert (start.cursor, start.tombstone) == (4, None)
    tombstone = start_reading(deleted_further, 0).tombstone
    assert tombstone is not None
    assert (tombstone.gap_to, tombstone.earliest_seq) == (2, 3)


def test_sequences_that_were_never_acknowledged_are_no_loss() -> None:
    assert start_reading(state((Gap(4, 5, "void"),)), 3).tombstone is None


async def test_a_long_poll_wakes_on_the_first_new_record(api: Any) -> None:
    await api.write("t", 1)
    poll = asyncio.create_task(api.diff("t", from_seq=1, wait_ms=30_000))
    await asyncio.sleep(0.01)
    assert not poll.done()
    await api.write("t", 2)
    async with asyncio.timeout(20):
        assert data(await poll) == [2]


async def test_a_long_poll_ends_with_what_it_had(api: Any) -> None:
    await api.write("t", 1)
    page = await api.diff("t", from_seq=1, wait_ms=20)
    assert (data(page), page["caught_up"], page["next_from_seq"]) == ([], True, 1)


async def test_a_poll_does_not_wait_when_there_is_something_to_say(api: Any) -> None:
    await api.write("t", 1)
    async with asyncio.timeout(20):
        assert data(await api.diff("t", wait_ms=30_000)) == [1]
        page = await api.diff("t", from_seq=7, wait_ms=30_000)
    assert page["tombstone"]["reason"] == "recreated"


async def test_a_long_poll_ends_when_the_server_stops_or_the_topic_goes(api: Any) -> None:
    await api.write("t", 1)
    poll = asyncio.create_task(
        api.call("POST", "/v0/topics/t/diff", {"from_seq": 1, "wait_ms": 9999})
    )
    await asyncio.sleep(0.01)
    await api.call("DELETE", "/v0/topics/t")
    api.topics.stop()
    async with asyncio.timeout(20):
        status, _ = await poll
    assert status == 404


async def test_a_long_poll_ends_when_its_key_is_revoked(api: Any) -> None:
    await api.write("t", 1)
    caller = Caller(key="k")
    ask = {"from_seq": 1, "wait_ms": 30_000}
    poll = asyncio.create_task(api.error("POST", "/v0/topics/t/diff", ask, caller=caller))
    await asyncio.sleep(0)
    assert not poll.done()
    caller.standing.revoked = True
    api.topics.wake()
    async with asyncio.timeout(20):
        assert await poll == (401, "unauthorized")


async def publish(api: Any, payload: bytes, headers: bytes = b"") -> None:
    """Write as the NATS door does."""
    batch = Batch()
    batch.add(b"S", b"", headers, payload)
    stream = api.stream("S")
    before = stream.state().last_seq
    stream.deliver(batch)
    await eventually(lambda: stream.state().last_seq > before)


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b'{"id": 1}', b'{"id":1}'),
        (b'{"$base64":"x"}', b'{"$$base64":"x"}'),
        (b'{"$$base64":"x"}', b'{"$$$base64":"x"}'),
        (b'{"$base64":"x","y":1}', b'{"$base64":"x","y":1}'),
        (b' { "$base64" : "x" }', b'{"$$base64":"x"}'),
        (b'{"\\u0024base64":"x"}', b'{"$$base64":"x"}'),
        (b"hello", b'{"$base64":"aGVsbG8="}'),
        (b"", b'{"$base64":""}'),
        (b"\xff\x00", b'{"$base64":"/wA="}'),
        (b'"\xff"', b'{"$base64":"Iv8i"}'),
        (b"[1,2]]", b'{"$base64":"WzEsMl1d"}'),
        (b"1\n", b"1"),
        (b'"a\\u00e9"', b'"a\\u00e9"'),
        (b"[" * 2000 + b"]" * 2000, None),
    ],
)
async def test_nats_payloads_show_as_json_or_base64(
    api: Any, payload: bytes, shown: bytes | None
) -> None:
    await api.catalog.create(StreamConfig.from_request({"name": "S"}))
    await publish(api, payload)
    answer = await api.send("POST", "/v0/topics/S/diff")
    assert msgspec.json.decode(answer.body)["head_seq"] == 1
    if shown is not None:
        assert b'"data":%b}' % shown in answer.body


async def test_nats_headers_show_as_meta(api: Any) -> None:
    await api.catalog.create(StreamConfig.from_request({"name": "S"}))
    await publish(api, b"1", b"NATS/1.0\r\nA: 1\r\nB: x\r\nB: y:z\r\n\r\n")
    block = b'NATS/1.0\r\nMillstream-Tag: t%0A\r\nMillstream-Meta: {"m": 1}\r\n\r\n'
    await publish(api, b"2", block)
    records = (await api.diff("S", include_tags=True))["records"]
    assert records[0]["meta"] == {"A": "1", "B": ["x", "y:z"]}
    assert (records[1]["$tag"], records[1]["meta"]) == ("t\n", {"m": 1})


async def test_payloads_that_make_sense_only_together_are_no_json(api: Any) -> None:
    await api.call("PUT", "/v0/topics/a")
    payloads = [b"[1", b"2]", b"3,4", b"5", b' {"a": 1}', b"6"]
    await api.stream("a").append([NewRecord(b"a", payload) for payload in payloads])
    shown = [record["data"] for record in (await api.diff("a"))["records"]]
    assert shown == [
        {"$base64": "WzE="},
        {"$base64": "Ml0="},
        {"$base64": "Myw0"},
        5,
        {"a": 1},
        6,
    ]


async def test_a_page_of_plain_and_other_records_shows_each_as_it_is(api: Any) -> None:
    records = [{"data": n, **({"meta": {"m": n}, "tag": "t"} if n % 3 else {})} for n in range(9)]
    await api.call("POST", "/v0/topics/a", {"records": records})
    page = await api.diff("a", include_tags=True)
    assert [record["data"] for record in page["records"]] == list(range(9))
    assert [record.get("meta", {}).get("m") for record in page["records"]] == [
        None, 1, 2, None, 4, 5, None, 7, 8,
    ]  # fmt: skip


class Turns:
    """Counts the turns of the loop while it is entered."""

    def __enter__(self) -> Self:
        self.count = -1
        self._tick()
        return self

    def _tick(self) -> None:
        self.count += 1
        self._next = asyncio.get_running_loop().call_soon(self._tick)

    def __exit__(self, *error: object) -> None:
        self._next.cancel()


async def write_haystack(api: Any) -> int:
    """Write two tagged records with much before, between and behind them; returns the head."""
    hay, needle = [{"data": 0}] * (MOST_PASSED_OVER + 10), {"data": "needle", "tag": "x"}
    for _ in range(2):
        await api.call("POST", "/v0/topics/t", {"records": [*hay, needle]})
    await api.call("POST", "/v0/topics/t", {"records": hay})
    return 3 * len(hay) + 2


async def test_a_filter_that_passes_over_much_keeps_nobody_waiting_and_misses_nothing(
    api: Any,
) -> None:
    head = await write_haystack(api)
    with Turns() as turns:
        page = await api.diff("t", filter={"tag": "x"})
    assert data(page) == ["needle", "needle"]
    assert (page["next_from_seq"], page["caught_up"]) == (head, True)
    assert page["performance"]["records_scanned"] == head
    assert turns.count >= 3
    page = await api.diff("t", filter={"tag": "x"}, limit=1)
    assert (data(page), page["next_from_seq"]) == (["needle"], MOST_PASSED_OVER + 11)


async def test_a_watch_that_passes_over_much_keeps_nobody_waiting_and_misses_nothing(
    api: Any,
) -> None:
    head = await write_haystack(api)
    events = Events(await api.send("GET", "/v0/topics/t/tail?from_seq=0&tag=x"))
    with Turns() as turns:
        told = [await events.named() for _ in range(3)]
    assert [name for name, _ in told] == ["record", "record", "caught-up"]
    assert [record["data"] for _, one in told[:2] for record in one["records"]] == ["needle"] * 2
    assert told[2][1]["head_seq"] == head
    assert turns.count >= 3
    await events.close()


async def test_what_goes_before_a_filter_has_looked_at_it_is_told_by_the_next_read(
    api: Any,
) -> None:
    await api.call("PUT", "/v0/topics/t", {"ttl_ms": 1000})
    head = await write_haystack(api)
    reading = asyncio.ensure_future(api.diff("t", filter={"tag": "x"}))
    await asyncio.sleep(0)
    api.clock.advance(2)
    page = await reading
    assert (page["tombstone"], page["caught_up"]) == (None, False)
    looked_at = page["next_from_seq"]
    assert 0 < looked_at < head
    page = await api.diff("t", filter={"tag": "x"}, from_seq=looked_at)
    assert (page["tombstone"]["gap_from"], page["tombstone"]["reason"]) == (looked_at + 1, "ttl")
