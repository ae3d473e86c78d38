"""Claims as the operator's tools write them: every field that a JWT may hold, and its type.

A value of the wrong type is refused, as nats-server refuses it. What becomes of each field is in
``claim_fields.py``.
"""

from functools import cache
from types import NoneType
from typing import Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from millstream.wire.go_json import (
    BOOL,
    INT64,
    STRING,
    STRINGS,
    GoType,
    Listing,
    Reading,
    Shape,
    Table,
)
from millstream.wire.go_syntax import Number, Pairs

Unsigned: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class RuleClaim(msgspec.Struct, frozen=True):
    """Subjects to allow and to deny."""

    allow: list[str] = []
    deny: list[str] = []


class ResponsesClaim(msgspec.Struct, frozen=True):
    """Leave to answer."""

    max: int = 0
    ttl: int = 0


class TimeRange(msgspec.Struct, frozen=True):
    """Hours of a day."""

    start: str = ""
    end: str = ""


class Grants(msgspec.Struct, frozen=True):
    """What a user may do, in its own JWT or in the template of a scoped signing key."""

    pub: RuleClaim = RuleClaim()
    sub: RuleClaim = RuleClaim()
    resp: ResponsesClaim | None = None
    src: list[str] | str = []
    times: list[TimeRange] = []
    times_location: str = ""
    subs: int = 0
    data: int = 0
    payload: int = 0
    bearer_token: bool = False
    proxy_required: bool = False
    allowed_connection_types: list[str] = []


class UserClaim(Grants, frozen=True):
    """The ``nats`` part of a user's JWT."""

    issuer_account: str = ""
    tags: list[str] = []
    type: str = ""
    version: int = 0
    max: int = 0  # of the first version, where nothing followed it


class PermissionsClaim(msgspec.Struct, frozen=True):
    """What users of an account may do whose JWT says nothing of it."""

    pub: RuleClaim = RuleClaim()
    sub: RuleClaim = RuleClaim()
    resp: ResponsesClaim | None = None


class Scope(msgspec.Struct, frozen=True):
    """A signing key, and what users may do whom it signs."""

    kind: str = ""
    key: str = ""
    role: str = ""
    template: Grants = Grants()
    description: str = ""


class LatencyClaim(msgspec.Struct, frozen=True):
    """Where response times are told, and of how many requests."""

    sampling: int | str = 0
    results: str = ""


class ExportClaim(msgspec.Struct, frozen=True):
    """Subjects that others may import."""

    name: str = ""
    subject: str = ""
    type: str = ""
    token_req: bool = False
    revocations: dict[str, int] = {}
    response_type: str = ""
    response_threshold: int = 0
    service_latency: LatencyClaim | None = None
    account_token_position: Unsigned = 0
    advertise: bool = False
    allow_trace: bool = False
    description: str = ""
    info_url: str = ""


class ImportClaim(msgspec.Struct, frozen=True):
    """Subjects of another account."""

    name: str = ""
    subject: str = ""
    account: str = ""
    token: str = ""
    to: str = ""
    local_subject: str = ""
    type: str = ""
    share: bool = False
    allow_trace: bool = False


class StreamLimitsClaim(msgspec.Struct, frozen=True):
    """What may be used of JetStream."""

    mem_storage: int = 0
    disk_storage: int = 0
    streams: int = 0
    consumer: int = 0
    max_ack_pending: int = 0
    mem_max_stream_bytes: int = 0
    disk_max_stream_bytes: int = 0
    max_bytes_required: bool = False


class LimitsClaim(StreamLimitsClaim, frozen=True):
    """What the operator lets the account use."""

    subs: int = 0
    data: int = 0
    payload: int = 0
    imports: int = 0
    exports: int = 0
    wildcards: bool = False
    disallow_bearer: bool = False
    conn: int = 0
    leaf: int = 0
    tiered_limits: dict[str, StreamLimitsClaim] = {}


class DestinationClaim(msgspec.Struct, frozen=True):
    """Where a mapping sends messages."""

    subject: str = ""
    weight: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0
    cluster: str = ""


