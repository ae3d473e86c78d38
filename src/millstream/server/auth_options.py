"""Who may connect, and what to see and say: the values behind ``authorization`` and ``accounts``.

Plain values as they were written; what a name or a hash means is for those who check clients.
Secrets never show in a ``repr``.
"""

from dataclasses import dataclass, field

from millstream.accounts.account import Latency, Limits, StreamLimits

GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"


@dataclass(frozen=True, slots=True)
class SubjectRules:
    """Subjects to allow and to deny; ``allow`` of None allows all, deny wins.

    A rule for subscriptions may name a queue group after the subject: ``"jobs workers.*"``.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResponseRules:
    """How many answers a user may publish to a reply subject it received, and how long.

    Negative numbers mean without end.
    """

    max_messages: int = 1
    expires: float = 120.0


@dataclass(frozen=True, slots=True)
class Permissions:
    """What a user may publish and subscribe to."""

    publish: SubjectRules | None = None
    subscribe: SubjectRules | None = None
    responses: ResponseRules | None = None


@dataclass(frozen=True, slots=True)
class UserOptions:
    """A user with a name and password, or with an nkey alone."""

    name: str = ""
    password: str = field(default="", repr=False)
    nkey: str = ""
    permissions: Permissions | None = None
    connection_types: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """What the user is known by: the nkey, or else the name."""
        return self.nkey or self.name


@dataclass(frozen=True, slots=True)
class Authorization:
    """The ``authorization`` block; its users belong to the global account.

    ``users`` is None when none were listed: an empty list is another thing, nobody may connect.
    """

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    users: tuple[UserOptions, ...] | None = None
    timeout: float | None = None  # None = 2 s, or a second more than TLS may take

    @property
    def required(self) -> bool:
        """Whether anything here makes clients say who they are."""
        return bool(self.user or self.token or self.users is not None)


@dataclass(frozen=True, slots=True)
class MapDestination:
    """One destination of a subject mapping, for ``weight`` percent of the messages."""

    subject: str
    weight: int = 100
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Mapping:
    """Messages published to ``source`` go to one of ``destinations`` instead."""

    source: str
    destinations: tuple[MapDestination, ...]


@dataclass(frozen=True, slots=True)
class Export:
    """Subjects an account offers to others; no ``accounts`` means to all.

    ``response_type`` is ``singleton``, ``stream`` or ``chunked``, for services only.
    """

    subject: str
    service: bool = False
    accounts: tuple[str, ...] | None = None
    response_type: str = "singleton"
    response_threshold: float = 120.0
    latency: Latency | None = None
    account_token_position: int = 0
    allow_trace: bool = False


@dataclass(frozen=True, slots=True)
class Import:
    """Subjects an account takes from another; ``to`` renames them, ``prefix`` only for streams."""

    account: str
    subject: str
    service: bool = False
    to: str = ""
    prefix: str = ""
    share: bool = False
    allow_trace: bool = False


@dataclass(frozen=True, slots=True)
class AccountOptions:
    """One account: its users, what it offers, takes and may use.

    ``jetstream`` is None while the account has none.
    """

    name: str
    nkey: str = ""
    users: tuple[UserOptions, ...] = ()
    default_permissions: Permissions | None = None
    exports: tuple[Export, ...] = ()
    imports: tuple[Import, ...] = ()
    mappings: tuple[Mapping, ...] = ()
    jetstream: StreamLimits | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class DirectoryResolver:
    """Account JWTs kept in a directory: ``FULL`` holds all of them, ``CACHE`` some."""

    kind: str
    directory: str
    limit: int = 0
    ttl: float = 0.0
    interval: float = 0.0
    timeout: float = 1.9
    allow_delete: bool = False
    hard_delete: bool = False


@dataclass(frozen=True, slots=True)
class UrlResolver:
    """Account JWTs fetched from ``url`` and the account's public key."""

    url: str


@dataclass(frozen=True, slots=True)
class MemoryResolver:
    """Account JWTs that the configuration itself holds."""


Resolver = MemoryResolver | UrlResolver | DirectoryResolver


@dataclass(frozen=True, slots=True)
class Trust:
    """Decentralised identity: which operators to believe, and where accounts come from.

    ``operators`` and ``preload`` hold JWTs; ``trusted_keys`` public operator keys.
    """

    operators: tuple[str, ...] = ()
    trusted_keys: tuple[str, ...] = ()
    resolver: Resolver | None = None
    preload: tuple[tuple[str, str], ...] = ()
    pinned_accounts: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        """Whether clients must show a JWT."""
        return bool(self.operators or self.trusted_keys)
