"""The pipelines in examples/ do what their README says."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from millstream.client.blocking import connect
from millstream.pipelines.file.document import load
from millstream.pipelines.file.parse import parse
from millstream.pipelines.preflight import preflight
from millstream.pipelines.run import run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(bench: Any, name: str) -> None:
    """Run a copy, so that what it writes beside itself goes with the test."""
    copy = shutil.copy(EXAMPLES / name, bench.home / name)
    pipeline = parse(load(Path(copy)), {"url": bench.broker.url})
    preflight(pipeline)
    list(run(bench.spark, pipeline, bench.home))


def test_the_readme_makes_and_fills_the_streams_of_each_example(bench: Any) -> None:
    text = (EXAMPLES / "README.md").read_text()
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            match shlex.split(line):
                case ["curl", "-X", "PUT", url, "-H", header, "-d", body]:
                    place = url.replace("localhost:8222", f"127.0.0.1:{bench.broker.http_port}")
                    name, value = header.split(": ")
                    asked = Request(f"http://{place}", body.encode(), {name: value}, method="PUT")
                    assert urlopen(asked).status == 201
                case ["millstream", "pub", subject, payload]:
                    bench.publish(subject, payload.encode())
                case ["python", file]:
                    copy = shutil.copy(EXAMPLES / file, bench.home / file)
                    subprocess.run([sys.executable, copy], check=True)
                case ["millstream", "pipeline", "run", file]:
                    run_example(bench, file)
                case other:
                    raise AssertionError(other)
    assert bench.parquet("lake/sessions", "user", "clicks") == [("ann", 2)]
    assert [one["id"] for one in bench.payloads("ALERTS")] == [2]
    assert bench.parquet("lake/minutes", "sensor", "readings") == [("s", 1)]
    with connect(bench.broker.url) as client:  # the other tests have these streams to themselves
        for name in ("CLICKS", "PAYMENTS", "READINGS", "CLICKS-BAD", "PAYMENTS-BAD", "ALERTS"):
            client.request(f"$JS.API.STREAM.DELETE.{name}")


def test_clicks_become_sessions_that_end_after_a_pause(bench: Any) -> None:
    def click(name: str, user: str, page: str, time: str) -> dict[str, str]:
        return {"click": name, "user": user, "page": page, "at": f"2026-05-01T{time}:00Z"}

    bench.create("CLICKS", "clicks.>")
    bench.publish(
        "clicks.web",
        click("1", "ann", "home", "10:00"),
        click("2", "ann", "cart", "10:10"),
        click("2", "ann", "cart", "10:10"),
        click("3", "bob", "home", "10:05"),
        {"click": "x"},
        click("4", "ann", "home", "12:00"),
        click("5", "zoe", "home", "18:00"),
    )
    run_example(bench, "clickstream_sessions.yaml")
    found = bench.parquet("lake/sessions", "user", "clicks", "pages")
    assert found == [("ann", 1, ["home"]), ("ann", 2, ["cart", "home"]), ("bob", 1, ["home"])]
    assert len(bench.records("CLICKS-BAD")) == 1


def test_payments_over_the_limit_become_alerts(bench: Any) -> None:
    limits = bench.spark.createDataFrame([("a", 100.0), ("b", 10.0)], "account string, most double")
    limits.coalesce(1).write.parquet(str(bench.home / "lake" / "limits"))
    bench.create("PAYMENTS", "payments.>")
    bench.publish(
        "payments.card",
        {"id": 1, "account": "a", "amount": 99.0},
        {"id": 2, "account": "b", "amount": 11.0},
        {"id": 3, "account": "c", "amount": 1.0},
        {"id": 4, "account": "a", "amount": -5.0},
    )
    run_example(bench, "fraud_alerts.yaml")
    alerts = {row.subject: row for row in bench.records("ALERTS")}
    assert sorted(alerts) == ["alerts.b", "alerts.c"]
    reasons = {one["id"]: one["reason"] for one in bench.payloads("ALERTS")}
    assert reasons == {2: "over the limit", 3: "unknown account"}
    assert [one["id"] for one in bench.payloads("PAYMENTS-BAD")] == [4]


def test_a_minute_counts_late_readings_until_the_watermark_has_passed_it(bench: Any) -> None:
    def reading(minute: int, fahrenheit: float) -> dict[str, Any]:
        at = f"2026-05-01T12:{minute:02d}:30Z"
        return {"sensor": "s", "fahrenheit": fahrenheit, "at": at}

    bench.create("READINGS", "readings.>")
    bench.publish("readings.s", reading(0, 50), reading(5, 32), reading(0, 68), reading(20, 32))
    run_example(bench, "late_data.py")
    found = bench.parquet("lake/minutes", "window_start", "readings", "mean")
    assert [(start.minute, *rest) for start, *rest in found] == [(0, 2, 15.0), (5, 1, 0.0)]
    bench.publish("readings.s", reading(1, 32), reading(40, 32))  # a minute that is over, and news
    run_example(bench, "late_data.py")
    found = bench.parquet("lake/minutes", "window_start", "readings")
    assert [(start.minute, count) for start, count in found] == [(0, 2), (5, 1), (20, 1)]
