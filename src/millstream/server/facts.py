"""What a started server can truthfully say about itself; the command line turns it into words."""

import msgspec


class RecoveredStream(msgspec.Struct, frozen=True):
    """What recovery found of one stream."""

    name: str
    records: int
    lost: int = 0
    torn: int = 0
    in_doubt: int = 0  # more of them may be lost, and no trace shows how many


class ServerFacts(msgspec.Struct, frozen=True):
    """Only what runs: a door that is not open is None, a thing not offered is not listed.

    ``http_offers`` names what the HTTP port serves, such as ``API`` and ``/healthz``.
    ``durability`` says when an acknowledgement is sent, such as ``fsync before ack``;
    None when JetStream is off.
    """

    data_dir: str
    data_is_new: bool
    nats_url: str | None = None
    http_url: str | None = None
    http_offers: tuple[str, ...] = ("API",)
    durability: str | None = "fsync before ack"
    http_durability: str = "disk"  # of topics made over HTTP that name none
    credentials: bool = False
    http_keys: bool = False
    loopback_only: bool = True  # as far as nobody is asked who they are
    ready_seconds: float = 0.0
    recovered: tuple[RecoveredStream, ...] = ()
    recovery_seconds: float = 0.0
    server_id: str = ""
    server_name: str = ""
    websocket_url: str | None = None
    tls: bool = False
    proxy_protocol: bool = False
