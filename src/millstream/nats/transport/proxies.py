"""Proxies: load balancers that say for whom they connect, and which of them are believed."""

import ipaddress
from collections.abc import Sequence

from millstream.wire.proxy_header import ProxyHeader, parse_proxy_header

HEADER_SECONDS = 10.0  # so long the first words of a client or of its proxy may take


class UntrustedProxy(ValueError):
    """Somebody speaks for a client who is not on the list."""


class Proxies:
    """Reads what comes before a client's own words; without ``trusted`` everybody is believed."""

    def __init__(self, trusted: Sequence[str] = ()) -> None:
        """Take addresses and networks; raises ``ValueError`` for what is neither."""
        self._trusted = [ipaddress.ip_network(each, strict=False) for each in trusted]

    def read(self, data: bytes, peer: str) -> ProxyHeader | None:
        """Return the header that ``peer`` sent, of size 0 when it sent none; None = wait for more.

        Raises ``MalformedProxyHeader`` or ``UntrustedProxy``.
        """
        header = parse_proxy_header(data)
        if header is not None and header.size and not self._believes(peer):
            raise UntrustedProxy(f"{peer} is not among the trusted proxies")
        return header

    def _believes(self, peer: str) -> bool:
        if not self._trusted:
            return True
        address = ipaddress.ip_address(peer.partition("%")[0])
        inner = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return any((inner or address) in network for network in self._trusted)
