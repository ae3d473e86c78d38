"""Plays JetStream sessions on a server that can be restarted, and writes down what came back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from compat.jetstream_sessions import RESTART, STREAMS, Session, Step
from compat.replay import Delivery, Parser
from support.broker import serve_command
from support.peers import Peer, free_port, nats_server_path, running

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PATIENCE = 4.0  # for an answer that must come
SLOWNESS = 10  # so many round trips longer is waited for what may come
QUIET = 0.05  # nothing for so long: nothing more comes
STORED = 0.3  # by then a record is stored, unless the disk is slow
Seen = list[Any]
EVENTS = {
    f"{stream}-{at}": f"$JS.EVENT.{kind.replace('NAME', stream)}"
    for stream in STREAMS
    for at, kind in enumerate(
        ("ADVISORY.STREAM.*.NAME", "ADVISORY.CONSUMER.*.NAME.>", "METRIC.CONSUMER.ACK.NAME.>")
    )
}


class Server:
    """One broker over one directory, restarted on the same port."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name
        self._port, self._http_port = free_port(), free_port()
        self._running = contextlib.ExitStack()
        directory.mkdir()

    def start(self) -> Peer:
        """Start it, or start it again."""
        data = self._directory / "data"
        if self._name == "millstream":
            command = serve_command(self._port, self._http_port, data)
            http_port = self._http_port
        else:
            command = [nats_server_path(), "-a", "127.0.0.1", "-p", str(self._port), "-js"]
            command += ["-sd", str(data)]
            http_port = 0
        started = running(self._name, command, self._port, self._directory, http_port)
        return self._running.enter_context(started)

    def stop(self) -> None:
        """Stop it, its data stays."""
        self._running.close()


