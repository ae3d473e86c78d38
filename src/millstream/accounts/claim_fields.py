"""What becomes of each field of the claims: it acts, it only describes, it is warned of or refused.

One table, by path; the code that reads JWTs asks it, so that no field is left out in silence. A
field that is not here is not known, and warned of as well.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from millstream.accounts.jwt_kind import JwtKind


class Fate(Enum):
    """What the server does about a field."""

    ACTS = "acts"
    DESCRIBES = "describes"  # people and tools read it; there is nothing to act on
    WARNED = "warned"
    REFUSED = "refused"


class Field(NamedTuple):
    """A field's fate, and for those that do not act the reason, with what to do instead."""

    fate: Fate
    reason: str = ""


_ACTS, _DESCRIBES = Field(Fate.ACTS), Field(Fate.DESCRIBES)
_UNCOUNTED = Field(
    Fate.WARNED, "bytes are not counted up, by nats-server neither: set payload or disk_storage"
)
_NO_PROXIES = Field(
    Fate.REFUSED, "this server trusts no proxies: leave it out, or let these users use nats-server"
)


def _all(fate: Field, *paths: str) -> dict[str, Field]:
    return dict.fromkeys(paths, fate)


_BODY = {
    **_all(_ACTS, "iss", "sub", "iat", "exp", "nbf", "type", "nats"),
    **_all(_DESCRIBES, "name", "aud", "jti", "tags"),
}
_LASTING = Field(
    Fate.WARNED, "trust in an operator ends with the file that names it, at nats-server too"
)
_GENERIC = _all(_ACTS, "nats.type", "nats.version")
_GRANTS = {
    **_all(_ACTS, "pub.allow", "pub.deny", "sub.allow", "sub.deny", "resp.max", "resp.ttl"),
    **_all(_ACTS, "src", "times.start", "times.end", "times_location", "subs", "payload"),
    **_all(_ACTS, "bearer_token", "allowed_connection_types"),
    "data": _UNCOUNTED,
    "proxy_required": _NO_PROXIES,
}
_STREAM_LIMITS = (
    *("mem_storage", "disk_storage", "streams", "consumer", "max_ack_pending"),
    *("mem_max_stream_bytes", "disk_max_stream_bytes", "max_bytes_required"),
)


def _below(prefix: str, fields: Mapping[str, Field]) -> dict[str, Field]:
    return {f"{prefix}.{path}": field for path, field in fields.items()}


