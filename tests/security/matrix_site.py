"""One server with everything on it, and clients who ask it over its sockets as somebody."""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from millstream.accounts.api_keys import parse_keys
from millstream.clock import SystemClock
from millstream.http.routes import Route
from millstream.server.build import ServerParts, build
from millstream.server.command_line.serve_options import load_serve
from millstream.server.http_parts import routes
from millstream.server.server import Server

SECONDS = 10.0
TURNS, A_TURN = 10, 0.02
SECRET = "classified"  # in every record that is denied to some, and in no other
OPEN = "plain"

CONFIG = """
system_account: SYS
accounts {
  A {
    jetstream: enabled
    users: [
      { user: all, password: p }
      { user: denied, password: p, permissions: {
          subscribe: { deny: ["log.secret", "jobs.secret"] }, publish: { deny: ["forbidden"] } } }
      { user: nojs, password: p, permissions: { publish: { deny: ["$JS.>", "$MILLSTREAM.>"] } } }
      { user: listener, password: p,
        permissions: { publish: { allow: ["nothing"] },
                       subscribe: { allow: ["log.open", "_INBOX.>"] } } }
      { user: speaker, password: p,
        permissions: { publish: { allow: ["log.open"] }, subscribe: { allow: ["_INBOX.>"] } } }
      { user: puller, password: p, permissions: {
          publish: { allow: ["$JS.API.CONSUMER.MSG.NEXT.LOG.all", "$JS.ACK.LOG.all.>"] }
          subscribe: { allow: ["_INBOX.>"] } } }
      { user: answerer, password: p,
        permissions: { subscribe: { allow: ["service", "_INBOX.>"] }, allow_responses: true } }
    ]
    exports: [{ service: "service", accounts: [B] }]
  }
  B {
    jetstream: enabled
    users: [{ user: elsewhere, password: p }]
    imports: [{ service: { account: A, subject: "service" } }]
  }
  C { users: [{ user: storeless, password: p }] }
  SYS { users: [{ user: sys, password: p }] }
}
"""

# Keys of the account $G: each scope alone, those of a queue's worker, all, and all of one prefix.
KEYS = (
    "k-read:read,k-write:write,k-delete:delete,k-admin:admin,k-worker:read+write,k-full,"
    "k-other::other."
)
KEY_NAMES = ("read", "write", "delete", "admin", "worker", "full", "other")
USER_NAMES = (
    *("all", "denied", "nojs", "listener", "speaker", "puller", "answerer"),
    *("elsewhere", "storeless", "sys"),
)
STRANGERS = ("nobody", "unknown")

QUEUE = {"type": "queue", "max_deliveries": 1, "dead_letter": "letters"}
TOPICS: dict[str, dict[str, Any]] = {
    "log": {},
    "LOG": {"subjects": ["log.>"]},
    "queue": QUEUE,
    "letters": {"type": "queue"},
    "victim": {},
    "other.log": {},
}


UPGRADE = {
    "upgrade": "websocket",
    "connection": "Upgrade",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}


class Told(NamedTuple):
    """What came back: a status or a word for one, and the bytes."""

    answer: int | str
    body: bytes = b""
    sid: int = 0


