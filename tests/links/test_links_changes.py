"""Links while things change: members that leave, hubs that die, remotes that come and go."""

import asyncio
import json
import re
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

import nats
from support.scale import count
from support.topology import OURS, REAL, Member, free_port, member
from support.waiting import SECONDS, eventually

BOTH = pytest.mark.parametrize("other_kind", [OURS, REAL])


async def answering(client: Client, subject: str, text: bytes = b"yes") -> None:
    async def answer(message: Msg) -> None:
        await message.respond(text)

    await client.subscribe(subject, cb=answer)
    await client.flush()


async def asked(client: Client, subject: str) -> bytes:
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                return (await client.request(subject, b"", timeout=1)).data
            except (NoRespondersError, nats.errors.TimeoutError):
                await asyncio.sleep(0.02)


async def unanswered(client: Client, subject: str) -> None:
    """Wait until nobody answers any more."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                await client.request(subject, b"", timeout=0.3)
            except (NoRespondersError, nats.errors.TimeoutError):
                return
            await asyncio.sleep(0.02)


def hub_at(port: int, name: str = "hub", more: str = "") -> str:
    return f"server_name: {name}\nleafnodes {{ host: 127.0.0.1, port: {port} }}\n{more}"


def leaf_of(ports: list[int], more: str = "") -> str:
    urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    remotes = f"{{ urls: [ {urls} ], no_randomize: true }}" if ports else ""
    inside = f"host: 127.0.0.1, port: -1, reconnect: '100ms', remotes [ {remotes} ]"
    return f"server_name: leaf\nleafnodes {{ {inside} }}\n{more}"


def infos(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(found) for found in re.findall(rb"INFO (\{.*?\}) *\r\n", data)]


class PlainClient:
    """Reads what a server tells its clients."""

    def __init__(self, server: Member) -> None:
        self.seen = b""
        self._server = server

    async def __aenter__(self) -> "PlainClient":
        reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._server.ports["nats"]
        )
        self._writer.write(b'CONNECT {"protocol":1,"verbose":false}\r\nPING\r\n')
        self._task = asyncio.ensure_future(self._read(reader))
        return self

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            self.seen += data

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def last(self) -> dict[str, Any]:
        """The newest INFO."""
        found = infos(self.seen)
        return found[-1] if found else {}


@BOTH
async def test_a_leaf_goes_to_its_next_url_when_a_hub_dies(other_kind: str) -> None:
    ports = [free_port(), free_port()]
    with ExitStack() as stack:
        hubs = [
            stack.enter_context(member(other_kind, hub_at(port, f"hub{at}")))
            for at, port in enumerate(ports)
        ]
        leaf = stack.enter_context(member(OURS, leaf_of(ports)))
        below = await nats.connect(leaf.url)
        first, second = [await nats.connect(hub.url) for hub in hubs]
        await answering(first, "who", b"first")
        await answering(second, "who", b"second")
        assert await asked(below, "who") == b"first"
        await first.close()
        hubs[0].process.kill()
        assert await asked(below, "who") == b"second"
        await second.close()
        await below.close()


@BOTH
async def test_a_reload_calls_new_remotes_and_leaves_old_ones(other_kind: str) -> None:
    port = free_port()
    with member(other_kind, hub_at(port)) as hub, member(OURS, leaf_of([])) as leaf:
        above, below = await nats.connect(hub.url), await nats.connect(leaf.url)
        await answering(above, "up")
        conf = leaf.log.parent / "server.conf"
        before = conf.read_text()
        conf.write_text(before.replace(leaf_of([]), leaf_of([port])))
        leaf.process.send_signal(signal.SIGHUP)
        assert await asked(below, "up") == b"yes"
        conf.write_text(before)
        leaf.process.send_signal(signal.SIGHUP)
        await unanswered(below, "up")
        conf.write_text(before.replace(leaf_of([]), leaf_of([port])))
        leaf.process.send_signal(signal.SIGHUP)
        assert await asked(below, "up") == b"yes"
        await above.close()
        await below.close()


def member_text(name: str, port: int, more: str = "", beside: str = "") -> str:
    inside = f"name: C, host: 127.0.0.1, port: {port}, {more}"
    return f"server_name: {name}\ncluster {{ {inside} }}\n{beside}"


@BOTH
async def test_who_goes_tells_members_and_clients(other_kind: str) -> None:
    port = free_port()
    routes = f'routes: [ "nats://127.0.0.1:{port}" ]'
    slowly = "lame_duck_duration: 30s\nlame_duck_grace_period: 10s"
    with (
        member(OURS, member_text("goes", port, beside=slowly)) as goes,
        member(other_kind, member_text("stays", free_port(), routes)) as stays,
    ):
        own = f"127.0.0.1:{goes.ports['nats']}"
        async with PlainClient(goes) as here, PlainClient(stays) as there:
            await eventually(lambda: own in there.last.get("connect_urls", []))
            goes.process.send_signal(signal.SIGUSR2)
            await eventually(lambda: here.last.get("ldm") is True)
            await eventually(lambda: own not in there.last.get("connect_urls", []))


@BOTH
async def test_a_member_that_does_not_advertise_is_not_told_of(other_kind: str) -> None:
    port = free_port()
    routes = f'routes: [ "nats://127.0.0.1:{port}" ]'
    with (
        member(OURS, member_text("hidden", port, "no_advertise: true")) as hidden,
        member(other_kind, member_text("seen", free_port(), routes)) as seen,
    ):
        one, other = await nats.connect(hidden.url), await nats.connect(seen.url)
        await answering(one, "x")
        assert await asked(other, "x") == b"yes"
        async with PlainClient(seen) as client:
            await eventually(lambda: bool(client.last))
            urls = client.last.get("connect_urls") or []
            assert f"127.0.0.1:{hidden.ports['nats']}" not in urls
        await one.close()
        await other.close()


@BOTH
async def test_members_keep_to_the_permissions_of_the_cluster(other_kind: str) -> None:
    port = free_port()
    routes = f'routes: [ "nats://127.0.0.1:{port}" ]'
    rules = "permissions { import: [ 'in.>', '_INBOX.>' ], export: [ 'out.>', '_INBOX.>' ] }"
    with (
        member(OURS, member_text("guarded", port, rules)) as guarded,
        member(other_kind, member_text("free", free_port(), routes)) as free,
    ):
        inside, outside = await nats.connect(guarded.url), await nats.connect(free.url)
        for subject in ("in.a", "other.a"):
            await answering(outside, subject.replace("in.", "out."))
            await answering(inside, subject)
        # Interest in ``import`` leaves us, what others want of ``export`` is sent to them.
        assert await asked(outside, "in.a") == b"yes"
        assert await asked(inside, "out.a") == b"yes"
        apart = await nats.connect(free.url)
        await answering(inside, "hidden.a")
        await answering(inside, "in.b")
        assert await asked(apart, "in.b") == b"yes"
        with pytest.raises(NoRespondersError):
            await apart.request("hidden.a", b"", timeout=2)
        for client in (inside, outside, apart):
            await client.close()


@BOTH
async def test_a_leaf_without_jetstream_uses_its_hubs_by_default(
    other_kind: str, tmp_path: Path
) -> None:
    port = free_port()
    store = f'jetstream {{ domain: hub, store_dir: "{tmp_path}" }}'
    default = 'default_js_domain: { "$G": "hub" }'
    with (
        member(other_kind, hub_at(port, more=f"{store}\n{default}")),
        member(OURS, leaf_of([port], default)) as leaf,
    ):
        client = await nats.connect(leaf.url)
        assert json.loads(await asked(client, "$JS.API.INFO"))["domain"] == "hub"
        await client.jetstream().add_stream(name="S", subjects=["s.>"])
        assert (await client.jetstream().publish("s.1", b"x")).seq == 1
        bucket = await client.jetstream().create_key_value(bucket="B")
        await bucket.put("key", b"value")
        assert (await bucket.get("key")).value == b"value"
        await client.close()


def rss(server: Member) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.parametrize("kind", ["leaf", "route"])
async def test_a_peer_that_stands_still_costs_little_and_stalls_nobody(kind: str) -> None:
    port = free_port()
    if kind == "leaf":
        texts = hub_at(port), leaf_of([port])
    else:
        routes = f'routes: [ "nats://127.0.0.1:{port}" ]'
        texts = member_text("a", port), member_text("b", free_port(), routes)
    with member(OURS, texts[0]) as one, member(REAL, texts[1]) as other:
        here, there = await nats.connect(one.url), await nats.connect(other.url)
        local = await nats.connect(one.url)
        await answering(there, "far.>")
        await answering(local, "near")
        assert await asked(here, "far.ready") == b"yes"
        for _ in range(count(1, 5)):
            before = rss(one)
            other.process.send_signal(signal.SIGSTOP)
            try:
                for _ in range(1600):
                    await here.publish("far.data", b"x" * 65536)
                    if _ % 100 == 0:
                        assert (await here.request("near", b"", timeout=SECONDS)).data == b"yes"
                await here.flush(timeout=int(SECONDS))
                assert rss(one) - before <= 64 << 20
            finally:
                other.process.send_signal(signal.SIGCONT)
            assert await asked(here, "far.ready") == b"yes"
        assert one.process.poll() is None
        for client in (here, there, local):
            await client.close()
