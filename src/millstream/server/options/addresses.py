"""Addresses: where to listen, and whether that is this machine alone."""

import socket


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine alone: an address, or a name whose every address is."""
    import ipaddress  # a start without credentials or a public address never needs it

    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return _leads_to_loopback(host)


def _leads_to_loopback(name: str) -> bool:
    try:
        found = socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        return False  # it leads nowhere, or nobody knows where
    import ipaddress

    addresses = [str(place[0]).partition("%")[0] for *_, place in found]
    return bool(addresses) and all(ipaddress.ip_address(each).is_loopback for each in addresses)


def optional_port(port: int) -> int | None:
    """Turn nats-server's 0 for none and -1 for any into our None and 0."""
    return max(port, 0) if port else None
