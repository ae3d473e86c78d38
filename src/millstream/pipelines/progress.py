"""What a running query tells about itself, as values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
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
    rows_out: int | None = None  # rows that the sink got; None where nobody counts them
    late: int = 0  # rows that came after the watermark had passed them


@dataclass(frozen=True, slots=True)
class Done:
    """A sink that is finished; ``rows`` are those of this run."""

    sink: str
    rows: int
    batches: int
    rows_out: int | None = None
    late: int = 0


@dataclass(slots=True)
class Tally:
    """What the batches of one sink added, as far as the driver writes them itself."""

    rows: dict[int, int | None] = field(default_factory=dict)

    def note(self, batch: int, rows: int | None) -> None:
        """Keep what a batch added; only the newest few are asked for."""
        self.rows[batch] = rows
        self.rows.pop(batch - 200, None)


def progress_of(sink: str, report: Mapping[str, Any], tally: Tally | None = None) -> Progress:
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
        rows_out=_rows_out(report, tally),
        late=sum(
            int(state.get("numRowsDroppedByWatermark") or 0)
            for state in report.get("stateOperators") or ()
        ),
    )


def _rows_out(report: Mapping[str, Any], tally: Tally | None) -> int | None:
    """Return how many rows a batch added: Spark knows it of its own sinks, the tally of ours."""
    counted = None if tally is None else tally.rows.get(int(report["batchId"]))
    if counted is not None:
        return counted
    told = (report.get("sink") or {}).get("numOutputRows")
    return None if told is None or int(told) < 0 else int(told)  # -1 is Spark's unknown


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
