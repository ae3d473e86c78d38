"""What ``millstream bench core`` measures: plain clients of any NATS server, in processes.

A message carries the time at which it was sent, as far as it has room, so that a receiver knows
how long it took; all processes read one clock. The publisher never runs further ahead of its
slowest receiver than a window, so that no server has to close a slow consumer.
"""

import multiprocessing
import secrets
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from millstream.client import Client, ClientError, connect
from millstream.client.errors import RequestTimeout

WINDOW_BYTES = 4 << 20
WINDOW_MESSAGES = 20_000
SAMPLES = 100_000
WAIT = 60.0
_STAMP = struct.Struct("<Q")
_PARTS = 100


@dataclass(frozen=True, slots=True)
class Load:
    """What to send, and where to."""

    url: str | None
    messages: int
    size: int

    def client(self) -> Client:
        """Connect."""
        return connect(self.url, name="millstream bench", timeout=WAIT)

    @property
    def window(self) -> int:
        """How many messages may be on their way."""
        return max(1, min(WINDOW_MESSAGES, WINDOW_BYTES // max(self.size, 1)))


@dataclass(frozen=True, slots=True)
class Measured:
    """One run; ``messages`` counts every receiver's, times are in seconds."""

    work: str
    messages: int
    size: int
    seconds: float
    latencies: Sequence[float] = ()  # sorted

    @property
    def per_second(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        """Payload a second, in units of a million bytes."""
        return self.messages * self.size / self.seconds / 1e6

    def percentile(self, percent: float) -> float | None:
        """Return the latency that so many percent do not exceed, None where none was taken."""
        if not self.latencies:
            return None
        place = int(len(self.latencies) * percent / 100)
        return self.latencies[min(place, len(self.latencies) - 1)]


def publish(load: Load) -> Measured:
    """Publish to nobody; the latency is that of a ping behind each hundredth of the messages."""
    payload = bytes(load.size)
    subject = _subject()
    waits = []
    with load.client() as client:
        started = time.perf_counter()
        for part in _parts(load.messages):
            for _ in range(part):
                client.publish(subject, payload)
            asked = time.perf_counter()
            client.flush()
            waits.append(time.perf_counter() - asked)
        seconds = time.perf_counter() - started
    return Measured("pub", load.messages, load.size, seconds, sorted(waits))


def fan_out(load: Load, receivers: int) -> Measured:
    """Publish to so many subscribers."""
    subject = _subject()
    with load.client() as client, ExitStack() as stack:
        progress = client.subscribe(f"{subject}.seen.*")
        client.flush()
        others = [
            stack.enter_context(_helper(_receive, load, subject, str(number)))
            for number in range(receivers)
        ]
        seen = {f"{subject}.seen.{number}": 0 for number in range(receivers)}
        fill = bytes(max(load.size - _STAMP.size, 0))
        started = time.perf_counter()
        for number in range(load.messages):
            while number - min(seen.values()) >= load.window:
                told = progress.next(WAIT)
                seen[told.subject] = int(told.payload)
            stamp = _STAMP.pack(time.perf_counter_ns())
            client.publish(subject, (stamp + fill)[: load.size])
        client.flush()
        results = [_result(other) for other in others]
    seconds = max(ended for ended, _ in results) - started
    latencies = sorted(latency for _, taken in results for latency in taken)
    return Measured(f"1->{receivers}", load.messages * receivers, load.size, seconds, latencies)


def request_reply(load: Load) -> Measured:
    """Ask one question after the other."""
    subject = _subject()
    payload = bytes(load.size)
    taken = []
    with load.client() as client, _helper(_answer, load, subject):
        started = time.perf_counter()
        for _ in range(load.messages):
            asked = time.perf_counter()
            client.request(subject, payload, WAIT)
            taken.append(time.perf_counter() - asked)
        seconds = time.perf_counter() - started
    return Measured("request/reply", load.messages, load.size, seconds, sorted(taken))


def _subject() -> str:
    return f"bench.{secrets.token_hex(6)}"


def _parts(messages: int) -> Iterator[int]:
    """Cut into a hundred parts, or into single messages where there are fewer."""
    parts = min(messages, _PARTS)
    for number in range(parts):
        yield messages * (number + 1) // parts - messages * number // parts


# ---- the other ends, each a process of its own -------------------------------------------------


@contextmanager
def _helper(work: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """Run ``work`` in a process until the block ends; it has said that it is ready."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_run, args=(work, theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        _result(ours)
        yield ours
    finally:
        process.terminate()
        process.join()
        ours.close()


def _result(other: Connection) -> Any:
    """Return what the other end says next; raises what happened to it."""
    if not other.poll(WAIT):
        raise RequestTimeout(f"a client of the bench did not get on within {WAIT:g} s")
    try:
        said = other.recv()
    except EOFError:
        raise ClientError("a client of the bench ended unexpectedly") from None
    if isinstance(said, Exception):
        raise said
    return said


def _run(work: Callable[..., None], back: Connection, *arguments: Any) -> None:
    try:
        work(back, *arguments)
    except Exception as error:
        back.send(ClientError(str(error)))


def _receive(back: Connection, load: Load, subject: str, number: str) -> None:
    latencies = []
    every = max(1, load.messages // SAMPLES)
    step = max(1, load.window // 4)
    has_stamp = load.size >= _STAMP.size
    with load.client() as client:
        incoming = client.subscribe(subject)
        client.flush()
        back.send("ready")
        for count in range(1, load.messages + 1):
            payload = incoming.next(WAIT).payload
            if has_stamp and count % every == 0:
                latencies.append((time.perf_counter_ns() - _STAMP.unpack_from(payload)[0]) / 1e9)
            if count % step == 0:
                client.publish(f"{subject}.seen.{number}", str(count).encode())
        ended = time.perf_counter()
        client.flush()
    back.send((ended, latencies))


def _answer(back: Connection, load: Load, subject: str) -> None:
    with load.client() as client:
        questions = client.subscribe(subject)
        client.flush()
        back.send("ready")
        for question in questions:
            client.publish(question.reply or "", question.payload)
