"""HTTP clients: writers with idempotency keys, readers that follow, and workers of a queue."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from simulation.broker import Broker
from simulation.model import StreamModel
from simulation.network import HttpAnswer, HttpWire
from simulation.world import World


class HttpClient:
    """A connection for each life, one request at a time."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.wires: list[HttpWire] = []
        self._waiting: Callable[[int, Any], None] | None = None
        world.actors.append(self)
        if world.broker is not None:
            self.arrive(world.broker)

    def arrive(self, broker: Broker) -> None:
        """Connect."""
        self.wires = [HttpWire(broker, self._hear)]

    def leave(self) -> None:
        """Nobody will answer what is under way."""
        self.wires = []
        self._waiting = None

    def act(self) -> None:
        """Do one thing."""

    @property
    def is_busy(self) -> bool:
        """Whether an answer is awaited, or nobody is there to ask."""
        return self._waiting is not None or not self.wires or not self.wires[0].is_open

    def call(self, method: str, path: str, body: Any, heard: Callable[[int, Any], None]) -> None:
        """Send a request; ``heard`` gets status and body, if an answer ever comes."""
        self._waiting = heard
        self.world.note(self.name, ">", method, path, body)
        self.wires[0].ask(method, path, b"" if body is None else json.dumps(body).encode())

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Ask and wait for the answer, while the world goes on; raises ``BrokerEnded``."""
        got: list[tuple[int, Any]] = []
        self.world.go_on(lambda: not self.is_busy, f"{self.name} can ask")
        self.call(method, path, body, lambda status, told: got.append((status, told)))
        self.world.go_on(lambda: bool(got), f"{self.name} asks {method} {path}")
        return got[0]

    def _hear(self, answer: HttpAnswer) -> None:
        told = json.loads(answer.body) if answer.body else None
        if isinstance(told, dict):
            told.pop("performance", None)  # times of the machine
        self.world.note(self.name, "<", answer.status, told)
        heard, self._waiting = self._waiting, None
        if heard is not None:
            heard(answer.status, told)


class Writer(HttpClient):
    """Appends batches; one that has no answer is sent again, by its key."""

    def __init__(self, world: World, name: str, model: StreamModel) -> None:
        super().__init__(world, name)
        self.model = model
        self._made = 0
        self._key = ""
        self._batch: list[str] = []  # sent, and not answered

    def act(self) -> None:
        """Append a batch, or repeat the last one."""
        if self.is_busy:
            return
        dice = self.world.random
        if not self._batch:
            for _ in range(dice.choice((1, 1, 2, 4))):
                self._made += 1
                self._batch.append(f"{self.name}-{self._made}")
            self._key = f"{self.name}-key-{self._made}"
            self.model.batches.append(list(self._batch))
        self._send()

    def _send(self) -> None:
        for record in self._batch:
            self.model.send(record, self.model.name, self.world.life)
        records = [{"data": record} for record in self._batch]
        body = {"records": records, "idempotency_key": self._key}
        heard = partial(self._heard, list(self._batch))
        self.call("POST", f"/v0/topics/{self.model.name}", body, heard)

    def _heard(self, batch: list[str], status: int, told: Any) -> None:
        if status != 200:
            self.world.note(self.name, "refused", status, told)
            return
        self.world.tally.acks += len(batch)
        first, last = told["first_seq"], told["last_seq"]
        if last - first + 1 != len(batch):
            self.model.broken(f"answered {first} to {last} for a batch of {len(batch)}")
        for record, seq in zip(batch, range(first, last + 1), strict=True):
            self.model.acked(record, seq)
        if self.world.random.random() < 0.8:
            self._batch = []  # else: an answer that the client did not see


class Follower(HttpClient):
    """Reads on from where it stands; hears of what it missed."""

    def __init__(self, world: World, name: str, model: StreamModel) -> None:
        super().__init__(world, name)
        self.model = model
        self.position = 0

    def act(self) -> None:
        """Read a page."""
        if self.is_busy:
            return
        body = {"from_seq": self.position, "limit": self.world.random.choice((2, 10, 100))}
        self.call("POST", f"/v0/topics/{self.model.name}/diff", body, self._heard)

    def _heard(self, status: int, told: Any) -> None:
        if status != 200:
            return
        last = self.position
        for record in told["records"]:
            if record["$seq"] <= last:
                self.model.broken(f"diff shows {record['$seq']} behind {last}")
            last = record["$seq"]
            self.model.read(last, str(record["data"]), "diff")
        self.position = max(self.position, told["next_from_seq"])


class Lease:
    """A job that a worker holds, up to its deadline."""

    def __init__(self, job: dict[str, Any], lease_ms: int, node: str) -> None:
        self.seq: int = job["$seq"]
        self.lease_id: str = job["lease_id"]
        self.number = int(self.lease_id.removeprefix("lease_"), 16)  # they only grow
        self.deadline_ms: int = job["deadline"]
        self.granted_ms = self.deadline_ms - lease_ms
        self.node = node


class QueueModel:
    """Who holds which job, as the workers were told."""

    def __init__(self, stream: StreamModel, durable: bool) -> None:
        self.stream = stream
        self.durable = durable
        self.held: dict[int, Lease] = {}  # and not given back
        self.newest: dict[int, int] = {}  # by job, the lease that was given last
        self.ids: set[str] = set()
        self.fenced = 0
        stream.on_crash.append(self._crash)

    def _crash(self, keeps: bool) -> None:
        """Leases that are not durable end with the process."""
        if not (self.durable and keeps):
            self.held.clear()

    def claimed(self, lease: Lease) -> None:
        """A worker was given a job; answers to two workers may come in another order."""
        other = self.held.get(lease.seq)
        if other is not None:
            older, newer = sorted((lease, other), key=lambda each: each.number)
            if newer.granted_ms <= older.deadline_ms:
                self.stream.broken(f"leased {lease.seq} to {newer.node}, {older.node} holds it")
        if lease.lease_id in self.ids:
            self.stream.broken(f"gave the lease id {lease.lease_id} twice")
        if lease.seq in self.stream.gone:
            self.stream.broken(f"leased {lease.seq}, which is done")
        self.ids.add(lease.lease_id)
        if other is None or other.number < lease.number:
            self.held[lease.seq] = lease
        if self.newest.get(lease.seq, 0) < lease.number:
            self.newest[lease.seq] = lease.number

    def give_back(self, lease: Lease) -> None:
        """A worker says that it is done with a job, or will not do it: it may be another's now."""
        if self.held.get(lease.seq) is lease:
            self.held.pop(lease.seq)

    def taken(self, word: str, lease: Lease) -> None:
        """The server took a worker's word about a lease."""
        newest = self.newest.get(lease.seq, 0)
        if newest > lease.number:
            self.stream.broken(f"took {word} of {lease.seq} by {lease.lease_id}, not {newest:x}")


