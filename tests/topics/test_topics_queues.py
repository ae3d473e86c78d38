"""Queues over HTTP: claim, ack, nack, extend, dead letters and restarts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from topics_api import Api

from millstream.errors import InvalidStreamConfig, StorageFull
from millstream.http.request import Caller
from millstream.message import NewRecord
from millstream.store.log.log import Durability
from millstream.streams.config.config import StreamConfig

START_MS = 1_700_000_000_000


@pytest.fixture
async def q(api: Api) -> "Jobs":
    """A queue named q."""
    jobs = Jobs(api)
    await jobs.make()
    return jobs


class Jobs:
    """Calls on one queue, answers as plain values."""

    def __init__(self, api: Api, topic: str = "q") -> None:
        self.api = api
        self.topic = topic

    async def make(self, **config: Any) -> None:
        wish = {"type": "queue", **config}
        status, answer = await self.api.call("PUT", f"/v0/topics/{self.topic}", wish)
        assert status in (200, 201), answer

    async def add(self, *data: object) -> None:
        await self.api.write(self.topic, *data)

    async def post(self, verb: str, **body: Any) -> Any:
        status, answer = await self.api.call("POST", f"/v0/topics/{self.topic}/{verb}", body)
        assert status == 200, answer
        assert answer.pop("performance")["server_total_ms"] >= 0
        return answer

    async def claim(self, most: int = 1, node: str = "w", **more: Any) -> list[Any]:
        answer = await self.post("claim", node=node, max=most, **more)
        assert answer["count"] == len(answer["claimed"])
        return list(answer["claimed"])

    async def seqs(self, most: int = 1, node: str = "w", **more: Any) -> list[int]:
        return [job["$seq"] for job in await self.claim(most, node, **more)]

    async def ack(self, *seqs: int, node: str = "w", **more: Any) -> Any:
        return await self.post("ack", node=node, seqs=seqs, **more)

    async def nack(self, *seqs: int, node: str = "w", **more: Any) -> Any:
        return await self.post("nack", node=node, seqs=seqs, **more)

    async def counters(self) -> tuple[int, int, int]:
        _, state = await self.api.call("GET", f"/v0/topics/{self.topic}")
        queue = state["queue"]
        assert list(queue) == ["ready", "in_flight", "dead_lettered"]
        return queue["ready"], queue["in_flight"], queue["dead_lettered"]


# -- claim -----------------------------------------------------------------------------------


async def test_a_claimed_job_shows_its_lease_and_its_record_but_not_its_node(q: Jobs) -> None:
    record = {"data": {"b": 1, "a": [2]}, "tag": "eu", "node": "writer", "meta": {"k": "v"}}
    await q.api.call("POST", "/v0/topics/q", {"records": [record, {"data": None}]})
    answer = await q.post("claim", node="w", max=5)
    assert answer == {
        "topic": "q",
        "claimed": [
            {
                "$seq": 1,
                "lease_id": "lease_1",
                "deadline": START_MS + 30_000,
                "$ts": START_MS,
                "$tag": "eu",
                "deliveries": 1,
                "data": {"b": 1, "a": [2]},
                "meta": {"k": "v"},
            },
            {
                "$seq": 2,
                "lease_id": "lease_2",
                "deadline": START_MS + 30_000,
                "$ts": START_MS,
                "deliveries": 1,
                "data": None,
            },
        ],
        "count": 2,
        "ready": 0,
    }
    assert list(answer["claimed"][0]) == [
        "$seq", "lease_id", "deadline", "$ts", "$tag", "deliveries", "data", "meta",
    ]  # fmt: skip


async def test_lease_ids_count_in_lower_case_hex(q: Jobs) -> None:
    await q.add(*range(11))
    assert (await q.claim(11))[9]["lease_id"] == "lease_a"


async def test_a_claim_takes_one_job_unless_it_says_more(q: Jobs) -> None:
    await q.add(1, 2)
    assert (await q.post("claim", node="w"))["count"] == 1


@pytest.mark.parametrize(("asked", "got"), [(0, 1), (1000, 1000), (4_000_000_000, 1000)])
async def test_the_number_of_jobs_is_clamped(q: Jobs, asked: int, got: int) -> None:
    await q.add(*range(1001))
    assert len(await q.claim(asked)) == got


@pytest.mark.parametrize(("asked", "given"), [(1, 100), (5000, 5000), (10**12, 86_400_000)])
async def test_the_length_of_a_lease_is_clamped(q: Jobs, asked: int, given: int) -> None:
    await q.add(1)
    assert (await q.claim(lease_ms=asked))[0]["deadline"] == START_MS + given


async def test_a_queue_without_jobs_answers_an_empty_claim(q: Jobs) -> None:
    assert await q.post("claim", node="w") == {"topic": "q", "claimed": [], "count": 0, "ready": 0}


async def test_an_expired_lease_is_claimable_right_after_its_deadline(q: Jobs) -> None:
    await q.add("job")
    await q.claim(lease_ms=100)
    q.api.pass_time(0.100)
    assert await q.seqs(node="other") == []
    q.api.pass_time(0.001)
    (job,) = await q.claim(node="other")
    assert (job["$seq"], job["lease_id"], job["deliveries"]) == (1, "lease_2", 2)


async def test_a_claim_answers_a_bounded_number_of_bytes(q: Jobs) -> None:
    for _ in range(3):
        await q.add(*["x" * 1_000_000] * 4)
    first, second = await q.seqs(12), await q.seqs(12)
    assert first == list(range(1, 10))
    assert second == [10, 11, 12]


async def test_a_job_that_came_over_nats_shows_its_subject_and_headers(api: Api) -> None:
    jobs = Jobs(api)
    await jobs.make(subjects=["q", "work.>"])
    stream = api.stream("q")
    await stream.append([NewRecord(b"work.a", b"\xff", b"NATS/1.0\r\nA: 1\r\n\r\n")])
    (job,) = await jobs.claim()
    assert (job["$subject"], job["data"], job["meta"]) == (
        "work.a",
        {"$base64": "/w=="},
        {"A": "1"},
    )


# -- ack, nack, extend -----------------------------------------------------------------------


async def test_an_acked_job_is_deleted_for_good(q: Jobs) -> None:
    await q.add(1, 2, 3)
    await q.claim(2)
    assert await q.ack(2, 1) == {
        "topic": "q", "acked": 2, "skipped": [], "ready": 1, "in_flight": 0,
    }  # fmt: skip
    assert [r["$seq"] for r in (await q.api.diff("q"))["records"]] == [3]
    assert (await q.ack(1))["skipped"] == [1]


async def test_skipped_jobs_are_told_in_the_order_of_the_request(q: Jobs) -> None:
    await q.add(1, 2, 3)
    await q.claim(2)
    answer = await q.ack(9, 2, 3, 2, 7)
    assert (answer["acked"], answer["skipped"]) == (1, [9, 3, 2, 7])


async def test_only_the_node_that_holds_a_lease_can_answer(q: Jobs) -> None:
    await q.add(1)
    await q.claim(node="w")
    assert (await q.ack(1, node="thief"))["skipped"] == [1]
    assert (await q.nack(1, node="thief"))["skipped"] == [1]
    assert (await q.post("extend", node="thief", seqs=[1], lease_ms=9))["skipped"] == [1]


async def test_a_stale_token_is_skipped_and_an_empty_one_is_no_token(q: Jobs) -> None:
    await q.add(1, 2)
    await q.claim(2)
    assert (await q.ack(1, 2, lease_ids=["lease_9", ""]))["skipped"] == [1]
    assert (await q.ack(1, lease_ids=["lease_1"]))["acked"] == 1


async def test_a_worker_that_lost_its_lease_to_itself_cannot_ack_with_the_old_token(
    q: Jobs,
) -> None:
    await q.add(1)
    await q.claim(lease_ms=100)
    q.api.pass_time(1)
    await q.claim()
    assert (await q.ack(1, lease_ids=["lease_1"]))["skipped"] == [1]
    assert (await q.ack(1, lease_ids=["lease_2"]))["acked"] == 1


async def test_no_jobs_named_is_nothing_done(q: Jobs) -> None:
    assert (await q.ack())["acked"] == 0
    assert (await q.nack())["nacked"] == 0
    answer = await q.post("extend", node="w", seqs=[], lease_ms=1)
    assert answer == {"topic": "q", "extended": 0, "skipped": [], "deadlines": {}}


async def test_a_nack_makes_the_job_claimable_at_once(q: Jobs) -> None:
    await q.add(1)
    await q.claim()
    assert await q.nack(1) == {
        "topic": "q", "nacked": 1, "skipped": [], "ready": 1, "in_flight": 0,
    }  # fmt: skip
    assert (await q.claim())[0]["deliveries"] == 2


async def test_a_delayed_nack_counts_as_nothing_until_the_delay_is_over(q: Jobs) -> None:
    await q.add(1)
    await q.claim()
    answer = await q.nack(1, delay_ms=500)
    assert (answer["ready"], answer["in_flight"]) == (0, 0)
    q.api.pass_time(0.499)
    assert await q.seqs() == []
    q.api.pass_time(0.001)
    assert await q.counters() == (1, 0, 0)
    assert await q.seqs() == [1]


async def test_a_delay_is_at_most_a_day(q: Jobs) -> None:
    await q.add(1)
    await q.claim()
    await q.nack(1, delay_ms=10**15)
    q.api.pass_time(86_400)
    assert await q.seqs() == [1]


async def test_extending_sets_the_deadline_from_now(q: Jobs) -> None:
    await q.add(1, 2)
    await q.claim(2, lease_ms=1000)
    q.api.pass_time(0.5)
    answer = await q.post("extend", node="w", seqs=[1, 3], lease_ms=2000)
    assert answer == {
        "topic": "q", "extended": 1, "skipped": [3], "deadlines": {"1": START_MS + 2500},
    }  # fmt: skip
    q.api.pass_time(1)
    assert await q.counters() == (1, 1, 0)
    late = await q.post("extend", node="w", seqs=[2], lease_ms=50)
    assert late["skipped"] == [2]


async def test_ack_reports_a_sync_only_where_there_was_one(q: Jobs) -> None:
    await q.add(1)
    await q.claim()
    body = {"node": "w", "seqs": [1]}
    _, answer = await q.api.call("POST", "/v0/topics/q/ack", body)
    assert "fsync_ms" not in answer["performance"]
    synced = Jobs(q.api, "synced")
    await synced.make(durability="fsync")
    await synced.add(1)
    await synced.claim()
    _, answer = await q.api.call("POST", "/v0/topics/synced/ack", body)
    assert answer["performance"]["fsync_ms"] > 0


async def test_jobs_that_cannot_be_deleted_are_claimable_again(
    q: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    await q.add(1, 2)
    await q.claim(2)
    stream = q.api.stream("q")

    async def full(*_: object) -> int:
        raise StorageFull("no room")

    monkeypatch.setattr(type(stream), "delete", full)
    body = {"node": "w", "seqs": [1, 2]}
    assert await q.api.error("POST", "/v0/topics/q/ack", body) == (507, "insufficient_storage")
    monkeypatch.undo()
    assert await q.counters() == (2, 0, 0)
    assert [job["deliveries"] for job in await q.claim(2)] == [2, 2]


# -- refusals --------------------------------------------------------------------------------

ACK = {"node": "w", "seqs": [1]}
EXTEND = {**ACK, "lease_ms": 1000}


@pytest.mark.parametrize(
    ("verb", "body"), [("claim", {"node": "w"}), ("ack", ACK), ("nack", ACK), ("extend", EXTEND)]
)
async def test_a_log_has_no_jobs_and_an_unknown_topic_is_not_created(
    api: Api, verb: str, body: Any
) -> None:
    await api.write("log", 1)
    status, answer = await api.call("POST", f"/v0/topics/log/{verb}", body)
    assert (status, answer["error"]["code"]) == (409, "not_a_queue")
    assert answer["error"]["detail"] == {"topic": "log"}
    status, answer = await api.call("POST", f"/v0/topics/none/{verb}", body)
    assert (status, answer["error"]["code"]) == (404, "topic_not_found")
    assert answer["error"]["detail"] == {"topic": "none"}
    assert await api.error("GET", "/v0/topics/none") == (404, "topic_not_found")
    assert await api.error("GET", f"/v0/topics/log/{verb}") == (405, "method_not_allowed")


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
async def test_an_empty_body_is_refused(q: Jobs, verb: str) -> None:
    path = f"/v0/topics/q/{verb}"
    assert await q.api.error("POST", path) == (415, "unsupported_media_type")
    json = {"content-type": "application/json"}
    assert await q.api.error("POST", path, b"", headers=json) == (400, "invalid_request")


async def test_an_empty_claim_is_refused_whatever_its_type(q: Jobs) -> None:
    assert await q.api.error("POST", "/v0/topics/q/claim") == (400, "invalid_request")
    text = {"content-type": "text/plain"}
    assert await q.api.error("POST", "/v0/topics/q/claim", b"{}", headers=text) == (
        415, "unsupported_media_type",
    )  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"node": 5},
        {"node": "w", "max": -1},
        {"node": "w", "max": 2**32},
        {"node": "w", "max": "2"},
        {"node": "w", "lease_ms": -1},
        {"node": "w", "lease_ms": 2**64},
    ],
)
async def test_a_malformed_claim_is_refused_before_the_topic_is_looked_up(
    api: Api, body: Any
) -> None:
    assert await api.error("POST", "/v0/topics/none/claim", body) == (400, "invalid_request")


@pytest.mark.parametrize("node", ["", "n" * 129, "é" * 65])
async def test_a_claim_without_a_proper_node_is_refused_after_the_topic(q: Jobs, node: str) -> None:
    await q.api.write("log", 1)
    body = {"node": node}
    assert await q.api.error("POST", "/v0/topics/none/claim", body) == (404, "topic_not_found")
    assert await q.api.error("POST", "/v0/topics/log/claim", body) == (409, "not_a_queue")
    assert await q.api.error("POST", "/v0/topics/q/claim", body) == (400, "invalid_request")
    assert await q.seqs(node="n" * 128) == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"seqs": [1]}, "invalid_request"),
        ({"node": "w"}, "invalid_request"),
        ({"node": "w", "seqs": [-1]}, "invalid_request"),
        ({"node": "w", "seqs": [2**64]}, "invalid_request"),
        ({"node": "w", "seqs": ["1"]}, "invalid_request"),
        ({"node": "w", "seqs": [1], "lease_ids": ["1"]}, "invalid_request"),
        ({"node": "w", "seqs": [1], "lease_ids": ["lease_"]}, "invalid_request"),
        ({"node": "w", "seqs": [1], "lease_ids": ["lease_xyz"]}, "invalid_request"),
        ({"node": "w", "seqs": [1], "lease_ids": ["lease_" + "1" * 17]}, "invalid_request"),
        ({"node": "", "seqs": [1]}, "invalid_request"),
        ({"node": "n" * 129, "seqs": [1]}, "invalid_request"),
        ({"node": "w", "seqs": [1], "lease_ids": ["", ""]}, "invalid_request"),
        ({"node": "w", "seqs": list(range(1001))}, "batch_too_large"),
        # What is checked first answers first: token, node, number of jobs, number of tokens.
        ({"node": "w", "seqs": list(range(1001)), "lease_ids": ["x"]}, "invalid_request"),
        ({"node": "", "seqs": list(range(1001))}, "invalid_request"),
        ({"node": "w", "seqs": list(range(1001)), "lease_ids": [""]}, "batch_too_large"),
    ],
)
@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
async def test_a_malformed_answer_is_refused_before_the_topic_is_looked_up(
    api: Api, verb: str, body: Any, code: str
) -> None:
    body = {**body, "lease_ms": 1000}
    assert await api.error("POST", f"/v0/topics/none/{verb}", body) == (400, code)


async def test_too_many_jobs_are_told_with_the_limit(q: Jobs) -> None:
    body = {"node": "w", "seqs": list(range(1001))}
    _, answer = await q.api.call("POST", "/v0/topics/q/ack", body)
    assert answer["error"]["detail"] == {"seqs": 1001, "max": 1000}
    assert (await q.ack(*range(1000)))["acked"] == 0


async def test_extend_needs_a_length_and_nack_a_sensible_delay(q: Jobs) -> None:
    refused = (400, "invalid_request")
    assert await q.api.error("POST", "/v0/topics/q/extend", ACK) == refused
    assert await q.api.error("POST", "/v0/topics/q/nack", {**ACK, "delay_ms": -1}) == refused


async def test_null_and_unknown_fields_mean_nothing(q: Jobs) -> None:
    await q.add(1)
    assert await q.seqs(lease_ms=None, color="red") == [1]
    assert (await q.nack(1, delay_ms=None, lease_ids=None))["nacked"] == 1
    assert (await q.post("claim", node="w", max=None))["count"] == 1
    assert (await q.ack(1, lease_ids=[]))["acked"] == 1


async def test_a_key_for_other_names_sees_nothing_of_a_queue(q: Jobs) -> None:
    stranger = Caller(prefixes=("mine:",))
    for verb in ("claim", "ack", "nack", "extend"):
        path = f"/v0/topics/q/{verb}"
        assert await q.api.error("POST", path, b"?", caller=stranger) == (403, "forbidden")
    assert await q.api.error("GET", "/v0/topics/q/work", caller=stranger) == (403, "forbidden")


async def test_a_key_cannot_send_dead_letters_where_it_may_not_write(api: Api) -> None:
    stranger = Caller(prefixes=("mine:",))
    wish = {"type": "queue", "dead_letter": "theirs"}
    put = api.error("PUT", "/v0/topics/mine:q", wish, caller=stranger)
    assert await put == (403, "forbidden")


# -- state -----------------------------------------------------------------------------------


async def test_the_counters_add_up_to_the_jobs_there_are(q: Jobs) -> None:
    await q.add(*range(6))
    await q.claim(3)
    await q.nack(1)
    await q.nack(2, delay_ms=1000)
    assert await q.counters() == (4, 1, 0)
    assert "queue" not in (await q.api.call("GET", "/v0/topics/q"))[1]["config"]
    await q.api.write("log", 1)
    assert "queue" not in (await q.api.call("GET", "/v0/topics/log"))[1]


async def test_jobs_removed_by_others_are_no_longer_counted_nor_held(q: Jobs) -> None:
    await q.api.call("POST", "/v0/topics/q", {"records": [{"data": 1, "tag": "x"}] * 2})
    await q.add(3, 4)
    await q.claim(3)
    await q.api.call("POST", "/v0/topics/q/delete", {"match": "x"})
    assert await q.counters() == (1, 1, 0)
    assert (await q.ack(1, 2, 3))["skipped"] == [1, 2]


async def test_a_job_whose_time_is_over_is_not_handed_out(api: Api) -> None:
    jobs = Jobs(api)
    await jobs.make(ttl_ms=1000)
    await jobs.add(1, 2)
    await jobs.claim(lease_ms=100)
    api.clock.advance(2)  # and the timers have not run yet
    assert await jobs.counters() == (0, 0, 0)
    assert await jobs.seqs(5) == []


async def test_the_oldest_job_dropped_by_a_cap_frees_its_lease(api: Api) -> None:
    jobs = Jobs(api)
    await jobs.make(cap_records=2)
    await jobs.add(1, 2)
    await jobs.claim(2)
    await jobs.add(3)
    assert await jobs.counters() == (1, 1, 0)


async def test_a_queue_stays_readable_and_its_type_stays(q: Jobs) -> None:
    await q.add(1)
    await q.claim()
    assert len((await q.api.diff("q"))["records"]) == 1
    exists = (409, "topic_exists_incompatible")
    assert await q.api.error("PUT", "/v0/topics/q", {}) == exists
    stream = q.api.stream("q")
    plain = StreamConfig.from_request({**stream.config.to_request(), "metadata": {}})
    with pytest.raises(InvalidStreamConfig, match=r"millstream\.type"):
        await q.api.catalog.update(plain)


async def test_changed_settings_count_from_the_next_claim_on(q: Jobs) -> None:
    await q.add(1)
    await q.make(lease_ms=5000)
    assert (await q.claim())[0]["deadline"] == START_MS + 5000


async def test_a_recreated_queue_starts_over(q: Jobs) -> None:
    await q.add(1)
    await q.claim()
    await q.api.call("DELETE", "/v0/topics/q")
    await q.make()
    await q.add(2)
    assert await q.counters() == (1, 0, 0)
    (job,) = await q.claim()
    assert (job["lease_id"], job["deliveries"], job["data"]) == ("lease_1", 1, 2)


# -- dead letters ----------------------------------------------------------------------------


async def test_a_job_is_given_up_after_its_deliveries(api: Api) -> None:
    jobs = Jobs(api)
    await jobs.make(max_deliveries=2, dead_letter="dead")
    record = {"data": {"n": 1}, "tag": "t", "node": "p", "meta": {"k": 1.50}}
    await api.call("POST", "/v0/topics/q", {"records": [record]})
    for deliveries in (1, 2):
        (job,) = await jobs.claim()
        assert job["deliveries"] == deliveries
        await jobs.nack(1)
    assert (await jobs.post("claim", node="w"))["count"] == 0
    assert await jobs.counters() == (0, 0, 1)
    (copy,) = (await api.diff("dead", include_tags=True))["records"]
    assert copy == {
        "$seq": 1,
        "$ts": START_MS,
        "$node": "p",
        "$tag": "t",
        "data": {"n": 1},
        "meta": {
            "k": 1.5,
            "$dead_letter_from": "q",
            "$dead_letter_deliveries": "2",
            "$dead_letter_src_seq": "1",
        },
    }
    assert (await api.diff("q"))["records"] == []


async def test_the_claim_goes_on_behind_a_job_that_is_given_up(api: Api) -> None:
    jobs = Jobs(api)
    await jobs.make(max_deliveries=1, dead_letter="dead")
    await jobs.add(1, 2)
    await jobs.claim()
    await jobs.nack(1)
    assert await jobs.seqs() == [2]


async def test_more_given_up_jobs_than_one_pass_takes_are_all_moved(api: Api) -> None:
    jobs = Jobs(api)
    await jobs.make(max_deliveries=1, dead_letter="dead")
    await jobs.add(*range(150))
    await jobs.nack(*await jobs.seqs(150))
    await jobs.add("fresh")
    assert await jobs.seqs() == [151]
    assert await jobs.counters() == (0, 1, 150)
    assert api.stream("dead").state().messages == 150


async def test_without_a_dead_letter_topic_a_job_comes_again_for_ever(api: Api) -> None:
    jobs = Jobs(api)
    await jobs.make(max_deliveries=1)
    await jobs.add(1)
    for deliveries in range(1, 5):
        assert (await jobs.claim())[0]["deliveries"] == deliveries
        await jobs.nack(1)


@pytest.mark.parametrize("meta", ["text", [1], 5])
async def test_a_meta_that_is_no_object_makes_room_for_one(api: Api, meta: Any) -> None:
    jobs = Jobs(api)
    await jobs.make(max_deliveries=1, dead_letter="dead")
    await api.call("POST", "/v0/topics/q", {"records": [{"data": 1, "meta": meta}]})
    await jobs.claim()
    await jobs.nack(1)
    await jobs.claim()
    (copy,) = (await api.diff("dead"))["records"]
    assert sorted(copy["meta"]) == [
        "$dead_letter_deliveries", "$dead_letter_from", "$dead_letter_src_seq",
    ]  # fmt: skip


async def test_a_job_that_cannot_be_moved_stays_in_the_queue(api: Api) -> None:
    jobs = Jobs(api)
    await jobs.make(max_deliveries=1, dead_letter="dead")
    full = {"cap_records": 1, "discard": "reject"}
    await api.call("PUT", "/v0/topics/dead", full)
    await api.write("dead", "occupied")
    await jobs.add(1, 2)
    await jobs.claim()
    await jobs.nack(1)
    assert await jobs.seqs(5) == [2]  # the claim itself succeeds
    assert await jobs.counters() == (1, 1, 0)
    await api.call("POST", "/v0/topics/dead/delete", {"before_seq": 2})
    assert await jobs.seqs() == []
    assert await jobs.counters() == (0, 1, 1)


async def test_dead_letters_respect_the_cap_on_topics(api: Api) -> None:
    jobs = Jobs(api)
    await jobs.make(max_deliveries=1, dead_letter="dead")
    api.topics.topic_limit.most = 1
    await jobs.add(1)
    await jobs.claim()
    await jobs.nack(1)
    assert await jobs.seqs() == []
    assert await jobs.counters() == (1, 0, 0)
    assert await api.error("GET", "/v0/topics/dead") == (404, "topic_not_found")


async def test_a_client_that_leaves_does_not_tear_a_move_to_the_dead_letters(api: Api) -> None:
    jobs = Jobs(api)
    await jobs.make(max_deliveries=1, dead_letter="dead")
    await jobs.add(1, 2)
    await jobs.claim()
    await jobs.nack(1)
    claim = asyncio.create_task(jobs.claim(2))
    for _ in range(3):
        await asyncio.sleep(0)
    claim.cancel()
    await asyncio.gather(claim, return_exceptions=True)
    await api.topics.queues.finish()
    assert await jobs.counters() == (1, 0, 1)
    assert api.stream("dead").state().messages == 1


# -- cohorts ---------------------------------------------------------------------------------


async def settle_tasks() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_claimers_within_the_window_share_evenly(api: Api) -> None:
    jobs = Jobs(api)
    await jobs.make(claim_jitter_ms=120)
    await jobs.add(*range(20))
    claims = [asyncio.create_task(jobs.seqs(10, node=f"w{n}")) for n in range(4)]
    await settle_tasks()
    assert not any(claim.done() for claim in claims)
    api.pass_time(0.120)
    found = await asyncio.gather(*claims)
    assert [len(seqs) for seqs in found] == [5, 5, 5, 5]
    assert sorted(seq for seqs in found for seq in seqs) == list(range(1, 21))
    assert all(seqs == sorted(seqs) for seqs in found)


async def test_the_length_of_the_first_claim_counts_for_its_cohort(api: Api) -> None:
    jobs = Jobs(api)
    await jobs.make(claim_jitter_ms=50)
    await jobs.add(1, 2)
    first = asyncio.create_task(jobs.claim(lease_ms=1000))
    await settle_tasks()
    second = asyncio.create_task(jobs.claim(lease_ms=9000))
    await settle_tasks()
    api.pass_time(0.050)
    assert {(await claim)[0]["deadline"] for claim in (first, second)} == {START_MS + 1050}


async def test_a_claimer_that_leaves_during_the_window_takes_nothing(api: Api) -> None:
    jobs = Jobs(api)
    await jobs.make(claim_jitter_ms=50)
    await jobs.add(1, 2)
    leader = asyncio.create_task(jobs.claim(2, node="leader"))
    await settle_tasks()
    joiner = asyncio.create_task(jobs.seqs(2, node="joiner"))
    await settle_tasks()
    leader.cancel()
    await settle_tasks()
    api.pass_time(0.050)
    assert await joiner == [1, 2]


async def test_a_claimer_that_leaves_as_the_window_ends_takes_nothing(api: Api) -> None:
    jobs = Jobs(api)
    await jobs.make(claim_jitter_ms=50)
    await jobs.add(1, 2)
    leader = asyncio.create_task(jobs.claim(2, node="leader"))
    await settle_tasks()
    joiner = asyncio.create_task(jobs.seqs(2, node="joiner"))
    await settle_tasks()
    leader.cancel()
    api.pass_time(0.050)
    assert await joiner == [1, 2]
    assert await jobs.counters() == (0, 2, 0)


async def test_when_the_pass_fails_the_first_hears_it_and_the_others_get_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Jobs(api)
    await jobs.make(claim_jitter_ms=50, leases_durable=True)
    await jobs.add(1, 2)

    def full(*args: object) -> None:
        raise StorageFull("no room")

    body = {"node": "w", "max": 5}
    leader = asyncio.create_task(api.error("POST", "/v0/topics/q/claim", body))
    await settle_tasks()
    joiner = asyncio.create_task(jobs.seqs(5, node="joiner"))
    await settle_tasks()
    with monkeypatch.context() as patch:
        patch.setattr(api.store, "control", full)
        api.pass_time(0.050)
        assert await leader == (507, "insufficient_storage")
        assert await joiner == []
    assert await jobs.counters() == (2, 0, 0)
    claim = asyncio.create_task(jobs.claim(2))
    await settle_tasks()
    api.pass_time(0.050)
    assert [job["deliveries"] for job in await claim] == [1, 1]


async def test_deleting_the_queue_answers_those_who_wait_in_a_window(api: Api) -> None:
    jobs = Jobs(api)
    await jobs.make(claim_jitter_ms=5000)
    claim = asyncio.create_task(api.error("POST", "/v0/topics/q/claim", {"node": "w"}))
    await settle_tasks()
    await api.call("DELETE", "/v0/topics/q")
    assert await claim == (404, "topic_not_found")


async def test_a_stopping_server_does_not_wait_for_the_window(api: Api) -> None:
    jobs = Jobs(api)
    await jobs.make(claim_jitter_ms=5000)
    await jobs.add(1)
    claim = asyncio.create_task(jobs.seqs())
    await settle_tasks()
    api.topics.stop()
    assert await claim == [1]
    api.pass_time(5)
    assert await jobs.counters() == (0, 1, 0)


# -- restarts --------------------------------------------------------------------------------


class Process:
    """An API that can be ended, with or without a snapshot, and started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.api = Api(directory)

    async def again(self, *, snapshot: bool) -> Api:
        api = self.api
        await api.topics.queues.finish()
        sections = {"streams": api.catalog.section(), **api.topics.sections()}
        api.catalog.close()
        api.store.close(sections if snapshot else None)
        self.api = Api(self.directory, api.clock)
        return self.api

    def end(self) -> None:
        self.api.catalog.close()
        self.api.store.close()


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Process]:
    made = Process(tmp_path / "data")
    yield made
    made.end()


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("durability", ["disk", "fsync", "memory"])
async def test_durable_leases_come_back(process: Process, snapshot: bool, durability: str) -> None:
    jobs = Jobs(process.api)
    await jobs.make(leases_durable=True, durability=durability)
    await jobs.add(*range(1, 7))
    await jobs.claim(5, node="a", lease_ms=10_000)
    await jobs.ack(1, node="a")
    await jobs.nack(2, node="a")
    await jobs.nack(3, node="a", delay_ms=5000)
    await jobs.post("extend", node="a", seqs=[4], lease_ms=60_000)
    for _ in range(2):  # the second time from what the first start kept
        jobs = Jobs(await process.again(snapshot=snapshot))
        assert await jobs.counters() == (2, 2, 0)
        assert process.api.stream("q").log.durability is Durability(durability)
    assert (await jobs.ack(5, node="a", lease_ids=["lease_5"]))["acked"] == 1
    (second, sixth) = await jobs.claim(9, node="b")
    assert (second["$seq"], second["deliveries"]) == (2, 2)
    assert (sixth["$seq"], sixth["deliveries"]) == (6, 1)
    process.api.pass_time(5)
    (third,) = await jobs.claim(9, node="b")
    assert (third["$seq"], third["deliveries"]) == (3, 2)
    process.api.pass_time(54.9)
    assert 4 not in await jobs.seqs(9, node="c")
    process.api.pass_time(0.2)
    assert 4 in await jobs.seqs(9, node="c")


