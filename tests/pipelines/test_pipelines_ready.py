"""The ready-made pipelines: archive, replay, compact, backfill, audit."""

import json
from pathlib import Path
from typing import Any

import pytest

from millstream.client.blocking import connect
from millstream.client.streams import ColdFile, PlannedSegment, ReadPlan, Tail
from millstream.pipelines import ready_made
from millstream.pipelines.audit import audit, missing
from millstream.pipelines.file.document import Document
from millstream.pipelines.file.parse import parse
from millstream.pipelines.preflight import preflight
from millstream.pipelines.run import run_tables
from millstream.spark.server import Server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_an_archived_stream_is_compacted_and_replayed_in_order(bench: Any) -> None:
    bench.create("LOGGED", "logged.>")
    with connect(bench.broker.url) as client:
        for number in range(1, 7):  # stored under conditions that hold nowhere else
            headers = {"Nats-Expected-Stream": ["LOGGED"], "Kind": ["a"]}
            headers["Nats-Expected-Last-Sequence"] = [str(number - 1)]
            payload = json.dumps({"n": number}).encode()
            client.request(f"logged.{number % 2}", payload, headers=headers)
    lake, small = str(bench.home / "lake"), str(bench.home / "small")
    assert bench.run(ready_made.archive("LOGGED", lake, "parquet", "day", {})) == {"lake": 6}
    assert bench.run(ready_made.archive("LOGGED", lake, "parquet", "day", {})) == {"lake": 0}
    assert [path.name for path in (bench.home / "lake").glob("stream=*")] == ["stream=LOGGED"]

    bench.run(ready_made.compact(lake, small, ["subject"], ["subject", "seq"], 1))
    assert bench.parquet("small", "subject", "seq") == [("logged.0", 6), ("logged.1", 5)]
    assert len(list((bench.home / "small").glob("*.parquet"))) == 1

    bench.create("AGAIN", "again.>")
    bench.run(ready_made.replay(lake, "parquet", "AGAIN", "again.all", "seq > 2"))
    assert [one["n"] for one in bench.payloads("AGAIN")] == [3, 4, 5, 6]
    assert [list(one.headers) for one in bench.records("AGAIN")] == [["Kind"]] * 4


def test_a_backfill_done_twice_writes_a_stream_once(bench: Any) -> None:
    bench.create("OLD", "old.>")
    bench.publish("old.x", {"n": 1}, {"n": 2})
    data = {
        "name": "copy",
        "run": "continuous",
        "sources": {"rows": {"stream": "OLD", "json": "n bigint"}},
        "steps": [{"name": "slim", "sql": "select n from rows order by n"}],
        "sinks": [{"from": "slim", "stream": "NEW", "create": ["NEW"]}],
    }
    pipeline = parse(Document("test", data, bench.home), {"url": bench.broker.url})
    past = ready_made.backfill(pipeline, {"startTime": "-1h", "endTime": "now"})
    assert not past.streaming
    preflight(past)
    for _ in range(2):
        list(run_tables(bench.spark, past, "backfill/-1h"))
    assert [one["n"] for one in bench.payloads("NEW")] == [1, 2]


def test_an_audit_finds_a_damaged_record_in_a_sealed_segment(bench: Any) -> None:
    bench.create("AUDITED", "audited.>")
    bench.publish("audited.x", *({"n": n} for n in range(250)))
    server = Server(url=bench.broker.url)
    plan = bench.sealed("AUDITED")
    clean = audit(bench.spark, server, "AUDITED")
    assert [one.problem for one in clean] == [""] * len(clean)
    assert sum(one.records for one in clean) == 250
    segment = Path(plan.segments[0].path)
    data = bytearray(segment.read_bytes())
    at = data.index(json.dumps({"n": 42}).encode())
    data[at + 6] ^= 1
    segment.write_bytes(data)
    (damaged,) = [one for one in audit(bench.spark, server, "AUDITED") if one.problem]
    assert damaged.problem == "1 damaged records: 43"
    assert damaged.part == str(segment)


def test_a_range_that_nothing_explains_is_missing() -> None:
    plan = ReadPlan(
        stream="S",
        incarnation=1,
        first_seq=1,
        last_seq=60,
        tail=Tail(51, 60),
        segments=[PlannedSegment("a", "a.idx", 11, 20), PlannedSegment("b", "b.idx", 31, 40)],
        gaps=[(21, 30, "age")],
        cold=[ColdFile("c", 1, 10)],
    )
    (found,) = missing(plan)
    assert (found.part, found.first, found.last) == ("gap", 41, 50)
