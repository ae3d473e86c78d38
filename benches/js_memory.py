"""Memory per stored record and per consumer, beside nats-server."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

from brokers import STREAM, broker, fresh_stream
from cases import MEMORY, UNSYNCED
from measure import FILLING, build_load, load

if TYPE_CHECKING:
    from support.peers import Peer

SERVERS = ("millstream", "nats-server")


def main() -> None:
    """Print one row per kind of thing: bytes of resident memory that each of them costs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--consumers", type=int, default=10_000)
    arguments = parser.parse_args()
    build_load()
    found = {name: _measured(name, arguments.records, arguments.consumers) for name in SERVERS}
    print("| bytes of memory per | millstream | nats-server |", "|---|---:|---:|", sep="\n")
    for row in found["millstream"]:
        print(f"| {row} |", *(f"{found[name][row]:,.0f} |" for name in SERVERS))


def _measured(name: str, records: int, consumers: int) -> dict[str, float]:
    shown = {}
    for setting in (UNSYNCED, MEMORY):
        with broker(name, setting) as peer:
            fresh_stream(peer, setting)
            kind = "memory" if setting == MEMORY else "file"
            before = _resident(peer)
            load(peer, records, {"stream": STREAM, **FILLING})
            shown[f"record of 128 B, {kind} stream"] = (_resident(peer) - before) / records
            before = _resident(peer)
            creating: dict[str, str | int] = {"mode": "create", "window": 16, "size": 0}
            load(peer, consumers, {"stream": STREAM, **creating})
            shown[f"consumer, {kind} stream"] = (_resident(peer) - before) / consumers
    return shown


def _resident(peer: Peer) -> int:
    for line in Path(f"/proc/{peer.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{peer.name} is gone")


if __name__ == "__main__":
    main()
