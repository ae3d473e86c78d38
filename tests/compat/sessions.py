"""Generated client sessions: what one to three raw connections say, step by step.

A session is a value made from a seed, so that a difference can be named and replayed. All its
subjects start with a prefix of its own: many sessions can share one server at the same time.

Queue groups pick a member at random, so a group's deliveries are compared together. The sid of a
queue subscription therefore names its group (``qA-3``), and only plain subscriptions get a limit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

MAX_CONNECTIONS = 3
QUEUES = ("A", "B")
TOKENS = ("a", "b", "c")


@dataclass(frozen=True, slots=True)
class Step:
    """Bytes that one connection writes at once; ``pings`` of them are answered by PONG."""

    conn: int
    data: bytes
    pings: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    """A seed's worth of steps, in the one order in which they are carried out."""

    seed: int
    connections: int
    steps: tuple[Step, ...]

    def transcript(self) -> str:
        """The session as text that a bug report can hold."""
        return "\n".join(f"  {step.conn} > {step.data[:200]!r}" for step in self.steps)


def generate(seed: int) -> Session:
    """Return the session of this seed; the same seed always gives the same bytes."""
    return _Writer(seed).session()


def group_of(sid: str) -> str | None:
    """The queue group that a sid belongs to, None for a plain subscription."""
    return sid.split("-")[0] if sid.startswith("q") else None


class _Writer:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = Random(seed)
        self._prefix = f"s{seed}"
        self._count = self._random.randint(1, MAX_CONNECTIONS)
        self._sids: list[list[str]] = [[] for _ in range(self._count)]
        self._made = 0

    def session(self) -> Session:
        steps = [step for conn in range(self._count) for step in self._opening(conn)]
        steps += [self._step() for _ in range(self._random.randint(6, 40))]
        return Session(self._seed, self._count, tuple(steps))

    def _opening(self, conn: int) -> list[Step]:
        if self._random.random() < 0.1:
            return []  # a client that never says CONNECT
        return [Step(conn, self._connect())]

    def _step(self) -> Step:
        makers = [self._sub, self._queue_sub, self._unsub, self._limit, self._pub, self._several]
        makers += [self._request, self._hpub, self._ping, self._bad, self._reconnect]
        weights = [22, 12, 6, 7, 30, 6, 8, 12, 2, 3, 1]
        conn = self._random.randrange(self._count)
        return self._random.choices(makers, weights)[0](conn)

    # lines

    def _connect(self) -> bytes:
        chance = self._random.random
        options: dict[str, object] = {"verbose": chance() < 0.2, "pedantic": chance() < 0.2}
        options["protocol"] = int(chance() < 0.8)
        if chance() < 0.4:
            options["echo"] = chance() < 0.5
        if chance() < 0.8:
            options["headers"] = True
            options["no_responders"] = chance() < 0.5
        elif chance() < 0.1:
            options["no_responders"] = True  # refused: it needs headers
        return b"CONNECT " + json.dumps(options).encode() + b"\r\n"

    def _sub(self, conn: int) -> Step:
        known = [sid for sid in self._sids[conn] if not group_of(sid)]
        sid = self._new_sid(conn, "p")
        if known and self._random.random() < 0.1:
            sid = self._random.choice(known)  # a sid twice
        return Step(conn, self._line("SUB", self._pattern(), sid))

    def _queue_sub(self, conn: int) -> Step:
        queue = self._random.choice(QUEUES)
        return Step(
            conn, self._line("SUB", self._pattern(), queue, self._new_sid(conn, f"q{queue}"))
        )

    def _unsub(self, conn: int) -> Step:
        return Step(conn, self._line("UNSUB", self._some_sid(conn)))

    def _limit(self, conn: int) -> Step:
        sid = self._some_sid(conn)
        if group_of(sid):
            return self._pub(conn)
        return Step(conn, self._line("UNSUB", sid, str(self._random.randint(0, 4))))

    def _pub(self, conn: int) -> Step:
        return Step(conn, self._publish())

    def _several(self, conn: int) -> Step:
        return Step(conn, b"".join(self._publish() for _ in range(self._random.randint(2, 20))))

    def _request(self, conn: int) -> Step:
        return Step(conn, self._publish(reply=self._literal()))

    def _hpub(self, conn: int) -> Step:
        reply = [self._literal()] if self._random.random() < 0.3 else []
        headers = self._random.choice(
            [
                b"NATS/1.0\r\nK: v\r\n\r\n",
                b"NATS/1.0\r\nA: 1\r\nA: 2\r\nb:3\r\n\r\n",
                b"NATS/1.0 503\r\n\r\n",
                b"not a header block",
                b"",
            ]
        )
        body = headers + self._payload()
        sizes = [str(len(headers)), str(len(body))]
        line = self._line("HPUB", self._publish_subject(), *reply, *sizes)
        return Step(conn, line + body + b"\r\n")

    def _ping(self, conn: int) -> Step:
        return Step(conn, self._line("PING"), pings=1)

    def _reconnect(self, conn: int) -> Step:
        return Step(conn, self._connect())

    def _bad(self, conn: int) -> Step:
        subject = self._literal().encode()
        line = self._random.choice(BAD_LINES).replace(b"{s}", subject)
        return Step(
            conn, line, pings=int(line.startswith(b"PINGS"))
        )  # nats-server takes it as PING

    # their parts

    def _publish(self, reply: str = "") -> bytes:
        payload = self._payload()
        fields = [self._publish_subject(), *([reply] if reply else []), str(len(payload))]
        return self._line("PUB", *fields) + payload + b"\r\n"

    def _payload(self) -> bytes:
        self._made += 1
        filler = self._random.choice([b"", b"x" * 300, b"\r\nPUB no 1\r\n", bytes(range(256))])
        return b"%06d" % self._made + filler

    def _line(self, verb: str, *fields: str) -> bytes:
        """A control line in one of the spellings that the grammar allows."""
        style = self._random.random()
        if style < 0.05:
            verb = verb.lower()
        space = "\t" if 0.05 < style < 0.08 else "  " if 0.08 < style < 0.1 else " "
        end = "\n" if 0.1 < style < 0.13 else " \r\n" if 0.13 < style < 0.15 else "\r\n"
        return (space.join([verb, *fields]) + end).encode()

    def _literal(self) -> str:
        depth = self._random.choices([1, 2, 3], [5, 4, 1])[0]
        return ".".join([self._prefix, *self._random.choices(TOKENS, k=depth)])

    def _publish_subject(self) -> str:
        return self._odd_subject() if self._random.random() < 0.05 else self._literal()

    def _pattern(self) -> str:
        if self._random.random() < 0.06:
            return self._odd_subject()
        tokens = [
            "*" if self._random.random() < 0.3 else token
            for token in self._literal().split(".")[1:]
        ]
        if self._random.random() < 0.25:
            tokens[-1] = ">"
        return ".".join([self._prefix, *tokens])

    def _odd_subject(self) -> str:
        odd = ["a..b", "a.", ".a", ">.a", "a.>.b", "a*", "a.b>", "*", "*.b", ">", "a.*.>", "é"]
        return f"{self._prefix}.{self._random.choice(odd)}"

    def _new_sid(self, conn: int, kind: str) -> str:
        sid = f"{kind}-{len(self._sids[conn])}"
        self._sids[conn].append(sid)
        return sid

    def _some_sid(self, conn: int) -> str:
        return self._random.choice(self._sids[conn] or ["p-99"])


