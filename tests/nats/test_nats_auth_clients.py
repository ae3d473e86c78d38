"""nats-py against the whole server: every kind of credentials, accounts, JetStream, reload."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import bcrypt
import nkeys as signing
import pytest
from nats.aio.client import Client

import nats
from support.clients import flushed
from support.jwt_makers import Operator
from support.peers import Peer, free_port, running, scratch_directory

HASHED = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
SEED = signing.encode_seed(bytes(range(32)), signing.PREFIX_BYTE_USER)
NKEY = signing.from_seed(bytearray(SEED)).public_key.decode()
OPERATOR = Operator()
ORDERS, BILLS = OPERATOR.account("orders"), OPERATOR.account("bills")

pytestmark = pytest.mark.timeout(60)


@contextlib.contextmanager
def serving(config: str, domain: str = "") -> Iterator[Peer]:
    """Run ``millstream nats-server`` with this configuration on a free port."""
    with scratch_directory("millstream") as directory:
        port = free_port()
        path = directory / "server.conf"
        named = f"domain: {domain}" if domain else ""
        store = f'jetstream {{ store_dir: "{directory / "data"}"\n{named} }}'
        path.write_text(f"listen: 127.0.0.1:{port}\n{store}\n{config}\n")
        command = [sys.executable, "-m", "millstream", "nats-server", "-c", str(path)]
        with running("millstream", command, port, directory) as peer:
            yield peer


@contextlib.asynccontextmanager
async def client(peer: Peer, **options: Any) -> AsyncIterator[Client]:
    """Connect once, without trying again."""

    async def quiet(_: Exception) -> None:
        pass

    options = {"error_cb": quiet, "allow_reconnect": False, "connect_timeout": 5, **options}
    connected = Client()
    try:
        await connected.connect(peer.url, **options)
        yield connected
    finally:
        await connected.close()
        if connected._transport is not None:  # nats-py leaves it open where it was not let in
            connected._transport.close()
            with contextlib.suppress(OSError):
                await connected._transport.wait_closed()


async def is_let_in(peer: Peer, **options: Any) -> bool:
    try:
        async with client(peer, **options) as connected:
            await flushed(connected)
            return True
    except Exception:
        return False


async def test_passwords_hashes_and_nkeys_let_in_whom_they_should(tmp_path: Path) -> None:
    seed, other = tmp_path / "user.nk", tmp_path / "other.nk"
    seed.write_bytes(SEED)
    other.write_bytes(signing.encode_seed(bytes(32), signing.PREFIX_BYTE_USER))
    config = f"""
    authorization {{ users = [
      {{user: alice, password: secret}}, {{user: bob, password: "{HASHED}"}}, {{nkey: {NKEY}}}
    ] }}"""
    with serving(config) as peer:
        assert await is_let_in(peer, user="alice", password="secret")
        assert await is_let_in(peer, user="bob", password="secret")
        assert await is_let_in(peer, nkeys_seed=str(seed))
        assert not await is_let_in(peer, user="bob", password=HASHED)
        assert not await is_let_in(peer, user="alice", password="wrong")
        assert not await is_let_in(peer, nkeys_seed=str(other))
        assert not await is_let_in(peer)
        log = peer.output()
    for secret in ("secret", HASHED):
        assert secret not in log


async def test_a_token_lets_in() -> None:
    with serving("authorization { token: t0k3n }") as peer:
        assert await is_let_in(peer, token="t0k3n")
        assert not await is_let_in(peer, token="t0k3")
        assert not await is_let_in(peer)


async def test_credentials_files_lead_to_their_accounts(tmp_path: Path) -> None:
    preload = "\n".join(f"{account.public}: {account.token}" for account in (ORDERS, BILLS))
    config = f"operator: {OPERATOR.token}\nresolver: MEMORY\nresolver_preload {{\n{preload}\n}}"
    limited = {"pub": {"allow": ["a.>"]}, "sub": {"deny": ["a.secret"]}}
    users = {
        "alice": ORDERS.user("alice"),
        "bob": ORDERS.user("bob", **limited),
        "carol": BILLS.user("carol"),
        "late": ORDERS.user("late", exp=1_600_000_100),
        "eve": Operator().account("orders").user("eve"),
    }
    for name, user in users.items():
        (tmp_path / name).write_text(user.creds_file())
    files = {name: str(tmp_path / name) for name in users}

    with serving(config) as peer:
        for name in ("late", "eve"):
            assert not await is_let_in(peer, user_credentials=files[name])
        async with (
            client(peer, user_credentials=files["alice"]) as alice,
            client(peer, user_credentials=files["bob"]) as bob,
            client(peer, user_credentials=files["carol"]) as carol,
        ):
            heard = {
                "alice": await alice.subscribe(">"),
                "bob": await bob.subscribe("a.>"),
                "carol": await carol.subscribe(">"),
            }
            await flushed(alice, bob, carol)
            await bob.publish("a.x", b"1")
            await bob.publish("b.x", b"2")
            await flushed(bob)
            await alice.publish("a.secret", b"3")
            await flushed(alice)
            await flushed(bob, carol)

            assert [m.subject for m in _waiting(heard["alice"])] == ["a.x", "a.secret"]
            assert [m.subject for m in _waiting(heard["bob"])] == ["a.x"]
            assert _waiting(heard["carol"]) == []


def _waiting(subscription: Any) -> list[Any]:
    queue = subscription._pending_queue
    return [queue.get_nowait() for _ in range(queue.qsize())]


ACCOUNTS = """
accounts {
  SYS { users = [{user: admin, password: secret}] }
  A {
    jetstream: enabled
    users = [
      {user: a, password: secret}
      {user: deaf, password: secret, permissions: {subscribe: {deny: ["log.secret"]}}}
      {user: writer, password: secret, permissions: {
        publish: ["log.>"], subscribe: ["_INBOX.>"]}}
    ]
  }
  B { jetstream: enabled, users = [{user: b, password: secret}] }
  C { users = [{user: c, password: secret}] }
}
system_account: SYS
"""


async def test_every_account_has_streams_of_its_own() -> None:
    with serving(ACCOUNTS) as peer:
        async with (
            client(peer, user="a", password="secret") as a,
            client(peer, user="b", password="secret") as b,
            client(peer, user="c", password="secret") as c,
        ):
            for connected in (a, b):
                await connected.jetstream().add_stream(name="LOG", subjects=["log.>"])
            await a.jetstream().publish("log.x", b"of a")

            assert (await a.jetstream().stream_info("LOG")).state.messages == 1
            assert (await b.jetstream().stream_info("LOG")).state.messages == 0
            mine = await (await a.jetstream().pull_subscribe("log.>", "d")).fetch(1)
            assert [m.data for m in mine] == [b"of a"]
            with pytest.raises(nats.js.errors.ServiceUnavailableError) as refused:
                await c.jetstream().add_stream(name="LOG", subjects=["log.>"])
            assert refused.value.err_code == 10039


async def test_a_denied_subject_is_not_read_by_consumer_nor_by_asking() -> None:
    with serving(ACCOUNTS) as peer:
        async with (
            client(peer, user="a", password="secret") as a,
            client(peer, user="deaf", password="secret") as deaf,
        ):
            await a.jetstream().add_stream(name="LOG", subjects=["log.>"], allow_direct=True)
            for subject in ("log.open", "log.secret", "log.open"):
                await a.jetstream().publish(subject, subject.encode())
            js = deaf.jetstream()

            pulled = await (await js.pull_subscribe("log.>", "pull")).fetch(2, timeout=10)
            pushed = await js.subscribe("log.>", ordered_consumer=False)
            first = [await pushed.next_msg(timeout=10) for _ in range(2)]
            direct = await deaf.request("$JS.API.DIRECT.GET.LOG.log.open", b"", timeout=10)

            assert {m.data for m in pulled} == {b"log.open"}
            assert {m.data for m in first} == {b"log.open"}
            assert direct.data == b"log.open"
            for subject, body in (
                ("$JS.API.DIRECT.GET.LOG.log.secret", {}),
                ("$JS.API.DIRECT.GET.LOG", {"seq": 2}),
                ("$JS.API.STREAM.MSG.GET.LOG", {"seq": 2}),
                ("$JS.API.STREAM.MSG.GET.LOG", {"last_by_subj": "log.secret"}),
            ):
                with pytest.raises(TimeoutError):
                    await deaf.request(subject, json.dumps(body).encode(), timeout=0.3)
            asked = json.dumps({"from_seq": 1, "to_seq": 3}).encode()
            frames = await deaf.request("$MILLSTREAM.API.READ.LOG", asked, timeout=10)
            assert frames.data.count(b"log.openlog.open") == 2
            assert b"log.secret" not in frames.data
            plan = json.loads(
                (await deaf.request("$MILLSTREAM.API.PLAN.LOG", b"", timeout=10)).data
            )
            assert (plan["whole"], plan["segments"]) == (False, [])


async def test_a_consumer_delivers_only_where_its_maker_could_be() -> None:
    limited = ACCOUNTS.replace(
        "users = [\n",
        """users = [
      {user: maker, password: secret, permissions: {
        publish: ["$JS.API.>", "mine.>"], subscribe: ["_INBOX.>", "jobs workers"]}}
      """,
        1,
    )
    with serving(limited) as peer:
        async with (
            client(peer, user="a", password="secret") as a,
            client(peer, user="maker", password="secret") as maker,
        ):
            await a.jetstream().add_stream(name="LOG", subjects=["log.>"])

            async def deliver(subject: str, group: str = "") -> Any:
                config = {"deliver_subject": subject, "deliver_group": group}
                body = json.dumps({"stream_name": "LOG", "config": config}).encode()
                answer = await maker.request("$JS.API.CONSUMER.CREATE.LOG", body, timeout=10)
                return json.loads(answer.data).get("error", {}).get("code")

            assert await deliver("orders.new") == 403
            assert await deliver("jobs") == 403
            assert await deliver("jobs", "workers") is None
            assert await deliver("_INBOX.x") is None
            assert await deliver("mine.x") is None


async def test_the_name_with_a_domain_opens_nothing_more() -> None:
    config = """
    authorization { users = [
      {user: x, password: secret, permissions: {publish: {deny: ["$JS.API.INFO"]}}}
      {user: y, password: secret, permissions: {publish: {allow: ["$JS.hub.API.>"]}}}
      {user: z, password: secret, permissions: {publish: {allow: ["$JS.API.>"]}}}
    ] }
    """
    with serving(config, domain="hub") as peer:
        for user, names in (("x", []), ("y", []), ("z", ["$JS.hub.API.INFO", "$JS.API.INFO"])):
            async with client(peer, user=user, password="secret") as connected:
                answered = []
                for name in ("$JS.hub.API.INFO", "$JS.API.INFO"):
                    limit = 10 if name in names else 0.3  # what is refused is not answered
                    with contextlib.suppress(TimeoutError):
                        await connected.request(name, b"", timeout=limit)
                        answered.append(name)
                assert answered == names


async def test_a_writer_may_write_and_nothing_else() -> None:
    with serving(ACCOUNTS) as peer:
        async with (
            client(peer, user="a", password="secret") as a,
            client(peer, user="writer", password="secret") as writer,
        ):
            await a.jetstream().add_stream(name="LOG", subjects=["log.>"])

            assert (await writer.jetstream().publish("log.x", b"1")).seq == 1
            for subject in (
                *("$JS.API.INFO", "$JS.API.STREAM.INFO.LOG", "$JS.API.STREAM.DELETE.LOG"),
                *("$JS.API.STREAM.PURGE.LOG", "$JS.API.CONSUMER.CREATE.LOG"),
                *("$JS.API.STREAM.MSG.GET.LOG", "$JS.API.CONSUMER.MSG.NEXT.LOG.d"),
                *("$MILLSTREAM.API.READ.LOG", "$MILLSTREAM.API.PLAN.LOG", "$SYS.REQ.USER.INFO"),
            ):
                with pytest.raises(TimeoutError):
                    await writer.request(subject, b"{}", timeout=0.2)
            assert (await a.jetstream().stream_info("LOG")).state.messages == 1


async def test_the_administrator_sees_the_whole_server() -> None:
    with serving(ACCOUNTS) as peer:
        async with (
            client(peer, user="admin", password="secret") as admin,
            client(peer, user="a", password="secret", name="app") as a,
        ):
            await a.subscribe("x")
            await flushed(a)

            async def ask(subject: str, **body: Any) -> Any:
                answer = await admin.request(subject, json.dumps(body).encode(), timeout=10)
                return json.loads(answer.data)

            server = (await ask("$SYS.REQ.SERVER.PING"))["server"]["id"]
            connz = await ask(f"$SYS.REQ.SERVER.{server}.CONNZ", auth=True, subscriptions=True)
            seen = {c["account"]: c for c in connz["data"]["connections"]}
            assert seen["A"]["name"] == "app"
            assert seen["A"]["authorized_user"] == "a"
            for what in ("VARZ", "SUBSZ", "ACCOUNTZ", "JSZ", "HEALTHZ", "ROUTEZ", "LEAFZ"):
                assert "data" in await ask(f"$SYS.REQ.SERVER.PING.{what}"), what
            wrong = await ask("$SYS.REQ.SERVER.PING.CONNZ", limit="many")
            assert wrong["error"]["code"] == 400


async def test_a_reload_closes_whom_the_file_no_longer_names() -> None:
    before = "authorization { users = [{user: a, password: secret}, {user: b, password: secret}] }"
    after = "authorization { users = [{user: a, password: secret}, {user: b, password: other}] }"
    with serving(before) as peer:
        gone = asyncio.Event()

        async def closed() -> None:
            gone.set()

        async with (
            client(peer, user="a", password="secret") as a,
            client(peer, user="b", password="secret", disconnected_cb=closed) as b,
        ):
            path = peer.directory / "server.conf"
            path.write_text(path.read_text().replace(before, after))
            peer.process.send_signal(signal.SIGHUP)
            await asyncio.wait_for(gone.wait(), 10)

            await flushed(a)
            assert not b.is_connected
        assert await is_let_in(peer, user="b", password="other")
        assert not await is_let_in(peer, user="b", password="secret")


async def test_an_account_uses_no_more_of_jetstream_than_it_may() -> None:
    config = """
    accounts { A {
      users = [{user: a, password: secret}]
      jetstream {
        max_mem: 1MB, max_file: 10KB, max_streams: 2, max_consumers: 1, max_ack_pending: 50
        store_max_stream_bytes: 8KB, max_stream_bytes: true
      }
    } }
    """
    with serving(config) as peer:
        async with client(peer, user="a", password="secret") as a:
            js = a.jetstream()

            async def refusal(name: str, **more: Any) -> int | None:
                try:
                    await js.add_stream(name=name, subjects=[name], **more)
                except nats.js.errors.APIError as error:
                    return error.err_code
                return None

            assert await refusal("one") == 10113
            assert await refusal("one", max_bytes=9000) == 10122
            assert await refusal("one", max_bytes=8000) is None
            assert await refusal("two", max_bytes=8000) == 10047
            assert await refusal("two", max_bytes=1000) is None
            assert await refusal("three", max_bytes=1) == 10027
            assert (await js.account_info()).limits.max_streams == 2

            first = await js.add_consumer("one", durable_name="d", ack_policy="explicit")
            assert first.config.max_ack_pending == 50
            with pytest.raises(nats.js.errors.BadRequestError) as too_many:
                await js.add_consumer("one", durable_name="e", ack_policy="explicit")
            assert too_many.value.err_code == 10026
            await js.add_consumer("two", durable_name="e", ack_policy="explicit")  # of each stream
            with pytest.raises(nats.js.errors.BadRequestError) as too_much:
                await js.add_consumer("one", durable_name="d", max_ack_pending=51)
            assert too_much.value.err_code == 10121
