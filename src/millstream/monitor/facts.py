"""Facts: what the monitor may ask about the server, handed over once by whoever builds it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from millstream.accounts.account import Export, Import, StreamLimits
from millstream.accounts.account import Mapping as SubjectMapping
from millstream.clock import Clock
from millstream.monitor.loop_meter import LoopMeter
from millstream.monitor.machine import CpuMeter
from millstream.store.wal.meter import WalMeter

if TYPE_CHECKING:
    from millstream.consumers.consumer import Consumer
    from millstream.streams.stream import Stream


class SubscriptionFacts(msgspec.Struct, frozen=True):
    """One subscription of a client; ``max`` is how many messages it asked for, 0 = all."""

    account: str
    subject: str
    queue: str
    sid: str
    msgs: int
    max: int
    cid: int


class ConnectionFacts(NamedTuple):
    """One look at a client's connection; ``stop_ns`` is 0 while it is open.

    ``num_subscriptions`` counts all of them. Those of an open connection are asked for apart, as
    there may be very many; a closed one keeps the first few.
    """

    cid: int
    ip: str
    port: int
    start_ns: int
    last_activity_ns: int
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    stalls: int = 0  # how often it was held back as a publisher
    pending_bytes: int = 0
    num_subscriptions: int = 0
    type: str = "nats"
    name: str = ""
    lang: str = ""
    version: str = ""
    tls: bool = False
    tls_version: str = ""
    tls_cipher: str = ""
    tls_first: bool = False
    certificate: Mapping[str, str] | None = None  # the client's, where it was verified
    rtt_ns: int = 0  # 0 = not measured yet
    user: str = ""
    account: str = "$G"
    account_label: str = "$G"  # what people call the account
    stop_ns: int = 0
    reason: str = ""
    subscriptions: tuple[SubscriptionFacts, ...] = ()


class LinkFacts(NamedTuple):
    """One look at a link to another server; ``account`` is empty on routes, which carry all."""

    cid: int
    is_route: bool
    remote_id: str
    name: str
    ip: str
    port: int
    start_ns: int
    last_activity_ns: int
    rtt_ns: int
    stats: Mapping[str, int]
    num_subscriptions: int
    subscriptions: Callable[[], list[SubscriptionFacts]]
    account: str = ""
    is_spoke: bool = False
    is_isolated: bool = False
    did_solicit: bool = False
    is_configured: bool = False


def _no_account_figures() -> dict[str, Any]:
    return {"conns": 0}


class AccountFacts(msgspec.Struct, frozen=True):
    """One account: its subject space in figures, and what its clients moved, past ones included."""

    name: str
    interest: Mapping[str, float] = msgspec.field(default_factory=dict)
    figures: Callable[[], dict[str, Any]] = _no_account_figures
    is_system: bool = False
    has_jetstream: bool = True
    label: str = ""  # what people call it, where the name is a key
    exports: tuple[Export, ...] = ()
    imports: tuple[Import, ...] = ()
    mappings: tuple[SubjectMapping, ...] = ()


class Consumers(Protocol):
    """Consumers by stream; the registry is one."""

    def of(self, stream: "Stream") -> "list[Consumer]":
        """Return a stream's consumers by name."""
        ...

    def count(self, stream: "Stream") -> int:
        """Return how many consumers a stream has."""
        ...

    def listed(self, stream: "Stream") -> "list[Consumer]":
        """Return those that a stream's lists show, by name."""
        ...


class JetStreamAccount(Protocol):
    """An account's streams; the JetStream endpoint is one."""

    @property
    def account(self) -> str:
        """Return its name."""
        ...

    @property
    def requests(self) -> int:
        """Return how many API requests were answered."""
        ...

    @property
    def errors(self) -> int:
        """Return how many of them failed."""
        ...

    @property
    def consumers(self) -> Consumers:
        """Return the consumers."""
        ...

    def limits(self) -> StreamLimits:
        """Return what it may use now."""
        ...

    def streams(self) -> "list[Stream]":
        """Return the streams."""
        ...


class Shapes(Protocol):
    """How the JetStream API shows streams and consumers, so that /jsz shows the same."""

    def stream_config(self, stream: "Stream", *, full: bool = True) -> dict[str, Any]:
        """Return a configuration."""
        ...

    def stream_state(self, stream: "Stream", consumers: int) -> dict[str, Any]:
        """Return a state."""
        ...

    def consumer_info(
        self, consumer: "Consumer", now_ns: int, *, full: bool = True
    ) -> dict[str, Any]:
        """Return a consumer."""
        ...


class JetStreamFacts(msgspec.Struct, frozen=True):
    """What is kept, and with which settings; -1 and None mean that nothing was set."""

    accounts: Callable[[], Sequence[JetStreamAccount]]
    shapes: Shapes
    store_dir: str = ""
    max_memory: int = -1
    max_storage: int = -1
    domain: str = ""
    sync_interval_ns: int | None = None  # None: synced before every acknowledgement
    api_level: int = 0
    limits: Mapping[str, int] = msgspec.field(default_factory=dict)  # only those that are set


