"""Options: everything the server can be told, as one value, whoever said it and how.

The defaults are nats-server's. Plain numbers are seconds and bytes. A port of 0 means a free one,
None that nothing listens; a limit of 0 means none, unless a comment says otherwise.
"""

from pathlib import Path
from typing import Any

import msgspec

from millstream.accounts.api_keys import ApiKey
from millstream.dashboard.masking import MaskRule
from millstream.links.terms import LeafTerms, RouteTerms
from millstream.server.options.auth_options import (
    AccountOptions,
    Authorization,
    LeafAuthorization,
    MappingOptions,
    TrustOptions,
    UserOptions,
    shown_without,
)


class CertificatePair(msgspec.Struct, frozen=True):
    """A certificate and its private key, as files."""

    cert_file: str
    key_file: str


class TlsOptions(msgspec.Struct, frozen=True):
    """One ``tls`` block.

    ``handshake_first`` sends nothing before the handshake; with a ``fallback_delay`` the server
    waits that long for a client that starts one, and then goes on as without.
    """

    certificates: tuple[CertificatePair, ...] = ()
    ca_file: str = ""
    verify: bool = False
    verify_and_map: bool = False
    timeout: float = 2.0
    handshake_first: bool = False
    fallback_delay: float = 0.0
    pinned_certs: frozenset[str] = frozenset()
    min_version: str = "1.2"
    cipher_suites: tuple[str, ...] = ()
    curve_preferences: tuple[str, ...] = ()
    connection_rate_limit: int = 0


class WebsocketOptions(msgspec.Struct, frozen=True):
    """The listener for NATS over WebSocket."""

    port: int
    host: str = "0.0.0.0"
    advertise: str = ""
    no_tls: bool = False
    tls: TlsOptions | None = None
    same_origin: bool = False
    allowed_origins: tuple[str, ...] = ()
    handshake_timeout: float = 2.0
    compression: bool = False
    authorization: Authorization | None = None
    no_auth_user: str = ""
    jwt_cookie: str = ""
    user_cookie: str = ""
    pass_cookie: str = ""
    token_cookie: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    ping_interval: float | None = None  # None = as everywhere

    @property
    def auth_timeout(self) -> float:
        """How long a client may take to send its credentials; 0 = as everywhere."""
        return (self.authorization.timeout or 0.0) if self.authorization is not None else 0.0


class JetStreamLimits(msgspec.Struct, frozen=True):
    """Bounds for what clients may ask of JetStream; 0 means no bound but our own."""

    max_ack_pending: int = 0
    max_ha_assets: int = 0
    max_request_batch: int = 0
    default_max_consumers: int = 0  # of a stream without max_consumers; 0 = 1,000, below 0 = any
    duplicate_window: float = 0.0
    max_batch_inflight_per_stream: int = 0
    max_batch_inflight_total: int = 0
    max_batch_size: int = 0
    max_batch_timeout: float = 0.0


MOST_SHARDS = 64  # each has a thread and a preallocated file


class SegmentOptions(msgspec.Struct, frozen=True):
    """When a file of records is sealed: by whichever comes first."""

    records: int = 1 << 20
    bytes: int = 64 << 20
    age: float = 3600.0


class EncryptionOptions(msgspec.Struct, frozen=True):
    """The key for what is at rest, and the one before it; a secret, or a file that holds it."""

    key: str = ""
    key_file: str = ""
    prev_key: str = ""
    prev_key_file: str = ""
    cipher: str = "aes"

    def __repr__(self) -> str:
        return shown_without(self, "key", "prev_key")


class ColdHistoryOptions(msgspec.Struct, frozen=True):
    """Where sealed segments move to, a directory or a URL, and what of each stream stays."""

    place: str = ""
    hot_segments: int | None = None
    hot_bytes: int | None = None
    cache_bytes: int = 64 << 20
    parquet: str = "plain"  # a twin of which segments: "none", "plain", or "all", also encrypted


class JetStreamOptions(msgspec.Struct, frozen=True):
    """Persistence. An empty ``store_dir`` means a directory for temporary files.

    ``sync_interval`` of None acknowledges after fsync; a number of seconds syncs on that timer.
    """

    store_dir: str = ""
    max_memory: int = -1
    max_store: int = -1
    domain: str = ""
    sync_interval: float | None = None
    strict: bool = True
    limits: JetStreamLimits = JetStreamLimits()
    segments: SegmentOptions = SegmentOptions()
    wal_shards: int = 1
    encryption: EncryptionOptions = EncryptionOptions()
    rewrite_ratio: float = 0.5  # of a sealed file that is dead when it is written anew
    cold: ColdHistoryOptions = ColdHistoryOptions()

    @property
    def directory(self) -> Path:
        """Where the records are."""
        if self.store_dir:
            return Path(self.store_dir)
        import tempfile  # here: it brings much along, and `serve` always names its directory

        return Path(tempfile.gettempdir()) / "nats" / "millstream"


class FleetOptions(msgspec.Struct, frozen=True):
    """The object store that members of a fleet share, and into how many logs it is cut."""

    url: str
    shards: int = 1