class Site:
    """A served directory."""

    def __init__(self, parts: ServerParts, server: Server, table: tuple[Route, ...]) -> None:
        self.parts = parts
        self.table = table
        facts = server.facts(0.0, data_is_new=True)
        self._http = _place(facts.http_url or "")
        self._nats = _place(facts.nats_url or "")
        self._sources = (f"127.1.{n >> 8}.{n & 255}" for n in itertools.count(1))

    async def http(
        self, who: str, method: str, target: str, body: object = None, **more: str
    ) -> Told:
        """Ask as somebody; of an event stream only the head is read."""
        head = {"host": "localhost", "accept": "*/*", "connection": "close", **more}
        head |= {"authorization": offer} if (offer := credential(who)) else {}
        data = body if isinstance(body, bytes) else b"" if body is None else _json(body)
        if data:
            head.setdefault("content-type", "application/json")
        head["content-length"] = str(len(data))
        # Wrong guesses of one address are slowed; that is tested elsewhere.
        source = next(self._sources) if who == "unknown" else "127.0.0.1"
        reader, writer = await asyncio.open_connection(*self._http, local_addr=(source, 0))
        try:
            lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
            writer.write(f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode() + data)
            return await asyncio.wait_for(_answered(reader), SECONDS)
        finally:
            await _closed(writer)

    async def events(self, who: str, target: str) -> bytes:
        """Return the first events of a stream, or the refusal."""
        async with self._opened(who, target, {"accept": "text/event-stream"}) as (reader, _):
            return await _for_a_while(reader)

    async def socket(self, who: str, message: object) -> bytes:
        """Return what comes over a WebSocket after one message."""
        async with self._opened(who, "/v0/ws", UPGRADE) as (reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(_frame(_json(message)))
            return await _for_a_while(reader)

    @contextlib.asynccontextmanager
    async def _opened(
        self, who: str, target: str, more: dict[str, str]
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(*self._http)
        head = {"host": "localhost", "authorization": credential(who), **more}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        writer.write(f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode())
        try:
            yield reader, writer
        finally:
            await _closed(writer)

    async def wire(self, who: str) -> "NatsWire":
        """Connect over NATS as somebody; ``""`` says nothing yet."""
        reader, writer = await asyncio.open_connection(*self._nats)
        wire = NatsWire(reader, writer)
        await wire.line()  # INFO
        if not who:
            return wire
        options: dict[str, Any] = {"verbose": False, "headers": True, "no_responders": True}
        if who != "nobody":
            options |= {"user": who, "pass": "p"}
        wire.say(b"CONNECT " + _json(options))
        return wire

    async def furnish(self, who: str = "") -> None:
        """Have everything there in both accounts, or in that of ``who`` after a change."""
        if who == "elsewhere":
            for thing in ("topics/log", "topics/LOG", "topics/other.log", "topics/copy"):
                await self.http(who, "DELETE", f"/v0/{thing}")
            return
        bosses = ("full", "all") if not who else ("all",) if who in USER_NAMES else ("full",)
        for boss in bosses:
            await self._furnish(boss)

    async def _furnish(self, boss: str) -> None:
        if boss == "all":  # HTTP has no word for direct gets
            wire = await self.wire(boss)
            config = {
                "name": "LOG",
                "subjects": ["log.>"],
                "allow_direct": True,
                "allow_msg_schedules": True,
            }
            await wire.ask("$JS.API.STREAM.CREATE.LOG", _json(config))
            await wire.close()
        for topic, config in TOPICS.items():
            await self.http(boss, "PUT", f"/v0/topics/{topic}", config)
        await self.http(boss, "PUT", "/v0/routers/way", {"source": "log", "dest": "copy"})
        for topic, subject in (("LOG", "log.open"), ("LOG", "log.secret"), ("log", None)):
            text = SECRET if subject == "log.secret" else OPEN
            record = {"data": text} | ({"subject": subject} if subject else {})
            await self.http(boss, "POST", f"/v0/topics/{topic}", {"records": [record]})
        for place in ("LOG/consumers/all", "log/consumers/reader", "other.log/consumers/reader"):
            await self.http(boss, "PUT", f"/v0/topics/{place}", {})


class NatsWire:
    """A client that shows the bare protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._inboxes = itertools.count(1)

    async def close(self) -> None:
        await _closed(self._writer)

    def say(self, line: bytes) -> None:
        self._writer.write(line + b"\r\n")

    def publish(
        self, subject: str, data: bytes = b"", reply: str = "", headers: bytes = b""
    ) -> None:
        """Publish; ``headers`` are lines with their ends."""
        names = f"{subject} {reply}".strip()
        if not headers:
            self.say(f"PUB {names} {len(data)}".encode() + b"\r\n" + data)
            return
        block = b"NATS/1.0\r\n" + headers + b"\r\n"
        sizes = f"{len(block)} {len(block) + len(data)}"
        self.say(f"HPUB {names} {sizes}".encode() + b"\r\n" + block + data)

    async def line(self) -> bytes:
        """Return the next line but PINGs, nothing at the end."""
        while True:
            with contextlib.suppress(ConnectionResetError):
                line = await asyncio.wait_for(self._reader.readline(), SECONDS)
                if line == b"PING\r\n":
                    self.say(b"PONG")
                    continue
                return line
            return b""

    async def next(self) -> Told:
        """Return the next message as its payload, or the next other line as a word."""
        line = await self.line()
        if line.startswith((b"MSG ", b"HMSG ")):
            sizes = line.split()
            rest = await self._reader.readexactly(int(sizes[-1]) + 2)
            word = "message" if line.startswith(b"MSG") else "headers"
            return Told(word, rest[:-2], int(sizes[2]))
        if line.startswith(b"-ERR 'Permissions Violation"):
            return Told("violation", line)
        return Told("closed" if not line else line.decode().strip(), line)

    async def heard(self) -> bytes:
        """Return everything that comes before the answer to a PING."""
        self.say(b"PING")
        found = b""
        while (told := await self.next()).answer not in ("PONG", "closed"):
            found += told.body
        return found

    async def heard_soon(self) -> bytes:
        """Return what comes in a moment: some answers take a few turns of the loop."""
        found = await self.heard()
        for _ in range(TURNS):
            await asyncio.sleep(A_TURN)
            found += await self.heard()
        return found

    async def until(self, mark: bytes) -> bytes:
        """Return everything up to a message with ``mark``, or an error."""
        found = b""
        while True:
            told = await self.next()
            found += told.body
            if mark in told.body or told.answer in ("violation", "closed") or b" 503" in told.body:
                return found

    async def ask(
        self, subject: str, data: bytes = b"", headers: bytes = b"", wait: float = SECONDS
    ) -> Told:
        """Send a request and return its first answer."""
        number = next(self._inboxes)
        inbox = f"_INBOX.matrix.{id(self)}.{number}"
        self.say(f"SUB {inbox} {number}".encode())
        self.publish(subject, data, inbox, headers)
        try:
            async with asyncio.timeout(wait):
                while (told := await self.next()).sid not in (number, 0):
                    pass
        except TimeoutError:
            return Told("silence")
        self.say(f"UNSUB {number}".encode())
        return Told(_verdict(told), told.body)


def _verdict(told: Told) -> int | str:
    if told.answer == "headers":
        return "nobody" if told.body.startswith(b"NATS/1.0 503\r\n") else "answered"
    if told.answer != "message":
        return told.answer
    try:
        found = json.loads(told.body)
    except ValueError:
        return "answered"
    error = found.get("error") if isinstance(found, dict) else None
    return int(error.get("code", 500)) if isinstance(error, dict) else "answered"


def credential(who: str) -> str:
    """Return what somebody sends over HTTP to say who they are."""
    if who == "nobody":
        return ""
    if who in USER_NAMES:
        return "Basic " + base64.b64encode(f"{who}:p".encode()).decode()
    return f"Bearer k-{who}"


async def _answered(reader: asyncio.StreamReader) -> Told:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head.split(b" ", 2)[1])
    size = re.search(rb"content-length: (\d+)", head)
    return Told(status, await reader.readexactly(int(size[1])) if size else b"")


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def _for_a_while(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until nothing more does for a moment."""
    found = b""
    with contextlib.suppress(TimeoutError):
        while piece := await asyncio.wait_for(reader.read(65536), TURNS * A_TURN):
            found += piece
    return found


def _frame(text: bytes) -> bytes:
    """Return a masked text frame, as a client sends it; the mask changes nothing."""
    return bytes([0x81, 0x80 | len(text)]) + bytes(4) + text


def _place(url: str) -> tuple[str, int]:
    host, _, port = url.rpartition("/")[2].rpartition(":")
    return host, int(port)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


@contextlib.asynccontextmanager
async def matrix_site(directory: Path) -> AsyncIterator[Site]:
    """Serve a directory with keys, users and accounts, and furnish it."""
    file = directory / "server.conf"
    file.write_text(CONFIG)
    given = {
        "port": 0,
        "http_port": 0,
        "data_dir": directory / "data",
        "api_keys": parse_keys(KEYS),
    }
    options = load_serve(given, str(file), dict(os.environ)).options
    parts = build(options, asyncio.get_running_loop(), SystemClock())
    server = Server(options, parts)
    await server.start()
    try:
        assert parts.http is not None
        served = routes(options, parts.facts, parts.http.page, parts.http.gate)
        site = Site(parts, server, served.table)
        await site.furnish()
        yield site
    finally:
        await server.stop()
