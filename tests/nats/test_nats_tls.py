"""TLS on the NATS port: who must speak it, when, with which certificate and for how long."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from fed_door import CONNECT, Collector, Raw, Serving, raw, serving, tls_options
from msgspec.structs import replace

import nats
from millstream.clock import ManualClock
from millstream.nats.session import NatsLimits
from millstream.nats.transport import certificate
from millstream.nats.transport.tls import Tls
from millstream.nats.transport.tls_transport import TlsPort
from millstream.server.options.options import CertificatePair
from support.certificates import Authority, Issued
from support.clients import flushed
from support.waiting import eventually

TLS_REQUIRED = b"-ERR 'Secure Connection - TLS Required'\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Issued:
    return authority.server()


@pytest.fixture
async def required(server: Issued) -> AsyncIterator[Serving]:
    async with serving(TlsPort(Tls(tls_options(server)))) as running:
        yield running


async def told(client: Raw) -> dict[str, object]:
    line = await client.line()
    assert line.startswith(b"INFO ")
    info: dict[str, object] = json.loads(line[5:])
    return info


async def greeted(client: Raw) -> None:
    """Say CONNECT and wait until the server has taken it."""
    client.send(CONNECT + b"PING\r\n")
    await client.until(b"PONG\r\n")


async def settled(running: Serving, sessions: int) -> None:
    """Wait until so many clients are in, and nobody is halfway."""
    await eventually(lambda: len(running.door.sessions) == sessions and not running.door.arriving)


async def test_nats_py_exchanges_large_messages_over_tls(
    required: Serving, authority: Authority
) -> None:
    url = f"tls://127.0.0.1:{required.port}"
    client = await nats.connect(url, tls=authority.trusting(), tls_hostname="localhost")
    try:
        inbox = await client.subscribe("big")
        for size in (0, 1, 16_384, 300_000, 1_000_000):
            await client.publish("big", bytes([size % 251]) * size)
        for size in (0, 1, 16_384, 300_000, 1_000_000):
            message = await inbox.next_msg(10)
            assert message.data == bytes([size % 251]) * size
    finally:
        await client.close()


async def test_info_in_plain_text_says_that_tls_is_required(required: Serving) -> None:
    async with raw(required.port) as client:
        info = await told(client)
        assert info["tls_required"] is True
        assert not {"tls_verify", "tls_available"} & set(info)


async def test_a_client_that_stays_in_plain_text_is_told_that_tls_is_required(
    required: Serving,
) -> None:
    async with raw(required.port) as client:
        await told(client)
        client.send(CONNECT + b"PING\r\n")
        assert await client.rest() == TLS_REQUIRED
    await settled(required, 0)


async def test_a_hello_that_comes_byte_by_byte_is_a_hello(
    required: Serving, authority: Authority
) -> None:
    async with raw(required.port) as client:
        await told(client)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = authority.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
        finished = False
        while not finished:
            try:
                tls.do_handshake()
                finished = True
            except ssl.SSLWantReadError:
                pass
            for byte in outgoing.read():
                client.send(bytes([byte]))
                await client.writer.drain()
            if not finished:
                incoming.write(await client.reader.read(1 << 16))
        tls.write(CONNECT + b"PING\r\n")
        client.send(outgoing.read())
        said = b""
        while b"PONG" not in said:
            incoming.write(await asyncio.wait_for(client.reader.read(1 << 16), 10))
            try:
                said += tls.read(1 << 16)
            except ssl.SSLWantReadError:
                continue


async def test_operations_sent_with_the_end_of_the_handshake_are_not_forgotten(
    required: Serving, authority: Authority
) -> None:
    async with raw(required.port) as client:
        await told(client)
        await client.secure(authority.trusting())
        client.send(CONNECT + b"PING\r\n")
        assert (await client.line()) == b"PONG\r\n"


async def test_where_tls_is_optional_both_kinds_of_client_are_served(
    server: Issued, authority: Authority
) -> None:
    async with (
        serving(TlsPort(Tls(tls_options(server)), optional=True)) as running,
        raw(running.port) as plain,
        raw(running.port) as secure,
    ):
        info = await told(plain)
        assert "tls_required" not in info
        assert info["tls_available"] is True
        await greeted(plain)
        await told(secure)
        await secure.secure(authority.trusting())
        await greeted(secure)
        secure.send(b"SUB a 1\r\nPING\r\n")
        await secure.until(b"PONG\r\n")
        plain.send(b"PUB a 2\r\nhi\r\n")
        assert await secure.until(b"hi\r\n") == b"MSG a 1 2\r\nhi\r\n"
        kinds = sorted(session.transport.tls for session in running.door.sessions.all())
        assert kinds == [False, True]


async def test_where_tls_is_optional_a_silent_client_is_not_asked_for_it(server: Issued) -> None:
    clock = ManualClock()
    async with (
        serving(TlsPort(Tls(tls_options(server)), optional=True), clock=clock) as running,
        raw(running.port) as client,
    ):
        await told(client)
        running.pass_time(3)
        await greeted(client)


async def test_with_handshake_first_nothing_is_sent_in_plain_text(
    server: Issued, authority: Authority
) -> None:
    async with serving(TlsPort(Tls(tls_options(server, handshake_first=True)))) as running:
        async with raw(running.port, authority.trusting()) as client:
            assert (await told(client))["tls_required"] is True
            await greeted(client)
        async with raw(running.port) as client:
            client.send(CONNECT)
            assert not (await client.rest()).startswith(b"INFO")
        url = f"tls://127.0.0.1:{running.port}"
        driver = await nats.connect(
            url, tls=authority.trusting(), tls_hostname="localhost", tls_handshake_first=True
        )
        await flushed(driver)
        await driver.close()


async def test_auto_serves_those_who_wait_for_info_and_those_who_do_not(
    server: Issued, authority: Authority
) -> None:
    terms = tls_options(server, handshake_first=True, fallback_delay=60.0)
    async with (
        serving(TlsPort(Tls(terms))) as running,
        raw(running.port, authority.trusting()) as early,
    ):
        await told(early)
        await greeted(early)
    terms = replace(terms, fallback_delay=0.05)
    async with serving(TlsPort(Tls(terms))) as running, raw(running.port) as patient:
        assert (await told(patient))["tls_required"] is True
        await patient.secure(authority.trusting())
        await greeted(patient)


async def test_a_client_without_a_certificate_is_refused_where_one_is_asked_for(
    server: Issued, authority: Authority
) -> None:
    terms = tls_options(server, verify=True, ca_file=authority.ca_file)
    async with serving(TlsPort(Tls(terms))) as running:
        async with raw(running.port) as client:
            assert (await told(client))["tls_verify"] is True
            await client.secure(authority.trusting())
            client.send(CONNECT + b"PING\r\n")
            assert await client.rest() == b""
        await settled(running, 0)


async def test_a_certificate_of_another_authority_is_refused(
    server: Issued, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger").client()
    terms = tls_options(server, verify=True, ca_file=authority.ca_file)
    async with serving(TlsPort(Tls(terms))) as running, raw(running.port) as client:
        await told(client)
        await client.secure(authority.trusting(stranger))
        assert await client.rest() == b""
        await settled(running, 0)


async def test_the_names_in_a_verified_certificate_reach_the_session(
    server: Issued, authority: Authority
) -> None:
    shown = authority.trusting(authority.client("derek", "derek@nats.io"))
    terms = tls_options(server, verify=True, verify_and_map=True, ca_file=authority.ca_file)
    async with serving(TlsPort(Tls(terms))) as running, raw(running.port) as client:
        await told(client)
        await client.secure(shown)
        await greeted(client)
        (session,) = running.door.sessions.all()
        assert session.transport.tls
        assert session.transport.certificate_names == ("derek@nats.io", "CN=derek")
        assert session.transport.certificate is not None
        assert session.transport.certificate["subject"] == "CN=derek"


def test_names_come_in_the_order_in_which_users_are_looked_for(authority: Authority) -> None:
    issued = authority.issue(
        "names",
        [("C", "US"), ("O", "NATS"), ("OU", "one"), ("OU", "two"), ("DC", "io"), ("CN", "x")],
        [
            x509.UniformResourceIdentifier("spiffe://a/b"),
            x509.DNSName("host.example"),
            x509.RFC822Name("x@example"),
        ],
    )
    assert certificate.names(issued.der) == (
        "x@example",
        "host.example",
        "spiffe://a/b",
        "CN=x,DC=io,OU=two,OU=one,O=NATS,C=US",
        "C=US,O=NATS,OU=one,OU=two,DC=io,CN=x",
        "CN=x,OU=one+OU=two,O=NATS,C=US,DC=io",
        "CN=x,OU=one+OU=two,O=NATS,C=US",
    )


@pytest.mark.parametrize("pinned", [True, False])
async def test_only_pinned_keys_come_in(server: Issued, authority: Authority, pinned: bool) -> None:
    mine, other = authority.client("mine"), authority.client("other")
    prints = frozenset([certificate.fingerprint((mine if pinned else other).der)])
    terms = tls_options(server, verify=True, ca_file=authority.ca_file, pinned_certs=prints)
    async with serving(TlsPort(Tls(terms))) as running, raw(running.port) as client:
        await told(client)
        await client.secure(authority.trusting(mine))
        client.send(CONNECT + b"PING\r\n")
        if pinned:
            await client.until(b"PONG\r\n")
        else:
            assert await client.rest() == b""


async def test_a_version_below_the_least_is_refused(server: Issued, authority: Authority) -> None:
    old = authority.trusting()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    terms = tls_options(server, min_version="1.3")
    async with serving(TlsPort(Tls(terms))) as running, raw(running.port) as client:
        await told(client)
        with pytest.raises(ssl.SSLError):
            await client.secure(old)


async def test_only_the_named_ciphers_are_spoken(server: Issued, authority: Authority) -> None:
    client_side = authority.trusting()
    client_side.maximum_version = ssl.TLSVersion.TLSv1_2
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    terms = tls_options(server, cipher_suites=(suite,), curve_preferences=("CurveP256",))
    async with serving(TlsPort(Tls(terms))) as running, raw(running.port) as client:
        await told(client)
        await client.secure(client_side)
        spoken = client.writer.get_extra_info("cipher")
        assert spoken[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"


async def test_a_client_that_never_begins_its_handshake_is_cut(server: Issued) -> None:
    clock = ManualClock()
    async with (
        serving(TlsPort(Tls(tls_options(server))), clock=clock) as running,
        raw(running.port) as client,
    ):
        await told(client)
        running.pass_time(1.9)
        assert len(running.door.sessions) == 1
        running.pass_time(0.2)
        assert await client.rest() == TLS_REQUIRED
        await settled(running, 0)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("hello", [b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03half"])
async def test_a_hello_that_never_ends_is_cut(server: Issued, first: bool, hello: bytes) -> None:
    clock = ManualClock()
    port = TlsPort(Tls(tls_options(server, handshake_first=first)))
    async with serving(port, clock=clock) as running, raw(running.port) as client:
        if not first:
            await told(client)
        client.send(hello)
        await client.writer.drain()
        await eventually(lambda: running.door.arriving == 1)
        await asyncio.sleep(0.05)
        running.pass_time(2.1)
        assert b"INFO" not in await client.rest()
        await settled(running, 0)


async def test_with_handshake_first_silence_is_cut(server: Issued) -> None:
    clock = ManualClock()
    port = TlsPort(Tls(tls_options(server, handshake_first=True)))
    async with serving(port, clock=clock) as running, raw(running.port) as client:
        await eventually(lambda: running.door.arriving == 1)
        running.pass_time(2.1)
        assert await client.rest() == b""


async def test_noise_in_place_of_a_handshake_ends_the_client_alone(
    required: Serving, authority: Authority
) -> None:
    async with raw(required.port) as healthy:
        await told(healthy)
        await healthy.secure(authority.trusting())
        for noise in (b"\x16noise" * 100, b"\x16\x03\x01\xff\xff" + bytes(70_000)):
            async with raw(required.port) as client:
                await told(client)
                client.send(noise)
                await client.rest()
        await greeted(healthy)
        await settled(required, 1)


async def test_a_client_that_leaves_in_its_handshake_leaves_nothing(required: Serving) -> None:
    async with raw(required.port) as client:
        await told(client)
        client.send(b"\x16\x03\x01\x02")
        await client.writer.drain()
    await settled(required, 0)


async def test_more_handshakes_than_allowed_in_a_second_are_turned_away(server: Issued) -> None:
    clock = ManualClock()
    port = TlsPort(Tls(tls_options(server, connection_rate_limit=1)))
    async with (
        serving(port, clock=clock) as running,
        raw(running.port) as one,
        raw(running.port) as two,
    ):
        for client in (one, two):
            await told(client)
            client.send(b"\x16")
            await client.writer.drain()
            await asyncio.sleep(0.05)
        assert await two.rest() == (
            b"-ERR 'Connection throttling is active. Please try again later.'\r\n"
        )


async def test_a_reload_shows_the_new_certificate_and_leaves_clients_alone(
    authority: Authority,
) -> None:
    old, new = authority.server("old"), authority.server("new")
    tls = Tls(tls_options(old))
    async with serving(TlsPort(tls)) as running, raw(running.port) as first:
        await told(first)
        await first.secure(authority.trusting())
        tls.reload(tls_options(new))
        async with raw(running.port) as second:
            await told(second)
            await second.secure(authority.trusting())
            shown = second.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            assert shown == new.der
        await greeted(first)


@pytest.mark.parametrize(
    ("asked", "shown"),
    [("a.example", 0), ("b.example", 1), ("x.c.example", 2), ("c.example", 0), ("z.example", 0)],
)
async def test_the_certificate_that_carries_the_name_asked_for_is_shown(
    authority: Authority, asked: str, shown: int
) -> None:
    issued = [
        authority.issue(f"sni{n}", [("CN", name)], [x509.DNSName(name)])
        for n, name in enumerate(("a.example", "b.example", "*.c.example"))
    ]
    pairs = tuple(CertificatePair(each.cert_file, each.key_file) for each in issued)
    terms = replace(tls_options(issued[0]), certificates=pairs)
    context = authority.trusting()
    context.check_hostname = False
    async with serving(TlsPort(Tls(terms))) as running, raw(running.port) as client:
        await told(client)
        await client.writer.start_tls(context, server_hostname=asked)
        found = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert found == issued[shown].der


def test_tls_without_a_certificate_is_refused_with_the_remedy(server: Issued) -> None:
    with pytest.raises(ValueError, match="name cert_file and key_file"):
        Tls(replace(tls_options(server), certificates=()))


def test_a_reload_of_bad_files_changes_nothing(server: Issued, tmp_path: Path) -> None:
    tls = Tls(tls_options(server))
    before = tls.context, tls.terms
    pair = CertificatePair(server.cert_file, str(tmp_path / "missing.pem"))
    with pytest.raises(FileNotFoundError):
        tls.reload(replace(tls_options(server), certificates=(pair,)))
    assert (tls.context, tls.terms) == before


async def test_a_client_that_does_not_read_is_closed_before_it_costs_much(
    server: Issued, authority: Authority
) -> None:
    limits = NatsLimits(max_pending=1 << 20)
    async with (
        serving(TlsPort(Tls(tls_options(server))), limits=limits) as running,
        raw(running.port) as slow,
        raw(running.port) as publisher,
    ):
        for client in (slow, publisher):
            await told(client)
            await client.secure(authority.trusting())
        await greeted(publisher)
        slow.send(CONNECT + b"SUB a 1\r\nPING\r\n")
        await slow.until(b"PONG\r\n")
        slow.writer.transport.pause_reading()
        slow_cid = min(session.cid for session in running.door.sessions.all())
        most = 0
        message = b"PUB a 100000\r\n" + bytes(100_000) + b"\r\n"
        async with asyncio.timeout(60):
            while len(running.door.sessions) == 2:
                publisher.send(message)
                await publisher.writer.drain()
                await asyncio.sleep(0)
                if slow_cid in running.door.hub.connections():
                    waiting = running.door.hub.connection_stats(slow_cid)["pending_bytes"]
                    most = max(most, waiting)
        assert running.door.hub.stats()["slow_consumers"] == 1
        assert most <= 3 << 20
        await greeted(publisher)


async def test_a_publisher_into_a_sink_that_is_behind_is_not_read(
    required: Serving, authority: Authority
) -> None:
    sink = Collector()
    handle = required.interest.add_sink(b"s", sink)
    async with raw(required.port) as client:
        await told(client)
        await client.secure(authority.trusting())
        await greeted(client)
        required.interest.pause_sink(handle, True)
        client.send(b"PUB s 1\r\n1\r\n")
        client.send(b"PUB s 1\r\n2\r\nPING\r\n")
        message = b"PUB s 100000\r\n" + bytes(100_000) + b"\r\n"
        for _ in range(200):
            client.send(message)
        client.send(b"PING\r\n")
        await asyncio.sleep(0.2)
        held = sink.count
        assert held < 50
        required.interest.pause_sink(handle, False)
        await eventually(lambda: sink.count == 202)
        await client.until(b"PONG\r\n")


async def test_stopping_the_door_ends_everybody_wherever_they_are(
    server: Issued, authority: Authority
) -> None:
    async with (
        serving(TlsPort(Tls(tls_options(server)))) as running,
        raw(running.port) as halfway,
        raw(running.port) as inside,
    ):
        for client in (halfway, inside):
            await told(client)
        halfway.send(b"\x16\x03")
        await inside.secure(authority.trusting())
        await greeted(inside)
        running.door.stop()
        assert await halfway.rest() == b""
        await inside.rest()


async def test_arrivals_are_bounded(server: Issued) -> None:
    limits = NatsLimits(max_connections=2)
    port = TlsPort(Tls(tls_options(server, handshake_first=True)))
    async with (
        serving(port, limits=limits) as running,
        raw(running.port),
        raw(running.port),
        raw(running.port) as third,
    ):
        assert await third.rest() == b""
        assert running.door.arriving == 2
