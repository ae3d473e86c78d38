"""Who may connect, and what to see and say: the values behind ``authorization`` and ``accounts``.

Plain values as they were written; what a name or a hash means is for those who check clients.
Secrets never show in a ``repr``.
"""

import msgspec

from millstream.accounts.account import AccountLimits, Latency, StreamLimits, TraceTerms
from millstream.accounts.callout.terms import CalloutTerms

GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"


def shown_without(value: msgspec.Struct, *secrets: str) -> str:
    """Return how a value is shown, its secrets left out."""
    shown = [name for name in value.__struct_fields__ if name not in secrets]
    listed = ", ".join(f"{name}={getattr(value, name)!r}" for name in shown)
    return f"{type(value).__name__}({listed})"


class SubjectRules(msgspec.Struct, frozen=True):
    """Subjects to allow and to deny; ``allow`` of None allows all, deny wins.

    A rule for subscriptions may name a queue group after the subject: ``"jobs workers.*"``.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class ResponseRules(msgspec.Struct, frozen=True):
    """How many answers a user may publish to a reply subject it received, and how long.

    Negative numbers mean without end.
    """

    max_messages: int = 1
    expires: float = 120.0


class PermissionOptions(msgspec.Struct, frozen=True):
    """What a user may publish and subscribe to."""

    publish: SubjectRules | None = None
    subscribe: SubjectRules | None = None
    responses: ResponseRules | None = None


class UserOptions(msgspec.Struct, frozen=True):
    """A user with a name and password, or with an nkey alone."""

    name: str = ""
    password: str = ""
    nkey: str = ""
    permissions: PermissionOptions | None = None
    connection_types: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return shown_without(self, "password")

    @property
    def id(self) -> str:
        """What the user is known by: the nkey, or else the name."""
        return self.nkey or self.name


class Authorization(msgspec.Struct, frozen=True):
    """The ``authorization`` block; its users belong to the global account.

    ``users`` is None when none were listed: an empty list is another thing, nobody may connect.
    """

    user: str = ""
    password: str = ""
    token: str = ""
    users: tuple[UserOptions, ...] | None = None
    timeout: float | None = None  # None = 2 s, or a second more than TLS may take
    callout: CalloutTerms | None = None  # a service that says who clients are

    def __repr__(self) -> str:
        return shown_without(self, "password", "token")

    @property
    def required(self) -> bool:
        """Whether anything here makes clients say who they are."""
        return bool(self.user or self.token or self.users is not None)


class LeafAuthorization(msgspec.Struct, frozen=True):
    """The ``authorization`` of the leafnode port; ``users`` come with their accounts."""

    user: str = ""
    password: str = ""
    nkey: str = ""
    account: str = ""
    users: tuple[tuple[UserOptions, str], ...] = ()
    timeout: float | None = None

    def __repr__(self) -> str:
        return shown_without(self, "password")


class MapDestination(msgspec.Struct, frozen=True):
    """One destination of a subject mapping, for ``weight`` percent of the messages."""

    subject: str
    weight: int = 100
    cluster: str = ""


class MappingOptions(msgspec.Struct, frozen=True):
    """Messages published to ``source`` go to one of ``destinations`` instead."""

    source: str
    destinations: tuple[MapDestination, ...]


class ExportOptions(msgspec.Struct, frozen=True):
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


class ImportOptions(msgspec.Struct, frozen=True):
    """Subjects an account takes from another; ``to`` renames them, ``prefix`` only for streams."""

    account: str
    subject: str
    service: bool = False
    to: str = ""
    prefix: str = ""
    share: bool = False
    allow_trace: bool = False


class AccountOptions(msgspec.Struct, frozen=True):
    """One account: its users, what it offers, takes and may use.

    ``jetstream`` is None while the account has none.
    """

    name: str
    nkey: str = ""
    users: tuple[UserOptions, ...] = ()
    default_permissions: PermissionOptions | None = None
    exports: tuple[ExportOptions, ...] = ()
    imports: tuple[ImportOptions, ...] = ()
    mappings: tuple[MappingOptions, ...] = ()
    jetstream: StreamLimits | None = None
    limits: AccountLimits = msgspec.field(default_factory=AccountLimits)
    trace: TraceTerms | None = None


class DirectoryResolver(msgspec.Struct, frozen=True):
    """Account JWTs kept in a directory: ``FULL`` holds all of them, ``CACHE`` some."""

    kind: str
    directory: str
    limit: int = 0
    ttl: float = 0.0
    timeout: float = 1.9
    allow_delete: bool = False
    hard_delete: bool = False


class UrlResolver(msgspec.Struct, frozen=True):
    """Account JWTs fetched from ``url`` and the account's public key."""

    url: str


class MemoryResolver(msgspec.Struct, frozen=True):
    """Account JWTs that the configuration itself holds."""


Resolver = MemoryResolver | UrlResolver | DirectoryResolver


class TrustOptions(msgspec.Struct, frozen=True):
    """Decentralised identity: which operators to believe, and where accounts come from.

    ``operators`` and ``preload`` hold JWTs; ``trusted_keys`` public operator keys. Where there are
    ``pinned_accounts``, an empty list included, nobody of another account is let in.
    """

    operators: tuple[str, ...] = ()
    trusted_keys: tuple[str, ...] = ()
    resolver: Resolver | None = None
    preload: tuple[tuple[str, str], ...] = ()
    pinned_accounts: tuple[str, ...] | None = None

    @property
    def required(self) -> bool:
        """Whether clients must show a JWT."""
        return bool(self.operators or self.trusted_keys)
