"""What a load balancer says about a client, in both versions of the PROXY protocol."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.nats.transport.proxies import Proxies, UntrustedProxy
from millstream.wire.proxy_header import MalformedProxyHeader, ProxyHeader, parse_proxy_header

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
IPV4 = SIGNATURE + b"\x21\x11\x00\x0c" + bytes([192, 0, 2, 7, 10, 0, 0, 1]) + b"\x1f\x40\x10\x7e"
IPV6 = SIGNATURE + b"\x21\x21\x00\x24" + bytes(15) + b"\x01" + bytes(15) + b"\x02\x1f\x40\x10\x7e"
TEXT = b"PROXY TCP4 192.0.2.7 10.0.0.1 8000 4222\r\n"


@pytest.mark.parametrize(
    ("data", "header"),
    [
        (TEXT, ProxyHeader(len(TEXT), "192.0.2.7", 8000)),
        (b"PROXY TCP6 ::1 ::2 8000 4222\r\n", ProxyHeader(30, "::1", 8000)),
        (b"PROXY TCP6 ::ffff:192.0.2.7 ::2 1 2\r\n", ProxyHeader(37, "192.0.2.7", 1)),
        (b"PROXY UNKNOWN and more\r\n", ProxyHeader(24)),
        (IPV4, ProxyHeader(28, "192.0.2.7", 8000)),
        (IPV6, ProxyHeader(52, "::1", 8000)),
        (SIGNATURE + b"\x20\x00\x00\x03abc", ProxyHeader(19)),
        (SIGNATURE + b"\x21\x01\x00\x00", ProxyHeader(16)),
        (b"CONNECT {}\r\n", ProxyHeader(0)),
        (b"PING\r\n", ProxyHeader(0)),
        (b"\x16\x03\x01\x00\x00\x00", ProxyHeader(0)),
    ],
)
def test_a_header_says_where_the_client_is(data: bytes, header: ProxyHeader) -> None:
    assert parse_proxy_header(data) == header
    if header.size:
        assert parse_proxy_header(data + b"PING\r\n") == header
        assert all(parse_proxy_header(data[:n]) is None for n in range(header.size))


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY TCP4 192.0.2.7 10.0.0.1 8000\r\n",
        b"PROXY TCP4 ::1 10.0.0.1 8000 4222\r\n",
        b"PROXY TCP6 192.0.2.7 ::1 8000 4222\r\n",
        b"PROXY UDP4 192.0.2.7 10.0.0.1 8000 4222\r\n",
        b"PROXY TCP4 192.0.2.777 10.0.0.1 8000 4222\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 80000 4222\r\n",
        b"PROXY \r\n",
        b"PROXY " + b"x" * 120,
        SIGNATURE[:-1] + b"X\x21\x11\x00\x0c",
        SIGNATURE + b"\x11\x11\x00\x0c",
        SIGNATURE + b"\x22\x11\x00\x0c",
        SIGNATURE + b"\x21\x12\x00\x0c",
        SIGNATURE + b"\x21\x31\x00\x0c",
        SIGNATURE + b"\x21\x11\x00\x0b",
        SIGNATURE + b"\x21\x21\x00\x0c",
    ],
)
def test_what_begins_as_a_header_and_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedProxyHeader):
        parse_proxy_header(data)


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(lambda b: SIGNATURE + b),
                 st.binary(max_size=120).map(lambda b: b"PROXY " + b)))  # fmt: skip
def test_any_bytes_are_a_header_none_or_refused(data: bytes) -> None:
    try:
        header = parse_proxy_header(data)
    except MalformedProxyHeader:
        return
    assert header is None or header.size <= len(data)


def test_only_listed_proxies_may_speak_for_others() -> None:
    listed = Proxies(["10.0.0.0/8", "::1"])
    for peer in ("10.1.2.3", "::ffff:10.1.2.3", "::1"):
        assert listed.read(TEXT, peer) == ProxyHeader(len(TEXT), "192.0.2.7", 8000)
    with pytest.raises(UntrustedProxy, match="not among the trusted"):
        listed.read(TEXT, "192.0.2.1")
    assert listed.read(b"CONNECT", "192.0.2.1") == ProxyHeader(0)
