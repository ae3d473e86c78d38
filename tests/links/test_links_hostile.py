"""Peers that mean harm: bytes that no server sends, and leafs that reach for more than they may."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import nats
from support.jetstream_api import api
from support.topology import OURS, Member, free_port, member
from support.waiting import SECONDS

LEAF_HELLO = b'CONNECT {"server_id":"X","name":"x","version":"2.15.1","headers":true}\r\n'
ROUTE_HELLO = (
    b'CONNECT {"name":"X","cluster":"C","headers":true,"lnoc":true}\r\n'
    b'INFO {"server_id":"X","server_name":"x","host":"127.0.0.1","port":1,'
    b'"cluster":"C","headers":true}\r\n'
)

MALFORMED = [
    b"\0\1\2\3\4\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PUB a 2\r\nhi\r\n",
    b"SUB a 1\r\n",
    b"CONNECT {\r\n",
    b"CONNECT []\r\n",
    b'CONNECT {"lang":"go","version":"1"}\r\n',
    b"CONNECT " + b"[" * 5000 + b"\r\n",
    b"INFO {\r\n",
    b"INFO 7\r\n",
    b"LS+\r\n",
    b"LS+ a b\r\n",
    b"LS+ a b -1\r\n",
    b"LS+ a b 99999999999999999999\r\n",
    b"LS+ a..b\r\n",
    b"LS- \r\n",
    b"RS+ $G\r\n",
    b"RS+ $G a q\r\n",
    b"RS+ $G a q 0\r\n",
    b"LMSG a\r\n",
    b"LMSG a -1\r\n",
    b"LMSG a 99999999999\r\n",
    b"LMSG a 2\r\nhixx",
    b"LMSG a | 2\r\nhi\r\n",
    b"LMSG a + r 2\r\nhi\r\n",
    b"HMSG a 12 2\r\nhi\r\n",
    b"HMSG a 4 2\r\nNATS\r\n",
    b"RMSG $G\r\n",
    b"RMSG $G a 99999999999\r\n",
    b"RMSG nobody a 2\r\nhi\r\n",
    b"-ERR\r\n",
    b"-ERR 'what'\r\n" * 3,
    b"+OK\r\n" * 3,
    b"x" * 200_000,
    b"LS+ " + b"a." * 40_000 + b"a\r\n",
]


@contextmanager
def open_server(tmp_path: Path, more: str = "") -> Iterator[tuple[Member, int, int]]:
    """Run a server with a port for leafs and one for routes."""
    leaf, route = free_port(), free_port()
    text = (
        f'server_name: s\njetstream {{ domain: s, store_dir: "{tmp_path}" }}\n'
        f"leafnodes {{ host: 127.0.0.1, port: {leaf} }}\n"
        f"cluster {{ name: C, host: 127.0.0.1, port: {route} }}\n{more}"
    )
    with member(OURS, text) as server:
        yield server, leaf, route


async def spoken(port: int, hello: bytes, said: bytes, size: int) -> None:
    """Say something in pieces of a size, and wait until it was taken or refused."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in (
            hello,
            *(said[at : at + size] for at in range(0, len(said), size)),
            b"PING\r\n",
        ):
            writer.write(piece)
            if size < 100:
                await asyncio.sleep(0)
        heard = b""
        async with asyncio.timeout(SECONDS):
            while b"PONG\r\n" not in heard and (data := await reader.read(65536)):
                heard += data
    except (ConnectionError, TimeoutError):
        if len(said) < 1000 and b"hixx" not in said:
            return
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("size", [1 << 20, 7, 1], ids=["whole", "split", "bytes"])
@pytest.mark.parametrize("port_kind", ["leaf", "route"])
async def test_what_no_server_says_harms_nobody(port_kind: str, size: int, tmp_path: Path) -> None:
    with open_server(tmp_path) as (server, leaf, route):
        client = await nats.connect(server.url)
        got = 0

        async def take(_: object) -> None:
            nonlocal got
            got += 1

        await client.subscribe("near", cb=take)
        port = leaf if port_kind == "leaf" else route
        said = [one for one in MALFORMED if size > 100 or len(one) < 1000]
        for hello in (b"", LEAF_HELLO if port_kind == "leaf" else ROUTE_HELLO):
            for at in range(0, len(said), 8):
                await asyncio.gather(*(spoken(port, hello, one, size) for one in said[at : at + 8]))
        await client.publish("near", b"")
        await client.flush()
        async with asyncio.timeout(SECONDS):
            while not got:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert server.process.poll() is None
        assert "Traceback" not in server.output()
        await client.close()


USERS = """
authorization { users: [
  { user: leaf, password: p, permissions: {
      publish: { allow: ["ok.>", "_INBOX.>", "$JS.s.API.>"], deny: "ok.not" }
      subscribe: { allow: ["heard.>", "_INBOX.>"], deny: "heard.secret" } } }
  { user: c, password: c }
] }
"""

