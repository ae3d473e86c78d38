"""Dead letters sent back to the queues that they came from."""

from typing import Any

import pytest
from topics_api import Api

from millstream.http.request import Caller


async def bury(api: Api, queue: str, *data: object, dead: str = "dead", **more: Any) -> None:
    """Let jobs of a queue fail until they are dead letters."""
    config = {"type": "queue", "max_deliveries": 1, "dead_letter": dead}
    await api.call("PUT", f"/v0/topics/{queue}", config)
    body = {"records": [{"data": each, **more} for each in data]}
    await api.call("POST", f"/v0/topics/{queue}", body)
    for _ in range(2):
        _, claimed = await api.call("POST", f"/v0/topics/{queue}/claim", {"node": "w", "max": 1000})
        seqs = [job["$seq"] for job in claimed["claimed"]]
        await api.call("POST", f"/v0/topics/{queue}/nack", {"node": "w", "seqs": seqs})
    assert (await api.call("GET", f"/v0/topics/{queue}"))[1]["count"] == 0


async def redrive(api: Api, topic: str, body: object = None) -> Any:
    status, answer = await api.call("POST", f"/v0/topics/{topic}/redrive", body)
    assert status == 200, answer
    answer.pop("performance")
    return answer


async def test_letters_go_back_as_the_jobs_that_they_were(api: Api) -> None:
    await bury(api, "jobs", {"n": 1}, tag="t", node="x", meta={"kept": [1.50]})
    assert (await api.diff("dead"))["records"][0]["meta"]["$dead_letter_from"] == "jobs"
    assert await redrive(api, "dead") == {
        "topic": "dead",
        "redriven": 1,
        "skipped": [],
        "why": {},
        "to": {"jobs": 1},
    }
    assert (await api.diff("dead"))["records"] == []
    _, claimed = await api.call("POST", "/v0/topics/jobs/claim", {"node": "w"})
    (job,) = claimed["claimed"]
    assert (job["data"], job["$tag"], job["meta"]) == ({"n": 1}, "t", {"kept": [1.5]})
    assert job["deliveries"] == 1


async def test_letters_of_several_queues_each_find_their_way(api: Api) -> None:
    await bury(api, "a", 1, 2)
    await bury(api, "b", 3)
    assert (await redrive(api, "dead"))["to"] == {"a": 2, "b": 1}


async def test_some_letters_are_chosen_by_sequence_or_number(api: Api) -> None:
    await bury(api, "jobs", *range(6))
    assert (await redrive(api, "dead", {"seqs": [5, 2, 99]})) == {
        "topic": "dead",
        "redriven": 2,
        "skipped": [99],
        "why": {"no_record": 1},
        "to": {"jobs": 2},
    }
    assert (await redrive(api, "dead", {"max": 3}))["redriven"] == 3
    assert [each["$seq"] for each in (await api.diff("dead"))["records"]] == [6]


async def test_letters_may_go_to_another_queue(api: Api) -> None:
    await bury(api, "jobs", 1)
    await api.call("PUT", "/v0/topics/other", {"type": "queue"})
    assert (await redrive(api, "dead", {"to": "other"}))["to"] == {"other": 1}


async def test_what_is_no_letter_or_has_no_home_stays(api: Api) -> None:
    await bury(api, "jobs", 1)
    await api.write("dead", "by hand")
    await api.call("DELETE", "/v0/topics/jobs")
    assert await redrive(api, "dead") == {
        "topic": "dead",
        "redriven": 0,
        "skipped": [1, 2],
        "why": {"no_queue": 1, "no_letter": 1},
        "to": {},
    }
    assert (await api.call("GET", "/v0/topics/dead"))[1]["count"] == 2


async def test_a_queue_that_refuses_keeps_the_letters_where_they_are(api: Api) -> None:
    await bury(api, "jobs", 1, 2)
    config = {"type": "queue", "cap_records": 2, "discard": "reject"}
    await api.call("PUT", "/v0/topics/jobs", config)
    await api.write("jobs", "full")
    assert await api.error("POST", "/v0/topics/dead/redrive") == (422, "topic_full")
    assert (await api.call("GET", "/v0/topics/dead"))[1]["count"] == 2


