"""What load costs a topic of high priority: ``benches/pressure.py [--rounds N] [--seconds S]``.

One millstream. Writes to a topic of priority 900 are timed until each of its ten watchers has them,
in rounds that alternate: the server is left alone, then another process writes to thirty ordinary
topics, each with five watchers, as fast as the server answers. Prints both, how many times as long
it took under load, how busy the server was, and the longest that an ordinary topic stood still.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from http_door import Line, arrivals, batch, cpu_seconds, post, press, watching

from support.broker import millstream

if TYPE_CHECKING:
    import selectors
    from collections.abc import Callable, Iterator

    from support.peers import Peer

WATCHERS = 10
PAUSE = 0.01
SETTLE = 0.3  # seconds after which a round is under way


@dataclass
class Round:
    """What was seen while the server was left alone, or while it was pressed."""

    delays: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)

    def at(self, part: float) -> float:
        """Return the delay that this part of all did not exceed, in milliseconds."""
        ordered = sorted(self.delays)
        return 1000 * ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def main() -> int:
    """Measure and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    calm, pressed, stillest = Round(), Round(), 0.0
    with millstream() as peer:
        priority = b'{"priority":900}'
        Line(peer.http_port).ask(post("t", priority, method="PUT"))
        with watching(peer.http_port, WATCHERS, priority) as selector:
            writer = Line(peer.http_port)
            for _ in range(given.rounds):
                watch(peer, writer, selector, calm, given.seconds)
                with load(peer.http_port) as stop:
                    watch(peer, writer, selector, pressed, given.seconds)
                    stillest = max(stillest, stop())
    print("| | p50 ms | p90 ms | p99 ms | server busy |\n|---|---:|---:|---:|---:|")
    for name, seen in (("left alone", calm), ("under load", pressed)):
        cells = " | ".join(f"{seen.at(part):.2f}" for part in (0.5, 0.9, 0.99))
        print(f"| {name} | {cells} | {sum(seen.busy) / len(seen.busy):.0%} |")
    ratios = " | ".join(f"{pressed.at(part) / calm.at(part):.2f}" for part in (0.5, 0.9, 0.99))
    print(f"| times longer | {ratios} | |")
    print(f"the longest that an ordinary topic stood still: {stillest:.2f} s", end="; ")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    return 0


def watch(
    peer: Peer, writer: Line, selector: selectors.BaseSelector, seen: Round, long: float
) -> None:
    """Write now and then for a while, and note how long each watcher waited for it."""
    request = post("t?return_seqs=false", batch(1))
    time.sleep(SETTLE)
    start, used = time.perf_counter(), cpu_seconds(peer)
    while (began := time.perf_counter()) < start + long:
        writer.ask(request)
        seen.delays += arrivals(selector, WATCHERS, began, b'"$seq"')
        time.sleep(PAUSE)
    seen.busy.append((cpu_seconds(peer) - used) / (time.perf_counter() - start))


@contextlib.contextmanager
def load(port: int) -> Iterator[Callable[[], float]]:
    """Press the server from another process; gives what ends that and tells who waited longest."""
    ours, theirs = multiprocessing.Pipe()
    presser = multiprocessing.get_context("fork").Process(
        target=press, args=(port, theirs), daemon=True
    )
    presser.start()

    def stop() -> float:
        ours.send(None)
        stillest: float = ours.recv()
        presser.join()
        return stillest

    try:
        yield stop
    finally:
        presser.kill()


if __name__ == "__main__":
    sys.exit(main())