@pytest.mark.parametrize("snapshot", [False, True])
async def test_without_durable_leases_a_restart_makes_every_job_claimable(
    process: Process, snapshot: bool
) -> None:
    jobs = Jobs(process.api)
    await jobs.make()
    await jobs.add(1, 2, 3)
    await jobs.claim(2)
    await jobs.nack(2, delay_ms=60_000)
    jobs = Jobs(await process.again(snapshot=snapshot))
    assert await jobs.counters() == (3, 0, 0)
    claimed = await jobs.claim(9)
    assert [(job["$seq"], job["deliveries"]) for job in claimed] == [(1, 1), (2, 1), (3, 1)]


@pytest.mark.parametrize("durable", [False, True])
async def test_a_lease_id_is_never_given_out_again_after_a_restart(
    process: Process, durable: bool
) -> None:
    jobs = Jobs(process.api)
    await jobs.make(leases_durable=durable)
    await jobs.add(1)
    assert (await jobs.claim(lease_ms=100))[0]["lease_id"] == "lease_1"
    jobs = Jobs(await process.again(snapshot=False))
    process.api.pass_time(1)
    await jobs.claim()
    assert (await jobs.ack(1, lease_ids=["lease_1"]))["skipped"] == [1]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("snapshot", [False, True])
async def test_the_number_of_dead_letters_survives(
    process: Process, durable: bool, snapshot: bool
) -> None:
    jobs = Jobs(process.api)
    await jobs.make(leases_durable=durable, max_deliveries=1, dead_letter="dead")
    await jobs.add(1, 2)
    await jobs.nack(*await jobs.seqs(2))
    assert await jobs.seqs() == []
    jobs = Jobs(await process.again(snapshot=snapshot))
    assert await jobs.counters() == (0, 0, 2)


