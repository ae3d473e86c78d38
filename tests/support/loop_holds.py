"""What kept a broker's loop for long while the tests ran, in server processes and in this one.

The goal is 20 ms of CPU time of the thread that runs the loop, measured so that waiting for a core
counts nothing. The same work takes up to twice as long where a machine is shared or its clock is
slow, and work near the goal would fail now and then: the tests fail well above it, and print the
longest holds.
"""

import asyncio
import gc
import os
import re
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from millstream.server.process.loop_guard import REPORTED_MS, VARIABLE, Hold, named

BOUND_MS = 80.0  # what grows with the square of a request is far above it
PLACE = "MILLSTREAM_LOOP_HOLDS"  # where all workers of a run leave what they saw


class Known(NamedTuple):
    """Holds above the bound that are known: in which tests, of what, and what would mend them."""

    test: str
    what: str
    reason: str


KNOWN = (
    Known(
        "",
        r"^gc generation",
        "The collector goes through the whole heap, whoever's request set it off; what is there at "
        "the start is frozen. Fewer containers per stream and consumer would mend it.",
    ),
    Known(
        r"test_jetstream_batches\.py::test_a_fast_batch_sent_without_waiting|test_jetstream_crowd\.py",
        r"^Hub\.poll$",
        "A poll reads every connection that has something once, and serves all that came of it. A "
        "bound in time on a turn of the hub would mend it.",
    ),
    Known(
        "",
        r"^task Routers\.catch_up$",
        "Part of a start: what routers have missed is copied before anybody is served.",
    ),
    Known(
        r"test_jetstream_snapshots\.py::test_a_snapshot_of_nats_server_restores_here",
        r"^Hub\.poll$",
        "A chunk of an archive is unpacked and stored where it arrives. Unpacking on a file thread "
        "would mend it.",
    ),
    Known(
        r"test_nats_websocket\.py::test_a_bomb_before_any_login",
        r"^Link\._readable$",
        "A compressed WebSocket message is inflated and parsed up to its limit in one call. "
        "Feeding the hub in pieces, a turn each, would mend it.",
    ),
    Known(
        r"test_s9_a_client_that_reads_nothing_costs_bounded_memory",
        r"^Socket\._pump$",
        "A page of a topic is read and written as JSON in one call, 1,000 records for one who has "
        "fallen behind. Smaller pages over WebSocket would mend it.",
    ),
    Known(
        r"test_monitor_certificates\.py|tls",
        r"^Link\._readable$",
        "A TLS handshake signs with the server's key on the loop, some 25 ms for a large RSA key. "
        "Handshakes on a thread would mend it.",
    ),
)


def is_known(hold: Hold, test: str) -> bool:
    """Whether the list above explains a hold of a test."""
    return any(re.search(one.test, test) and re.search(one.what, hold.what) for one in KNOWN)


class LoopHolds:
    """Reads what guarded servers wrote, and measures the callbacks of brokers in this process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}
        self._own = directory / f"{os.getpid()}-tests.jsonl"
        self._known: set[str] = set()
        self._collected: dict[int, float] = {}  # seconds of each thread's collections
        self._collecting = 0.0
        directory.mkdir(parents=True, exist_ok=True)
        os.environ[VARIABLE] = str(directory)

    def watch_asyncio(self) -> None:
        """Measure each callback of asyncio's own loop from here on."""
        run = asyncio.Handle._run
        holds = self

        def measured(handle: Any) -> None:
            callback, thread = handle._callback, threading.get_ident()
            collected, started = holds._collected.get(thread, 0.0), time.thread_time()
            run(handle)
            seconds = time.thread_time() - started
            holds._note(callback, seconds - (holds._collected.get(thread, 0.0) - collected))

        asyncio.Handle._run = measured  # type: ignore[method-assign]
        gc.callbacks.append(self._collects)

    def new(self) -> list[Hold]:
        """Return the holds that were written since the last call."""
        found: list[Hold] = []
        for path in self._directory.glob("*.jsonl"):
            if path.stat().st_size > self._read.get(path, 0):
                with path.open("rb") as file:
                    file.seek(self._read.get(path, 0))
                    lines = file.read()
                    whole = lines[: lines.rfind(b"\n") + 1]
                self._read[path] = self._read.get(path, 0) + len(whole)
                found += holds_in(whole)
        return found

    def _note(self, callback: object, seconds: float) -> None:
        if not _is_ours(callback):
            return
        name = named(callback)
        if name not in self._known:
            self._known.add(name)
        elif seconds * 1000 >= REPORTED_MS:
            with self._own.open("ab") as file:
                file.write(msgspec.json.encode(Hold(name, seconds * 1000)) + b"\n")

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        now, thread = time.thread_time(), threading.get_ident()
        if phase == "start":
            self._collecting = now
        else:
            took = now - self._collecting
            self._collected[thread] = self._collected.get(thread, 0.0) + took


def holds_in(lines: bytes) -> Iterator[Hold]:
    """Read a file of holds."""
    return (msgspec.json.decode(line, type=Hold) for line in lines.splitlines())


def longest_in(place: Path) -> list[Hold]:
    """Return the longest hold of each kind under a directory, longest first."""
    longest: dict[str, Hold] = {}
    for path in place.rglob("*.jsonl"):
        for hold in holds_in(path.read_bytes()):
            if hold.ms > longest.get(hold.what, hold).ms or hold.what not in longest:
                longest[hold.what] = hold
    return sorted(longest.values(), key=lambda hold: -hold.ms)


def _is_ours(callback: object) -> bool:
    """Whether a callback is a broker's rather than a test's."""
    while isinstance(callback, partial):
        callback = callback.func
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        code = getattr(owner.get_coro(), "cr_code", None)
        return code is not None and "/src/millstream/" in code.co_filename
    module = getattr(callback, "__module__", None) or type(owner).__module__
    return module.startswith("millstream.")
