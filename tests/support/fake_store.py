"""An object store in memory that lands requests late and answers as it likes."""

from random import Random

import msgspec

from millstream.store.object_log.requests import (
    ABSENT,
    CONDITION_FAILED,
    Accepted,
    Answer,
    Create,
    FoundObject,
    Get,
    Put,
    Remove,
    Replace,
    Request,
    Unsure,
)


class InFlight(msgspec.Struct, eq=False):
    """A request on its way: whether it has landed, and what the store said then."""

    request: Request
    answer: Answer | None = None
    is_dropped: bool = False  # nobody waits for the answer; it may land all the same


class FakeStore:
    """Objects of a store with conditions: each request takes effect at one moment."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.bodies: dict[str, list[bytes]] = {}  # every body that a name ever had
        self._tags: dict[str, int] = {}
        self._next_tag = 0

    def carry_out(self, request: Request) -> Answer:
        """Take effect now, and answer truly."""
        match request:
            case Create(name, data):
                if name in self.objects:
                    return CONDITION_FAILED
                return self._store(name, data)
            case Get(name):
                if name not in self.objects:
                    return ABSENT
                return FoundObject(self.objects[name], str(self._tags[name]))
            case Replace(name, data, tag):
                there = str(self._tags[name]) if name in self.objects else None
                return CONDITION_FAILED if there != tag else self._store(name, data)
            case Put(name, data):
                return self._store(name, data)
            case Remove(name):
                self.objects.pop(name, None)
                return Accepted()

    def names(self, folder: str) -> list[str]:
        """List a folder."""
        return sorted(name for name in self.objects if name.startswith(folder))

    def _store(self, name: str, data: bytes) -> Accepted:
        self._next_tag += 1
        self.objects[name] = data
        self._tags[name] = self._next_tag
        self.bodies.setdefault(name, []).append(data)
        return Accepted(str(self._next_tag))


class Network:
    """Requests between clients and a store: a seed decides when each lands and what is answered."""

    def __init__(self, store: FakeStore, random: Random, faults: float) -> None:
        self.store = store
        self._random = random
        self._faults = faults  # how often an answer is not the true one
        self.flying: list[InFlight] = []
        self.fired: dict[str, int] = {}

    def send(self, request: Request) -> InFlight:
        """Put a request on its way."""
        flight = InFlight(request)
        self.flying.append(flight)
        return flight

    def land_one(self) -> bool:
        """Let one request that is on its way take effect; False when there is none."""
        waiting = [flight for flight in self.flying if flight.answer is None]
        if not waiting:
            return False
        flight = self._random.choice(waiting)
        flight.answer = self.store.carry_out(flight.request)
        if flight.is_dropped:
            self._note("landed after its client gave up")
            self.flying.remove(flight)
        return True

    def answers(self, flight: InFlight) -> Answer | None:
        """Return what the client hears now, if anything; a fault may come before it landed."""
        if self._random.random() < self._faults:
            before = "before it landed" if flight.answer is None else "after it landed"
            self._note(f"no true answer {before}")
            flight.is_dropped = flight.answer is None
            self._forget(flight)
            return Unsure()
        if flight.answer is None:
            return None
        self._forget(flight)
        return flight.answer

    def drop(self, flight: InFlight) -> None:
        """The client is gone; the request may still land."""
        flight.is_dropped = True
        self._forget(flight)

    def _forget(self, flight: InFlight) -> None:
        if flight.answer is not None and flight in self.flying:
            self.flying.remove(flight)

    def _note(self, what: str) -> None:
        self.fired[what] = self.fired.get(what, 0) + 1
