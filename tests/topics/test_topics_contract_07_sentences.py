"""Section 7 of the contract: sentences about queues, with exact values."""

import asyncio
from typing import Any

import pytest
from test_topics_contract_07_queues import DAY_MS, full, queue, working
from test_topics_queues import START_MS, settle_tasks
from topics_api import Api

from millstream.http.response import StreamedResponse


async def test_s07_the_answers_count_what_was_done_and_what_is_left(api: Api) -> None:
    jobs = await queue(api, *range(6))
    claimed = await jobs.post("claim", node="w", max=4)
    assert (claimed["count"], claimed["ready"]) == (4, 2)
    assert await jobs.ack(1) == {
        "topic": "q", "acked": 1, "skipped": [], "ready": 2, "in_flight": 3,
    }  # fmt: skip
    assert await jobs.nack(2, 9) == {
        "topic": "q", "nacked": 1, "skipped": [9], "ready": 3, "in_flight": 2,
    }  # fmt: skip
    assert await jobs.nack(3, delay_ms=1000) == {
        "topic": "q", "nacked": 1, "skipped": [], "ready": 3, "in_flight": 1,
    }  # fmt: skip
    extended = await jobs.post("extend", node="w", seqs=[4, 3], lease_ms=5000)
    assert extended == {
        "topic": "q", "extended": 1, "skipped": [3], "deadlines": {"4": START_MS + 5000},
    }  # fmt: skip


@pytest.mark.parametrize("verb", ["nack", "extend"])
async def test_s07_giving_back_and_extending_need_the_same_as_an_ack(api: Api, verb: str) -> None:
    jobs = await queue(api, 1, 2)
    await jobs.claim(2)
    more = {"lease_ms": 1000} if verb == "extend" else {}
    for node, tokens in (("other", []), ("w", ["lease_2", "lease_1"]), ("other", ["lease_1", ""])):
        answer = await jobs.post(verb, node=node, seqs=[1, 2], lease_ids=tokens, **more)
        assert answer["skipped"] == [1, 2]
    answer = await jobs.post(verb, node="w", seqs=[1, 2], lease_ids=["lease_1", ""], **more)
    assert answer["skipped"] == []


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
async def test_s07_a_seq_that_is_named_twice_counts_while_it_is_held(api: Api, verb: str) -> None:
    jobs = await queue(api, 1)
    await jobs.claim()
    more = {"lease_ms": 1000} if verb == "extend" else {}
    answer = await jobs.post(verb, node="w", seqs=[1, 1], **more)
    assert answer["skipped"] == ([] if verb == "extend" else [1])


async def test_s07_a_token_of_an_earlier_lease_is_not_the_current_one(api: Api) -> None:
    jobs = await queue(api, 1)
    await jobs.claim(lease_ms=1000)
    api.clock.advance(1.001)
    assert [job["lease_id"] for job in await jobs.claim()] == ["lease_2"]
    assert (await jobs.ack(1, lease_ids=["lease_1"]))["skipped"] == [1]
    assert (await jobs.ack(1, lease_ids=["lease_2"]))["acked"] == 1


async def test_s07_a_lease_id_may_be_of_any_hex_and_unknown(api: Api) -> None:
    jobs = await queue(api, 1)
    await jobs.claim()
    assert (await jobs.ack(1, lease_ids=["lease_ffff"]))["skipped"] == [1]


@pytest.mark.parametrize(
    ("config", "asked", "lasts"),
    [({"lease_ms": 7000}, None, 7000), ({"lease_ms": 7000}, 0, 100), ({}, DAY_MS * 2, DAY_MS)],
)
async def test_s07_the_length_of_a_lease_is_the_claims_or_else_the_topics(
    api: Api, config: dict[str, int], asked: int | None, lasts: int
) -> None:
    jobs = await queue(api, 1, **config)
    more: dict[str, Any] = {} if asked is None else {"lease_ms": asked}
    assert (await jobs.claim(**more))[0]["deadline"] == START_MS + lasts


async def test_s07_what_is_never_delivered_too_often_without_a_place_to_go(api: Api) -> None:
    """Both are needed: a number of deliveries, and a topic for those above it."""
    for config in ({"max_deliveries": 1}, {"dead_letter": "dead"}):
        jobs = await queue(api, **config)
        await jobs.add(1)
        for delivery in (1, 2, 3):
            (job,) = await jobs.claim()
            assert job["deliveries"] == delivery
            await jobs.nack(job["$seq"])
        await api.call("DELETE", "/v0/topics/q")
    assert api.catalog.find("dead") is None