async def test_a_poisonous_job_gets_no_fresh_deliveries_from_a_restart(process: Process) -> None:
    jobs = Jobs(process.api)
    await jobs.make(leases_durable=True, max_deliveries=2, dead_letter="dead")
    await jobs.add("poison")
    for snapshot in (True, False):
        await jobs.claim(lease_ms=100)  # and its worker dies
        jobs = Jobs(await process.again(snapshot=snapshot))
        process.api.pass_time(1)
    assert await jobs.seqs() == []
    assert await jobs.counters() == (0, 0, 1)


async def test_a_job_acked_before_the_restart_stays_gone(process: Process) -> None:
    jobs = Jobs(process.api)
    await jobs.make(leases_durable=True)
    await jobs.add(1, 2)
    await jobs.claim(2)
    await jobs.ack(1)
    jobs = Jobs(await process.again(snapshot=False))
    assert await jobs.counters() == (0, 1, 0)
    assert (await jobs.ack(1, 2)) == {
        "topic": "q", "acked": 1, "skipped": [1], "ready": 0, "in_flight": 0,
    }  # fmt: skip


async def test_an_ephemeral_queue_keeps_nothing_and_writes_nothing(process: Process) -> None:
    jobs = Jobs(process.api)
    await jobs.make(durability="ephemeral", leases_durable=True)
    await jobs.add(1)
    await jobs.claim()
    jobs = Jobs(await process.again(snapshot=True))
    assert await jobs.counters() == (0, 0, 0)
