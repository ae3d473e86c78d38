"""What makes an account's JWT unusable, whoever signed it: broken limits, words without sense.

nats-server lets nobody into an account whose JWT it finds fault with; neither do we.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

from millstream.accounts import nkeys
from millstream.accounts.nkeys import Role
from millstream.accounts.permissions import BadPermission, SubjectRule
from millstream.subjects.subject import has_wildcard, is_pattern, is_subset

_CLUSTER_TRAFFIC = ("", "system", "owner")
_RESPONSES = ("", "singleton", "stream", "chunked")


def account_problems(nats: dict[str, Any]) -> Iterator[str]:
    """Go through what is wrong with the ``nats`` part of an account's JWT, each with its field."""
    yield from _limit_problems(nats)
    yield from _export_problems(nats.get("exports") or [])
    yield from _import_problems(nats.get("imports") or [])
    yield from _permission_problems(nats.get("default_permissions") or {})
    for source, destinations in (nats.get("mappings") or {}).items():
        yield from _mapping_problems(source, destinations or [])
    for entry in nats.get("signing_keys") or []:
        key = entry.get("key") if isinstance(entry, dict) else entry
        if not nkeys.is_public(key or "", Role.ACCOUNT):
            yield f"'signing_keys' must list public account keys (A…), not {key!r}"
        if isinstance(entry, dict) and entry.get("kind") not in (None, "user_scope"):
            yield f"'signing_keys' has a scope of the unknown kind {entry['kind']!r}"
    callout = nats.get("authorization") or {}
    if callout.get("allowed_accounts") and not callout.get("auth_users"):
        yield "'authorization.allowed_accounts' needs 'auth_users': name who answers the callout"
    if (nats.get("cluster_traffic") or "") not in _CLUSTER_TRAFFIC:
        yield f"'cluster_traffic' must be system or owner, not {nats['cluster_traffic']!r}"


def _limit_problems(nats: dict[str, Any]) -> Iterator[str]:
    limits = nats.get("limits") or {}
    for name in ("imports", "exports"):
        most, listed = limits.get(name) or 0, nats.get(name) or []
        if most != -1 and len(listed) > most:
            yield (
                f"'limits.{name}' allows {most} and the account has {len(listed)}: "
                "raise the limit, or remove some"
            )
    if limits.get("exports", 0) != -1 and not limits.get("wildcards"):
        for export in nats.get("exports") or []:
            if has_wildcard(export.get("subject") or ""):
                yield (
                    f"'limits.wildcards' allows no export of {export['subject']!r}: "
                    "allow wildcards, or export a plain subject"
                )
    if "" in (limits.get("tiered_limits") or {}):
        yield "'limits.tiered_limits' has a tier without a name: call it R1"


def _export_problems(exports: Sequence[dict[str, Any]]) -> Iterator[str]:
    for export in exports:
        for reason in _export_reasons(export):
            yield f"'exports' has a bad export of {export.get('subject') or ''!r}: {reason}"
    for kind in ("stream", "service"):
        subjects = [e.get("subject") or "" for e in exports if e.get("type") == kind]
        for inner, outer in permutations(subjects, 2):
            if inner and outer and is_subset(inner, outer):
                yield f"'exports' has {inner!r}, which the {kind} {outer!r} covers: remove one"
                return


def _export_reasons(export: dict[str, Any]) -> Iterator[str]:
    kind, subject = export.get("type"), export.get("subject") or ""
    if kind not in ("stream", "service"):
        yield f"its type must be stream or service, not {kind!r}"
    if not is_pattern(subject):
        yield "not a valid subject"
    response = (export.get("response_type") or "").lower()
    if response not in _RESPONSES or (response and kind == "stream"):
        yield f"its response_type cannot be {export['response_type']!r}"
    for name in ("service_latency", "response_threshold", "allow_trace"):
        if kind == "stream" and export.get(name):
            yield f"only services have {name}"
    if (export.get("response_threshold") or 0) < 0:
        yield "its response_threshold is negative"
    yield from _latency_reasons(export.get("service_latency"))
    position, tokens = export.get("account_token_position") or 0, subject.split(".")
    if position and (position > len(tokens) or tokens[position - 1] != "*"):
        yield f"token {position} must be * for the account's key to stand there"


def _latency_reasons(told: dict[str, Any] | None) -> Iterator[str]:
    if told is None:
        return
    sampling, results = told.get("sampling", 0), told.get("results") or ""
    is_number = isinstance(sampling, int) and 0 <= sampling <= 100
    if not is_number and str(sampling).lower() != "headers":
        yield f"its sampling must be 1 to 100 or headers, not {sampling!r}"
    if not is_pattern(results) or has_wildcard(results):
        yield f"its response times cannot be reported to {results!r}"


def _import_problems(imports: Sequence[dict[str, Any]]) -> Iterator[str]:
    for item in imports:
        for reason in _import_reasons(item):
            yield f"'imports' has a bad import of {item.get('subject') or ''!r}: {reason}"


def _import_reasons(item: dict[str, Any]) -> Iterator[str]:
    kind = item.get("type")
    if kind not in ("stream", "service"):
        yield f"its type must be stream or service, not {kind!r}"
    if not item.get("account"):
        yield "it names no account to import from"
    if not is_pattern(item.get("subject") or ""):
        yield "not a valid subject"
    if item.get("local_subject") and item.get("to"):
        yield "it has both 'to' and 'local_subject': keep the latter"
    if item.get("share") and kind == "stream":
        yield "only services are shared"
    if item.get("allow_trace") and kind == "service":
        yield "only streams have allow_trace"


def _permission_problems(permissions: dict[str, Any]) -> Iterator[str]:
    for direction in ("pub", "sub"):
        rules = permissions.get(direction) or {}
        for text in [*(rules.get("allow") or []), *(rules.get("deny") or [])]:
            try:
                SubjectRule.parse(text, queues=direction == "sub")
            except BadPermission as error:
                yield f"'default_permissions.{direction}' is wrong: {error}"


def _mapping_problems(source: str, destinations: Sequence[dict[str, Any]]) -> Iterator[str]:
    if not is_pattern(source):
        yield f"'mappings' has {source!r}, which is no subject"
    totals: dict[str, int] = {}
    for to in destinations:
        cluster, weight = to.get("cluster") or "", to.get("weight") or 100
        totals[cluster] = totals.get(cluster, 0) + weight
    if any(total > 100 for total in totals.values()):
        yield f"'mappings' sends more than 100 % of {source!r} elsewhere"