class HttpCaps(msgspec.Struct, frozen=True):
    """What all clients of the HTTP API may take together, and each key; 0 means no cap."""

    max_topics: int = 100_000
    max_routers: int = 10_000
    max_watch_sessions: int = 10_000
    max_sse_connections: int = 10_000
    max_sse_connections_per_key: int = 1000
    max_inflight_per_key: int = 1000
    max_total_bytes: int = 0
    max_body_bytes: int = 64 * 1024 * 1024
    max_unread_bytes: int = 128 * 1024 * 1024
    max_unread_bytes_per_key: int = 64 * 1024 * 1024
    max_unread_bytes_per_connection: int = 2 * 1024 * 1024
    test_min_heartbeat_ms: int = 1000


class StreamOptions(msgspec.Struct, frozen=True):
    """A stream that there shall be, as a request of the JetStream API describes it."""

    name: str
    config: dict[str, Any]


class MonitorOptions(msgspec.Struct, frozen=True):
    """The HTTP and HTTPS ports; an empty ``host`` means the clients' host.

    ``topics`` adds the HTTP API, which writes; nats-server's port only tells. ``keys`` are those
    that were given at start, beside the ones of the data directory; ``probe_auth`` asks who it is
    also where only health is told. ``allowed_hosts`` are names by which a port on loopback may be
    called, beside those of this machine.
    """

    host: str = ""
    port: int | None = None
    tls_port: int | None = None
    base_path: str = "/"
    topics: bool = False
    keys: tuple[ApiKey, ...] = ()
    probe_auth: bool = False
    caps: HttpCaps = msgspec.field(default_factory=HttpCaps)
    allowed_hosts: tuple[str, ...] = ()
    durability: str = "disk"  # of topics that are made over HTTP, where nobody says it
    mask_rules: tuple[MaskRule, ...] = ()

    @property
    def listens(self) -> bool:
        """Whether there is a port at all."""
        return self.port is not None or self.tls_port is not None


class LoggingOptions(msgspec.Struct, frozen=True):
    """What is said, and where: a file that is cut at ``size_limit``, syslog, or standard error."""

    debug: bool = False
    trace: bool = False
    trace_verbose: bool = False
    trace_headers: bool = False
    time: bool = True
    utc: bool = False
    file: str = ""
    size_limit: int = 0
    max_files: int = 0
    max_traced_message: int = 0
    form: str = "text"  # or json, one object a line
    syslog: bool = False
    remote_syslog: str = ""  # udp://host:514, tcp://host:514 or unix:///path


class LameDuckOptions(msgspec.Struct, frozen=True):
    """How a server leaves: wait ``grace_period``, then close clients over ``duration``."""

    duration: float = 120.0
    grace_period: float = 10.0


class LimitOptions(msgspec.Struct, frozen=True):
    """What one client, or all of them together, may take."""

    max_connections: int = 65536
    max_subscriptions: int = 0
    max_subject_tokens: int = 0
    max_payload: int = 1 << 20
    max_pending: int = 64 << 20
    max_control_line: int = 4096
    max_closed_clients: int = 10000
    ping_interval: float = 120.0
    ping_max: int = 2
    write_deadline: float = 10.0
    no_fast_producer_stall: bool = False


class Options(msgspec.Struct, frozen=True):
    """How to serve."""

    host: str = "0.0.0.0"
    port: int = 4222
    server_name: str = ""
    advertise: str = ""
    tags: tuple[str, ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()
    headers: bool = True
    monitor: MonitorOptions = MonitorOptions()
    limits: LimitOptions = LimitOptions()
    log: LoggingOptions = LoggingOptions()
    lame_duck: LameDuckOptions = LameDuckOptions()
    jetstream: JetStreamOptions | None = None
    fleet: FleetOptions | None = None
    tls: TlsOptions | None = None
    allow_non_tls: bool = False
    proxy_protocol: bool = False  # a load balancer may say first for whom it connects
    trusted_proxies: tuple[str, ...] = ()  # which of them are believed; empty = all
    websocket: WebsocketOptions | None = None
    authorization: Authorization = Authorization()
    no_auth_user: str = ""
    accounts: tuple[AccountOptions, ...] = ()
    mappings: tuple[MappingOptions, ...] = ()
    streams: tuple[StreamOptions, ...] = ()
    system_account: str = ""
    no_system_account: bool = False
    trust: TrustOptions = TrustOptions()
    cluster_name: str = ""
    cluster: RouteTerms | None = None
    leafnodes: LeafTerms | None = None
    leaf_authorization: LeafAuthorization | None = None
    default_js_domains: tuple[tuple[str, str], ...] = ()
    pid_file: str = ""
    ports_file_dir: str = ""
    http_port_file: str = ""
    sublist_cache: bool = True
    program: str = "nats-server"
    config_file: str = ""
    config_digest: str = ""  # of what the file says, "" without one

    @property
    def users(self) -> tuple[UserOptions, ...]:
        """Every user of the file, of whichever account."""
        listed = self.authorization.users or ()
        return (*listed, *(user for account in self.accounts for user in account.users))

    @property
    def credentials(self) -> bool:
        """Whether clients must say who they are."""
        return self.authorization.required or self.trust.required or bool(self.users)

    @property
    def auth_timeout(self) -> float:
        """How long a client may take to send its credentials."""
        if self.authorization.timeout:
            return self.authorization.timeout
        return 2.0 if self.tls is None else self.tls.timeout + 1.0

    @property
    def monitor_host(self) -> str:
        """Where monitoring listens."""
        return self.monitor.host or self.host
