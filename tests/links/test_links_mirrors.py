"""Mirrors and sources of streams on other servers, ours and real ones, in both directions."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.js.api import ConsumerConfig, DeliverPolicy

import nats
from support.cut_link import CutLink
from support.jetstream_api import api, info_at
from support.scale import count
from support.topology import OURS, REAL, Member, free_port, member
from support.waiting import SECONDS

PAIRS = [(REAL, OURS), (OURS, REAL), (OURS, OURS)]
pairs = pytest.mark.parametrize(("origin_kind", "follower_kind"), PAIRS)
CUTS = count(20, 100)
SLOW = 4 * SECONDS  # a real server waits ever longer before it asks again


class Stored(NamedTuple):
    """A record as a reader sees it."""

    seq: int
    time: Any
    subject: str
    data: bytes
    headers: dict[str, str]


def hub_text(directory: Path, port: int, more: str = "") -> str:
    return (
        f'server_name: hub\njetstream {{ domain: hub, store_dir: "{directory}/hub" }}\n'
        f"leafnodes {{ host: 127.0.0.1, port: {port}, no_advertise: true }}\n{more}"
    )


def leaf_text(directory: Path, port: int, more: str = "") -> str:
    return (
        f'server_name: leaf\njetstream {{ domain: leaf, store_dir: "{directory}/leaf" }}\n'
        f"leafnodes {{ reconnect: '100ms', remotes [ {{ url: \"nats://127.0.0.1:{port}\" }} ] }}\n"
        f"{more}"
    )


@contextmanager
def linked(hub_kind: str, leaf_kind: str, directory: Path) -> Iterator[tuple[Member, Member]]:
    """Run a hub and its leaf, each with JetStream in a domain of its own name."""
    port = free_port()
    with ExitStack() as stack:
        hub = stack.enter_context(member(hub_kind, hub_text(directory, port)))
        yield hub, stack.enter_context(member(leaf_kind, leaf_text(directory, port)))


@asynccontextmanager
async def clients(*members: Member) -> AsyncIterator[list[Client]]:
    opened = [await nats.connect(one.url) for one in members]
    try:
        yield opened
    finally:
        for client in opened:
            await client.close()


async def fill(client: Client, subject: str, numbers: range) -> None:
    """Publish a record for each number, under one of three subjects."""
    for i in numbers:
        await client.publish(f"{subject}.{i % 3}", b"%d" % i, headers={"n": str(i)})
    await client.flush()


async def records(client: Client, stream: str) -> list[Stored]:
    """Return all that a stream holds."""
    js = client.jetstream()
    wanted = (await js.stream_info(stream)).state.messages
    if not wanted:
        return []
    config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, mem_storage=True)
    reader = await js.pull_subscribe("", stream=stream, config=config)
    found: list[Stored] = []
    while len(found) < wanted:
        for message in await reader.fetch(min(500, wanted - len(found)), timeout=10):
            meta = message.metadata
            found.append(
                Stored(
                    meta.sequence.stream, meta.timestamp, message.subject, message.data,
                    dict(message.headers or {}),
                )
            )  # fmt: skip
            await message.ack()
    await reader.unsubscribe()
    return found


def external(domain: str, deliver: str = "") -> dict[str, Any]:
    return {"external": {"api": f"$JS.{domain}.API", "deliver": deliver}}


async def holds(
    client: Client, stream: str, messages: int, seconds: float = SECONDS
) -> dict[str, Any]:
    """Return a stream's info once it holds so many records."""
    async with asyncio.timeout(seconds):
        while True:
            info: dict[str, Any] = await api(client, f"STREAM.INFO.{stream}")
            if info["state"]["messages"] >= messages:
                return info
            await asyncio.sleep(0.02)


async def reached(client: Client, domain: str) -> None:
    """Wait until the API of a domain answers: a real server asks only every half minute."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                await client.request(f"$JS.{domain}.API.INFO", b"", timeout=2)
            except (NoRespondersError, nats.errors.TimeoutError):
                await asyncio.sleep(0.02)
            else:
                return


async def linked_up(leaf: Client, owner: Client) -> None:
    """Wait until what the owner's account delivers reaches the leaf."""
    got = asyncio.Event()

    async def take(_: Msg) -> None:
        got.set()

    there = await leaf.subscribe("owner.deliver.ready", cb=take)
    async with asyncio.timeout(SECONDS):
        while not got.is_set():
            await owner.publish("owner.deliver.ready", b"")
            await asyncio.sleep(0.02)
    await there.unsubscribe()