async def test_s07_an_expired_lease_counts_as_a_delivery(api: Api) -> None:
    jobs = await queue(api, "job", max_deliveries=2, dead_letter="dead")
    for _ in range(2):
        await jobs.claim(lease_ms=1000)
        api.clock.advance(1.001)
    assert await jobs.seqs() == []
    assert [record["data"] for record in (await api.diff("dead"))["records"]] == ["job"]


async def test_s07_a_dead_letter_topic_that_cannot_be_made_keeps_the_job(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = await queue(api, 1, max_deliveries=1, dead_letter="dead")
    await jobs.claim()
    await jobs.nack(1)
    with monkeypatch.context() as patch:
        patch.setattr(api.catalog, "create", full)
        assert await jobs.seqs() == []
        assert await jobs.counters() == (1, 0, 0)
    assert await jobs.seqs() == []
    assert await jobs.counters() == (0, 0, 1)


async def test_s07_the_number_of_dead_letters_is_that_of_the_instance(api: Api) -> None:
    jobs = await queue(api, 1, max_deliveries=1, dead_letter="dead")
    await jobs.claim()
    await jobs.nack(1)
    await jobs.seqs()
    assert (await jobs.counters())[2] == 1
    await api.call("DELETE", "/v0/topics/q")
    await jobs.make()
    assert (await jobs.counters())[2] == 0


async def test_s07_one_claimer_alone_waits_out_the_window_too(api: Api) -> None:
    jobs = await queue(api, 1, claim_jitter_ms=100)
    claim = asyncio.create_task(jobs.seqs())
    await settle_tasks()
    api.pass_time(0.099)
    await settle_tasks()
    assert not claim.done()
    api.pass_time(0.001)
    assert await claim == [1]


# -- work ----------------------------------------------------------------------------------------


async def test_s07_a_job_event_is_id_then_event_then_data_then_an_empty_line(api: Api) -> None:
    await queue(api, "x")
    answer = await api.send("GET", "/v0/topics/q/work?node=w&lease_ms=5000")
    assert isinstance(answer, StreamedResponse)
    assert answer.content_type.startswith(b"text/event-stream")
    assert await anext(answer.chunks) == b"retry: 2000\n\n"
    assert await anext(answer.chunks) == (
        b'id: 1\nevent: job\ndata: {"topic":"q","$seq":1,"lease_id":"lease_1","deadline":%d,'
        b'"$ts":%d,"deliveries":1,"data":"x"}\n\n' % (START_MS + 5000, START_MS)
    )
    await answer.chunks.aclose()  # type: ignore[attr-defined]


async def test_s07_work_is_refilled_when_a_lease_of_another_runs_out(api: Api) -> None:
    jobs = await queue(api, 1)
    await jobs.claim(node="other", lease_ms=1000)
    events = await working(api)
    await events.next()
    waiting = asyncio.create_task(events.named())
    await settle_tasks()
    for _ in range(5):  # at the latest a quarter of a second behind the deadline
        api.pass_time(0.25)
        await settle_tasks()
    assert waiting.done()
    assert (await waiting)[1]["deliveries"] == 2
    await events.close()


async def test_s07_work_on_a_log_or_on_nothing_is_refused_before_it_begins(api: Api) -> None:
    await api.write("log", 1)
    status, answer = await api.call("GET", "/v0/topics/log/work?node=w")
    assert (status, answer["error"]["code"], answer["error"]["detail"]) == (
        409, "not_a_queue", {"topic": "log"},
    )  # fmt: skip
    assert await api.error("GET", "/v0/topics/none/work?node=w") == (404, "topic_not_found")
    assert api.catalog.find("none") is None


async def test_s07_jobs_that_a_leaving_worker_had_are_claimable_at_once(api: Api) -> None:
    jobs = await queue(api, 1, 2, 3)
    events = await working(api)
    await events.named()
    assert await jobs.seqs(9, node="other") == [3]
    await events.close()
    assert [(job["$seq"], job["deliveries"]) for job in await jobs.claim(9, node="other")] == [
        (1, 2), (2, 2),
    ]  # fmt: skip