class Callout(msgspec.Struct, frozen=True):
    """Who decides about users in the server's stead."""

    auth_users: list[str] = []
    allowed_accounts: list[str] = []
    xkey: str = ""


class TraceClaim(msgspec.Struct, frozen=True):
    """Where traces of messages go."""

    dest: str = ""
    sampling: int = 0


class AccountClaim(msgspec.Struct, frozen=True):
    """The ``nats`` part of an account's JWT."""

    imports: list[ImportClaim] = []
    exports: list[ExportClaim] = []
    limits: LimitsClaim = LimitsClaim()
    signing_keys: list[str | Scope] = []
    revocations: dict[str, int] = {}
    default_permissions: PermissionsClaim = PermissionsClaim()
    mappings: dict[str, list[DestinationClaim]] = {}
    authorization: Callout = Callout()
    trace: TraceClaim | None = None
    cluster_traffic: str = ""
    description: str = ""
    info_url: str = ""
    tags: list[str] = []
    type: str = ""
    version: int = 0


class Operator(msgspec.Struct, frozen=True):
    """The ``nats`` part of an operator's JWT."""

    signing_keys: list[str] = []
    account_server_url: str = ""
    operator_service_urls: list[str] = []
    system_account: str = ""
    assert_server_version: str = ""
    strict_signing_key_usage: bool = False
    tags: list[str] = []
    type: str = ""
    version: int = 0


class Activation(msgspec.Struct, frozen=True):
    """The ``nats`` part of a token that lets another account import."""

    subject: str = ""
    kind: str = ""
    issuer_account: str = ""
    tags: list[str] = []
    type: str = ""
    version: int = 0


class Body(msgspec.Struct, frozen=True):
    """What every JWT says around its ``nats`` part.

    The first version had ``type``, ``tags`` and ``issuer_account`` here.
    """

    iss: str = ""
    sub: str = ""
    name: str = ""
    iat: int = 0
    exp: int = 0
    nbf: int = 0
    aud: str = ""
    jti: str = ""
    type: str = ""
    tags: list[str] = []
    issuer_account: str = ""
    nats: dict[str, Any] = {}


def without_nulls(value: Any) -> Any:
    """Return JSON without what is null, which means the same as leaving it out."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


class _OneOf(GoType):
    """A field that may be written in two ways, as the tools of different years do."""

    def __init__(self, kinds: tuple[Any, ...]) -> None:
        super().__init__("interface {}")
        self._kinds = kinds

    def read(self, given: Any, before: Any, reading: Reading) -> Any:
        """Take any of the ways; what is none of them is refused by its type."""
        if given is None:
            return before
        fitting = [kind for kind in self._kinds if _fits(given, kind)]
        return _go_type(fitting[0] if fitting else self._kinds[0]).read(given, before, reading)


def _fits(given: Any, kind: Any) -> bool:
    match given:
        case Number():
            return kind is int
        case str():
            return kind is str
        case Pairs():
            return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        case _:
            return isinstance(given, list) and get_origin(kind) is list


def _go_type(kind: Any) -> GoType:
    """Return how Go reads what a claim declares."""
    plain = {str: STRING, int: INT64, bool: BOOL, list[str]: STRINGS}
    if kind in plain:
        return plain[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return shape_of(kind)
    inner = get_args(kind)
    if get_origin(kind) is list:
        return Listing(_go_type(inner[0]))
    if get_origin(kind) is dict:
        return Table(_go_type(inner[1]))
    kinds = tuple(each for each in inner if each is not NoneType)
    return _go_type(kinds[0]) if len(kinds) == 1 else _OneOf(kinds)


@cache
def shape_of(claim: type[msgspec.Struct]) -> Shape:
    """Return a claim as Go reads it: the case of a key does not count, and null says nothing."""
    hints = get_type_hints(claim)  # without the bounds, which msgspec looks at afterwards
    return Shape(claim.__name__, {name: _go_type(kind) for name, kind in hints.items()})
