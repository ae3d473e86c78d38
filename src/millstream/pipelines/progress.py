"""What a running query tells about itself, as values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Progress:
    """One micro-batch that was committed."""

    sink: str
    batch: int
    rows: int
    rows_per_second: float
    seconds: float
    positions: Mapping[str, int]  # per stream: the last sequence taken
    lag: int  # records that were there already and are not taken yet


@dataclass(frozen=True, slots=True)
class Done:
    """A sink that is finished; ``rows`` are those of this run."""

    sink: str
    rows: int
    batches: int


def progress_of(sink: str, report: Mapping[str, Any]) -> Progress:
    """Return what a progress report of Spark says."""
    sources = report["sources"]
    ends: dict[str, int] = {}
    heads: dict[str, int] = {}
    for source in sources:
        ends |= _sequences(source.get("endOffset"))
        heads |= _sequences(source.get("latestOffset"))
    return Progress(
        sink=sink,
        batch=int(report["batchId"]),
        rows=_rows(report),
        rows_per_second=round(float(report.get("processedRowsPerSecond") or 0.0), 1),
        seconds=round(float((report.get("durationMs") or {}).get("triggerExecution", 0)) / 1000, 3),
        positions=ends,
        lag=sum(max(head - ends.get(name, 0), 0) for name, head in heads.items()),
    )


def _rows(report: Mapping[str, Any]) -> int:
    """Return how many rows a batch took; Spark Connect tells it of each source alone."""
    if report["numInputRows"] is not None:
        return int(report["numInputRows"])
    return sum(int(source.get("numInputRows") or 0) for source in report["sources"])


def as_json(event: Progress | Done) -> str:
    """Return one event as a line of JSON."""
    kind = "batch" if isinstance(event, Progress) else "done"
    return msgspec.json.encode({"event": kind, **msgspec.to_builtins(event)}).decode()


def _sequences(offset: Any) -> dict[str, int]:
    """Return the sequences in an offset of our source; none for that of another."""
    try:
        value = json.loads(offset) if isinstance(offset, str) else offset
        return {
            name: int(stored["seq"])
            for name, stored in (value or {}).items()
            if isinstance(stored, dict) and "seq" in stored
        }
    except (ValueError, TypeError, AttributeError):
        return {}
