"""Histories of a log on a store: members take over, write, snapshot, trim, pause, crash, come back.

A seed decides everything, so a history can be run again. The oracle knows only what clients saw:
which payloads were acknowledged, when, and what a new writer read.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from millstream.store.object_log.entry import EPOCH, RECORDS, Chain, Codec
from millstream.store.object_log.head import HeadCodec, LogHead
from millstream.store.object_log.judgement import Judgement, Open, Stored, TakenBy, put
from millstream.store.object_log.requests import (
    Accepted,
    Answer,
    Create,
    FoundObject,
    Get,
    Steps,
    carried_out,
)
from millstream.store.object_log.take_over import BrokenLog, LogReader, Won
from millstream.store.object_log.trim import Trimmer
from support.fake_store import FakeStore, InFlight, Network

KEY = b"the fleet's key"
WINDOW = 4


class Task(msgspec.Struct, eq=False):
    """A decision under way: what it waits for, and who hears of its end."""

    steps: Steps[Any]
    ended: Callable[[Any], None]
    flight: InFlight | None = None


class Written(msgspec.Struct, eq=False):
    """An entry on its way."""

    payload: int
    data: bytes
    after: Chain
    is_there: bool = False


class History:
    """What clients saw, in order; and what is wrong with it."""

    def __init__(self) -> None:
        self.acked: list[int] = []
        self.acked_by: dict[int, list[int]] = {}  # the epoch of a writer → its payloads
        self.wins: list[tuple[int, list[int]]] = []  # epoch, payloads read
        self.violations: list[str] = []

    def ack(self, epoch: int, payload: int) -> None:
        """Note that a client heard that its payload is stored."""
        self.acked.append(payload)
        self.acked_by.setdefault(epoch, []).append(payload)

    def judge(self, final: list[int]) -> None:
        """Compare what clients saw with what the log holds in the end."""
        where = {payload: at for at, payload in enumerate(final)}
        if len(where) < len(final):
            self.violations.append("a payload stands twice")
        lost = [payload for payload in self.acked if payload not in where]
        if lost:
            self.violations.append(f"acked and lost: {lost}")
            return
        for mine in self.acked_by.values():
            places = [where[payload] for payload in mine]
            if places != sorted(places):
                self.violations.append("a writer's payloads are out of order")
        for epoch, read in self.wins:
            if read != final[: len(read)]:
                self.violations.append(f"epoch {epoch} read what the log does not hold")
            # Whenever it was acked: a writer before us may hear of its entry after we took over.
            before = {each for at, mine in self.acked_by.items() if at < epoch for each in mine}
            if not before <= set(read):
                self.violations.append(f"epoch {epoch} did not read what was acked before it")


class Member:
    """A process that wants to write; its bugs are named from outside."""

    def __init__(self, model: "Model", nonce: int) -> None:
        self._model = model
        self._nonce = nonce
        self._random = model.random
        self._bugs = model.bugs
        self.pause = 0
        self._tasks: list[Task] = []
        self._is_writer = False
        self._is_broken = False
        self._chain = Chain(0, 0, 0, 0)
        self._confirmed = self._chain
        self._under_way: dict[int, Written] = {}
        self._state: list[int] = []  # payloads up to the confirmed position
        self._head, self._tag = LogHead(), ""
        self._epochs: tuple[int, ...] = ()
        self._is_tending = False

    def crash(self) -> None:
        """Forget everything; requests under way may land."""
        for task in self._tasks:
            if task.flight is not None:
                self._model.network.drop(task.flight)
        self.__init__(self._model, self._model.next_nonce())  # type: ignore[misc]

    def step(self) -> None:
        """Do one thing."""
        if self.pause:
            self.pause -= 1
            return
        if not self._is_writer and not self._tasks and not self._is_broken:
            steps = self._model.reader.take_over(self._nonce)
            self._tasks.append(Task(steps, self._won))
        choice = self._random.random()
        if self._is_writer and choice < 0.35:
            self._write()
        elif self._is_writer and choice < 0.35 + self._model.temper.snapshots:
            self._snapshot()
        elif self._tasks:
            self._advance(self._random.choice(self._tasks))

    def _advance(self, task: Task) -> None:
        answer: Answer | None = None
        if task.flight is not None:
            answer = self._model.network.answers(task.flight)
            if answer is None:
                return
        try:
            request = next(task.steps) if answer is None else task.steps.send(answer)
        except StopIteration as end:
            self._tasks.remove(task)
            task.ended(end.value)
        except BrokenLog as error:
            self._model.history.violations.append(str(error))
            self._tasks.remove(task)
            self._is_broken = True
        else:
            task.flight = self._model.network.send(request)

    # --- becoming the writer

    def _won(self, won: Won) -> None:
        self._is_writer = True
        read = won.read
        self._chain = self._confirmed = won.chain
        self._state = self._model.snapshot(read.head, read.entries)
        self._head, self._tag = read.head, read.tag or ""
        walked = tuple(e.position for e in read.entries if e.kind == EPOCH)
        self._epochs = tuple(sorted({*read.head.epochs, *walked}))
        self._model.history.wins.append((won.epoch, list(self._state)))
        self._model.note("took over")

    # --- writing

    def _write(self) -> None:
        ahead = WINDOW * (3 if "window exceeded" in self._bugs else 1)
        if len(self._under_way) >= ahead:
            return
        payload = self._model.next_payload()
        data = self._model.codec.encode(self._chain, RECORDS, payload.to_bytes(4, "little"))
        entry = self._model.codec.decode(data, self._chain.position)
        written = Written(payload, data, entry.after())  # type: ignore[union-attr]
        at = self._chain.position
        self._under_way[at] = written
        self._chain = written.after
        if "ack before the put" in self._bugs:
            self._model.history.ack(self._chain.epoch, payload)
        self._put(at, written)

    def _put(self, at: int, written: Written) -> None:
        steps = put(self._model.codec, written.data, at)
        self._tasks.append(Task(steps, lambda judgement: self._judged(at, written, judgement)))

    def _judged(self, at: int, written: Written, judgement: Judgement) -> None:
        if not self._is_writer:
            return
        if isinstance(judgement, Open):
            if "sequence given back" in self._bugs and at == self._chain.position - 1:
                del self._under_way[at]  # and its position goes to the next payload
                self._chain = Chain(at, *self._before(at))
                return
            self._put(at, written)
        elif isinstance(judgement, Stored):
            written.is_there = True
            self._confirm()
        else:
            if not isinstance(judgement, TakenBy):
                self._model.history.violations.append(f"a writer met {judgement}")
            self._is_writer = False
            self._model.note("was fenced")
            self._tasks = [task for task in self._tasks if self._leaves(task)]
            self._nonce = self._model.next_nonce()
            self._under_way = {}
            self._is_tending = False

    def _before(self, at: int) -> tuple[int, int, int]:
        before = self._under_way.get(at - 1)
        chain = before.after if before is not None else self._confirmed
        return chain.epoch, chain.nonce, chain.check

    def _leaves(self, task: Task) -> bool:
        if task.flight is not None:
            self._model.network.drop(task.flight)
        return False

    def _confirm(self) -> None:
        while (one := self._under_way.get(self._confirmed.position)) and one.is_there:
            del self._under_way[self._confirmed.position]
            self._confirmed = one.after
            self._state.append(one.payload)
            if "ack before the put" not in self._bugs:
                self._model.history.ack(self._chain.epoch, one.payload)

    # --- snapshots

    def _snapshot(self) -> None:
        if self._is_tending or self._confirmed.position <= self._head.chain.position:
            return
        self._is_tending = True
        self._tasks.append(Task(self._tend(self._confirmed, list(self._state)), self._tended))

    def _tend(self, chain: Chain, state: list[int]) -> Steps[tuple[LogHead, str]]:
        name = f"shards/0/snapshots/{chain.position:020d}-{chain.epoch}"
        body = msgspec.json.encode(state)
        while not isinstance((yield Create(name, body)), Accepted):
            there = yield Get(name)
            if isinstance(there, FoundObject) and there.data == body:
                break
        most = chain.position - 1
        floor = (
            most if self._model.temper.is_greedy else self._random.randint(self._head.floor, most)
        )
        new = LogHead(chain, name, floor, self._head.swept, self._epochs)
        trimmer, tag = self._model.trimmer, self._tag or None
        if "deletes before the floor rises" in self._bugs:
            risen = msgspec.structs.replace(new, floor=self._head.floor)
            yield from trimmer.sweep(new, self._tag, 0)
            for position in range(new.swept + 1, new.floor + 1):
                if position not in new.epochs:
                    yield self._model.remove(position)
            head, tag = yield from trimmer.raise_head(risen, self._head, tag)
            return (yield from trimmer.raise_head(new, head, tag))
        if "epoch entries are trimmed" in self._bugs:
            new = msgspec.structs.replace(new, epochs=())
        head, tag = yield from trimmer.raise_head(new, self._head, tag)
        return (yield from trimmer.sweep(head, tag, 100))

    def _tended(self, result: tuple[LogHead, str]) -> None:
        self._head, self._tag = result
        self._is_tending = False
        self._model.note("trimmed")


class Temper(msgspec.Struct, frozen=True):
    """How often things happen in a history."""

    members: int
    faults: float
    snapshots: float
    is_greedy: bool  # trims all that a snapshot covers
    pauses: float
    longest_pause: int


def temper(random: Random) -> Temper:
    """Return one of many: rare races need histories that are dense in what makes them."""
    return Temper(
        members=random.choice([1, 2, 3, 4]),
        faults=random.choice([0.0, 0.0, 0.05, 0.2]),
        snapshots=random.choice([0.07, 0.3]),
        is_greedy=random.random() < 0.5,
        pauses=random.choice([0.006, 0.03]),
        longest_pause=random.choice([40, 200]),
    )


class Model:
    """One history by one seed."""

    def __init__(self, seed: int, bugs: frozenset[str] = frozenset()) -> None:
        self.random = Random(seed)
        self.bugs = bugs
        self.history = History()
        self.store = FakeStore()
        self.temper = temper(self.random)
        self.network = Network(self.store, self.random, self.temper.faults)
        self.codec = Codec(0, KEY)
        heads = HeadCodec(0, KEY)
        self.reader = LogReader(self.codec, heads, WINDOW)
        self.trimmer = Trimmer(self.codec, heads)
        self.fired: dict[str, int] = {}
        self._payload = self._nonce = 0
        self.members = [Member(self, self.next_nonce()) for _ in range(self.temper.members)]

    def next_payload(self) -> int:
        self._payload += 1
        return self._payload

    def next_nonce(self) -> int:
        self._nonce += 1
        return self._nonce

    def note(self, what: str) -> None:
        self.fired[what] = self.fired.get(what, 0) + 1

    def remove(self, position: int) -> Any:
        from millstream.store.object_log.requests import Remove

        return Remove(self.codec.name(position))

    def snapshot(self, head: LogHead, entries: list[Any]) -> list[int]:
        """Return the payloads that a reader of the log knows."""
        base: list[int] = []
        if head.snapshot:
            base = msgspec.json.decode(self.store.objects[head.snapshot], type=list[int])
        first = head.chain.position
        records = [e for e in entries if e.kind == RECORDS and e.position >= first]
        return base + [int.from_bytes(each.body, "little") for each in records]

    def run(self, steps: int) -> list[str]:
        """Let things happen, then heal the store and look; returns what is wrong."""
        for _ in range(steps):
            self._step()
        while self.network.land_one():
            pass
        try:
            last = carried_out(self.reader.take_over(self.next_nonce()), self.store)
        except BrokenLog as error:
            self.history.violations.append(f"in the end {error}")
        else:
            self.history.judge(self.snapshot(last.read.head, last.read.entries))
        return self.history.violations

    def _step(self) -> None:
        choice = self.random.random()
        member = self.random.choice(self.members)
        if choice < 0.45:
            self.network.land_one()
        elif choice < 0.996 - self.temper.pauses:
            member.step()
        elif choice < 0.996:
            member.pause = self.random.randint(5, self.temper.longest_pause)
            self.note("paused")
        else:
            member.crash()
            self.note("crashed")