async def emptied(client: Client, stream: str) -> None:
    async with asyncio.timeout(SECONDS):
        while (await api(client, f"STREAM.INFO.{stream}"))["state"]["messages"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def told(client: Client, stream: str, text: str) -> dict[str, Any]:
    """Return how a mirror's info shows its origin, once it speaks of this."""
    async with asyncio.timeout(SECONDS):
        while True:
            info = await api(client, f"STREAM.INFO.{stream}")
            shown: dict[str, Any] = info.get("mirror") or info["sources"][0]
            if text in json.dumps(shown.get("error", "")):
                return shown
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("origin_kind", "follower_kind", "origin_is_hub"),
    [(REAL, OURS, True), (REAL, OURS, False), (OURS, REAL, False), (OURS, OURS, True)],
)
async def test_history_comes_first_and_then_what_is_new(
    origin_kind: str, follower_kind: str, origin_is_hub: bool, tmp_path: Path
) -> None:
    kinds = (origin_kind, follower_kind) if origin_is_hub else (follower_kind, origin_kind)
    with linked(*kinds, tmp_path) as (hub, leaf):
        ends = (hub, leaf) if origin_is_hub else (leaf, hub)
        domain = "hub" if origin_is_hub else "leaf"
        async with clients(*ends) as (there, here):
            await api(there, "STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"]})
            await fill(there, "o", range(1000))
            await holds(there, "O", 1000)
            await api(there, "STREAM.PURGE.O", {"seq": 101})
            await reached(here, domain)
            origin = {"name": "O", **external(domain)}
            made = await api(here, "STREAM.CREATE.M", {"name": "M", "mirror": origin})
            assert "error" not in made
            moved = [{"src": "o.1", "dest": "one"}]
            await api(
                here,
                "STREAM.CREATE.S",
                {
                    "name": "S",
                    "sources": [
                        {**origin, "filter_subject": "o.0"},
                        {**origin, "subject_transforms": moved},
                    ],
                },
            )
            await holds(here, "M", 900)
            await fill(there, "o", range(1000, 1200))
            info = await info_at(here, "M", 1200)
            await holds(here, "S", sum(n % 3 != 2 for n in range(100, 1200)))
            assert info["mirror"]["external"]["api"] == f"$JS.{domain}.API"
            assert 0 <= info["mirror"]["active"] < 60 * 10**9
            assert info["state"]["first_seq"] == 101
            assert await records(here, "M") == await records(there, "O")
            sourced = await records(here, "S")
            assert sorted(int(one.data) for one in sourced) == [
                n for n in range(100, 1200) if n % 3 != 2
            ]
            assert {one.subject for one in sourced} == {"o.0", "one"}
            assert all(one.headers["Nats-Stream-Source"].startswith("O:") for one in sourced)
            shown = (await api(here, "STREAM.INFO.M"))["mirror"]
            assert shown["lag"] == 0
            assert "error" not in shown


@pairs
async def test_every_record_comes_once_however_often_the_link_is_cut(
    origin_kind: str, follower_kind: str, tmp_path: Path
) -> None:
    port = free_port()
    with ExitStack() as stack:
        hub = stack.enter_context(member(origin_kind, hub_text(tmp_path, port)))
        async with CutLink(port) as link:
            leaf = stack.enter_context(member(follower_kind, leaf_text(tmp_path, link.port)))
            async with clients(hub, leaf) as (above, below):
                await api(above, "STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"]})
                await reached(below, "hub")
                origin = {"name": "O", **external("hub")}
                await api(below, "STREAM.CREATE.M", {"name": "M", "mirror": origin})
                await api(below, "STREAM.CREATE.S", {"name": "S", "sources": [origin]})
                made = await cut_under_load(link, above)
                print(f"cuts tried={CUTS} fired={link.cuts // 2} records={made}")
                assert link.cuts // 2 >= CUTS // 2
                await holds(below, "M", made, SLOW)
                await holds(below, "S", made, SLOW)
                true = await records(above, "O")
                assert [int(one.data) for one in true] == [*range(made)]
                assert await records(below, "M") == true
                sourced = [one.headers["Nats-Stream-Source"] for one in await records(below, "S")]
                assert [int(place.split()[1]) for place in sourced] == [one.seq for one in true]


