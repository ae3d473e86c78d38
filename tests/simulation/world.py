"""One history: a broker with its clients in one thread, where a seed decides all that happens.

Each step is one of: a client does something, bytes arrive, the loop turns, the committer takes a
step, time passes, the broker ends. Nothing else moves, so the same seed makes the same trace.
"""

import gc
import hashlib
import logging
import random
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol
from unittest.mock import patch

from millstream.clock import ManualClock
from simulation.broker import Broker
from simulation.model import StreamModel, Violation
from support.fake_disk import Crashed, FakeDisk, Mode

POWER = (Mode.DROP, Mode.PREFIX, Mode.ZERO, Mode.GARBLE, Mode.REORDER)
ENDINGS = (Mode.KEEP, Mode.KILL, *POWER, None)  # None: it is told to stop
MANY = 4000  # rounds after which a broker that does not answer hangs


class Wire(Protocol):
    """What the world moves bytes on."""

    is_open: bool

    @property
    def is_loaded(self) -> bool: ...
    def carry(self, most: int = ...) -> None: ...
    def collect(self) -> None: ...


class Actor(Protocol):
    """A client of the broker, over all of its lives."""

    wires: list[Any]

    def arrive(self, broker: Broker) -> None:
        """Connect to a broker that has just started."""

    def act(self) -> None:
        """Do one thing."""

    def leave(self) -> None:
        """The broker is gone, and with it what was under way."""