# What a leaf says, and whether this shows or changes something: (line, what must not be heard).
SENDS = [
    (b"LMSG ok.a 1\r\nx\r\n", "ok.a", True),
    (b"LMSG ok.not 1\r\nx\r\n", "ok.not", False),
    (b"LMSG bad 1\r\nx\r\n", "bad", False),
    (b"HMSG bad 12 13\r\nNATS/1.0\r\n\r\nx\r\n", "bad", False),
    (b"LMSG $SYS.REQ.SERVER.PING _INBOX.z 0\r\n\r\n", "$SYS.REQ.SERVER.PING", False),
]
HEARS = [
    (b"LS+ heard.a\r\n", "heard.a", True),
    (b"LS+ heard.>\r\n", "heard.a", True),
    (b"LS+ >\r\n", "heard.a", True),
    (b"LS+ heard.secret\r\n", "heard.secret", False),
    (b"LS+ heard.>\r\n", "heard.secret", False),
    (b"LS+ heard.* q 1\r\n", "heard.secret", False),
    (b"LS+ >\r\n", "heard.secret", False),
    (b"LS+ >\r\n", "other", False),
    (b"LS+ other\r\n", "other", False),
    (b"LS+ *.secret\r\n", "heard.secret", False),
]
# Requests over the leaf to the API about streams that hold what it must not hear.
ASKS = [
    ("STREAM.MSG.GET.SECRET", {"seq": 1}),
    ("STREAM.MSG.GET.SECRET", {"last_by_subj": "heard.secret"}),
    ("DIRECT.GET.SECRET.heard.secret", {}),
    ("CONSUMER.CREATE.SECRET", {"stream_name": "SECRET", "config": {
        "deliver_subject": "_INBOX.take", "ack_policy": "none", "deliver_policy": "all"}}),
]  # fmt: skip
HELLO = (
    b'CONNECT {"server_id":"X","name":"x","version":"2.15.1","headers":true,'
    b'"user":"leaf","pass":"p"}\r\nPING\r\n'
)


class RawLeaf:
    """A leaf that says what the test tells it."""

    def __init__(self, port: int) -> None:
        self.heard = b""
        self._port = port

    async def __aenter__(self) -> "RawLeaf":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._task = asyncio.ensure_future(self._read())
        await self.say(HELLO, b"PONG")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        while data := await self._reader.read(65536):
            self.heard += data

    async def say(self, said: bytes, until: bytes = b"PONG") -> None:
        """Say something; return once the server has taken it or hung up."""
        before = self.heard.count(until)
        self._writer.write(said if b"PING" in said else said + b"PING\r\n")
        async with asyncio.timeout(SECONDS):
            while self.heard.count(until) == before and not self._task.done():  # noqa: ASYNC110
                await asyncio.sleep(0.005)


async def test_a_leaf_reaches_nothing_beyond_its_rights(tmp_path: Path) -> None:
    with open_server(tmp_path, USERS) as (server, port, _):
        client = await nats.connect(server.url, user="c", password="c")
        heard: list[str] = []

        async def take(message: nats.aio.msg.Msg) -> None:
            heard.append(message.subject)

        await client.subscribe(">", cb=take)
        for said, subject, passes in SENDS:
            async with RawLeaf(port) as leaf:
                await leaf.say(said)
            await client.flush()
            assert (subject in heard) == passes, (said, heard)
            heard.clear()
        for said, subject, passes in HEARS:
            async with RawLeaf(port) as leaf:
                await leaf.say(said)
                await client.publish(subject, b"secret-payload")
                await client.flush()
                await leaf.say(b"PING\r\n")
                assert (b"secret-payload" in leaf.heard) == passes, (said, subject, leaf.heard)
        await client.close()


async def test_a_leaf_does_not_get_by_asking_what_it_may_not_hear(tmp_path: Path) -> None:
    with open_server(tmp_path, USERS) as (server, port, _):
        client = await nats.connect(server.url, user="c", password="c")
        stream = {"name": "SECRET", "subjects": ["heard.>"], "allow_direct": True}
        await api(client, "STREAM.CREATE.SECRET", stream)
        await client.request("heard.secret", b"hidden-payload", timeout=SECONDS)
        await client.request("heard.open", b"open-payload", timeout=SECONDS)
        for operation, body in ASKS:
            data = json.dumps(body).encode()
            async with RawLeaf(port) as leaf:
                await leaf.say(b"LS+ _INBOX.>\r\n")
                asking = f"LMSG $JS.s.API.{operation} _INBOX.r {len(data)}\r\n".encode()
                await leaf.say(asking + data + b"\r\n")
                if operation.startswith("CONSUMER"):  # the rest of the stream is its to read
                    async with asyncio.timeout(SECONDS):
                        while b"open-payload" not in leaf.heard:
                            await leaf.say(b"PING\r\n")
                for _ in range(5):
                    await leaf.say(b"PING\r\n")
                    await asyncio.sleep(0.02)
                assert b"hidden-payload" not in leaf.heard
                assert b"aGlkZGVuLXBheWxvYWQ" not in leaf.heard  # the same in base 64
        await client.close()
