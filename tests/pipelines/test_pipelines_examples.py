"""The pipelines in examples/ do what their README says."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from millstream.pipelines.document import load
from millstream.pipelines.parse import parse
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