async def test_letters_without_a_home_hide_none_behind_them(api: Api) -> None:
    await bury(api, "gone", *range(3))
    await bury(api, "jobs", 1, 2)
    await api.call("DELETE", "/v0/topics/gone")
    answer = await redrive(api, "dead", {"max": 1})
    assert (answer["to"], answer["skipped"]) == ({"jobs": 1}, [1, 2, 3])
    assert answer["why"] == {"no_queue": 3}
    assert answer["next_from_seq"] == 4
    again = await redrive(api, "dead", {"max": 1, "from_seq": 4})
    assert (again["to"], again["skipped"]) == ({"jobs": 1}, [])
    assert "next_from_seq" not in again


async def test_a_call_looks_past_a_thousand_letters_but_not_past_all(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan = {"data": 0, "meta": {"$dead_letter_from": "gone"}}
    await api.call("POST", "/v0/topics/dead", {"records": [orphan] * 2100})
    await bury(api, "jobs", 1)
    answer = await redrive(api, "dead")
    assert (answer["to"], len(answer["skipped"])) == ({"jobs": 1}, 2100)
    await bury(api, "jobs", 2)
    monkeypatch.setattr("millstream.topics.api.redrive.MOST_LOOKED_AT", 2000)
    answer = await redrive(api, "dead")
    assert (answer["to"], answer["why"], answer["next_from_seq"]) == ({}, {"no_queue": 2000}, 2000)
    answer = await redrive(api, "dead", {"from_seq": 2000})
    assert (answer["to"], answer["why"]) == ({"jobs": 2}, {"no_queue": 100})


async def test_only_letters_of_one_queue_go_back(api: Api) -> None:
    await bury(api, "a", 1, 2)
    await bury(api, "b", 3)
    answer = await redrive(api, "dead", {"from": "b"})
    assert (answer["to"], answer["skipped"]) == ({"b": 1}, [])
    assert (await redrive(api, "dead", {"from": "a", "seqs": [1, 2]}))["to"] == {"a": 2}


async def test_a_full_queue_keeps_only_its_own_letters_waiting(api: Api) -> None:
    await bury(api, "full", 1)
    await bury(api, "jobs", 2)
    config = {"type": "queue", "cap_records": 1, "discard": "reject"}
    await api.call("PUT", "/v0/topics/full", config)
    await api.write("full", "taken")
    answer = await redrive(api, "dead")
    assert (answer["to"], answer["why"]) == ({"jobs": 1}, {"topic_full": 1})


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"seqs": [-1]}, (400, "invalid_request")),
        ({"seqs": list(range(1001))}, (400, "batch_too_large")),
        ({"max": -1}, (400, "invalid_request")),
        ({"from_seq": -1}, (400, "invalid_request")),
        ({"to": "dead"}, (400, "invalid_request")),
        ({"to": "missing"}, (404, "topic_not_found")),
        ({"to": "log"}, (409, "not_a_queue")),
    ],
)
async def test_a_bad_wish_is_refused(api: Api, body: object, error: tuple[int, str]) -> None:
    await bury(api, "jobs", 1)
    await api.write("log", 1)
    assert await api.error("POST", "/v0/topics/dead/redrive", body) == error
    assert await api.error("POST", "/v0/topics/none/redrive", body) in (
        (404, "topic_not_found"),
        (400, "invalid_request"),
        (400, "batch_too_large"),
    )


async def test_a_key_sends_nothing_where_it_may_not_write(api: Api) -> None:
    await bury(api, "jobs", 1)
    mine = Caller(prefixes=("dead",), key="k")
    _, answer = await api.call("POST", "/v0/topics/dead/redrive", caller=mine)
    assert answer["skipped"] == [1]
    assert answer["to"] == {}
    refused = await api.error("POST", "/v0/topics/dead/redrive", {"to": "jobs"}, caller=mine)
    assert refused == (403, "forbidden")
