"""One case against one server: set up, load, figures."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from brokers import STREAM, fresh_bucket, fresh_consumer, fresh_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cases import Case

    from support.peers import Peer

HERE = Path(__file__).parent
LOAD = HERE / "build" / "load"
LIMIT_SECONDS = 180
KEYS = 10_000
FILLING: dict[str, str | int] = {
    "mode": "jspub",
    "subject": "bench.js",
    "window": 1000,
    "size": 128,
    "spread": 10_000,
}

_filled: dict[int, tuple[str, int]] = {}  # what the server with this pid holds


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run, or the median of several, showed."""

    rate: float
    cpu_ns: float
    p50_us: float
    p99_us: float


class BenchFailed(RuntimeError):
    """A run lost, repeated or refused a message, so its speed means nothing."""


def build_load() -> None:
    """Compile the load generator when it is missing or older than its source."""
    source = HERE / "load.c"
    if LOAD.exists() and LOAD.stat().st_mtime >= source.stat().st_mtime:
        return
    LOAD.parent.mkdir(exist_ok=True)
    subprocess.run(["gcc", "-O2", "-Wall", "-o", str(LOAD), str(source)], check=True)


def measured(case: Case, peer: Peer, scale: float) -> Figures:
    """Set the stage, run the case once, and return what it cost."""
    messages = max(int(case.messages * scale), 100)
    if case.bucket:
        fresh_bucket(peer)
        if case.options["mode"] == "get":
            load(peer, KEYS, {**FILLING, "subject": "$KV.bench"})
    elif case.stored:
        _fill(case, peer, max(int(case.stored * scale), 10_000))
        acks = bool(case.options.get("ack"))
        fresh_consumer(peer, acks=acks, filtered=case.filtered)
    elif case.section == "js":
        fresh_stream(peer, case.setting)
        _filled.pop(peer.pid, None)
    shown = load(peer, messages, {"stream": STREAM, **case.options})
    return Figures(shown["rate"], shown["cpu_ns"], shown["p50_us"], shown["p99_us"])


def _fill(case: Case, peer: Peer, records: int) -> None:
    """Store what the case wants, unless this server still holds it from the case before."""
    wanted = (case.setting, records)
    if _filled.get(peer.pid) == wanted:
        return
    fresh_stream(peer, case.setting)
    load(peer, records, FILLING)
    _filled[peer.pid] = wanted


def middle(runs: Sequence[Figures]) -> Figures:
    """The median of each figure."""
    return Figures(
        median(run.rate for run in runs),
        median(run.cpu_ns for run in runs),
        median(run.p50_us for run in runs),
        median(run.p99_us for run in runs),
    )


def load(peer: Peer, messages: int, options: dict[str, str | int]) -> dict[str, float]:
    """Run the load generator; returns its report."""
    given = {"host": peer.host, "port": peer.port, "pid": peer.pid, "messages": messages, **options}
    command = [str(LOAD)]
    for name, value in given.items():
        command += [f"--{name}", str(value)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    if done.returncode:
        raise BenchFailed(f"{peer.name}: {done.stdout.strip()} {done.stderr.strip()[:500]}")
    shown: dict[str, float] = json.loads(done.stdout)
    return shown