class Worker(HttpClient):
    """Claims jobs and answers for them, sometimes too late or with the lease of another time."""

    def __init__(self, world: World, name: str, queue: QueueModel) -> None:
        super().__init__(world, name)
        self.queue = queue
        self._path = f"/v0/topics/{queue.stream.name}"
        self._mine: list[Lease] = []

    def act(self) -> None:
        """Claim, or answer for a job."""
        if self.is_busy:
            return
        dice = self.world.random
        if not self._mine or dice.random() < 0.4:
            body = {
                "node": self.name,
                "max": dice.choice((1, 2)),
                "lease_ms": dice.choice((500, 3000)),
            }
            heard = partial(self._claimed, body["lease_ms"])
            self.call("POST", self._path + "/claim", body, heard)
            return
        lease = self._mine.pop(dice.randrange(len(self._mine)))
        word = dice.choice(("ack", "ack", "ack", "nack", "extend"))
        body = {"node": self.name, "seqs": [lease.seq], "lease_ids": [lease.lease_id]}
        if word == "extend":
            body["lease_ms"] = 3000
        else:
            self.queue.give_back(lease)
        if word == "ack":
            self.queue.stream.ask_gone({lease.seq})
        self.call("POST", f"{self._path}/{word}", body, partial(self._answered, word, lease))

    def _claimed(self, lease_ms: int, status: int, told: Any) -> None:
        if status != 200:
            return
        for job in told["claimed"]:
            self.queue.stream.read(job["$seq"], str(job["data"]), "claim")
            lease = Lease(job, lease_ms, self.name)
            self.queue.claimed(lease)
            self._mine.append(lease)

    def _answered(self, word: str, lease: Lease, status: int, told: Any) -> None:
        if status != 200:
            return
        if lease.seq in told["skipped"]:
            self.queue.fenced += 1
            return
        self.queue.taken(word, lease)
        if word == "extend":
            lease.deadline_ms = told["deadlines"][str(lease.seq)]
            self._mine.append(lease)
        elif word == "ack":
            self.queue.stream.confirm_gone({lease.seq})
