"""Clients behind a load balancer that speaks the PROXY protocol, on both servers."""

import itertools
import json
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from configured_pair import OURS, Place, both

from support.certificates import Authority
from support.peers import free_port, running

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
BINARY = SIGNATURE + b"\x21\x11\x00\x0c" + bytes([192, 0, 2, 7, 10, 0, 0, 1]) + b"\x1f\x40\x10\x7e"
HEADERS = [
    b"",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 8000 4222\r\n",
    b"PROXY TCP6 2001:db8::7 ::1 8000 4222\r\n",
    b"PROXY UNKNOWN\r\n",
    BINARY,
    SIGNATURE + b"\x20\x00\x00\x00",
    b"PROXY TCP4 ::1 10.0.0.1 8000 4222\r\n",
    b"PROXY TCP4 192.0.2.7\r\n",
    SIGNATURE + b"\x21\x12\x00\x0c" + bytes(12),
    SIGNATURE + b"\x31\x11\x00\x0c" + bytes(12),
]
NUMBERS = itertools.count()
CONNECT = b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n'


def conversation(place: Place, header: bytes, pieces: int = 1) -> list[Any]:
    """Return whether INFO tells the client's address, what it hears, and what /connz shows."""
    port = int(place.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        reader = client.makefile("rb")
        info = json.loads(reader.readline()[5:])
        name = f"n{next(NUMBERS)}"
        said = header + CONNECT.replace(b"}", b',"name":"%b"}' % name.encode())
        size = -(-len(said) // pieces)
        for at in range(0, len(said), size):
            client.sendall(said[at : at + size])
        try:
            heard = reader.readline()
        except ConnectionResetError:
            heard = b""
        if not heard:
            return ["client_ip" in info, "closed"]
        shown = [c for c in place.page("connz")["connections"] if c.get("name") == name]
        told = json.loads(reader.readline()[5:])
        where = [(c["ip"], c["port"] if c["ip"] != "127.0.0.1" else 0) for c in shown]
        return ["client_ip" in info, heard, where, told["client_ip"]]


async def test_the_client_is_where_the_proxy_says(tmp_path: Path) -> None:
    async def scenario(place: Place) -> list[Any]:
        return [conversation(place, header) for header in HEADERS]

    seen = await both(tmp_path, "proxy_protocol: true", scenario)
    assert [each[-1] for each in seen] == [
        "127.0.0.1", "192.0.2.7", "2001:db8::7", "127.0.0.1", "192.0.2.7", "127.0.0.1",
        "closed", "closed", "closed", "closed",
    ]  # fmt: skip


async def test_a_header_may_come_in_pieces(tmp_path: Path) -> None:
    async def scenario(place: Place) -> list[Any]:
        return [conversation(place, header, pieces=20) for header in HEADERS[1:5]]

    await both(tmp_path, "proxy_protocol: true", scenario)


async def test_the_header_comes_before_tls(tmp_path: Path) -> None:
    pair = Authority(tmp_path).server()

    async def scenario(place: Place) -> list[Any]:
        port, seen = int(place.url.rpartition(":")[2]), []
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for header in (b"", HEADERS[1], BINARY):
            with socket.create_connection(("127.0.0.1", port), 5) as client:
                assert client.recv(4096).startswith(b"INFO")
                client.sendall(header)
                with context.wrap_socket(client) as secure:
                    secure.sendall(CONNECT)
                    heard = secure.recv(4096)
                    shown = place.page("connz")["connections"]
                    seen.append((heard[:6], shown[0]["ip"], "tls_version" in shown[0]))
        return seen

    files = f'cert_file: "{pair.cert_file}", key_file: "{pair.key_file}"'
    config = f"proxy_protocol: true\ntls {{ {files} }}"
    seen = await both(tmp_path, config, scenario)
    assert [ip for _, ip, _ in seen] == ["127.0.0.1", "192.0.2.7", "192.0.2.7"]


@pytest.mark.parametrize(
    ("trusted", "last"), [("127.0.0.0/8", "192.0.2.7"), ("10.0.0.0/8", "closed")]
)
async def test_others_than_the_trusted_proxies_are_closed(
    tmp_path: Path, trusted: str, last: str
) -> None:
    conf = tmp_path / "s.conf"
    conf.write_text(f"proxy_protocol: true\nproxy_protocol_trusted: ['{trusted}']")
    port, http = free_port(), free_port()
    command = [*OURS, "-c", str(conf), "-a", "127.0.0.1", "-p", str(port), "-m", str(http)]
    with running("ours", command, port, tmp_path, http):
        place = Place(port, http)
        assert conversation(place, HEADERS[1])[-1] == last
        assert conversation(place, b"")[-1] == "127.0.0.1"