class Caller:
    """One connection: requests with their answers, subscriptions with what they got."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._boxes: dict[str, asyncio.Queue[Delivery]] = defaultdict(asyncio.Queue)
        self._parser = Parser(lenient=True)
        self._made = 0
        self._pong = asyncio.Event()
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, peer: Peer) -> Caller:
        """Connect."""
        reader, writer = await asyncio.open_connection(peer.host, peer.port)
        writer.write(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n')
        return cls(reader, writer)

    async def close(self) -> None:
        """Go."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await self._reader.read(1 << 16):
                for event in self._parser.feed(data):
                    if isinstance(event, Delivery):
                        self._boxes[event.sid].put_nowait(event)
                    elif event.text == "PONG":
                        self._pong.set()

    def subscribe(self, subject: str, sid: str, queue: str = "") -> None:
        """Receive under this sid."""
        self._writer.write(f"SUB {subject} {queue} {sid}\r\n".encode())

    def unsubscribe(self, sid: str) -> None:
        """Receive no more."""
        self._writer.write(f"UNSUB {sid}\r\n".encode())

    def publish(
        self, subject: str, body: bytes, reply: str = "", headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Send one message."""
        if headers:
            block = "NATS/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers) + "\r\n"
            head = block.encode()
            line = f"HPUB {subject} {reply} {len(head)} {len(head) + len(body)}\r\n"
            self._writer.write(line.encode() + head + body + b"\r\n")
        else:
            self._writer.write(f"PUB {subject} {reply} {len(body)}\r\n".encode() + body + b"\r\n")

    async def patience(self, seconds: float) -> float:
        """Wait until the server has read everything; returns ``seconds``, more where it is slow."""
        begun = time.monotonic()
        self._pong.clear()
        self._writer.write(b"PING\r\n")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._pong.wait(), PATIENCE)
        return seconds + min(SLOWNESS * (time.monotonic() - begun), PATIENCE)

    async def take(self, sid: str, patience: float) -> Delivery | None:
        """Return the next message of a subscription, None when none comes in time."""
        try:
            return await asyncio.wait_for(self._boxes[sid].get(), patience)
        except TimeoutError:
            return None

    def inbox(self) -> tuple[str, str]:
        """Subscribe to an inbox of its own; returns it and its sid."""
        self._made += 1
        sid = f"i{self._made}"
        self.subscribe(f"_INBOX.{id(self)}.{sid}", sid)
        return f"_INBOX.{id(self)}.{sid}", sid


class Player:
    """Carries a session out under a prefix; ``pace`` waits so long after each step.

    ``stored`` is how long a publish may stay unanswered: a session that is played once needs more.
    """

    def __init__(self, session: Session, prefix: str, pace: float, stored: float = STORED) -> None:
        self.seen: list[Seen] = []
        self._steps = list(session.steps)
        self._prefix = prefix
        self._pace = pace
        self._stored = stored
        self._acks: list[str] = []
        self._listening: dict[str, tuple[str, str]] = {}
        self._caller: Caller | None = None
        self._restarted = False
        self._told: set[str] = set()  # consumers whose answers are as of now

    async def play(self, peer: Peer) -> bool:
        """Carry out the steps up to the next restart; returns whether there are more."""
        caller = self._caller = await Caller.open(peer)
        self._acks = []
        for sid, subject in EVENTS.items():  # a sid subscribes once
            caller.subscribe(self._named(subject), sid)
        for sid, (subject, queue) in self._listening.items():
            caller.subscribe(subject, sid, queue)
        while self._steps:
            step = self._steps.pop(0)
            if step.kind == RESTART:
                self._restarted, self._told = True, set()
                break
            self.seen.append([step.kind, *await self._carry_out(step)])
            if self._pace:
                await asyncio.sleep(self._pace)
        await asyncio.sleep(await caller.patience(QUIET))
        self.seen.append(["push", *await self._pushed()])
        self.seen.append(["events", *await self._events()])
        await caller.close()
        return bool(self._steps)

    def _named(self, text: str) -> str:
        return text.replace("@", self._prefix)

    async def _carry_out(self, step: Step) -> Seen:
        subject = self._named(step.subject)
        body = step.body.replace(b"@", self._prefix.encode())
        headers = [(key, self._named(value)) for key, value in step.headers]
        match step.kind:
            case "ask":
                return await self._ask(subject, body, headers)
            case "many":
                return await self._many(subject, body)
            case "pull":
                return await self._pull(subject, body, step.n)
            case "ack":
                return await self._ack(body, step.n)
            case "listen":
                return self._listen(subject, body.decode())
            case _:
                await asyncio.sleep(await self._wire.patience(QUIET))
                return await self._pushed()

    @property
    def _wire(self) -> Caller:
        assert self._caller is not None
        return self._caller

    async def _ask(self, subject: str, body: bytes, headers: Sequence[tuple[str, str]]) -> Seen:
        inbox, sid = self._wire.inbox()
        self._wire.publish(subject, body, inbox, headers)
        # Publishes to a stream that does not answer, or to an open batch, stay unanswered.
        patience = (
            PATIENCE if subject.startswith("$JS.API") else await self._wire.patience(self._stored)
        )
        if ".CONSUMER.RESET." in subject:
            patience = await self._wire.patience(0.3)
        answer = await self._wire.take(sid, patience)
        self._wire.unsubscribe(sid)
        if ".CONSUMER.RESET." in subject and answer is not None and b'"code":404' in answer.payload:
            answer = None  # the reference leaves resets of nothing unanswered
        if answer is None:
            return [None]
        if self._is_first_since_restart(subject, answer):
            return ["made or changed"]
        return [self._plain(answer)]

    def _is_first_since_restart(self, subject: str, answer: Delivery) -> bool:
        """Whether the reference answers with what it noted down about a consumer at its start."""
        consumer = re.match(r"\$JS\.API\.CONSUMER\.(?:DURABLE\.)?CREATE\.([^.]+\.[^.]+)", subject)
        if consumer is None or b'"error"' in answer.payload or consumer[1] in self._told:
            return False
        self._told.add(consumer[1])
        return self._restarted

    async def _many(self, subject: str, body: bytes) -> Seen:
        inbox, sid = self._wire.inbox()
        self._wire.publish(subject, body, inbox)
        seen, patience = [], PATIENCE
        several = b'"batch"' in body or b'"multi_last"' in body  # up to a status that ends them
        while (answer := await self._wire.take(sid, patience)) is not None:
            if not several or answer.headers.startswith(b"NATS/1.0 "):
                patience = QUIET
            seen.append(self._plain(answer))
        self._wire.unsubscribe(sid)
        return seen

    async def _pull(self, subject: str, body: bytes, wanted: int) -> Seen:
        inbox, sid = self._wire.inbox()
        self._wire.publish(subject, body, inbox)
        patience = await self._wire.patience(0.4 if b"expires" in body or not wanted else 0.15)
        return await self._deliveries(sid, patience, wanted if b"batch" in body else 0)

    async def _deliveries(self, sid: str, patience: float, wanted: int = 0) -> Seen:
        """Take what comes until nothing more does; an end or all that is wanted makes it short."""
        seen: Seen = []
        while (got := await self._wire.take(sid, patience)) is not None:
            seen.append(self._plain(got))
            if got.reply.startswith(b"$JS.ACK"):
                self._acks.append(got.reply.decode())
            ended = re.match(rb"NATS/1.0 (404|408|409|400|423|503)", got.headers)
            if ended or len(seen) == wanted:
                patience = 0.01
        return seen

    async def _ack(self, body: bytes, n: int) -> Seen:
        if not self._acks:
            return ["nothing to answer"]
        subject = self._acks[-1 - n % len(self._acks)]
        inbox, sid = self._wire.inbox()
        self._wire.publish(subject, body, inbox)
        confirmed = not body.startswith((b"+NXT", b"nonsense"))
        patience = await self._wire.patience(0.3 if confirmed else 0.15)
        return [_token(subject), *await self._deliveries(sid, patience)]

    def _listen(self, subject: str, queue: str) -> Seen:
        sid = f"p{len(self._listening)}"
        self._listening[sid] = (subject, queue)
        self._wire.subscribe(subject, sid, queue)
        return []

    async def _pushed(self) -> Seen:
        seen: Seen = []
        for sid in self._listening:
            while (got := await self._wire.take(sid, 0.001)) is not None:
                seen.append([sid, self._plain(got)])
                if got.reply.startswith(b"$JS.ACK"):
                    self._acks.append(got.reply.decode())
        return seen

    async def _events(self) -> Seen:
        seen = []
        for sid in EVENTS:
            while (got := await self._wire.take(sid, 0.001)) is not None:
                if b"CONSUMER.GAP" not in got.subject:  # an addition of ours
                    seen.append(json.dumps(self._plain(got), sort_keys=True))
        return sorted(seen)

    def _plain(self, message: Delivery) -> Any:
        """Return a message without what differs from run to run."""
        subject = message.subject.decode()
        if subject.startswith("_INBOX"):
            subject = "INBOX"
        if subject.startswith("$JS.EVENT"):  # the name of an ephemeral is random
            subject = re.sub(r"\.[A-Za-z0-9]{8}$", ".GENERATED", subject)
        block = message.headers.decode()
        block = re.sub(r"Nats-Pin-Id: .*", "Nats-Pin-Id: PIN", block)
        block = re.sub(r"Nats-Time-Stamp: .*", "Nats-Time-Stamp: TIME", block)
        block = re.sub(r"Nats-Subject: \$JS.ACK.*", "Nats-Subject: ACK", block)
        # An addition of ours, and one for the reference's own mirrors.
        if "Millstream-Gap" in block or "Nats-Stream-Identity" in block:
            block = re.sub(r"(Millstream-Gap|Nats-Stream-Identity): .*\r\n", "", block)
            block = "" if block == "NATS/1.0\r\n\r\n" else block
        body: Any = message.payload.decode(errors="replace")
        if body.startswith("{"):
            with contextlib.suppress(json.JSONDecodeError):
                body = plain_json(json.loads(body))
        return [subject, _token(message.reply.decode()), block, body]


def _token(reply: str) -> str:
    """An ack subject without its time, and without a name that the server made up."""
    parts = reply.split(".")
    if reply.startswith("$JS.ACK.") and len(parts) == 9:
        parts[7] = "TIME"
        parts[3] = re.sub("^[A-Za-z0-9]{8}$", "GENERATED", parts[3])
        return ".".join(parts)
    return re.sub(r"(\$JS\.FC\.[^.]+\.[^.]+)\..*", r"\1.X", reply)


def _consumer_name(consumer: Any) -> str:
    return str(consumer["name"] if isinstance(consumer, dict) else consumer)


# The reference names them in the order of a map, which is any.
_VIOLATED = "change to limits violates consumers: "
_WORDS = {"explicit", "interest", "original", "overflow"}
_RANDOM = {"id", "ack_time", "pinned_client_id", "pinned_id", "pause_remaining"}


def plain_json(value: Any) -> Any:
    """Return an answer without times, ids and what the reference adds when it is alone."""
    if isinstance(value, dict):
        shown = {
            key: "ANY" if key in _RANDOM else plain_json(inner)
            for key, inner in value.items()
            if key not in ("cluster", "client", "server")
        }
        name = shown.get("name")
        if "stream_name" in shown and isinstance(name, str) and len(name) == 8:
            shown["name"] = "GENERATED"
        if isinstance(shown.get("consumers"), list):  # by name, and some names are random
            shown["consumers"] = sorted(shown["consumers"], key=_consumer_name)
        return shown
    if isinstance(value, list):
        return [plain_json(inner) for inner in value]
    if isinstance(value, str) and value.startswith(_VIOLATED):
        return _VIOLATED + ", ".join(sorted(value.removeprefix(_VIOLATED).split(", ")))
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9]{8}", value):
        return value if value in _WORDS else "GENERATED"
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)", value):
        return "0001" if value.startswith("0001") else "TIME"
    return value
