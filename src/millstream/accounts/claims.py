"""Account claims: an account as its operator's JWT describes it."""

from typing import Any

from millstream.accounts.account import (
    RESPONSE_SECONDS,
    Account,
    Destination,
    Export,
    Import,
    Limits,
    Mapping,
    ResponseType,
)
from millstream.accounts.jwt import Claims

_NS = 1e9
_RESPONSES = {
    "": ResponseType.SINGLETON,
    "singleton": ResponseType.SINGLETON,
    "stream": ResponseType.STREAM,
    "chunked": ResponseType.CHUNKED,
}


def account_of_claims(claims: Claims) -> Account:
    """Return the account that a verified account JWT describes."""
    nats = claims.nats
    limits: dict[str, Any] = nats.get("limits") or {}
    return Account(
        claims.subject,
        claims.name,
        tuple(_export(export, claims.subject) for export in nats.get("exports") or ()),
        tuple(_import(item) for item in nats.get("imports") or ()),
        tuple(
            Mapping(source, tuple(_destination(to) for to in destinations))
            for source, destinations in (nats.get("mappings") or {}).items()
        ),
        Limits(limits.get("conn", -1), limits.get("subs", -1), limits.get("payload", -1)),
        jetstream=_has_jetstream(limits),
    )


def _has_jetstream(limits: dict[str, Any]) -> bool:
    """Storage of any kind, in any tier, is what turns JetStream on."""
    tiers = [limits, *(limits.get("tiered_limits") or {}).values()]
    return any(tier.get("mem_storage") or tier.get("disk_storage") for tier in tiers)


def _export(export: dict[str, Any], owner: str) -> Export:
    # A private export needs an activation token, which is not read yet: nobody else may import.
    return Export(
        export.get("subject") or "",
        export.get("type") == "service",
        (owner,) if export.get("token_req") else None,
        _RESPONSES.get((export.get("response_type") or "").lower(), ResponseType.SINGLETON),
        (export.get("response_threshold") or RESPONSE_SECONDS * _NS) / _NS,
        export.get("account_token_position") or 0,
    )


def _import(item: dict[str, Any]) -> Import:
    service = item.get("type") == "service"
    subject, to = item.get("subject") or "", item.get("to") or ""
    if item.get("local_subject"):
        to = item["local_subject"]
    elif service and to:
        # In a JWT of the older form a service's ``subject`` is our name and ``to`` its owner's.
        subject, to = to, subject
    elif to:
        return Import(item.get("account") or "", subject, prefix=to)
    return Import(item.get("account") or "", subject, service, to, share=bool(item.get("share")))


def _destination(to: dict[str, Any]) -> Destination:
    return Destination(to.get("subject") or "", to.get("weight") or 100)
