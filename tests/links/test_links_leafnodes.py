"""Leafnodes, ours and real ones, in every role."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

import nats
from support.certificates import Authority
from support.jwt_makers import Operator
from support.topology import OURS, REAL, Member, free_port, member
from support.waiting import SECONDS, eventually

ROLES = [(OURS, OURS), (OURS, REAL), (REAL, OURS)]
roles = pytest.mark.parametrize(("hub_kind", "leaf_kind"), ROLES)


@contextmanager
def linked(
    hub_kind: str,
    leaf_kind: str,
    *,
    hub: str = "",
    listen: str = "",
    remote: str = "",
    leaf: str = "",
    login: str = "",
    url: str = "",
) -> Iterator[tuple[Member, Member]]:
    """Run a hub and a leaf of it."""
    port = free_port()
    place = url or f"nats://{login}127.0.0.1:{port}"
    hub_text = f"server_name: hub\nleafnodes {{ host: 127.0.0.1, port: {port}, {listen} }}\n{hub}"
    leaf_text = (
        f"server_name: leaf\nleafnodes {{ reconnect: '100ms', "
        f'remotes [ {{ url: "{place}", {remote} }} ] }}\n{leaf}'
    )
    with ExitStack() as stack:
        above = stack.enter_context(member(hub_kind, hub_text))
        yield above, stack.enter_context(member(leaf_kind, leaf_text))


async def echo(client: Client, subject: str, queue: str = "") -> None:
    async def answer(message: Msg) -> None:
        if message.reply:
            await message.respond(b"re:" + message.data)

    await client.subscribe(subject, queue, cb=answer)
    await client.flush()


async def asked(client: Client, subject: str, payload: bytes = b"hi") -> bytes:
    """Ask until somebody answers: interest travels."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                return (await client.request(subject, payload, timeout=2)).data
            except (NoRespondersError, nats.errors.TimeoutError):
                await asyncio.sleep(0.02)


async def unheard(client: Client, subject: str) -> bool:
    """Say whether nobody answers; only after something else has come through."""
    try:
        await client.request(subject, b"", timeout=0.5)
    except NoRespondersError:
        return True
    except nats.errors.TimeoutError:
        return True
    return False


async def both_ways(hub: str, leaf: str) -> None:
    """See that requests go up and down."""
    above, below = await nats.connect(hub), await nats.connect(leaf)
    try:
        await echo(above, "up.>")
        await echo(below, "down.*", "workers")
        assert await asked(below, "up.a.b") == b"re:hi"
        assert await asked(above, "down.a") == b"re:hi"
    finally:
        await above.close()
        await below.close()


@roles
async def test_messages_go_both_ways(hub_kind: str, leaf_kind: str) -> None:
    with linked(hub_kind, leaf_kind) as (hub, leaf):
        above, below = await nats.connect(hub.url), await nats.connect(leaf.url)
        got: asyncio.Queue[Msg] = asyncio.Queue()

        async def take(message: Msg) -> None:
            await got.put(message)

        await echo(above, "up")
        await below.subscribe("wide.>", cb=take)
        await below.subscribe("wide.*", cb=take)
        assert await asked(below, "up", b"x" * 100_000) == b"re:" + b"x" * 100_000
        await below.flush()
        await asyncio.sleep(0.1)
        for i in range(100):
            await above.publish("wide.a", b"%d" % i, headers={"n": str(i)})
        seen = [await asyncio.wait_for(got.get(), SECONDS) for _ in range(200)]
        assert sorted(int(m.data) for m in seen) == sorted([*range(100)] * 2)
        assert all(m.headers == {"n": m.data.decode()} for m in seen)
        assert got.empty()
        with pytest.raises(NoRespondersError):
            await below.request("nobody.there", b"")
        await above.close()
        await below.close()


@roles
async def test_a_leaf_says_who_it_is_by_name_and_password(hub_kind: str, leaf_kind: str) -> None:
    login = "authorization { user: u, password: secret }"
    with linked(hub_kind, leaf_kind, listen=login, login="u:secret@") as (hub, leaf):
        await both_ways(hub.url, leaf.url)


@roles
async def test_a_leaf_says_who_it_is_by_token(hub_kind: str, leaf_kind: str) -> None:
    with linked(hub_kind, leaf_kind, hub="authorization { token: tok }", login="tok@") as (
        hub,
        leaf,
    ):
        await both_ways(hub.url.replace("//", "//tok@"), leaf.url)


@roles
async def test_a_leaf_says_who_it_is_by_nkey(hub_kind: str, leaf_kind: str) -> None:
    import nkeys

    seed = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    hub_users = f"accounts {{ A {{ users [ {{ nkey: {public} }}, {{ user: c, password: c }} ] }} }}"
    with linked(hub_kind, leaf_kind, hub=hub_users, remote=f"nkey: {seed.decode()}") as (hub, leaf):
        await both_ways(hub.url.replace("//", "//c:c@"), leaf.url)


