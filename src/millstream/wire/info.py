"""INFO: what a server says about itself, first of all and whenever it changes."""

import base64
import binascii
from typing import Any

import msgspec

DEFAULT_URL = "nats://127.0.0.1:4222"  # where servers are, and clients look, unless told
_SERVER_PREFIX = 13 << 3  # shows as N in base32
_ENTROPY = 32


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of INFO; those with a default are left out while they have it."""

    server_id: str
    server_name: str
    version: str
    proto: int
    go: str
    host: str
    port: int
    headers: bool
    max_payload: int
    jetstream: bool = False
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    client_id: int = 0
    client_ip: str = ""
    nonce: str = ""
    xkey: str = ""
    cluster: str = ""
    domain: str = ""
    connect_urls: list[str] = msgspec.field(default_factory=list)
    ldm: bool = False
    connect_info: bool = False
    remote_account: str = ""
    acc_is_sys: bool = False
    api_lvl: int = 0

    def with_(self, **changes: Any) -> "ServerInfo":
        """Return a copy with some fields replaced."""
        return msgspec.structs.replace(self, **changes)

    def line(self) -> bytes:
        """Return the INFO line."""
        return b"INFO " + msgspec.json.encode(self) + b" \r\n"


NATS_VERSION = "2.15.1"  # what clients are told that this server is as good as


def server_info(
    entropy: bytes,
    *,
    host: str,
    port: int,
    name: str = "",
    jetstream: bool = False,
    max_payload: int = 1 << 20,
    version: str = NATS_VERSION,
) -> ServerInfo:
    """Describe a server whose id derives from 32 random bytes and whose name defaults to it."""
    server_id = public_server_id(entropy)
    return ServerInfo(
        server_id=server_id,
        server_name=name or server_id,
        version=version,
        proto=1,
        go="python",
        host=host,
        port=port,
        headers=True,
        max_payload=max_payload,
        jetstream=jetstream,
    )


def public_server_id(entropy: bytes) -> str:
    """Encode 32 bytes as a public server nkey: prefix, key, CRC-16, in base32."""
    if len(entropy) != _ENTROPY:
        raise ValueError("a server id is made of 32 random bytes")
    body = bytes([_SERVER_PREFIX]) + entropy
    check = binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return base64.b32encode(body + check).decode().rstrip("=")
