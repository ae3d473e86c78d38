"""HTTPS: the HTTP door behind the server's own certificate."""

import asyncio
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop

from millstream.clock import SystemClock
from millstream.http.door import HttpDoor
from millstream.http.limits import Limits
from millstream.http.request import Request
from millstream.http.response import Answer, Response
from millstream.nats.transport.tls import Tls
from millstream.server.options.options import CertificatePair, TlsOptions
from support.certificates import Authority, Issued


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("https"))


def terms(server: Issued, **changes: object) -> TlsOptions:
    pair = CertificatePair(server.cert_file, server.key_file)
    return TlsOptions(certificates=(pair,), **changes)  # type: ignore[arg-type]


async def hello(request: Request) -> Answer:
    return Response(200, b"hello " * 20_000)


@asynccontextmanager
async def served(tls: Tls, limits: Limits | None = None) -> AsyncIterator[int]:
    door = HttpDoor(asyncio.get_running_loop(), hello, SystemClock(), limits)
    port = await door.start("127.0.0.1", 0, tls.server_context())
    try:
        yield port
    finally:
        await door.stop()


def fetch(port: int, context: ssl.SSLContext) -> bytes:
    with urllib.request.urlopen(f"https://localhost:{port}/", context=context, timeout=10) as found:
        body: bytes = found.read()
        return body


def certificate_shown(port: int, context: ssl.SSLContext) -> bytes | None:
    """Return what the server shows (DER); the caller runs it in a thread."""
    with (
        socket.create_connection(("localhost", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        return secure.getpeercert(binary_form=True)


async def test_a_request_over_https_is_answered(authority: Authority) -> None:
    async with served(Tls(terms(authority.server()))) as port:
        assert await asyncio.to_thread(fetch, port, authority.trusting()) == b"hello " * 20_000


def test_a_request_over_https_is_answered_on_uvloop(authority: Authority) -> None:
    async def exchange() -> bytes:
        async with served(Tls(terms(authority.server()))) as port:
            return await asyncio.to_thread(fetch, port, authority.trusting())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(exchange()) == b"hello " * 20_000


async def test_a_client_without_a_certificate_is_refused_where_one_is_asked_for(
    authority: Authority,
) -> None:
    asked = terms(authority.server(), verify=True, ca_file=authority.ca_file)
    async with served(Tls(asked)) as port:
        shown = authority.trusting(authority.client())
        assert await asyncio.to_thread(fetch, port, shown) == b"hello " * 20_000
        with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(fetch, port, authority.trusting())


async def test_plain_http_on_the_https_port_gets_nothing(authority: Authority) -> None:
    async with served(Tls(terms(authority.server()))) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"hello" not in await asyncio.wait_for(reader.read(), 10)
        writer.close()


async def test_a_handshake_that_never_ends_is_cut(authority: Authority) -> None:
    async with served(Tls(terms(authority.server())), Limits(head_seconds=0.1)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01")
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_reload_shows_the_new_certificate(
    authority: Authority, loop_factory: type[asyncio.AbstractEventLoop]
) -> None:
    old, new = authority.server("old"), authority.server("new")
    tls = Tls(terms(old))

    async def shown() -> list[bytes | None]:
        async with served(tls) as port:
            context = authority.trusting()
            before = await asyncio.to_thread(certificate_shown, port, context)
            tls.reload(terms(new))
            return [before, await asyncio.to_thread(certificate_shown, port, context)]

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(shown()) == [old.der, new.der]