FIELDS: Mapping[JwtKind, Mapping[str, Field]] = {
    JwtKind.OPERATOR: {
        **_BODY,
        **_GENERIC,
        **_all(_ACTS, "nats.signing_keys", "nats.system_account", "nats.assert_server_version"),
        "nats.strict_signing_key_usage": _ACTS,
        "iat": _DESCRIBES,
        **_all(_LASTING, "exp", "nbf"),
        **_all(_DESCRIBES, "nats.tags", "nats.operator_service_urls"),
        "nats.account_server_url": Field(
            Fate.WARNED, "the resolver setting says where account JWTs come from"
        ),
        "issuer_account": _DESCRIBES,
    },
    JwtKind.ACCOUNT: {
        **_BODY,
        **_GENERIC,
        "name": _ACTS,  # people know the account by it
        **_below("nats.limits", _all(_ACTS, *_STREAM_LIMITS)),
        **_below("nats.limits.tiered_limits", _all(_ACTS, *_STREAM_LIMITS)),
        **_below(
            "nats.limits",
            {
                **_all(_ACTS, "subs", "payload", "imports", "exports", "wildcards", "conn", "leaf"),
                "disallow_bearer": _ACTS,
                "data": _UNCOUNTED,
            },
        ),
        **_below(
            "nats.exports",
            {
                **_all(_ACTS, "subject", "type", "token_req", "revocations", "response_type"),
                **_all(_ACTS, "response_threshold", "account_token_position"),
                **_all(_ACTS, "service_latency.sampling", "service_latency.results"),
                **_all(_DESCRIBES, "name", "advertise", "description", "info_url"),
                "allow_trace": _ACTS,
            },
        ),
        **_below(
            "nats.imports",
            {
                **_all(_ACTS, "subject", "account", "token", "to", "local_subject", "type"),
                "share": _ACTS,
                "name": _DESCRIBES,
                "allow_trace": _ACTS,
            },
        ),
        **_below(
            "nats.signing_keys",
            {
                **_all(_ACTS, "kind", "key"),
                **_all(_DESCRIBES, "role", "description"),
                **_below("template", _GRANTS),
            },
        ),
        "nats.revocations": _ACTS,
        **_below(
            "nats.default_permissions",
            _all(_ACTS, "pub.allow", "pub.deny", "sub.allow", "sub.deny", "resp.max", "resp.ttl"),
        ),
        **_below("nats.mappings", _all(_ACTS, "subject", "weight", "cluster")),
        **_below(
            "nats.authorization",
            _all(_ACTS, "auth_users", "allowed_accounts", "xkey"),
        ),
        **_below("nats.trace", _all(_ACTS, "dest", "sampling")),
        "nats.cluster_traffic": Field(Fate.WARNED, "it tunes clusters, and this server is one"),
        "nats.tags": _ACTS,  # templates of scoped signing keys name them
        **_all(_DESCRIBES, "nats.description", "nats.info_url", "issuer_account"),
    },
    JwtKind.USER: {
        **_BODY,
        **_GENERIC,
        "name": _ACTS,  # people know the user by it, and templates name it
        **_below("nats", _GRANTS),
        "nats.issuer_account": _ACTS,
        "nats.tags": _ACTS,  # templates of scoped signing keys name them
        "nats.max": _UNCOUNTED,
        "issuer_account": _ACTS,
    },
    JwtKind.ACTIVATION: {
        **_BODY,
        **_GENERIC,
        **_all(_ACTS, "nats.subject", "nats.kind", "nats.issuer_account", "issuer_account"),
        "nats.tags": _DESCRIBES,
    },
}


class UnheededField(NamedTuple):
    """A field that does not act as its writer may expect."""

    path: str
    fate: Fate
    reason: str

    def __str__(self) -> str:
        what = "is not supported" if self.fate is Fate.REFUSED else "has no effect"
        return f"'{self.path}' {what}: {self.reason}"


def without_effect(kind: JwtKind, body: Mapping[str, Any]) -> list[UnheededField]:
    """Return what a JWT says and the server does not follow, each path once."""
    known = FIELDS[kind]
    found = {path: _found(known, path, value) for path, value in _leaves(known, "", body)}
    return [each for each in found.values() if each is not None]


def _leaves(known: Mapping[str, Field], path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Go through what is said, by path; names that the writer chose are no part of it."""
    if path.lower() in known and path.lower() != "nats":
        yield path, value
    elif path.lower() in _CHOSEN and isinstance(value, dict):
        for inner in value.values():
            yield from _fields(known, path, inner)
    elif isinstance(value, dict | list):
        yield from _fields(known, path, value)
    elif value:
        yield path, value


def _fields(known: Mapping[str, Field], path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Go into an object, or into each of a list; keys alone, in a list of signing keys, act."""
    for each in value if isinstance(value, list) else [value]:
        for key, inner in each.items() if isinstance(each, dict) else ():
            yield from _leaves(known, f"{path}.{key}" if path else key, inner)


_CHOSEN = ("nats.mappings", "nats.limits.tiered_limits")


def _found(known: Mapping[str, Field], path: str, value: Any) -> UnheededField | None:
    field = known.get(path.lower())
    if field is None:
        return UnheededField(path, Fate.WARNED, "this server knows no such field")
    if field.fate in (Fate.ACTS, Fate.DESCRIBES) or not value or value == -1:
        return None
    return UnheededField(path, field.fate, field.reason)
