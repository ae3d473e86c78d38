"""NATS clients: publishers, consumers and an administrator, who note what they are told."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from simulation.broker import Broker
from simulation.model import StreamModel
from simulation.network import Message, NatsWire
from simulation.world import BrokerEnded, World

Heard = Callable[[Message], None]


def as_payload(record: str) -> bytes:
    """Return a record as JSON, so that every door shows the same."""
    return json.dumps(record).encode()


def as_record(payload: bytes) -> str:
    """Return what a payload stands for; anything else is shown as it is."""
    try:
        return str(json.loads(payload))
    except ValueError:
        return repr(payload)


class NatsClient:
    """A connection for each life, requests with replies, and subscriptions that come back."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.wires: list[NatsWire] = []
        self.waiting: dict[str, Heard] = {}
        self._asked = 0
        world.actors.append(self)
        if world.broker is not None:
            self.arrive(world.broker)

    def arrive(self, broker: Broker) -> None:
        """Connect, and subscribe to the answers."""
        wire = NatsWire(broker, self._hear)
        wire.say(f"SUB _INBOX.{self.name}.* 1\r\n".encode())
        self.wires = [wire]

    def leave(self) -> None:
        """Nobody will answer what is under way."""
        self.wires = []
        self.waiting.clear()

    def act(self) -> None:
        """Do one thing."""

    def say(self, data: bytes) -> None:
        """Put bytes on the wire, where there is one."""
        if self.wires:
            self.wires[0].say(data)

    def publish(
        self, subject: str, payload: bytes, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Publish, with headers or without."""
        if headers:
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            block = f"NATS/1.0\r\n{lines}\r\n".encode()
            sizes = f"{len(block)} {len(block) + len(payload)}"
            self.say(f"HPUB {subject} {reply} {sizes}\r\n".encode() + block + payload + b"\r\n")
        else:
            self.say(f"PUB {subject} {reply} {len(payload)}\r\n".encode() + payload + b"\r\n")

    def request(
        self, subject: str, payload: bytes, heard: Heard, headers: dict[str, str] | None = None
    ) -> str:
        """Ask; ``heard`` gets the first answer, if one ever comes. Returns the reply's subject."""
        self._asked += 1
        reply = f"_INBOX.{self.name}.{self._asked}"
        self.waiting[reply] = heard
        self.publish(subject, payload, reply, headers)
        return reply

    def ask(self, subject: str, body: Any = None, payload: bytes | None = None) -> bytes:
        """Ask and wait for the answer, while the world goes on; raises ``BrokerEnded``."""
        got: list[Message] = []
        if payload is None:
            payload = b"" if body is None else json.dumps(body).encode()
        if not self.wires:
            raise BrokerEnded
        self.request(subject, payload, got.append)
        self.world.go_on(lambda: bool(got), f"{self.name} asks {subject} {payload[:80]!r}")
        return got[0].payload

    def _hear(self, message: Message) -> None:
        self.world.note(self.name, "<", message.subject, message.status, message.payload[:60])
        heard = self.waiting.pop(message.subject, None)
        if heard is not None:
            heard(message)
        else:
            self.hear(message)

    def hear(self, message: Message) -> None:
        """Take what comes by another subscription."""


class Publisher(NatsClient):
    """Publishes into a stream: with ids or without, one or several at a time, with retries."""

    def __init__(self, world: World, name: str, model: StreamModel, subject: str) -> None:
        super().__init__(world, name)
        self.model = model
        self.subject = subject
        self._made = 0
        self._unanswered: dict[str, str] = {}  # records with an id, and their subject
        self._acked: list[int] = []  # sequences of this connection, as they came

    def arrive(self, broker: Broker) -> None:
        """Connect, and send again what has an id and no answer."""
        super().arrive(broker)
        self._acked = []
        for record, subject in list(self._unanswered.items()):
            self._send(record, subject, with_id=True)

    def act(self) -> None:
        """Publish a few messages in one piece."""
        dice = self.world.random
        for _ in range(dice.choice((1, 1, 1, 2, 5))):
            self._made += 1
            record = f"{self.name}-{self._made}"
            with_id = dice.random() < 0.6
            subject = self.subject.replace("*", str(dice.randrange(3)))
            if with_id:
                self._unanswered[record] = subject
            self._send(record, subject, with_id)
            if with_id and dice.random() < 0.15:  # impatient: the same at once again
                self._send(record, subject, with_id)

    def _send(self, record: str, subject: str, with_id: bool) -> None:
        self.model.send(record, subject, self.world.life, record if with_id else "")
        headers = {"Nats-Msg-Id": record} if with_id else None
        self.world.note(self.name, ">", subject, record)
        if not with_id and self.world.random.random() < 0.1:
            self.publish(subject, as_payload(record))  # and nobody will answer
            return
        heard = partial(self._heard, record)
        self.request(subject, as_payload(record), heard, headers)

    def _heard(self, record: str, message: Message) -> None:
        if message.status:
            return  # nobody there yet
        told = json.loads(message.payload)
        if "error" in told:
            self.world.note(self.name, "refused", told["error"])
            return
        self._unanswered.pop(record, None)
        self.world.tally.acks += 1
        if told.get("duplicate"):
            self.model.duplicate(record, told["seq"])
            return
        if self._acked and told["seq"] <= self._acked[-1]:
            self.model.broken(f"acknowledged {told['seq']} behind {self._acked[-1]}")
        self._acked.append(told["seq"])
        self.model.acked(record, told["seq"])


class Remover(NatsClient):
    """Deletes single messages and purges."""

    def __init__(self, world: World, name: str, model: StreamModel) -> None:
        super().__init__(world, name)
        self.model = model

    def act(self) -> None:
        """Remove something that is there."""
        dice, model = self.world.random, self.model
        if not model.told or dice.random() < 0.5:
            return
        if dice.random() < 0.7:
            seq = dice.choice(sorted(model.told))
            gone, what = {seq}, "MSG.DELETE"
            body = {"seq": seq, "no_erase": dice.random() < 0.5}
        else:
            seq = dice.choice(sorted(model.told))
            gone, what, body = {s for s in model.used if s < seq}, "PURGE", {"seq": seq}
        model.ask_gone(gone)
        self.world.note(self.name, what, seq)
        subject = f"$JS.API.STREAM.{what}.{model.name}"
        self.request(subject, json.dumps(body).encode(), partial(self._heard, gone))

    def _heard(self, gone: set[int], message: Message) -> None:
        if json.loads(message.payload).get("success"):
            self.model.confirm_gone(gone)


class Consumer(NatsClient):
    """A durable consumer, pulled or pushed, that acknowledges in every way there is."""

    def __init__(self, world: World, name: str, model: StreamModel, pushed: bool) -> None:
        super().__init__(world, name)
        self.model = model
        self.pushed = pushed
        self.is_made = False
        self.confirmed: set[int] = set()  # acked, and told so
        self.settled: set[int] = set()
        self.delivered: set[int] = set()
        self._unacked: list[tuple[int, str]] = []

    def arrive(self, broker: Broker) -> None:
        """Connect, and listen where messages are pushed."""
        super().arrive(broker)
        self.say(f"SUB deliver.{self.name} 2\r\nSUB pulled.{self.name} 3\r\n".encode())
        self.say(b"PING\r\n")

    def leave(self) -> None:
        """Forget what was delivered and not answered."""
        super().leave()
        self._unacked.clear()

    def make(self) -> None:
        """Create the consumer, or see that it is there."""
        config: dict[str, Any] = {
            "durable_name": self.name,
            "ack_policy": "explicit",
            "ack_wait": 2_000_000_000,
            "max_ack_pending": 50,
        }
        if self.pushed:
            config["deliver_subject"] = f"deliver.{self.name}"
        body = {"stream_name": self.model.name, "config": config}
        subject = f"$JS.API.CONSUMER.DURABLE.CREATE.{self.model.name}.{self.name}"
        self.is_made = "error" not in json.loads(self.ask(subject, body)) or self.is_made

    def act(self) -> None:
        """Pull some, or answer something that was delivered."""
        dice = self.world.random
        if self._unacked and dice.random() < 0.7:
            self._answer(*self._unacked.pop(dice.randrange(len(self._unacked))))
        elif not self.pushed:
            body = {"batch": dice.choice((1, 3, 10)), "expires": 500_000_000}
            if dice.random() < 0.4:
                body["no_wait"] = True
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.model.name}.{self.name}"
            self.publish(subject, json.dumps(body).encode(), f"pulled.{self.name}")

    def _answer(self, seq: int, reply: str) -> None:
        word = self.world.random.choice((b"+ACK",) * 5 + (b"-NAK", b"+WPI", b"+TERM", b"+ACK"))
        if word in (b"+ACK", b"+TERM") and self.world.random.random() < 0.6:
            self.request(reply, word, lambda _: self.confirmed.add(seq))
        else:
            self.publish(reply, word)
        self.world.note(self.name, word.decode(), seq)

    def hear(self, message: Message) -> None:
        """Take a delivery."""
        if not message.reply.startswith("$JS.ACK"):
            return
        words = message.reply.split(".")
        seq = int(words[-4])
        self.model.read(seq, as_record(message.payload), f"consumer {self.name}")
        if seq in self.confirmed:
            self.model.broken(f"consumer {self.name} got {seq} after its confirmed ack")
        self.delivered.add(seq)
        self._unacked.append((seq, message.reply))


class CoreClient(NatsClient):
    """Plain publish and subscribe: at most once, in order, to those who listen."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._made = 0
        self._heard_up_to = 0

    def arrive(self, broker: Broker) -> None:
        """Connect, and listen to oneself."""
        super().arrive(broker)
        self.say(f"SUB core.{self.name}.> 9\r\n".encode())

    def act(self) -> None:
        """Say the next number."""
        self._made += 1
        self.publish(f"core.{self.name}.x", str(self._made).encode())

    def hear(self, message: Message) -> None:
        """See that numbers only grow, and were said."""
        number = int(message.payload)
        if not self._heard_up_to < number <= self._made:
            raise AssertionError(f"core message {number} after {self._heard_up_to}")
        self._heard_up_to = number