def _unknown_end(certificate: str, loaded_ns: int) -> str:
    return ""


def _no_figures() -> dict[str, int]:
    return {}


def _no_pressure() -> dict[str, float]:
    return {}


def _no_disk() -> tuple[int, int]:
    return 0, 0


def _closes_nothing(cid: int) -> bool:
    return False


def _healthy() -> list[str]:
    return []


def _nobody() -> list[ConnectionFacts]:
    return []


def _no_links() -> list[LinkFacts]:
    return []


def _no_settings() -> dict[str, Any]:
    return {}


def _no_subscriptions(cid: int) -> tuple[SubscriptionFacts, ...]:
    return ()


def _one_account() -> list[AccountFacts]:
    return [AccountFacts("$G")]


class Facts(msgspec.Struct):
    """Fixed facts as values, changing ones as calls; ``health`` is empty when all is well.

    ``port`` and ``http_port`` are set to the real ones once the doors are open. Durations are in
    seconds. ``traffic`` returns the hub's totals since the start, ``open_totals`` what the open
    connections add up to, ``storage`` the write-ahead log's figures,
    ``cold`` those of cold history and the scrub.
    """

    clock: Clock
    started_ns: int
    server_id: str
    server_name: str
    nats_version: str  # what clients are told, for feature gates
    go: str = "python"  # what clients are told about the runtime
    host: str = "127.0.0.1"
    port: int = 0
    http_host: str = "127.0.0.1"
    http_port: int = 0
    is_https: bool = False
    http_base_path: str = ""
    configured_ns: int = 0  # when the options came into force
    config_digest: str = ""  # of the file that they came from
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    certificate: str = ""  # the file that the NATS port shows, "" without TLS
    cluster_name: str = ""
    system_account: str = ""
    tags: Sequence[str] = ()
    metadata: Mapping[str, str] = msgspec.field(default_factory=dict)
    max_payload: int = 1024 * 1024
    max_connections: int = 65_536
    max_subscriptions: int = 0
    max_control_line: int = 4096
    max_pending: int = 8 * 1024 * 1024
    ping_interval: float = 120.0
    ping_max: int = 2
    auth_timeout: float = 2.0
    tls_timeout: float = 2.0
    write_deadline: float = 10.0
    websocket: Mapping[str, Any] = msgspec.field(default_factory=dict)
    end_of: Callable[[str, int], str] = _unknown_end  # of a certificate file that was loaded then
    cpu: Callable[[], float] = msgspec.field(default_factory=lambda: CpuMeter().percent)
    health: Callable[[], list[str]] = msgspec.field(default=_healthy)
    traffic: Callable[[], dict[str, int]] = msgspec.field(default=_no_figures)
    storage: Callable[[], dict[str, int]] = msgspec.field(default=_no_figures)
    cold: Callable[[], dict[str, int]] = msgspec.field(default=_no_figures)
    connections: Callable[[], list[ConnectionFacts]] = msgspec.field(default=_nobody)
    open_totals: Callable[[], dict[str, int]] = msgspec.field(default=_no_figures)
    closed: Callable[[], list[ConnectionFacts]] = msgspec.field(default=_nobody)
    subscriptions: Callable[[int], tuple[SubscriptionFacts, ...]] = msgspec.field(
        default=_no_subscriptions
    )
    closed_by_reason: Callable[[], Mapping[str, int]] = msgspec.field(default=_no_figures)
    accounts: Callable[[], list[AccountFacts]] = msgspec.field(default=_one_account)
    connect_urls: Callable[[], Sequence[str]] = msgspec.field(default=tuple)
    links: Callable[[], list[LinkFacts]] = msgspec.field(default=_no_links)
    link_traffic: Callable[[], dict[str, int]] = msgspec.field(default=_no_figures)
    cluster: Callable[[], dict[str, Any]] = msgspec.field(default=_no_settings)
    leafnodes: Callable[[], dict[str, Any]] = msgspec.field(default=_no_settings)
    jetstream: JetStreamFacts | None = None
    wal: WalMeter | None = None
    requests: dict[str, int] = msgspec.field(default_factory=dict)  # monitoring path → times asked
    statuses: dict[int, int] = msgspec.field(default_factory=dict)  # HTTP status → answers
    http_traffic: dict[str, int] = msgspec.field(default_factory=dict)  # bodies, in bytes
    loop: LoopMeter | None = None
    pressure: Callable[[], dict[str, float]] = msgspec.field(default=_no_pressure)
    disk: Callable[[], tuple[int, int]] = msgspec.field(default=_no_disk)  # used, size
    close_connection: Callable[[int], bool] = msgspec.field(default=_closes_nothing)

    def tls_ends(self) -> str:
        """Return when the certificate expires, "" without one."""
        return self.end_of(self.certificate, self.configured_ns) if self.certificate else ""

    def subscriptions_of(self, connection: ConnectionFacts) -> tuple[SubscriptionFacts, ...]:
        """Return a connection's subscriptions: all while it is open, a few once it is closed."""
        if connection.stop_ns:
            return connection.subscriptions
        return self.subscriptions(connection.cid)
