"""No request keeps the loop for long, however much it names; and the guard sees one that does."""

import asyncio
import gc
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.client.blocking import Client, connect
from millstream.server.process.loop_guard import GuardedLoop, Hold, LoopGuard
from support.broker import millstream
from support.loop_holds import LoopHolds

MANY = 10_000
LITERAL = [f"orders.{at}.new" for at in range(MANY)]
WILD = [f"orders.{at}.*" for at in range(MANY)]
HALF = range(MANY // 2)
ENTANGLED = [*(f"*.a{at}.x" for at in HALF), *(f"b{at}.*.y" for at in HALF)]


class Asked:
    """A client of a broker that is warm: the first calls of each kind are over."""

    def __init__(self, client: Client, http: str) -> None:
        self._client = client
        self._http = http

    def api(self, operation: str, body: dict[str, Any]) -> tuple[int, str]:
        """Return the code and the words of the error, 0 where all went well."""
        answer = self._client.request(f"$JS.API.{operation}", json.dumps(body).encode(), timeout=30)
        error = json.loads(answer.payload).get("error", {"err_code": 0, "description": ""})
        return error["err_code"], error["description"]

    def stream(self, name: str, action: str = "CREATE", **config: Any) -> tuple[int, str]:
        return self.api(f"STREAM.{action}.{name}", {"name": name, **config})

    def consumer(self, stream: str, name: str, **config: Any) -> tuple[int, str]:
        body = {"stream_name": stream, "config": {"name": name, **config}}
        return self.api(f"CONSUMER.CREATE.{stream}.{name}", body)

    def put(self, topic: str, subjects: list[str]) -> tuple[int, dict[str, Any]]:
        data = json.dumps({"subjects": subjects}).encode()
        url = f"{self._http}/v0/topics/{topic}"
        request = urllib.request.Request(
            url, data, {"content-type": "application/json"}, method="PUT"
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)


@pytest.fixture
def asked() -> Iterator[Asked]:
    """The guard of every test fails those that hold the loop: nothing here says so again."""
    with millstream() as peer, connect(peer.url) as client:
        asked = Asked(client, f"http://127.0.0.1:{peer.http_port}")
        for name in ("W1", "W2"):
            assert asked.stream(name, subjects=[f"{name}.{at}.*" for at in range(2000)])[0] == 0
            assert asked.consumer(name, "c", filter_subjects=[f"{name}.{i}.*" for i in range(2000)])
            assert asked.put(name.lower(), [f"t{name}.{at}" for at in range(2000)])[0] == 201
        yield asked


@pytest.mark.parametrize("subjects", [LITERAL, WILD], ids=["literals", "wildcards"])
def test_a_stream_of_10000_subjects_is_made_changed_and_deleted(
    asked: Asked, subjects: list[str]
) -> None:
    assert asked.stream("MANY", subjects=subjects) == (0, "")
    assert asked.stream("MANY", subjects=subjects) == (0, "")
    assert asked.stream("MANY", "UPDATE", subjects=[f"x.{one}" for one in subjects]) == (0, "")
    assert asked.stream("OTHER", subjects=["x.*.5.new"])[0] == 10065
    assert asked.stream("MANY", "UPDATE", subjects=subjects) == (0, "")
    assert asked.stream("OTHER", subjects=["y.orders.5.new"]) == (0, "")
    assert asked.api("STREAM.DELETE.MANY", {}) == (0, "")
    assert asked.stream("AGAIN", subjects=subjects) == (0, "")


@pytest.mark.parametrize("filters", [LITERAL, WILD], ids=["literals", "wildcards"])
def test_a_consumer_of_10000_filters_is_made_and_told_of_a_purge(
    asked: Asked, filters: list[str]
) -> None:
    assert asked.stream("ORDERS", subjects=["orders.>"]) == (0, "")
    assert asked.consumer("ORDERS", "c", filter_subjects=filters) == (0, "")
    assert asked.consumer("ORDERS", "d", durable_name="d", filter_subjects=filters) == (0, "")
    assert asked.consumer("ORDERS", "e", filter_subjects=[*filters[1:], "orders.7.>"])[0] == 10138
    assert asked.api("STREAM.PURGE.ORDERS", {"filter": "orders.*.new"}) == (0, "")


def test_consumers_of_a_work_queue_with_10000_filters_each_are_compared(asked: Asked) -> None:
    half = {"ack_policy": "explicit"}
    assert asked.stream("WORK", subjects=["orders.>"], retention="workqueue") == (0, "")
    assert asked.consumer("WORK", "a", filter_subjects=LITERAL, **half) == (0, "")
    others = [f"orders.{at}.old" for at in range(MANY)]
    assert asked.consumer("WORK", "b", filter_subjects=others, **half) == (0, "")
    code, why = asked.consumer("WORK", "c", filter_subjects=["orders.*.old"], **half)
    assert (code, why) == (10100, "filtered consumer not unique on workqueue stream")


def test_a_topic_of_10000_subjects_is_made_and_replaced_over_http(asked: Asked) -> None:
    assert asked.put("many", LITERAL)[0] == 201
    assert asked.put("many", WILD)[0] == 200
    assert asked.put("many", WILD)[0] == 200


def test_1000_sources_and_1000_transforms_are_taken_in(asked: Asked) -> None:
    assert asked.stream("ORDERS", subjects=["orders.>"]) == (0, "")
    sources = [{"name": "ORDERS", "filter_subject": one} for one in LITERAL[:1000]]
    assert asked.stream("SOURCES", sources=sources) == (0, "")
    moves = [{"src": one, "dest": "to.{{wildcard(1)}}"} for one in WILD[:1000]]
    assert asked.stream("MOVED", sources=[{"name": "ORDERS", "subject_transforms": moves}])[0] == 0
    assert asked.stream("MIRROR", mirror={"name": "ORDERS", "subject_transforms": moves})[0] == 0


def test_more_than_the_limits_are_refused_by_name(asked: Asked) -> None:
    assert asked.stream("S", subjects=[*LITERAL, "one.more"]) == (
        19001,
        "too many subjects of a stream: the request has 10001, the server takes at most 10000",
    )
    status, answer = asked.put("t", [*LITERAL, "one.more"])
    assert status == 400
    assert answer["error"]["code"] == "too_many"
    assert answer["error"]["detail"] == {
        "limit": "subjects of a stream",
        "max": MANY,
        "given": MANY + 1,
    }
    assert asked.stream("ORDERS", subjects=["orders.>"]) == (0, "")
    assert asked.consumer("ORDERS", "c", filter_subjects=[*LITERAL, "orders.x"])[0] == 19002
    sources = [{"name": "ORDERS", "filter_subject": one} for one in LITERAL]
    assert asked.stream("S", sources=sources)[0] == 19003
    moves = [{"src": one, "dest": ""} for one in LITERAL]
    for fed in ({"sources": [{"name": "ORDERS", "subject_transforms": moves}]},
                {"mirror": {"name": "ORDERS", "subject_transforms": moves}}):  # fmt: skip
        code, why = asked.stream("S", **fed)
        assert (code, why.partition(":")[0]) == (
            19003,
            "too many subject transforms of a stream's sources",
        )
    assert asked.stream("S", subjects=ENTANGLED, no_ack=True)[0] == 19004
    assert asked.stream("S", subjects=["a." * 10_000 + "a"]) == (
        10052,
        "a subject is longer than 16383 bytes",
    )


def test_streams_that_feed_each_other_on_many_ways_are_each_looked_at_once(asked: Asked) -> None:
    width, depth = 8, 8
    for layer in range(depth):
        names = [f"L{layer - 1}-{at}" for at in range(width)] if layer else []
        for at in range(width):
            sources = [{"name": name} for name in names]
            fed = {"sources": sources} if names else {"subjects": [f"fed.{at}"]}
            assert asked.stream(f"L{layer}-{at}", **fed) == (0, "")


def test_a_guarded_loop_reports_a_callback_that_keeps_it_but_no_first_one() -> None:
    told: list[Hold] = []
    guard = LoopGuard(told.append)

    def busy() -> None:
        until = time.thread_time() + 0.03
        while time.thread_time() < until:
            pass

    async def step() -> None:
        await asyncio.sleep(0)
        busy()
        await asyncio.sleep(0)
        busy()

    with asyncio.Runner(loop_factory=lambda: GuardedLoop(guard)) as runner:
        loop = runner.get_loop()
        loop.call_soon(busy)  # before the guard begins
        runner.run(asyncio.sleep(0))
        guard.begin()
        loop.call_soon(busy)
        loop.call_later(0, busy)
        runner.run(asyncio.sleep(0.01))
        assert [hold.what.rpartition(".")[2] for hold in told] == ["busy"]
        runner.run(step())
        guard.end()
        loop.call_soon(busy)
        runner.run(asyncio.sleep(0))
    assert [hold.what.rpartition(".")[2] for hold in told] == ["busy", "step", "step"]
    assert all(hold.ms >= 30 for hold in told)


def test_collections_are_reported_by_themselves() -> None:
    told: list[Hold] = []
    guard = LoopGuard(told.append)
    heap = [[at] for at in range(1_000_000)]
    guard.begin()
    for _ in range(2):
        guard.call(gc.collect, gc.collect)
    guard.end()
    assert {hold.what for hold in told} == {"gc generation 2"}
    assert len(heap) == 1_000_000


def test_what_servers_wrote_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_LOOP_GUARD", "")
    holds = LoopHolds(tmp_path)
    assert holds.new() == []
    path = tmp_path / "1.jsonl"
    path.write_bytes(b'{"what":"poll","ms":21.5}\n{"what":"cut')
    assert holds.new() == [Hold("poll", 21.5)]
    path.write_bytes(path.read_bytes() + b'","ms":1}\n')
    assert holds.new() == [Hold("cut", 1)]