async def cut_under_load(link: CutLink, client: Client) -> int:
    """Publish all the while, and cut the link again and again; return how many were published."""
    made = 0
    for at in range(CUTS):
        for _ in range(5):
            await fill(client, "o", range(made, made + 40))
            made += 40
            await asyncio.sleep(0.05)
        if at % 4 == 3:
            link.close()
            await fill(client, "o", range(made, made + 40))
            made += 40
            await asyncio.sleep(0.3)
            link.open()
        else:
            link.cut()
    return made


@pytest.mark.parametrize(
    ("origin_kind", "follower_kind", "victim"),
    [(REAL, OURS, "origin"), (REAL, OURS, "follower"), (OURS, REAL, "origin")],
)
async def test_a_mirror_goes_on_after_either_end_was_killed(
    origin_kind: str, follower_kind: str, victim: str, tmp_path: Path
) -> None:
    port = free_port()
    with ExitStack() as stack:
        there = stack.enter_context(member(origin_kind, hub_text(tmp_path, port)))
        here = stack.enter_context(member(follower_kind, leaf_text(tmp_path, port)))
        async with clients(there, here) as (above, below):
            await api(above, "STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"]})
            await reached(below, "hub")
            origin = {"name": "O", **external("hub")}
            await api(below, "STREAM.CREATE.M", {"name": "M", "mirror": origin})
            await api(below, "STREAM.CREATE.S", {"name": "S", "sources": [origin]})
            await fill(above, "o", range(300))
            await holds(above, "O", 300)
            await holds(below, "M", 1)
        if victim == "origin":
            there.process.kill()
            there.process.wait()
            there = stack.enter_context(member(origin_kind, hub_text(tmp_path, port)))
        else:
            here.process.kill()
            here.process.wait()
            here = stack.enter_context(member(follower_kind, leaf_text(tmp_path, port)))
        async with clients(there, here) as (above, below):
            await fill(above, "o", range(300, 500))
            await holds(below, "M", 500)
            await holds(below, "S", 500)
            true = await records(above, "O")
            assert [int(one.data) for one in true] == [*range(500)]
            assert await records(below, "M") == true
            sourced = [int(one.data) for one in await records(below, "S")]
            assert sourced == [*range(500)]


@pairs
async def test_a_source_begins_anew_when_its_origin_was_made_anew(
    origin_kind: str, follower_kind: str, tmp_path: Path
) -> None:
    with linked(origin_kind, follower_kind, tmp_path) as (hub, leaf):
        async with clients(hub, leaf) as (above, below):
            await api(above, "STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"]})
            await fill(above, "o", range(20))
            await reached(below, "hub")
            origin = {"name": "O", **external("hub")}
            await api(below, "STREAM.CREATE.S", {"name": "S", "sources": [origin]})
            await holds(below, "S", 20)
            await api(above, "STREAM.DELETE.O")
            await api(above, "STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"]})
            await fill(above, "o", range(100, 105))
            await holds(below, "S", 25)
            found = [int(one.data) for one in await records(below, "S")]
            assert found == [*range(20), *range(100, 105)]


@pairs
async def test_a_work_queue_is_emptied_by_who_takes_from_it(
    origin_kind: str, follower_kind: str, tmp_path: Path
) -> None:
    with linked(origin_kind, follower_kind, tmp_path) as (hub, leaf):
        async with clients(hub, leaf) as (above, below):
            jobs = {"name": "O", "subjects": ["o.>"], "retention": "workqueue"}
            await api(above, "STREAM.CREATE.O", jobs)
            await fill(above, "o", range(100))
            await reached(below, "hub")
            origin = {"name": "O", **external("hub")}
            await api(below, "STREAM.CREATE.S", {"name": "S", "sources": [origin]})
            await holds(below, "S", 100)
            await fill(above, "o", range(100, 150))
            await holds(below, "S", 150)
            await emptied(above, "O")
            assert [int(one.data) for one in await records(below, "S")] == [*range(150)]


async def test_a_mirror_says_what_keeps_it(tmp_path: Path) -> None:
    port = free_port()
    with ExitStack() as stack:
        leaf = stack.enter_context(member(OURS, leaf_text(tmp_path, port)))
        async with clients(leaf) as (below,):
            origin = {"name": "O", **external("hub")}
            await api(below, "STREAM.CREATE.M", {"name": "M", "mirror": origin})
            shown = await told(below, "M", "nobody answers at $JS.hub.API")
            assert shown["active"] == -1
            hub = stack.enter_context(member(REAL, hub_text(tmp_path, port)))
            await told(below, "M", "stream not found")
            async with clients(hub) as (above,):
                await api(above, "STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"]})
                await fill(above, "o", range(10))
                await holds(below, "M", 10)
                await told(below, "M", "")
                await api(above, "STREAM.DELETE.O")
                await api(above, "STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"]})
                await told(below, "M", "the origin was made anew, and 10 was taken")
            hub.process.kill()
            shown = await told(below, "M", "nobody answers")
            assert shown["active"] > 0


