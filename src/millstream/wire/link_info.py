"""What servers say of themselves to each other: INFO and CONNECT of routes and leafnodes."""

from typing import Any

import msgspec


class MalformedLink(ValueError):
    """What another server says is not what a server says."""


class LinkRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """Subjects that may pass in one direction; ``allow`` of None: all."""

    allow: list[str] | None = None
    deny: list[str] | None = None


class LinkInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of INFO between servers; those with a default are left out while they have it."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    proto: int = 0
    go: str = ""
    host: str = ""
    port: int = 0
    headers: bool = False
    max_payload: int = 0
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    jetstream: bool = False
    ip: str = ""
    client_id: int = 0
    nonce: str = ""
    cluster: str = ""
    cluster_dynamic: bool = False
    domain: str = ""
    connect_urls: list[str] | None = None
    ws_connect_urls: list[str] | None = None
    ldm: bool = False
    compression: str = ""
    connect_info: bool = False
    remote_account: str = ""
    acc_is_sys: bool = False
    imports: LinkRule | None = msgspec.field(default=None, name="import")
    exports: LinkRule | None = msgspec.field(default=None, name="export")
    lnoc: bool = False
    lnocu: bool = False
    info_on_connect: bool = False
    route_pool_size: int = 0
    route_pool_idx: int = 0
    route_account: str = ""
    leafnode_urls: list[str] | None = None
    gateway: str = ""

    def with_(self, **changes: Any) -> "LinkInfo":
        """Return a copy with some fields replaced."""
        return msgspec.structs.replace(self, **changes)

    def line(self) -> bytes:
        """Return the INFO line."""
        return b"INFO " + msgspec.json.encode(self) + b"\r\n"


class LinkConnect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of CONNECT between servers: a leafnode's and a route's together."""

    version: str = ""
    nkey: str = ""
    jwt: str = ""
    sig: str = ""
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    auth_token: str = ""
    server_id: str = ""
    domain: str = ""
    name: str = ""
    is_hub: bool = False
    cluster: str = ""
    cluster_dynamic: bool = False
    headers: bool = False
    jetstream: bool = False
    deny_pub: list[str] | None = None
    isolate: bool = False
    gateway: str = ""
    remote_account: str = ""
    protocol: int = 0
    lnoc: bool = False
    lang: str = ""
    tls_required: bool = False

    def __repr__(self) -> str:
        """Name the server; secrets stay out of logs."""
        return f"LinkConnect(name={self.name!r}, cluster={self.cluster!r}, user={self.user!r})"

    def line(self) -> bytes:
        """Return the CONNECT line."""
        fields = msgspec.to_builtins(self)
        return (
            b"CONNECT "
            + msgspec.json.encode({"verbose": False, "pedantic": False, **fields})
            + b"\r\n"
        )


def parse_link_info(line: bytes) -> LinkInfo:
    """Read INFO's argument; raises ``MalformedLink``."""
    try:
        return msgspec.convert(_given(line), LinkInfo)
    except msgspec.ValidationError as error:
        raise MalformedLink(str(error)) from error


def parse_link_connect(line: bytes) -> LinkConnect:
    """Read CONNECT's argument; raises ``MalformedLink``."""
    try:
        return msgspec.convert(_given(line), LinkConnect)
    except msgspec.ValidationError as error:
        raise MalformedLink(str(error)) from error


def _given(line: bytes) -> dict[str, Any]:
    """Read a JSON object; null stands for a field that was left out, as Go reads it."""
    try:
        given = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedLink(str(error)) from error
    if not isinstance(given, dict):
        raise MalformedLink("not a JSON object")
    return {name: value for name, value in given.items() if value is not None}
