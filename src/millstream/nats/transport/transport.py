"""Transport: what is known about the way to a client, beside what the client says itself."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

import msgspec


class Kind(StrEnum):
    """How a client is connected, in the words of a user's ``allowed_connection_types``."""

    STANDARD = "STANDARD"
    WEBSOCKET = "WEBSOCKET"
    LEAFNODE = "LEAFNODE"


class Cookies(msgspec.Struct, frozen=True):
    """Credentials that a browser sent with the request for a WebSocket; empty = not sent."""

    jwt: str = ""
    user: str = ""
    password: str = ""
    token: str = ""


class Transport(msgspec.Struct, frozen=True):
    """How a client came here.

    ``certificate_names`` are the names that a verified client certificate carries, in the order in
    which a user is looked for: email addresses, DNS names, URIs, then the forms of its subject.
    They are empty unless the client showed a certificate that was verified.
    """

    kind: Kind
    peer: str
    tls: bool = False
    certificate_names: tuple[str, ...] = ()
    cookies: Cookies = Cookies()
    ping_interval: float | None = None  # None = as for everybody
    port: int = 0  # the client's; 0 = the hub knows it, as it has the socket
    tls_version: str = ""
    tls_cipher: str = ""
    tls_first: bool = False  # the handshake came before INFO
    auth_timeout: float = 0.0  # how long a client may take to say who it is; 0 = as for everybody
    certificate: Mapping[str, str] | None = None  # what /connz shows of a verified one
    is_told: bool = True  # INFO tells the client where it comes from


class Carrier(Protocol):
    """What moves the bytes of a connection that the hub does not read and write itself."""

    def output(self, cid: int) -> None:
        """Send what ``hub.take`` gives, and read again unless ``hub.is_stalled``."""
        ...

    def closed(self, reason: int) -> None:
        """Hang up: the connection is over."""
        ...
