"""How long a start takes, empty and after kill -9 under a million records, beside nats-server."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from brokers import STREAM, ApiError, api, broker, fresh_stream
from cases import SOON, UNSYNCED
from measure import FILLING, build_load, load

from support.peers import Peer, running

SERVERS = ("millstream", "nats-server")
AS_THEY_ARE = "as each does by itself"  # ours before each ack, theirs after two minutes


def main() -> None:
    """Print medians: from exec until a client is greeted, or hears how much the stream holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    build_load()
    empty: dict[str, list[float]] = {name: [] for name in SERVERS}
    settings = (AS_THEY_ARE, SOON, UNSYNCED)
    again = {setting: {name: list[float]() for name in SERVERS} for setting in settings}
    for _ in range(arguments.rounds):
        for name in SERVERS:
            empty[name].append(_start(name))
            for setting in settings:
                again[setting][name].append(_restart(name, arguments.records, setting))
    print("| start | millstream s | nats-server s | ratio |", "|---|---:|---:|---:|", sep="\n")
    _show("empty", empty)
    for setting in settings:
        _show(f"after kill -9, {arguments.records:,} records, {setting}", again[setting])


def _show(case: str, took: dict[str, list[float]]) -> None:
    ours, theirs = (statistics.median(took[name]) for name in SERVERS)
    print(f"| {case} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |")


def _start(name: str) -> float:
    began = time.monotonic()
    with broker(name, UNSYNCED):
        return time.monotonic() - began


def _restart(name: str, records: int, setting: str) -> float:
    with broker(name, setting) as peer:
        fresh_stream(peer, setting)
        load(peer, records, {"stream": STREAM, **FILLING})
        command = peer.process.args
        assert isinstance(command, list)
        peer.process.kill()
        peer.process.wait()
        began = time.monotonic()
        with running(name, command, peer.port, peer.directory) as again:
            _wait_for(again, records)
            return time.monotonic() - began


def _wait_for(peer: Peer, records: int) -> None:
    while True:
        try:
            found = api(peer, f"STREAM.INFO.{STREAM}", {})["state"]["messages"]
        except (ApiError, OSError):
            continue
        assert found == records, f"{peer.name} lost {records - found} records"
        return


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(str(error))
