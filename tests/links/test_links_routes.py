"""Clusters of ours, and with real nats-servers for core messages."""

import asyncio
import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

import nats
from support.certificates import Authority
from support.topology import OURS, REAL, Member, free_port, member
from support.waiting import SECONDS, eventually

MIXES = [(OURS, OURS, OURS), (REAL, OURS, REAL), (OURS, REAL, OURS)]
mixes = pytest.mark.parametrize("kinds", MIXES, ids="-".join)


@contextmanager
def cluster(
    kinds: tuple[str, ...], *, inside: str = "", beside: str = "", login: str = ""
) -> Iterator[list[Member]]:
    """Run members that know the first one; the others they hear of."""
    ports = [free_port() for _ in kinds]
    with ExitStack() as stack:
        members = []
        for at, kind in enumerate(kinds):
            routes = f'routes: [ "nats://{login}127.0.0.1:{ports[0]}" ]' if at else ""
            text = (
                f"server_name: s{at}\nhttp: 127.0.0.1:-1\ncluster {{ name: C, host: 127.0.0.1, "
                f"port: {ports[at]}, {routes}\n{inside} }}\n{beside}"
            )
            members.append(stack.enter_context(member(kind, text)))
        yield members


def monitored(server: Member, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.ports['monitoring']}{path}") as answer:
        return dict(json.load(answer))


async def meshed(members: list[Member], count: int | None = None) -> None:
    wanted = len(members) - 1 if count is None else count
    for server in members:
        await eventually(
            lambda server=server: len(
                {r["remote_id"] for r in monitored(server, "/routez")["routes"]}
            ) == wanted
        )  # fmt: skip


async def answering(client: Client, subject: str, text: bytes, queue: str = "") -> None:
    async def answer(message: Msg) -> None:
        await message.respond(text)

    await client.subscribe(subject, queue, cb=answer)
    await client.flush()


async def asked(client: Client, subject: str) -> bytes:
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                return (await client.request(subject, b"", timeout=2)).data
            except (NoRespondersError, nats.errors.TimeoutError):
                await asyncio.sleep(0.02)


async def everybody_hears_everybody(members: list[Member], login: str = "") -> None:
    clients = [await nats.connect(m.url.replace("//", f"//{login}")) for m in members]
    for at, client in enumerate(clients):
        await answering(client, f"ask.{at}", b"%d" % at)
    for client in clients:
        for at in range(len(members)):
            assert await asked(client, f"ask.{at}") == b"%d" % at
    for client in clients:
        await client.close()


@mixes
async def test_members_find_each_other_and_carry_messages(kinds: tuple[str, ...]) -> None:
    with cluster(kinds) as members:
        await meshed(members)
        await everybody_hears_everybody(members)


@mixes
async def test_a_message_comes_once_with_its_headers(kinds: tuple[str, ...]) -> None:
    with cluster(kinds) as members:
        await meshed(members)
        clients = [await nats.connect(m.url) for m in members]
        got: list[tuple[int, bytes, dict[str, str] | None]] = []
        for at, client in enumerate(clients):

            async def take(message: Msg, at: int = at) -> None:
                got.append((at, message.data, message.headers))

            await client.subscribe("all.*", cb=take)
            await answering(client, f"ready.{at}", b"")
        for client in clients:
            for at in range(len(members)):
                await asked(client, f"ready.{at}")
        big = b"x" * 200_000
        for at, client in enumerate(clients):
            await client.publish("all.x", b"%d" % at + big, headers={"from": str(at)})
        await eventually(lambda: len(got) >= len(members) ** 2)
        assert len(got) == len(members) ** 2
        assert all(headers == {"from": chr(data[0])} for _, data, headers in got)
        for client in clients:
            await client.close()


@mixes
async def test_groups_share_work_over_the_cluster(kinds: tuple[str, ...]) -> None:
    with cluster(kinds) as members:
        await meshed(members)
        clients = [await nats.connect(m.url) for m in members]
        for at, client in enumerate(clients):
            await answering(client, "work", b"%d" % at, "q")
            await answering(client, f"ready.{at}", b"")
        for client in clients:
            for at in range(len(members)):
                await asked(client, f"ready.{at}")
        got = Counter([(await clients[1].request("work", b"", timeout=2)).data for _ in range(300)])
        assert sum(got.values()) == 300
        assert all(50 < got[b"%d" % at] < 150 for at in range(3)), got
        for client in clients:
            await client.close()


@mixes
async def test_clients_learn_of_all_members_and_move_on_when_one_goes(
    kinds: tuple[str, ...],
) -> None:
    with cluster(kinds) as members:
        await meshed(members)
        client = await nats.connect(members[1].url, reconnect_time_wait=0.05)
        await eventually(lambda: len(client.servers) == 3)
        members[1].process.kill()
        gone = members[1].ports["nats"]
        await eventually(lambda: client.is_connected and client.connected_url.port != gone)
        await client.flush()
        remaining = {members[2].ports["nats"]}
        await meshed([members[0]], len(remaining))
        await client.close()