@dataclass
class Tally:
    """What histories did, to show that they did something."""

    histories: int = 0
    operations: int = 0
    crashes: int = 0
    in_recovery: int = 0
    stops: int = 0
    acks: int = 0
    lost: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)

    def add(self, other: "Tally") -> None:
        """Sum up."""
        for name in ("histories", "operations", "crashes", "in_recovery", "stops", "acks", "lost"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for kind, times in other.by_kind.items():
            self.by_kind[kind] = self.by_kind.get(kind, 0) + times

    def summary(self) -> str:
        """Return it as a line for people."""
        return (
            f"{self.histories} histories, {self.operations} operations, {self.acks} acks, "
            f"{self.crashes} crashes fired ({self.in_recovery} inside a start), "
            f"{self.stops} orderly stops, {self.lost} acks lost in the window, all reported"
        )


class BrokerEnded(Exception):
    """The broker went away while somebody waited for an answer."""


class World:
    """Clock, disk, network and everybody's dice; ``run`` is one history."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.disk = FakeDisk()
        self.broker: Broker | None = None
        self.life = 0
        self.actors: list[Actor] = []
        self.models: dict[str, StreamModel] = {}
        self.tally = Tally(histories=1)
        self._copies: tempfile.TemporaryDirectory[str] | None = None
        self._digest = hashlib.blake2b(digest_size=16)
        self.trace: list[str] = []

    def note(self, *what: object) -> None:
        """Write into the trace."""
        line = " ".join(map(str, what))
        self.trace.append(line)
        self._digest.update(line.encode() + b"\n")

    @property
    def trace_hash(self) -> str:
        """What two runs of one seed must have in common."""
        return self._digest.hexdigest()

    def copies(self) -> str:
        """Return a real directory, for readers that open files by themselves."""
        if self._copies is None:
            self._copies = tempfile.TemporaryDirectory(prefix="simulation-")
        return self._copies.name

    def close(self) -> None:
        """End whatever still runs, and remove the copies."""
        broker, self.broker = self.broker, None
        self.disk.crashed = True
        if broker is not None:
            broker.drop()
        if self._copies is not None:
            self._copies.cleanup()

    # --- lives of the broker

    def start(self) -> None:
        """Start the broker, again and again where it dies while it recovers."""
        while self.broker is None:
            self.life += 1
            if self.life > 1 and self.random.random() < 0.15:
                self.disk.crash_at = self.disk.calls + self.random.randint(1, 30)
            try:
                self.broker = Broker(self.disk, self.clock)
                self.disk.crash_at = 0
                self.note("life", self.life, "disk", self.disk.calls)
                for actor in self.actors:
                    actor.arrive(self.broker)
            except Crashed:
                self.tally.in_recovery += 1
                self._crashed(self.random.choice(ENDINGS[:-1]))

    def end(self, mode: Mode | None) -> None:
        """Have the broker end now: by a crash, or in order."""
        if mode is None:
            self.tally.stops += 1
            try:
                self._stop_in_order()
            except BrokerEnded:
                return
        self._crashed(mode)

    def _crashed(self, mode: Mode | None) -> None:
        kind = "stop" if mode is None else mode.value
        self.tally.crashes += mode is not None
        self.tally.by_kind[kind] = self.tally.by_kind.get(kind, 0) + 1
        self.note("end", kind, hashlib.blake2b("".join(self.disk.trace).encode()).hexdigest())
        broker, self.broker = self.broker, None
        self.disk.crashed = True
        self.disk = self.disk.after_crash(mode or Mode.KEEP, self.random.randrange(1 << 30))
        if broker is not None:
            broker.drop()
        for actor in self.actors:
            actor.leave()
        for model in self.models.values():
            model.crash(mode)
        self.clock.advance(self.random.choice((0.001, 0.5, 5.0)))

    def _stop_in_order(self) -> None:
        assert self.broker is not None
        stopping = self.broker.loop.create_task(self.broker.server.stop())
        self.go_on(stopping.done, "stop")
        stopping.result()

    # --- steps

    def step(self) -> None:
        """Let one thing happen."""
        with suppress(Crashed):  # the disk knows it
            self._move(self.random.random())
        self.clock.advance(0.00002)
        self._look()

    def _move(self, dice: float) -> None:
        if dice < 0.35:
            actor = self.random.choice(self.actors)
            self.tally.operations += 1
            actor.act()
        elif dice < 0.6:
            self._carry_some()
        elif dice < 0.8:
            self.turn()
        elif dice < 0.95:
            self.commit_step()
        else:
            self.clock.advance(self.random.choice((0.001, 0.01, 0.06, 0.4, 1.1)))

    def _carry_some(self) -> None:
        loaded = [w for actor in self.actors for w in actor.wires if w.is_loaded]
        if loaded:
            wire = self.random.choice(loaded)
            wire.carry(self.random.choice((7, 64, 300, 1 << 20, 1 << 20)))

    def turn(self) -> None:
        """Let the broker's loop go round once."""
        if self.broker is not None:
            self.broker.loop.turn()

    def commit_step(self) -> None:
        """Let a committer do what its thread would do next."""
        if self.broker is not None:
            self.broker.commit_step()

    def _look(self) -> None:
        """See whether the disk stopped the broker; if not, clients hear what it said."""
        if self.broker is None:
            return
        if self.disk.crashed:
            self._crashed(self.random.choice(ENDINGS[:-1]))
            return
        for actor in self.actors:
            for wire in actor.wires:
                wire.collect()

    def go_on(self, is_over: Callable[[], bool], what: str) -> None:
        """Let everything move until something is over; raises when the broker ends first."""
        for rounds in range(MANY):
            if self.broker is None:
                raise BrokerEnded
            if is_over():
                return
            with suppress(Crashed):
                self._move_all()
            self.clock.advance(0.0005 if rounds < 20 else 0.02)
            self._look()
        raise Violation(f"the broker does not get to the end of: {what}")

    def _move_all(self) -> None:
        for actor in self.actors:
            for wire in actor.wires:
                if wire.is_loaded:
                    wire.carry()
        self.turn()
        self.commit_step()

    def quiet(self) -> None:
        """Let everything that is under way come to its end; raises when the broker ends first."""
        until = self.clock.monotonic() + 0.5
        self.go_on(partial(self._has_passed, until), "a pause")

    def _has_passed(self, moment: float) -> bool:
        return self.clock.monotonic() >= moment

    def settle(self) -> None:
        """Let all that is under way end, and more time pass than anything waits for."""
        for _ in range(2):
            try:
                self.quiet()
            except BrokerEnded:
                return
            self.clock.advance(1.1)
        for model in self.models.values():
            model.settle()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Have everything random come from the seed, and crashes end nothing but the broker."""
    dice = random.Random(seed + 1)

    def token_bytes(size: int | None = None) -> bytes:
        return dice.randbytes(size or 32)

    names = {
        "token_bytes": token_bytes,
        "token_hex": lambda size=None: token_bytes(size).hex(),
        "token_urlsafe": lambda size=None: token_bytes(size).hex(),
        "randbits": dice.getrandbits,
    }
    random.seed(seed)
    with patch.multiple(secrets, **names), _quiet():
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Swallow what a dying broker says; a crash inside the kernel cannot be raised through it."""
    hook, level = sys.unraisablehook, logging.root.manager.disable
    surprises: list[str] = []

    def unraisable(found: Any) -> None:
        # A task that a crash has ended leaves a group of what its own tasks ended with.
        if not isinstance(found.exc_value, Crashed | BaseExceptionGroup):
            surprises.append(f"{found.exc_type.__name__}: {found.exc_value}")

    sys.unraisablehook = unraisable
    logging.disable(logging.CRITICAL)
    try:
        yield
        gc.collect(0)
    finally:
        sys.unraisablehook = hook
        logging.disable(level)
    if surprises:
        raise Violation(f"the broker raised inside the kernel: {surprises}")
