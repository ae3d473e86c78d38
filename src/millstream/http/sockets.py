"""Sockets that are bound before anybody serves them, and handed on from one who does to another."""

import asyncio
import errno
import os
import socket
from collections.abc import Iterable, Sequence
from ipaddress import ip_address

_PASSIVE = socket.AI_PASSIVE
HIGH_WATER = 4096
UNSENT_BYTES = 128 * 1024  # beyond what is on its way to the client
TCP_NOTSENT_LOWAT = 25  # Linux; Python 3.11 has no name for it


def bound(host: str, port: int) -> list[socket.socket]:
    """Return a bound socket for each address of a host; raises OSError where one cannot be."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=_PASSIVE)
    made: list[socket.socket] = []
    try:
        for family, kind, protocol, _, place in dict.fromkeys(found):
            try:
                each = socket.socket(family, kind, protocol)
            except OSError:  # a family that this machine does not have
                continue
            made.append(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:  # the other family has a socket of its own
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind(place)
    except BaseException:
        close(made)
        raise
    if not made:
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    return made


def close(sockets: Iterable[socket.socket]) -> None:
    """Close what nobody has taken over."""
    for each in sockets:
        each.close()


def are_loopback(sockets: Sequence[socket.socket]) -> bool:
    """Say whether only this machine can reach them."""
    places = (str(each.getsockname()[0]).partition("%")[0] for each in sockets)
    return all(ip_address(place).is_loopback for place in places)


def peer_of(transport: asyncio.Transport | None) -> str:
    """Return the address at the other end, empty when it has none."""
    name = transport.get_extra_info("peername") if transport is not None else None
    return str(name[0]) if isinstance(name, tuple) and name else ""


def keep_little(transport: asyncio.Transport) -> None:
    """Have us and the system keep little of what a client does not read.

    The system would take some megabytes of each answer, and the transport another 64 KiB, before
    anybody learns that the client is behind.
    """
    transport.set_write_buffer_limits(high=HIGH_WATER)
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES)