@roles
async def test_a_leaf_says_who_it_is_by_credentials(
    hub_kind: str, leaf_kind: str, tmp_path: Path
) -> None:
    operator = Operator()
    account = operator.account("A", limits={"leaf": -1, "conn": -1, "subs": -1, "payload": -1,
                                            "data": -1, "imports": -1, "exports": -1,
                                            "wildcards": True})  # fmt: skip
    creds = tmp_path / "leaf.creds"
    creds.write_text(account.user("leaf").creds_file())
    own = tmp_path / "client.creds"
    own.write_text(account.user("client").creds_file())
    trust = (
        f"operator: {operator.token}\nresolver: MEMORY\n"
        f"resolver_preload {{ {account.public}: {account.token} }}"
    )
    with linked(hub_kind, leaf_kind, hub=trust, remote=f'credentials: "{creds}"') as (hub, leaf):
        above = await nats.connect(hub.url, user_credentials=str(own))
        below = await nats.connect(leaf.url)
        await echo(above, "up")
        assert await asked(below, "up") == b"re:hi"
        await above.close()
        await below.close()


@roles
async def test_a_leaf_that_is_not_believed_hears_nothing(hub_kind: str, leaf_kind: str) -> None:
    login = "authorization { user: u, password: secret }"
    with linked(hub_kind, leaf_kind, listen=login, login="u:wrong@") as (hub, leaf):
        above, below = await nats.connect(hub.url), await nats.connect(leaf.url)
        await echo(above, "up")
        await asyncio.sleep(0.5)
        assert await unheard(below, "up")
        await above.close()
        await below.close()


@roles
@pytest.mark.parametrize("first", [False, True])
async def test_a_leaf_connects_through_tls(
    hub_kind: str, leaf_kind: str, tmp_path: Path, first: bool
) -> None:
    authority = Authority(tmp_path)
    server, client = authority.server(), authority.client()
    flag = "handshake_first: true, " if first else ""
    block = (
        f"tls {{ {flag}cert_file: '{server.cert_file}', key_file: '{server.key_file}', "
        f"ca_file: '{authority.ca_file}', verify: true }}"
    )
    shown = (
        f"tls {{ {flag}cert_file: '{client.cert_file}', key_file: '{client.key_file}', "
        f"ca_file: '{authority.ca_file}' }}"
    )
    with linked(hub_kind, leaf_kind, listen=block, remote=shown) as (hub, leaf):
        await both_ways(hub.url, leaf.url)


TWO = (
    "accounts { A { users [ { user: a, password: a } ] },"
    " B { users [ { user: b, password: b } ] } }"
)


@roles
async def test_a_leaf_is_about_one_account_on_each_side(hub_kind: str, leaf_kind: str) -> None:
    login = "authorization { users [ { user: l, password: l, account: B } ] }"
    with linked(
        hub_kind, leaf_kind, hub=TWO, listen=login, login="l:l@", remote="account: A", leaf=TWO
    ) as (hub, leaf):
        hub_b, leaf_a = hub.url.replace("//", "//b:b@"), leaf.url.replace("//", "//a:a@")
        await both_ways(hub_b, leaf_a)
        other = await nats.connect(hub.url.replace("//", "//a:a@"))
        inside = await nats.connect(leaf_a)
        await echo(inside, "only.b")
        checked = await nats.connect(hub_b)
        assert await asked(checked, "only.b") == b"re:hi"
        assert await unheard(other, "only.b")
        for client in (other, inside, checked):
            await client.close()


@roles
async def test_a_remote_declines_subjects(hub_kind: str, leaf_kind: str) -> None:
    declined = "deny_imports: ['in.secret.>'], deny_exports: ['out.secret']"
    with linked(hub_kind, leaf_kind, remote=declined) as (hub, leaf):
        above, below = await nats.connect(hub.url), await nats.connect(leaf.url)
        await echo(below, "in.>")
        await echo(above, "out.*")
        assert await asked(above, "in.a") == b"re:hi"
        assert await asked(below, "out.a") == b"re:hi"
        assert await unheard(above, "in.secret.a")
        assert await unheard(below, "out.secret")
        await above.close()
        await below.close()


@roles
async def test_a_leaf_hears_and_sends_what_its_user_may(hub_kind: str, leaf_kind: str) -> None:
    users = (
        "authorization { users [ { user: l, password: l,"
        " permissions { publish: [ 'ok.>', '_INBOX.>' ],"
        " subscribe: { allow: [ 'heard.>', '_INBOX.>' ], deny: 'heard.not' } } },"
        " { user: c, password: c } ] }"
    )
    with linked(hub_kind, leaf_kind, hub=users, login="l:l@") as (hub, leaf):
        above = await nats.connect(hub.url.replace("//", "//c:c@"))
        below = await nats.connect(leaf.url)
        await echo(above, "ok.>")
        await echo(above, "bad.>")
        await echo(below, ">")
        assert await asked(below, "ok.a") == b"re:hi"
        assert await asked(above, "heard.a") == b"re:hi"
        assert await unheard(above, "heard.not")
        assert await unheard(above, "unheard")
        got: asyncio.Queue[Msg] = asyncio.Queue()

        async def take(message: Msg) -> None:
            await got.put(message)

        await above.subscribe("bad.alone", cb=take)
        await above.flush()
        await below.publish("bad.alone", b"x")
        assert await asked(below, "ok.a") == b"re:hi"
        assert got.empty()
        await above.close()
        await below.close()


