"""Sockets that are bound before anybody serves them, and handed on from one who does to another."""

import errno
import os
import socket
from collections.abc import Iterable, Sequence
from ipaddress import ip_address

_PASSIVE = socket.AI_PASSIVE


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
