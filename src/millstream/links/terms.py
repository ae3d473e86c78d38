"""What the options say about links, as values."""

import msgspec

from millstream.accounts.permissions import Rule
from millstream.nats.transport.tls import TlsTerms

MAX_PENDING = 32 << 20  # of a link: what waits for a server that does not read


class ServerAddress(msgspec.Struct, frozen=True):
    """Where another server listens, and who we are there."""

    host: str
    port: int
    user: str = ""
    password: str = ""
    has_password: bool = False
    tls: bool = False

    def __repr__(self) -> str:
        """Leave the password out."""
        return f"{self.host}:{self.port}"

    @property
    def place(self) -> str:
        """``host:port`` as URLs have it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class DialTls(msgspec.Struct, frozen=True):
    """How a connection that we open is encrypted."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    insecure: bool = False
    first: bool = False
    timeout: float = 2.0
    pinned_certs: frozenset[str] = frozenset()


class LeafRemote(msgspec.Struct, frozen=True):
    """One entry of ``leafnodes.remotes``: a hub to connect to, and for which account."""

    urls: tuple[ServerAddress, ...]
    account: str = "$G"
    credentials: str = ""
    nkey: str = ""
    tls: DialTls | None = None
    hub: bool = False
    deny_imports: tuple[str, ...] = ()
    deny_exports: tuple[str, ...] = ()
    no_randomize: bool = False
    isolate: bool = False
    disabled: bool = False
    first_wait: float = 0.0  # for INFO; 0 = as long as for everything else
    ignores_discovered: bool = False

    def __repr__(self) -> str:
        """Leave secrets out."""
        return f"LeafRemote({', '.join(url.place for url in self.urls)} account={self.account})"


class LeafTerms(msgspec.Struct, frozen=True):
    """The ``leafnodes`` block; a port of None listens nowhere."""

    host: str = "0.0.0.0"
    port: int | None = None
    advertise: str = ""
    no_advertise: bool = False
    remotes: tuple[LeafRemote, ...] = ()
    reconnect: float = 1.0
    dial_timeout: float = 1.0
    min_version: tuple[int, int, int] = (0, 0, 0)
    isolate: bool = False
    auth_timeout: float = 2.0
    tls: TlsTerms | None = None


class RouteTerms(msgspec.Struct, frozen=True):
    """The ``cluster`` block; a port of None listens nowhere."""

    name: str = ""
    host: str = "0.0.0.0"
    port: int | None = None
    routes: tuple[ServerAddress, ...] = ()
    user: str = ""
    password: str = ""
    auth_timeout: float = 2.0
    advertise: str = ""
    no_advertise: bool = False
    connect_retries: int = 0
    connect_backoff: bool = False
    ping_interval: float = 30.0
    ping_max: int = 2
    imports: Rule | None = None
    exports: Rule | None = None
    tls: TlsTerms | None = None
    dial_tls: DialTls | None = None

    def __repr__(self) -> str:
        """Leave the password out."""
        return f"RouteTerms(name={self.name!r}, host={self.host!r}, port={self.port!r})"

    @property
    def is_dynamic(self) -> bool:
        """Whether the cluster has no name of its own."""
        return not self.name