@roles
async def test_members_of_a_group_on_the_hub_are_chosen_before_leafs(
    hub_kind: str, leaf_kind: str
) -> None:
    with linked(hub_kind, leaf_kind) as (hub, leaf):
        above, below = await nats.connect(hub.url), await nats.connect(leaf.url)

        async def here(message: Msg) -> None:
            await message.respond(b"here")

        async def there(message: Msg) -> None:
            await message.respond(b"there")

        await below.subscribe("work", "q", cb=there)
        await below.flush()
        await asked(above, "work")
        mine = await above.subscribe("work", "q", cb=here)
        await above.flush()
        got = {(await above.request("work", b"", timeout=2)).data for _ in range(50)}
        assert got == {b"here"}
        await mine.unsubscribe()
        await above.flush()
        assert (await above.request("work", b"", timeout=2)).data == b"there"
        await above.close()
        await below.close()


@roles
async def test_a_leaf_comes_back_when_its_hub_does(hub_kind: str, leaf_kind: str) -> None:
    port = free_port()
    hub_text = f"server_name: hub\nleafnodes {{ host: 127.0.0.1, port: {port} }}"
    leaf_text = (
        "server_name: leaf\nleafnodes { reconnect: '100ms', "
        f'remotes [ {{ url: "nats://127.0.0.1:{port}" }} ] }}'
    )
    with member(leaf_kind, leaf_text) as leaf:
        for _ in range(2):
            with member(hub_kind, hub_text) as hub:
                await both_ways(hub.url, leaf.url)


async def test_a_loop_is_found_and_cut() -> None:
    ports = free_port(), free_port()
    texts = [
        f"server_name: s{at}\nleafnodes {{ host: 127.0.0.1, port: {ports[at]}, reconnect: '100ms', "
        f'remotes [ {{ url: "nats://127.0.0.1:{ports[1 - at]}" }} ] }}'
        for at in (0, 1)
    ]
    with member(OURS, texts[0]) as one, member(OURS, texts[1]) as other:
        await eventually(lambda: "Loop detected" in one.output() + other.output())
        assert one.process.poll() is None
        assert other.process.poll() is None


async def test_two_leafs_of_one_hub_hear_each_other_through_it() -> None:
    port = free_port()
    hub_text = f"server_name: hub\nleafnodes {{ host: 127.0.0.1, port: {port} }}"
    remote = f'leafnodes {{ remotes [ {{ url: "nats://127.0.0.1:{port}" }} ] }}'
    with (
        member(OURS, hub_text),
        member(OURS, f"server_name: l1\n{remote}") as one,
        member(REAL, f"server_name: l2\n{remote}") as other,
    ):
        await both_ways(one.url, other.url)


@roles
async def test_jetstream_is_reached_by_its_domain(
    hub_kind: str, leaf_kind: str, tmp_path: Path
) -> None:
    hub_js = f'jetstream {{ domain: hub, store_dir: "{tmp_path}/hub" }}'
    leaf_js = f'jetstream {{ domain: leaf, store_dir: "{tmp_path}/leaf" }}'
    with linked(hub_kind, leaf_kind, hub=hub_js, leaf=leaf_js) as (hub, leaf):
        below = await nats.connect(leaf.url)
        above = await nats.connect(hub.url)
        await echo(above, "up")
        await asked(below, "up")
        for client, domain, name in ((below, "hub", "UP"), (above, "leaf", "DOWN")):
            js = client.jetstream(domain=domain)
            await js.add_stream(name=name, subjects=[f"{name}.>"])
            for i in range(20):
                ack = await js.publish(f"{name}.{i}", b"%d" % i)
                assert ack.stream == name
            reader = await js.pull_subscribe(f"{name}.>", "d", stream=name)
            got = await reader.fetch(20, timeout=5)
            assert [(m.subject, m.data) for m in got] == [
                (f"{name}.{i}", b"%d" % i) for i in range(20)
            ]
            for message in got:
                await message.ack_sync(timeout=5)
            info = await js.consumer_info(name, "d")
            assert info.ack_floor is not None
            assert info.ack_floor.stream_seq == 20
        own = await below.jetstream().streams_info()
        assert [stream.config.name for stream in own] == ["DOWN"]
        await above.close()
        await below.close()
