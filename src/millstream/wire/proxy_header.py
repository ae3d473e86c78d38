"""ProxyHeader: what a load balancer says first about the client that it connects (PROXY protocol).

```
version 1   PROXY TCP4 <source> <destination> <source port> <destination port> CRLF
            (or TCP6, or UNKNOWN)
version 2    0 12 bytes that no text begins with   12 u4 version, u4 command
            13 u4 family, u4 transport             14 u16 length of the rest
            16 source, destination, source port, destination port, extras
```
"""

import ipaddress

import msgspec

PREFIX = 6  # so many bytes tell the two versions from each other, and from a client's own words
_TEXT = b"PROXY "
_BINARY = b"\r\n\r\n\x00\r\nQUIT\n"
_LONGEST_LINE = 107
_HEAD = 16
_SIZES = {0x10: 4, 0x20: 16}  # of an address, by family
_UNSPECIFIED = 0x00


class MalformedProxyHeader(ValueError):
    """It began as a PROXY header and is none."""


class ProxyHeader(msgspec.Struct, frozen=True):
    """A header: how many bytes it takes, and where the client is.

    Without a ``source`` the proxy speaks for itself, as a health check does.
    """

    size: int
    source: str = ""
    port: int = 0


def parse_proxy_header(data: bytes) -> ProxyHeader | None:
    """Read the header that ``data`` begins with; None while its end has not come.

    A header of size 0: these are a client's own words.
    """
    if len(data) < PREFIX:
        return None
    if data.startswith(_TEXT):
        return _text(data)
    if data.startswith(_BINARY[:PREFIX]):
        return _binary(data)
    return ProxyHeader(0)


def _text(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, _LONGEST_LINE)
    if end < 0:
        if len(data) >= _LONGEST_LINE:
            raise MalformedProxyHeader(f"the line is longer than {_LONGEST_LINE} bytes")
        return None
    words = data[len(_TEXT) : end].decode("latin-1").split()
    if not words:
        raise MalformedProxyHeader("the line names no protocol")
    if words[0] == "UNKNOWN":
        return ProxyHeader(end + 2)
    if len(words) != 5:
        raise MalformedProxyHeader("the line has not the five words that it needs")
    family, source, destination, port, other = words
    _check_family(family, source, destination)
    return ProxyHeader(end + 2, _address(source), _checked_ports(port, other))


def _check_family(family: str, *addresses: str) -> None:
    if family not in ("TCP4", "TCP6"):
        raise MalformedProxyHeader(f"{family} is neither TCP4 nor TCP6")
    for address in addresses:
        _address(address)
        if (":" in address) != (family == "TCP6"):
            raise MalformedProxyHeader(f"{family} with the address {address}")


def _address(text: str) -> str:
    """Return an address as it is shown; one of IPv4 inside IPv6 is shown as what it is."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError as error:
        raise MalformedProxyHeader(f"{text!r} is no address") from error
    return _shown(found)


def _shown(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    inner = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(inner or address)


def _checked_ports(source: str, destination: str) -> int:
    for text in (source, destination):
        if not (text.isascii() and text.isdigit() and int(text) <= 0xFFFF):
            raise MalformedProxyHeader(f"{text!r} is no port")
    return int(source)


def _binary(data: bytes) -> ProxyHeader | None:
    begun = data[: len(_BINARY)]
    if not _BINARY.startswith(begun):
        raise MalformedProxyHeader("the signature is wrong")
    if len(data) < _HEAD:
        return None
    version, command = data[12] & 0xF0, data[12] & 0x0F
    family, transport = data[13] & 0xF0, data[13] & 0x0F
    size = _HEAD + int.from_bytes(data[14:16], "big")
    if version != 0x20:
        raise MalformedProxyHeader(f"version {version >> 4} is not 2")
    if command > 1:
        raise MalformedProxyHeader(f"the command {command} is unknown")
    if command == 1:
        _check_binary(family, transport, size)
    if len(data) < size:
        return None
    if command == 0 or family == _UNSPECIFIED:
        return ProxyHeader(size)
    width = _SIZES[family]
    source = ipaddress.ip_address(data[_HEAD : _HEAD + width])
    at = _HEAD + 2 * width
    return ProxyHeader(size, _shown(source), int.from_bytes(data[at : at + 2], "big"))


def _check_binary(family: int, transport: int, size: int) -> None:
    if transport != 1:
        raise MalformedProxyHeader("it is about something else than TCP")
    if family == _UNSPECIFIED:
        return
    if family not in _SIZES:
        raise MalformedProxyHeader(f"the address family {family >> 4} is not supported")
    if size - _HEAD < 2 * _SIZES[family] + 4:
        raise MalformedProxyHeader("the addresses are cut short")