# Lines that a server must refuse, or must ignore; ``{s}`` is a subject of the session.
BAD_LINES = (
    b"FOO\r\n",
    b"\r\n",
    b" PING\r\n",
    b"PUB\r\n",
    b"PUB {s}\r\n",
    b"PUB {s} r x 1\r\n",
    b"PUB {s} -1\r\n",
    b"PUB {s} 1x\r\n",
    b"PUB {s} 2\r\nabcd\r\n",
    b"PUB {s} 1048577\r\n",
    b"PUB {s} 99999999999\r\n",
    b"HPUB {s} 3\r\n",
    b"HPUB {s} 9 4\r\nabcd\r\n",
    b"HPUB {s} -1 4\r\nabcd\r\n",
    b"SUB\r\n",
    b"SUB {s}\r\n",
    b"SUB {s} q 1 2\r\n",
    b"UNSUB\r\n",
    b"UNSUB p-0 1 2\r\n",
    b"UNSUB p-0 x\r\n",
    b"MSG {s} 1 1\r\nx\r\n",
    b"RS+ $G {s}\r\n",
    b"A+ $G\r\n",
    b"LS+ {s}\r\n",
    b"INFO {}\r\n",
    b"+OK\r\n",
    b"-ERR 'x'\r\n",
    b"CONNECT {bad\r\n",
    b"CONNECT []\r\n",
    b"CONNECT \r\n",
    b"PINGS\r\n",
    b"PONG\r\n",
    b"SUB " + b"{s}." + b"a" * 5000 + b" 1\r\n",
    b"PUB " + b"a" * 5000,
)
