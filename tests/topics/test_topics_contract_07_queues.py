"""Section 7 of the contract: queues, one test for each of its sentences."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from test_topics_queues import START_MS, Jobs, Process, settle_tasks
from topics_api import Api, Events

from millstream.errors import StorageFull

DAY_MS = 86_400_000
CALLS: dict[str, dict[str, Any]] = {
    "claim": {"node": "w"},
    "ack": {"node": "w", "seqs": [1]},
    "nack": {"node": "w", "seqs": [1]},
    "extend": {"node": "w", "seqs": [1], "lease_ms": 1000},
}
CLAIMED = {"$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}


async def queue(api: Api, *data: object, **config: Any) -> Jobs:
    jobs = Jobs(api)
    await jobs.make(**config)
    if data:
        await jobs.add(*data)
    return jobs


async def working(api: Api, query: str = "node=w&max=2") -> Events:
    return Events(await api.send("GET", f"/v0/topics/q/work?{query}"))


async def full(*_: object, **__: object) -> int:
    raise StorageFull("no room")


# -- the calls -------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", CALLS)
async def test_s07_a_log_is_409_not_a_queue(api: Api, verb: str) -> None:
    await api.write("log", 1)
    status, answer = await api.call("POST", f"/v0/topics/log/{verb}", CALLS[verb])
    assert (status, answer["error"]["code"]) == (409, "not_a_queue")
    assert answer["error"]["detail"] == {"topic": "log"}


@pytest.mark.parametrize("verb", CALLS)
async def test_s07_an_absent_topic_is_404_and_never_created(api: Api, verb: str) -> None:
    target = f"/v0/topics/none/{verb}"
    assert await api.error("POST", target, CALLS[verb]) == (404, "topic_not_found")
    assert api.catalog.find("none") is None


@pytest.mark.parametrize("node", ["", "x" * 129, "é" * 65])
async def test_s07_claim_needs_a_node_of_1_to_128_bytes(api: Api, node: str) -> None:
    jobs = await queue(api, 1)
    refusal = await api.error("POST", "/v0/topics/q/claim", {"node": node})
    assert refusal == (400, "invalid_request")
    assert await jobs.seqs(node="x" * 128) == [1]


async def test_s07_claim_takes_one_unless_it_says_max(api: Api) -> None:
    jobs = await queue(api, 1, 2, 3)
    assert (await jobs.post("claim", node="w"))["count"] == 1
    assert (await jobs.post("claim", node="w", max=2))["count"] == 2


@pytest.mark.parametrize(
    ("verb", "keys"),
    [
        ("claim", ["topic", "claimed", "count", "ready", "performance"]),
        ("extend", ["topic", "extended", "skipped", "deadlines", "performance"]),
        ("nack", ["topic", "nacked", "skipped", "ready", "in_flight", "performance"]),
        ("ack", ["topic", "acked", "skipped", "ready", "in_flight", "performance"]),
    ],
)
async def test_s07_each_call_answers_with_exactly_its_members(
    api: Api, verb: str, keys: list[str]
) -> None:
    jobs = await queue(api, 1)
    if verb != "claim":
        await jobs.claim()
    _, answer = await api.call("POST", f"/v0/topics/q/{verb}", CALLS[verb])
    assert list(answer) == keys


async def test_s07_extend_requires_lease_ms_and_tells_each_deadline(api: Api) -> None:
    jobs = await queue(api, 1)
    await jobs.claim()
    without = {"node": "w", "seqs": [1]}
    assert (await api.error("POST", "/v0/topics/q/extend", without))[0] == 400
    answer = await jobs.post("extend", node="w", seqs=[1], lease_ms=5000)
    assert answer["deadlines"] == {"1": START_MS + 5000}


async def test_s07_a_claimed_job_has_these_members_and_no_node(api: Api) -> None:
    jobs = await queue(api)
    record = {"data": {"x": 1}, "tag": "t", "node": "writer", "meta": {"m": 1}}
    await api.call("POST", "/v0/topics/q", {"records": [record, {"data": None}]})
    first, second = await jobs.claim(2)
    assert set(first) == CLAIMED | {"$tag", "meta"}
    assert set(second) == CLAIMED
    assert (first["$tag"], first["meta"], first["data"]) == ("t", {"m": 1}, {"x": 1})


async def test_s07_claimed_jobs_ascend(api: Api) -> None:
    jobs = await queue(api, *range(9))
    await jobs.claim(9)
    await jobs.nack(7, 2, 5)
    assert await jobs.seqs(9) == [2, 5, 7]


async def test_s07_lease_ids_are_lower_case_hex_of_a_counter_of_the_topic_from_one(
    api: Api,
) -> None:
    jobs = await queue(api, *range(16))
    assert [job["lease_id"] for job in await jobs.claim(16)] == [
        f"lease_{number:x}" for number in range(1, 17)
    ]
    other = Jobs(api, "other")
    await other.make()
    await other.add(1)
    assert (await other.claim())[0]["lease_id"] == "lease_1"


@pytest.mark.parametrize(
    ("asked", "lasts"), [(None, 30_000), (5000, 5000), (1, 100), (DAY_MS + 1, DAY_MS)]
)
async def test_s07_the_deadline_is_now_and_the_clamped_length(
    api: Api, asked: int | None, lasts: int
) -> None:
    jobs = await queue(api, 1)
    more: dict[str, Any] = {} if asked is None else {"lease_ms": asked}
    assert (await jobs.claim(**more))[0]["deadline"] == START_MS + lasts


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
async def test_s07_empty_seqs_do_nothing_and_are_200(api: Api, verb: str) -> None:
    jobs = await queue(api, 1)
    await jobs.claim()
    answer = await jobs.post(verb, **{**CALLS[verb], "seqs": []})
    assert answer["skipped"] == []
    assert await jobs.counters() == (0, 1, 0)


async def test_s07_nothing_available_is_200_with_count_0(api: Api) -> None:
    jobs = await queue(api)
    assert await jobs.post("claim", node="w") == {
        "topic": "q", "claimed": [], "count": 0, "ready": 0,
    }  # fmt: skip


# -- the state machine -----------------------------------------------------------------------


async def test_s07_claimable_is_live_not_leased_and_not_delayed(api: Api) -> None:
    jobs = await queue(api, *range(4))
    assert await jobs.seqs(2) == [1, 2]
    await jobs.nack(2, delay_ms=1000)
    await api.call("POST", "/v0/topics/q/delete", {"before_seq": 1})
    await api.stream("q").delete([3])
    assert await jobs.seqs(9) == [4]


async def test_s07_a_lease_is_expired_only_after_its_deadline(api: Api) -> None:
    jobs = await queue(api, 1)
    await jobs.claim(lease_ms=1000)
    api.clock.advance(1.0)
    assert await jobs.seqs() == []
    api.clock.advance(0.001)
    assert await jobs.seqs() == [1]


@pytest.mark.parametrize("verb", [*CALLS, "counters"])
async def test_s07_every_call_begins_with_a_sweep(api: Api, verb: str) -> None:
    jobs = await queue(api, 1, 2)
    await jobs.claim(2, lease_ms=1000)
    await jobs.nack(2, delay_ms=500)
    api.clock.advance(1.001)  # no timer runs: only the call can notice
    if verb == "claim":
        assert await jobs.seqs(9) == [1, 2]
    elif verb == "counters":
        assert await jobs.counters() == (2, 0, 0)
    else:
        assert (await jobs.post(verb, **CALLS[verb]))["skipped"] == [1]
        assert await jobs.counters() == (2, 0, 0)


async def test_s07_what_came_back_goes_first_and_dead_ones_are_skipped(api: Api) -> None:
    jobs = await queue(api, *range(6))
    assert await jobs.seqs(3) == [1, 2, 3]
    await jobs.nack(3, 2)
    await api.stream("q").delete([2, 4])
    assert await jobs.seqs(9) == [3, 5, 6]


async def test_s07_each_claim_is_a_new_lease_and_one_delivery_more(api: Api) -> None:
    jobs = await queue(api, 1)
    found = []
    for _ in range(3):
        (job,) = await jobs.claim()
        found.append((job["lease_id"], job["deliveries"]))
        await jobs.nack(1)
    assert found == [("lease_1", 1), ("lease_2", 2), ("lease_3", 3)]


async def test_s07_a_job_above_max_deliveries_is_moved_and_the_claim_goes_on(api: Api) -> None:
    jobs = await queue(api, 1, 2, max_deliveries=1, dead_letter="dead")
    assert await jobs.seqs() == [1]
    await jobs.nack(1)
    assert await jobs.seqs() == [2]
    assert [record["data"] for record in (await api.diff("dead"))["records"]] == [1]


async def test_s07_ack_needs_the_lease_the_node_and_the_token_if_one_is_given(api: Api) -> None:
    jobs = await queue(api, *range(5))
    await jobs.claim(4)
    wrong = await jobs.ack(1, 9, 5, node="other")
    assert (wrong["acked"], wrong["skipped"]) == (0, [1, 9, 5])
    stale = await jobs.ack(1, 2, lease_ids=["lease_2", "lease_2"])
    assert (stale["acked"], stale["skipped"]) == (1, [1])
    empty = await jobs.ack(1, lease_ids=[""])
    assert empty["acked"] == 1


async def test_s07_an_acked_job_its_lease_and_its_counter_are_gone_for_good(api: Api) -> None:
    jobs = await queue(api, 1, 2)
    await jobs.claim()
    await jobs.ack(1)
    assert await jobs.counters() == (1, 0, 0)
    assert [record["$seq"] for record in (await api.diff("q"))["records"]] == [2]
    leases = api.topics.queues.of(api.stream("q")).leases
    assert (leases.held, leases.deliveries) == ({}, {})
    assert (await jobs.ack(1))["skipped"] == [1]


async def test_s07_an_fsync_queue_reports_the_sync_of_an_ack(api: Api) -> None:
    jobs = await queue(api, 1, durability="fsync")
    await jobs.claim()
    _, answer = await api.call("POST", "/v0/topics/q/ack", CALLS["ack"])
    assert answer["performance"]["fsync_ms"] > 0


async def test_s07_skipped_seqs_keep_the_order_of_the_request(api: Api) -> None:
    jobs = await queue(api, *range(3))
    await jobs.claim(3)
    assert (await jobs.ack(9, 2, 8, 1, 7))["skipped"] == [9, 8, 7]


async def test_s07_a_failed_delete_puts_the_jobs_back_and_is_an_error(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = await queue(api, 1, 2)
    await jobs.claim(2)
    monkeypatch.setattr(type(api.stream("q")), "delete", full)
    body = {"node": "w", "seqs": [1, 2]}
    assert (await api.error("POST", "/v0/topics/q/ack", body))[0] == 507
    monkeypatch.undo()
    assert await jobs.seqs(9) == [1, 2]


async def test_s07_nack_gives_back_now_or_after_its_delay_and_keeps_deliveries(api: Api) -> None:
    jobs = await queue(api, 1, 2)
    await jobs.claim(2)
    await jobs.nack(1)
    await jobs.nack(2, delay_ms=1000)
    assert [(job["$seq"], job["deliveries"]) for job in await jobs.claim(9)] == [(1, 2)]
    api.clock.advance(0.999)
    assert await jobs.seqs() == []
    api.clock.advance(0.001)
    assert [(job["$seq"], job["deliveries"]) for job in await jobs.claim(9)] == [(2, 2)]


async def test_s07_extend_sets_the_deadline_and_does_not_add_to_it(api: Api) -> None:
    jobs = await queue(api, 1)
    await jobs.claim(lease_ms=60_000)
    api.clock.advance(1)
    answer = await jobs.post("extend", node="w", seqs=[1], lease_ms=2000)
    assert answer["deadlines"] == {"1": START_MS + 3000}
    api.clock.advance(2.001)
    assert (await jobs.claim())[0]["deliveries"] == 2  # extending was no delivery


async def test_s07_an_expired_lease_cannot_be_extended(api: Api) -> None:
    jobs = await queue(api, 1)
    await jobs.claim(lease_ms=1000)
    api.clock.advance(1.001)
    answer = await jobs.post("extend", node="w", seqs=[1], lease_ms=1000)
    assert (answer["extended"], answer["skipped"], answer["deadlines"]) == (0, [1], {})


@pytest.mark.parametrize(
    "tokens", [["lease_1"], ["lease_1", "lease_x"], ["1", "2"], ["", "LEASE_1"]]
)
async def test_s07_tokens_must_be_as_many_as_seqs_and_well_formed(
    api: Api, tokens: list[str]
) -> None:
    jobs = await queue(api, 1, 2)
    await jobs.claim(2)
    body = {"node": "w", "seqs": [1, 2], "lease_ids": tokens}
    assert await api.error("POST", "/v0/topics/q/ack", body) == (400, "invalid_request")


@pytest.mark.parametrize("more", [{}, {"lease_ids": None}, {"lease_ids": []}])
async def test_s07_without_tokens_the_node_alone_counts(api: Api, more: dict[str, Any]) -> None:
    jobs = await queue(api, 1)
    await jobs.claim()
    assert (await jobs.ack(1, **more))["acked"] == 1


async def test_s07_the_counters_are_those_of_live_jobs(api: Api) -> None:
    jobs = await queue(api, *range(6), max_deliveries=1, dead_letter="dead")
    await jobs.claim(3)
    await jobs.nack(1)
    await jobs.nack(2, delay_ms=1000)
    assert await jobs.counters() == (4, 1, 0)  # 1 came back, 4 to 6; 3 is out; 2 waits
    await api.stream("q").delete([3, 6])
    assert await jobs.counters() == (3, 0, 0)
    await jobs.claim(9)
    assert await jobs.counters() == (0, 2, 1)


# -- dead letters ----------------------------------------------------------------------------


async def buried(api: Api, meta: object, **config: Any) -> Any:
    """Return the dead letter of a job that had one delivery, and the queue."""
    await queue(api, max_deliveries=1, dead_letter="dead", **config)
    record = {"data": {"x": [1]}, "tag": "t", "node": "n", "meta": meta}
    await api.call("POST", "/v0/topics/q", {"records": [record]})
    jobs = Jobs(api)
    await jobs.claim()
    await jobs.nack(1)
    assert await jobs.seqs() == []
    (letter,) = (await api.diff("dead", include_tags=True))["records"]
    return letter


async def test_s07_a_dead_letter_keeps_the_job_and_says_where_it_is_from(api: Api) -> None:
    letter = await buried(api, {"kept": 1})
    assert (letter["data"], letter["$tag"], letter["$node"]) == ({"x": [1]}, "t", "n")
    assert letter["meta"] == {
        "kept": 1,
        "$dead_letter_from": "q",
        "$dead_letter_deliveries": "1",
        "$dead_letter_src_seq": "1",
    }


async def test_s07_a_meta_that_is_no_object_is_replaced_by_one(api: Api) -> None:
    letter = await buried(api, "text")
    assert set(letter["meta"]) == {
        "$dead_letter_from", "$dead_letter_deliveries", "$dead_letter_src_seq",
    }  # fmt: skip


async def test_s07_the_dead_letter_topic_is_made_with_the_defaults(api: Api) -> None:
    await buried(api, {})
    await api.call("PUT", "/v0/topics/fresh")
    made, fresh = [
        (await api.call("GET", f"/v0/topics/{n}"))[1]["config"] for n in ("dead", "fresh")
    ]
    assert made == fresh


async def test_s07_a_moved_job_is_deleted_and_counted(api: Api) -> None:
    await buried(api, {})
    assert await Jobs(api).counters() == (0, 0, 1)
    assert (await api.diff("q"))["records"] == []


async def test_s07_a_job_that_cannot_be_moved_is_back_and_not_counted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = await queue(api, 1, max_deliveries=1, dead_letter="dead")
    await api.write("dead", 0)
    await jobs.claim()
    await jobs.nack(1)
    with monkeypatch.context() as patch:
        patch.setattr(type(api.stream("dead")), "append", full)
        assert await jobs.seqs() == []
        assert await jobs.counters() == (1, 0, 0)
    assert await jobs.seqs() == []
    assert await jobs.counters() == (0, 0, 1)


async def test_s07_two_deliveries_then_the_third_claim_is_empty_and_the_copy_is_there(
    api: Api,
) -> None:
    jobs = await queue(api, "job", max_deliveries=2, dead_letter="dead")
    for delivery in (1, 2):
        assert (await jobs.claim())[0]["deliveries"] == delivery
        await jobs.nack(1)
    assert (await jobs.post("claim", node="w"))["count"] == 0
    assert [record["data"] for record in (await api.diff("dead"))["records"]] == ["job"]


# -- coalescing ------------------------------------------------------------------------------


async def test_s07_twenty_jobs_and_four_claimers_in_a_window_of_120_ms_get_five_each(
    api: Api,
) -> None:
    jobs = await queue(api, *range(20), claim_jitter_ms=120)
    claims = []
    for number in range(4):  # at 0, 39, 78 and 117 ms: all in the window that the first opened
        api.pass_time(0.039 if number else 0.0)
        claims.append(asyncio.create_task(jobs.seqs(10, node=f"w{number}")))
        await settle_tasks()
        assert not any(claim.done() for claim in claims)
    api.pass_time(0.003)
    found = await asyncio.gather(*claims)
    assert sorted(seq for seqs in found for seq in seqs) == list(range(1, 21))
    assert [len(seqs) for seqs in found] == [5, 5, 5, 5]


async def test_s07_jobs_go_round_robin_one_at_a_time_to_who_still_wants_some(api: Api) -> None:
    jobs = await queue(api, *range(9), claim_jitter_ms=120)
    wishes = {"a": 1, "b": 10, "c": 3}
    claims = [asyncio.create_task(jobs.seqs(most, node=node)) for node, most in wishes.items()]
    await settle_tasks()
    api.pass_time(0.120)
    assert await asyncio.gather(*claims) == [[1], [2, 4, 6, 8, 9], [3, 5, 7]]


async def test_s07_refills_of_work_join_the_same_cohort(api: Api) -> None:
    jobs = await queue(api, *range(4), claim_jitter_ms=100)
    events = await working(api, "node=pushed&max=10")
    first = asyncio.create_task(events.named())
    poll = asyncio.create_task(jobs.seqs(10, node="polled"))
    await settle_tasks()
    api.pass_time(0.100)
    assert (await first)[1]["$seq"] in (1, 2)
    assert len(await poll) == 2
    await events.close()


async def test_s07_when_the_pass_fails_the_leader_hears_why_and_joiners_get_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = await queue(api, 1, 2, claim_jitter_ms=50, leases_durable=True)
    leader = asyncio.create_task(api.error("POST", "/v0/topics/q/claim", {"node": "w"}))
    await settle_tasks()
    joiner = asyncio.create_task(jobs.seqs(node="joiner"))
    await settle_tasks()

    def no_room(*_: object) -> None:
        raise StorageFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(api.store, "control", no_room)
        api.pass_time(0.050)
        assert (await leader)[0] == 507
        assert await joiner == []


async def test_s07_the_leaders_lease_holds_for_its_cohort(api: Api) -> None:
    jobs = await queue(api, 1, 2, claim_jitter_ms=50)
    leader = asyncio.create_task(jobs.claim(lease_ms=1000))
    await settle_tasks()
    joiner = asyncio.create_task(jobs.claim(node="joiner", lease_ms=9000))
    await settle_tasks()
    api.pass_time(0.050)
    until = START_MS + 50 + 1000
    assert [(await each)[0]["deadline"] for each in (leader, joiner)] == [until, until]


# -- work ------------------------------------------------------------------------------------


async def test_s07_work_sends_retry_then_each_job_as_an_event(api: Api) -> None:
    await queue(api)
    await api.call("POST", "/v0/topics/q", {"records": [{"data": 1, "tag": "t", "meta": {"m": 1}}]})
    events = await working(api)
    assert await events.next() == {"retry": "2000"}
    event = await events.next()
    assert (event["id"], event["event"]) == ("1", "job")
    await events.close()
    events = await working(api)
    _, data = await events.named()
    assert set(data) == {"topic", *CLAIMED, "$tag", "meta"}
    await events.close()


async def test_s07_five_jobs_and_max_two_are_exactly_two_events(api: Api) -> None:
    jobs = await queue(api, *range(5))
    events = await working(api)
    assert [(await events.named())[1]["$seq"] for _ in range(2)] == [1, 2]
    waiting = asyncio.create_task(events.named())
    await settle_tasks()
    assert await jobs.counters() == (3, 2, 0)
    api.pass_time(1.0)
    await settle_tasks()
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await events.close()


async def test_s07_work_refills_when_the_topic_wakes(api: Api) -> None:
    jobs = await queue(api)
    events = await working(api)
    waiting = asyncio.create_task(events.named())
    await settle_tasks()
    await jobs.add("new")
    assert (await waiting)[1]["data"] == "new"
    await events.close()


async def test_s07_work_has_a_heartbeat_every_15_seconds(api: Api) -> None:
    await queue(api)
    events = await working(api)
    await events.next()
    for beat in (15, 30):
        waiting = asyncio.create_task(events.next())
        await settle_tasks()
        api.pass_time(14.9)
        await settle_tasks()
        assert not waiting.done()
        api.pass_time(0.1)
        assert await waiting == {"comment": f": hb {START_MS + beat * 1000}"}
    await events.close()


async def test_s07_a_vanished_topic_ends_work_with_error_409(api: Api) -> None:
    await queue(api)
    events = await working(api)
    waiting = asyncio.create_task(events.named())
    await settle_tasks()
    await api.call("DELETE", "/v0/topics/q")
    name, data = await waiting
    assert (name, data["code"], data["topic"], set(data)) == (
        "error", 409, "q", {"code", "error", "topic"},
    )  # fmt: skip
    with pytest.raises(StopAsyncIteration):
        await events.next()
    await events.close()


async def test_s07_leaving_gives_back_what_this_connection_had_and_nothing_else(api: Api) -> None:
    jobs = await queue(api, *range(4))
    await jobs.claim(1, node="w")
    events = await working(api)
    await events.named()
    assert await jobs.counters() == (1, 3, 0)
    await events.close()
    assert await jobs.counters() == (3, 1, 0)


# -- restart ---------------------------------------------------------------------------------


@pytest.mark.parametrize("snapshot", [False, True])
async def test_s07_without_durable_leases_a_restart_makes_all_claimable_and_keeps_the_type(
    tmp_path: Path, snapshot: bool
) -> None:
    process = Process(tmp_path / "data")
    try:
        jobs = await queue(process.api, 1, 2)
        await jobs.claim(2)
        await jobs.nack(1)
        again = Jobs(await process.again(snapshot=snapshot))
        _, state = await again.api.call("GET", "/v0/topics/q")
        assert state["type"] == "queue"
        assert [(job["$seq"], job["deliveries"]) for job in await again.claim(9)] == [
            (1, 1), (2, 1),
        ]  # fmt: skip
    finally:
        process.end()