async def test_a_requester_hears_when_nobody_in_the_cluster_answers() -> None:
    with cluster((OURS, OURS)) as members:
        await meshed(members)
        client = await nats.connect(members[0].url)
        with pytest.raises(NoRespondersError):
            await client.request("nobody", b"")
        await client.close()


@mixes
async def test_members_say_who_they_are(kinds: tuple[str, ...]) -> None:
    login = "authorization { user: r, password: secret }"
    with cluster(kinds, inside=login, login="r:secret@") as members:
        await meshed(members)
        await everybody_hears_everybody(members)


async def test_a_stranger_is_no_member() -> None:
    port = free_port()
    text = "cluster { name: C, host: 127.0.0.1, port: %d, %s }\nhttp: 127.0.0.1:-1"
    guarded = "authorization { user: r, password: secret }"
    with member(OURS, "server_name: a\n" + text % (port, guarded)) as one:
        routes = f'routes: [ "nats://r:wrong@127.0.0.1:{port}" ]'
        with member(OURS, "server_name: b\n" + text % (free_port(), routes)) as other:
            await eventually(lambda: "Authorization Violation" in one.output() + other.output())
            assert monitored(one, "/routez")["num_routes"] == 0


@mixes
async def test_members_connect_through_mutual_tls(kinds: tuple[str, ...], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.server()
    block = (
        f"tls {{ cert_file: '{server.cert_file}', key_file: '{server.key_file}', "
        f"ca_file: '{authority.ca_file}', verify: true, timeout: 5 }}"
    )
    with cluster(kinds, inside=block) as members:
        await meshed(members)
        await everybody_hears_everybody(members)


@mixes
async def test_accounts_stay_apart(kinds: tuple[str, ...]) -> None:
    accounts = (
        "accounts { A { users [ { user: a, password: a } ] },"
        " B { users [ { user: b, password: b } ] } }"
    )
    with cluster(kinds, beside=accounts) as members:
        await meshed(members)
        await everybody_hears_everybody(members, "a:a@")
        inside = await nats.connect(members[0].url.replace("//", "//a:a@"))
        friend = await nats.connect(members[1].url.replace("//", "//a:a@"))
        stranger = await nats.connect(members[1].url.replace("//", "//b:b@"))
        await answering(inside, "only.a", b"yes")
        assert await asked(friend, "only.a") == b"yes"
        with pytest.raises(NoRespondersError):
            await stranger.request("only.a", b"")
        for client in (inside, friend, stranger):
            await client.close()


async def test_two_members_that_call_each_other_keep_one_route() -> None:
    ports = free_port(), free_port()
    texts = [
        f"server_name: s{at}\nhttp: 127.0.0.1:-1\ncluster {{ name: C, host: 127.0.0.1, "
        f'port: {ports[at]}, routes: [ "nats://127.0.0.1:{ports[1 - at]}", '
        f'"nats://127.0.0.1:{ports[at]}" ] }}'
        for at in (0, 1)
    ]
    with member(OURS, texts[0]) as one, member(OURS, texts[1]) as other:
        await meshed([one, other])
        await everybody_hears_everybody([one, other])
        assert [monitored(m, "/routez")["num_routes"] for m in (one, other)] == [1, 1]
        assert monitored(one, "/varz")["routes"] == 1


async def test_jetstream_on_a_member_needs_a_domain_of_its_own(tmp_path: Path) -> None:
    text = f'jetstream {{ store_dir: "{tmp_path}" }}\ncluster {{ name: C, port: {free_port()} }}'
    with pytest.raises(RuntimeError, match="needs a domain of its own"), member(OURS, text):
        pass


async def test_a_real_member_does_not_count_us_into_jetstream(tmp_path: Path) -> None:
    port = free_port()
    ours = (
        f'server_name: ours\njetstream {{ domain: own, store_dir: "{tmp_path}/o" }}\n'
        f"http: 127.0.0.1:-1\ncluster {{ name: C, host: 127.0.0.1, port: {port} }}"
    )
    real = (
        f'server_name: real\njetstream {{ store_dir: "{tmp_path}/r" }}\nhttp: 127.0.0.1:-1\n'
        f"cluster {{ name: C, host: 127.0.0.1, port: {free_port()}, "
        f'routes: [ "nats://127.0.0.1:{port}" ] }}'
    )
    with member(OURS, ours) as one, member(REAL, real) as other:
        await meshed([one, other])
        meta = monitored(other, "/jsz").get("meta_cluster", {})
        assert "ours" not in [peer["name"] for peer in meta.get("replicas") or []]
        client = await nats.connect(one.url)
        await client.jetstream().add_stream(name="S", subjects=["s.>"])
        assert (await client.jetstream().publish("s.1", b"x")).seq == 1
        await client.close()