async def test_members_of_a_cluster_mirror_each_other_by_domain(tmp_path: Path) -> None:
    port = free_port()

    def text(name: str, own: int, more: str) -> str:
        return (
            f'server_name: {name}\njetstream {{ domain: {name}, store_dir: "{tmp_path}/{name}" }}\n'
            f"cluster {{ name: C, host: 127.0.0.1, port: {own}, {more} }}"
        )

    with (
        member(OURS, text("a", port, "")) as one,
        member(OURS, text("b", free_port(), f'routes: ["nats://127.0.0.1:{port}"]')) as other,
    ):
        async with clients(one, other) as (there, here):
            await api(there, "STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"]})
            await fill(there, "o", range(500))
            origin = {"name": "O", **external("a")}
            await api(here, "STREAM.CREATE.M", {"name": "M", "mirror": origin})
            await holds(here, "M", 500)
            await fill(there, "o", range(500, 600))
            await holds(here, "M", 600)
            assert await records(here, "M") == await records(there, "O")


ACCOUNTS = """
accounts {
  OWNER {
    jetstream: enabled
    users: [{user: owner, password: p}]
    exports: [
      {service: "$JS.API.CONSUMER.>", accounts: [SHARED]}
      {service: "$JS.FC.>", accounts: [SHARED]}
      {stream: "owner.deliver.>", accounts: [SHARED]}
    ]
  }
  SHARED {
    users: [{user: leaf, password: p}]
    imports: [
      {service: {account: OWNER, subject: "$JS.API.CONSUMER.>"}, to: "owner.api.CONSUMER.>"}
      {service: {account: OWNER, subject: "$JS.FC.>"}}
      {stream: {account: OWNER, subject: "owner.deliver.>"}}
    ]
  }
}
"""


@pairs
async def test_an_account_behind_a_leafnode_shares_a_stream_by_imports(
    origin_kind: str, follower_kind: str, tmp_path: Path
) -> None:
    port = free_port()
    remote = f"leaf:p@127.0.0.1:{port}"
    text = leaf_text(tmp_path, port).replace(f"127.0.0.1:{port}", remote)
    with (
        member(origin_kind, hub_text(tmp_path, port, ACCOUNTS)) as hub,
        member(follower_kind, text) as leaf,
    ):
        above = await nats.connect(hub.url, user="owner", password="p")
        below = await nats.connect(leaf.url)
        await api(above, "STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"]})
        await fill(above, "o", range(300))
        await linked_up(below, above)
        outside = {"external": {"api": "owner.api", "deliver": "owner.deliver"}}
        await api(below, "STREAM.CREATE.M", {"name": "M", "mirror": {"name": "O", **outside}})
        await holds(below, "M", 300)
        await fill(above, "o", range(300, 400))
        await holds(below, "M", 400)
        assert await records(below, "M") == await records(above, "O")
        await above.close()
        await below.close()


async def test_an_origin_that_knows_no_sourcing_consumers_is_asked_as_of_old(
    tmp_path: Path,
) -> None:
    """An API in front of the hub's refuses what servers before 2.14 do not know."""
    with linked(REAL, OURS, tmp_path) as (hub, leaf):
        async with clients(hub, leaf) as (above, below):
            asked: list[bool] = []

            async def answer(message: Msg) -> None:
                is_new = b'"sourcing"' in message.data or bool(message.headers)
                asked.append(is_new)
                if is_new:
                    error = {"code": 400, "err_code": 10025, "description": "invalid JSON"}
                    await message.respond(json.dumps({"error": error}).encode())
                    return
                subject = message.subject.replace("old.api", "$JS.API")
                made = await above.request(subject, message.data, timeout=5)
                await message.respond(made.data)

            await above.subscribe("old.api.>", cb=answer)
            await api(above, "STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"]})
            await fill(above, "o", range(200))
            outside = {"external": {"api": "old.api", "deliver": ""}}
            origin = {"name": "O", "filter_subject": "o.1", **outside}
            await api(below, "STREAM.CREATE.S", {"name": "S", "sources": [origin]})
            await holds(below, "S", 67)
            assert asked[:3] == [True, True, False]
