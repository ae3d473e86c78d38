"""A NATS door on the test's own loop, with a clock that the test may move, and raw clients."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

from millstream.accounts.credentials import Credentials
from millstream.clock import Clock, ManualClock, SystemClock
from millstream.kernel._batch import Batch
from millstream.kernel._interest import Interest
from millstream.nats.accounts.accounts import Accounts
from millstream.nats.authenticator import Authenticator
from millstream.nats.door import NatsDoor
from millstream.nats.session import NatsLimits
from millstream.nats.transport.tls import Tls
from millstream.nats.transport.tls_transport import TlsPort
from millstream.server.options.options import CertificatePair, TlsOptions, WebsocketOptions
from millstream.wire.info import server_info
from support.certificates import Issued

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"protocol":1}\r\n'
WAIT = 10


def tls_options(server: Issued, **changes: Any) -> TlsOptions:
    pair = CertificatePair(server.cert_file, server.key_file)
    return TlsOptions(certificates=(pair,), **changes)


class Serving:
    """A started door and where it listens."""

    def __init__(self, door: NatsDoor, clock: Clock) -> None:
        self.door = door
        self.clock = clock
        self.interest = Interest()
        self.port = 0
        self.websocket_port = 0

    def pass_time(self, seconds: float) -> None:
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(seconds)
        self.door.tick()


@contextlib.asynccontextmanager
async def serving(
    tls: TlsPort | None = None,
    websocket: WebsocketOptions | None = None,
    websocket_tls: Tls | None = None,
    limits: NatsLimits | None = None,
    clock: Clock | None = None,
    token: str = "",
) -> AsyncIterator[Serving]:
    loop = asyncio.get_running_loop()
    clock = clock or SystemClock()
    info = server_info(bytes(32), host="127.0.0.1", port=0)
    interest = Interest()
    reception = Authenticator(Accounts(global_interest=interest), clock, Credentials(token=token))
    door = NatsDoor(loop, clock, interest, info, limits, reception, tls)
    running = Serving(door, clock)
    running.interest = interest
    running.port = door.start("127.0.0.1", 0)[1]
    if websocket is not None:
        address = door.start_websocket("127.0.0.1", 0, websocket, websocket_tls)
        running.websocket_port = address[1]
    try:
        yield running
    finally:
        door.stop()
        await asyncio.sleep(0)


class Raw:
    """A client that sends exactly what it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def until(self, end: bytes) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(end), WAIT)

    async def line(self) -> bytes:
        return await self.until(b"\r\n")

    async def rest(self) -> bytes:
        """Return everything until the server hangs up."""
        found = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while data := await asyncio.wait_for(self.reader.read(1 << 16), WAIT):
                found += data
        return found

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def secure(self, context: ssl.SSLContext) -> None:
        await asyncio.wait_for(self.writer.start_tls(context, server_hostname="localhost"), WAIT)

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def raw(port: int, context: ssl.SSLContext | None = None) -> AsyncIterator[Raw]:
    name = None if context is None else "localhost"
    client = Raw(
        *await asyncio.wait_for(
            asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name), WAIT
        )
    )
    try:
        yield client
    finally:
        await client.close()


class Collector:
    """A sink that counts."""

    def __init__(self) -> None:
        self.count = 0

    def deliver(self, batch: Batch) -> None:
        self.count += len(batch)
