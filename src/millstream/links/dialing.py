"""Connecting to another server: its socket, its first INFO, and TLS where it wants that."""

import asyncio
import socket
from collections.abc import Callable

from millstream.links.encrypted import EncryptedLink, dial_context
from millstream.links.terms import DialTls, ServerAddress

_LONGEST_INFO = 64 * 1024
_LOOK_AGAIN = 0.005


class DialFailed(OSError):
    """The other server cannot be reached, or is no server."""


async def dial(address: ServerAddress, patience: float) -> socket.socket:
    """Return a connected, non-blocking socket; raises ``OSError``."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    problem: OSError = DialFailed(f"{address.host} has no address")
    for family, kind, proto, _, place in found:
        sock = socket.socket(family, kind, proto)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(patience):
                await loop.sock_connect(sock, place)
        except (OSError, TimeoutError) as error:
            sock.close()
            problem = OSError(str(error) or f"no answer within {patience:g} s")
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
    raise problem


async def first_info(sock: socket.socket, patience: float) -> bytes:
    """Return the argument of the INFO that a server greets with; all behind it stays unread."""
    async with asyncio.timeout(patience):
        while True:
            await _readable(sock)
            seen = sock.recv(_LONGEST_INFO, socket.MSG_PEEK)
            if not seen:
                raise DialFailed("the other side hung up")
            end = seen.find(b"\n")
            if end >= 0:
                line = sock.recv(end + 1)
                if line[:4].upper() != b"INFO":
                    raise DialFailed("the other side is no NATS server: it does not say INFO")
                return line[4:].strip()
            if len(seen) >= _LONGEST_INFO:
                raise DialFailed("the other side is no NATS server: its first line has no end")
            await asyncio.sleep(_LOOK_AGAIN)


async def _readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(sock.fileno(), wake)
    try:
        await ready
    finally:
        loop.remove_reader(sock.fileno())


async def encrypt(
    sock: socket.socket, terms: DialTls, host: str, make: Callable[[], EncryptedLink]
) -> EncryptedLink:
    """Have a handshake as the client of ``host``; the carrier then owns the socket."""
    loop = asyncio.get_running_loop()
    _, carrier = await loop.create_connection(
        make,
        sock=sock,
        ssl=dial_context(terms),
        server_hostname=host,
        ssl_handshake_timeout=max(terms.timeout, 0.1),
    )
    if terms.pinned_certs:
        from millstream.nats.transport.certificate import fingerprint  # slow to load

        shown = carrier.certificate
        if shown is None or fingerprint(shown) not in terms.pinned_certs:
            raise DialFailed("the other server's certificate is not one of the pinned ones")
    return carrier
