"""Account claims: an account as its operator's JWT describes it."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from millstream.accounts.account import (
    RESPONSE_SECONDS,
    Account,
    AccountLimits,
    Destination,
    Export,
    Import,
    Latency,
    Mapping,
    ResponseType,
    StreamLimits,
    TraceTerms,
)
from millstream.accounts.jwt import JwtClaims, Refused, decode
from millstream.accounts.jwt_kind import JwtKind
from millstream.accounts.stream_quota import OUR_TIER
from millstream.subjects.subject import is_literal, is_subset

_NS = 1e9
_RESPONSES = {
    "": ResponseType.SINGLETON,
    "singleton": ResponseType.SINGLETON,
    "stream": ResponseType.STREAM,
    "chunked": ResponseType.CHUNKED,
}


def accounts_of_claims(listed: Iterable[JwtClaims], now: float) -> tuple[Account, ...]:
    """Return the accounts that verified account JWTs describe.

    A private export is open to those whose import holds a token that the exporter signed for them.
    """
    known = {claims.subject: claims for claims in listed}
    return tuple(
        replace(
            account_of_claims(claims),
            exports=tuple(
                _export(export, _invited(claims, export, known.values(), now))
                for export in claims.nats.get("exports") or ()
            ),
        )
        for claims in known.values()
    )


def _invited(
    owner: JwtClaims, export: dict[str, Any], others: Iterable[JwtClaims], now: float
) -> tuple[str, ...]:
    """Return the accounts that hold a token for all that they take of a private export."""
    return tuple(
        other.subject
        for other in others
        if (taken := _taken(owner, export, other))
        and all(_is_activated(item, owner, export, other.subject, now) for item in taken)
    )


def _taken(owner: JwtClaims, export: dict[str, Any], other: JwtClaims) -> list[dict[str, Any]]:
    return [
        item
        for item in other.nats.get("imports") or ()
        if item.get("account") == owner.subject
        and item.get("type") == export.get("type")
        and is_subset(_import(item).subject, export.get("subject") or "")
    ]


def _is_activated(
    item: dict[str, Any], owner: JwtClaims, export: dict[str, Any], importer: str, now: float
) -> bool:
    try:
        claims = decode(item.get("token") or "", JwtKind.ACTIVATION)
    except Refused:
        return False
    keys = [entry["key"] if isinstance(entry, dict) else entry for entry in _signers(owner)]
    revocations = export.get("revocations") or {}
    revoked = max(revocations.get(importer, 0), revocations.get("*", 0))
    return (
        claims.issuer in (owner.subject, *keys)
        and claims.subject == importer
        and claims.nats.get("kind") == item.get("type")
        and claims.issued_at > revoked
        and not (claims.expires and claims.expires <= now)
        and not (claims.not_before and claims.not_before > now)
        and is_subset(_import(item).subject, claims.nats.get("subject") or "")
    )


def _signers(owner: JwtClaims) -> list[Any]:
    return owner.nats.get("signing_keys") or []


def account_of_claims(claims: JwtClaims) -> Account:
    """Return the account that a verified account JWT describes; its private exports are closed."""
    nats = claims.nats
    limits: dict[str, Any] = nats.get("limits") or {}
    return Account(
        claims.subject,
        claims.name,
        tuple(_export(export, ()) for export in nats.get("exports") or ()),
        tuple(_import(item) for item in nats.get("imports") or ()),
        tuple(
            Mapping(source, tuple(_destination(to) for to in destinations if _is_for_us(to)))
            for source, destinations in (nats.get("mappings") or {}).items()
        ),
        # What a JWT leaves out is 0, not unlimited: nobody may connect, and nothing be published.
        AccountLimits(*(limits.get(key) or 0 for key in ("conn", "subs", "payload", "leaf"))),
        jetstream=_has_jetstream(limits),
        stream_limits=_stream_limits(limits),
        tiers=_tiers(limits),
        trace=_trace(nats.get("trace")),
    )


def _trace(told: dict[str, Any] | None) -> TraceTerms | None:
    """Return where traces go; a destination that is no subject is none."""
    dest = (told or {}).get("dest") or ""
    if not is_literal(dest):
        return None
    sampling = (told or {}).get("sampling") or 0
    return TraceTerms(dest, sampling if 0 < sampling <= 100 else 100)


def _has_jetstream(limits: dict[str, Any]) -> bool:
    """Storage of any kind, in any tier, is what turns JetStream on."""
    tiers = list((limits.get("tiered_limits") or {}).values()) or [limits]
    return any(tier.get("mem_storage") or tier.get("disk_storage") for tier in tiers)


def _stream_limits(limits: dict[str, Any]) -> StreamLimits:
    """Return what holds here: tiers replace the plain limits, and one of them is ours or none."""
    tiers = limits.get("tiered_limits") or {}
    return _limits_of(tiers.get(OUR_TIER) or {}) if tiers else _limits_of(limits)


def _tiers(limits: dict[str, Any]) -> tuple[tuple[str, StreamLimits], ...]:
    tiers = limits.get("tiered_limits") or {}
    return tuple((name, _limits_of(tier or {})) for name, tier in tiers.items())


def _limits_of(tier: dict[str, Any]) -> StreamLimits:
    def bound(key: str) -> int:
        return max(tier.get(key) or 0, 0) or -1

    return StreamLimits(
        max_memory=tier.get("mem_storage") or 0,
        max_storage=tier.get("disk_storage") or 0,
        max_streams=tier.get("streams") or 0,
        max_consumers=tier.get("consumer") or 0,
        max_ack_pending=bound("max_ack_pending"),
        memory_max_stream_bytes=bound("mem_max_stream_bytes"),
        storage_max_stream_bytes=bound("disk_max_stream_bytes"),
        max_bytes_required=bool(tier.get("max_bytes_required")),
    )


def _export(export: dict[str, Any], invited: tuple[str, ...]) -> Export:
    return Export(
        export.get("subject") or "",
        export.get("type") == "service",
        invited if export.get("token_req") else None,
        _RESPONSES.get((export.get("response_type") or "").lower(), ResponseType.SINGLETON),
        (export.get("response_threshold") or RESPONSE_SECONDS * _NS) / _NS,
        export.get("account_token_position") or 0,
        _latency(export.get("service_latency")),
        bool(export.get("allow_trace")),
    )


def _latency(told: dict[str, Any] | None) -> Latency | None:
    if not told or not told.get("results"):
        return None
    sampling = told.get("sampling")
    return Latency(told["results"], sampling if isinstance(sampling, int) else 0)


def _import(item: dict[str, Any]) -> Import:
    service = item.get("type") == "service"
    traced = bool(item.get("allow_trace"))
    subject, to = item.get("subject") or "", item.get("to") or ""
    if item.get("local_subject"):
        to = item["local_subject"]
    elif service and to:
        # In a JWT of the older form a service's ``subject`` is our name and ``to`` its owner's.
        subject, to = to, subject
    elif to:
        return Import(item.get("account") or "", subject, prefix=to, allow_trace=traced)
    shared = bool(item.get("share"))
    return Import(item.get("account") or "", subject, service, to, share=shared, allow_trace=traced)


def _is_for_us(to: dict[str, Any]) -> bool:
    """Say whether a destination is meant here: a server on its own is in no cluster."""
    return not to.get("cluster")


def _destination(to: dict[str, Any]) -> Destination:
    return Destination(to.get("subject") or "", to.get("weight") or 100)
