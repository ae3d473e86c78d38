"""Measure millstream beside nats-server or an earlier commit: ``python benches/run.py --help``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

from brokers import ApiError, broker, python_of
from cases import Case, all_cases
from measure import BenchFailed, Figures, build_load, measured, middle
from memory import hold_memory

from support.peers import Peer, nats_server_path

if TYPE_CHECKING:
    from collections.abc import Iterable

HEAD = "| case | msg/s | ratio | server CPU ns/msg | ratio | p50 µs | p99 µs | wanted |"
MOST_MORE = 1.05  # times the CPU of an earlier commit in one row
RULE = "|---|---:|---:|---:|---:|---:|---:|---|"


@dataclass(frozen=True, slots=True)
class Row:
    """A case with the medians of both servers, or with the reason why there are none."""

    case: Case
    ours: Figures | None = None
    theirs: Figures | None = None
    failure: str = ""


def main() -> int:
    """Run what was asked for; 1 when a case could not be measured."""
    arguments = _arguments()
    tempfile.tempdir = str(arguments.directory)  # a disk, whatever /tmp is
    arguments.directory.mkdir(parents=True, exist_ok=True)
    build_load()
    rows = []
    if not arguments.json:
        print(_conditions(arguments), HEAD, RULE, sep="\n", flush=True)
    with hold_memory():
        for row in _rows(arguments):
            rows.append(row)
            if not arguments.json:
                print(_line(row, arguments.against), flush=True)
    if arguments.json:
        shown = {"conditions": _conditions(arguments), "cpu_median": _cpu_median(rows)}
        print(json.dumps({**shown, "rows": [_plain(row) for row in rows]}))
    else:
        print(f"\n{_summary(rows)}")
    return int(any(row.failure for row in rows))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["core", "js"], help="one half of the table")
    parser.add_argument("--match", default="", help="only cases whose name contains this")
    parser.add_argument("--quick", action="store_true", help="a fifth of the messages, one round")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of A B B A (default 2)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument(
        "--candidate",
        choices=["millstream", "nats-server"],
        default="millstream",
        help="nats-server: compare it with itself, to see the noise of this machine",
    )
    parser.add_argument(
        "--against",
        type=Path,
        help="a checkout with an environment of its own: its millstream instead of nats-server",
    )
    build = Path(__file__).parent / "build" / "data"
    parser.add_argument("--directory", type=Path, default=build, help="where the servers store")
    arguments = parser.parse_args()
    if arguments.against:
        try:
            python_of(arguments.against)
        except FileNotFoundError as error:
            parser.error(str(error))
    return arguments


def _rows(arguments: argparse.Namespace) -> Iterable[Row]:
    cases = [
        case
        for case in all_cases()
        if arguments.only in (None, case.section) and arguments.match in case.name
    ]
    for setting in dict.fromkeys(case.setting for case in cases):
        with (
            broker(arguments.candidate, setting) as ours,
            broker(_peer(arguments), setting) as theirs,
        ):
            for case in cases:
                if case.setting == setting:
                    yield _row(case, ours, theirs, arguments)


def _peer(arguments: argparse.Namespace) -> str:
    return str(arguments.against or "nats-server")


def _row(case: Case, ours: Peer, theirs: Peer, arguments: argparse.Namespace) -> Row:
    """Both servers in turns, A B B A, so that a drift of the machine hits both alike."""
    runs: dict[int, list[Figures]] = {ours.pid: [], theirs.pid: []}
    order = [ours, theirs] if arguments.quick else [ours, theirs, theirs, ours] * arguments.rounds
    scale = 0.2 if arguments.quick else 1.0
    try:
        for peer in order:
            runs[peer.pid].append(measured(case, peer, scale))
    except (BenchFailed, ApiError, OSError, subprocess.TimeoutExpired) as error:
        return Row(case, failure=str(error))
    return Row(case, middle(runs[ours.pid]), middle(runs[theirs.pid]))


def _line(row: Row, against: Path | None) -> str:
    if row.ours is None or row.theirs is None:
        return f"| {row.case.name} | not measured: {row.failure[:200]} |"
    ours, theirs = row.ours, row.theirs
    speed, cpu = ours.rate / theirs.rate, ours.cpu_ns / max(theirs.cpu_ns, 1)
    cells = [
        row.case.name,
        *(_pair(ours.rate, theirs.rate), f"{speed:.2f}"),
        *(_pair(ours.cpu_ns, theirs.cpu_ns), f"{cpu:.2f}"),
        _pair(ours.p50_us, theirs.p50_us),
        _pair(ours.p99_us, theirs.p99_us),
        _wanted(row.case, speed, cpu) if against is None else _kept(cpu),
    ]
    return "| " + " | ".join(cells) + " |"


def _pair(ours: float, theirs: float) -> str:
    """Ours first; nothing where the case has no such figure."""
    return f"{ours:,.0f} / {theirs:,.0f}" if theirs else ""


def _wanted(case: Case, speed: float, cpu: float) -> str:
    """The ratios to reach, and whether this run reached them."""
    parts = []
    if case.reach:
        parts.append(f"≥ {case.reach:g} {'yes' if speed >= case.reach else 'no'}")
    if case.cpu_reach:
        parts.append(f"CPU ≤ {case.cpu_reach:g} {'yes' if cpu <= case.cpu_reach else 'no'}")
    return ", ".join(parts)


def _kept(cpu: float) -> str:
    """Whether a row costs what it did before, but for the noise of one run."""
    return f"CPU ≤ {MOST_MORE:g} {'yes' if cpu <= MOST_MORE else 'no'}"


def _cpu_ratios(rows: Iterable[Row]) -> list[float]:
    """Ours over theirs, of the rows that were measured."""
    return [
        row.ours.cpu_ns / row.theirs.cpu_ns
        for row in rows
        if row.ours is not None and row.theirs is not None and row.theirs.cpu_ns
    ]


def _cpu_median(rows: Iterable[Row]) -> float | None:
    ratios = _cpu_ratios(rows)
    return median(ratios) if ratios else None


def _summary(rows: Iterable[Row]) -> str:
    """One line over all rows."""
    ratios = _cpu_ratios(rows)
    if not ratios:
        return "no row was measured"
    return (
        f"server CPU per message, ours over theirs: median {median(ratios):.3f} of "
        f"{len(ratios)} rows, {min(ratios):.2f} to {max(ratios):.2f}"
    )


def _plain(row: Row) -> dict[str, object]:
    return {
        "case": row.case.name,
        "ours": asdict(row.ours) if row.ours else None,
        "theirs": asdict(row.theirs) if row.theirs else None,
        "failure": row.failure,
    }


def _conditions(arguments: argparse.Namespace) -> str:
    """One line that says what these figures are worth."""
    order = "one run each" if arguments.quick else f"median of {2 * arguments.rounds} runs each"
    load = os.getloadavg()[0]
    parts = [
        f"{_ours(arguments)} beside {_version(arguments.against)}",
        f"{os.cpu_count()} cores ({_processor()}), load {load:.1f} at start",
        f"Linux {platform.release()} with {_congestion_control()}",
        f"Python {platform.python_version()}, {order}",
    ]
    return "; ".join(parts) + "\n"


def _ours(arguments: argparse.Namespace) -> str:
    here = Path(__file__).parent.parent
    return _version(here) if arguments.against else str(arguments.candidate)


def _version(checkout: Path | None) -> str:
    """What the peer is: nats-server with its version, or the commit of a checkout."""
    if checkout is None:
        command = [nats_server_path(), "-v"]
    else:
        command = ["git", "-C", str(checkout), "log", "-1", "--format=millstream %h (%cs)"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def _congestion_control() -> str:
    """What the kernel gives each socket: one that paces packets costs on the loopback too."""
    try:
        return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    except OSError:
        return "an unknown congestion control"


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())
