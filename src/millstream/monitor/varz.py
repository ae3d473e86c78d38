"""/varz: the server at a glance, under nats-server's names; only what is true is in it."""

from collections.abc import Mapping
from typing import Any

from millstream import __version__
from millstream.monitor import jsz, machine
from millstream.monitor.facts import Facts
from millstream.monitor.times import nanoseconds, uptime
from millstream.wire.feature_flags import FEATURE_FLAGS
from millstream.wire.times import rfc3339

TOTALS = (
    "connections",
    "total_connections",
    "in_msgs",
    "in_bytes",
    "out_msgs",
    "out_bytes",
    "slow_consumers",
    "stalled_clients",
)
STALE = "Stale Connection"


def describe(facts: Facts) -> dict[str, Any]:
    """Return the object that /varz answers."""
    return {
        **_identity(facts),
        **_settings(facts),
        "jetstream": jetstream(facts),
        **_moment(facts),
        **_traffic(facts),
        "http_req_stats": dict(sorted(facts.requests.items())),
        "config_load_time": rfc3339(facts.configured_ns or facts.started_ns),
        "config_digest": facts.config_digest,
        "feature_flags": dict(FEATURE_FLAGS),
        **_optional(facts),
    }


def _identity(facts: Facts) -> dict[str, Any]:
    return {
        "server_id": facts.server_id,
        "server_name": facts.server_name,
        "version": facts.nats_version,
        "millstream": __version__,
        "proto": 1,
        "go": facts.go,
        "host": facts.host,
        "port": facts.port,
    }


def _settings(facts: Facts) -> dict[str, Any]:
    cluster = {"name": facts.cluster_name} if facts.cluster_name else {}
    cluster |= facts.cluster()
    return {
        "max_connections": facts.max_connections or -1,
        "ping_interval": nanoseconds(facts.ping_interval),
        "ping_max": facts.ping_max,
        "http_host": facts.http_host,
        "http_port": 0 if facts.is_https else facts.http_port,
        "http_base_path": facts.http_base_path,
        "https_port": facts.http_port if facts.is_https else 0,
        "auth_timeout": facts.auth_timeout,
        "max_control_line": facts.max_control_line,
        "max_payload": facts.max_payload,
        "max_pending": facts.max_pending,
        "cluster": cluster,
        "gateway": {},
        "leaf": facts.leafnodes(),
        "mqtt": {},
        "websocket": dict(facts.websocket),
        "tls_timeout": facts.tls_timeout,
        "write_deadline": nanoseconds(facts.write_deadline),
    }


def _optional(facts: Facts) -> dict[str, Any]:
    """Return what is shown only when there is something to show."""
    values: dict[str, Any] = {
        "auth_required": facts.auth_required,
        "tls_required": facts.tls_required,
        "tls_verify": facts.tls_verify,
        "connect_urls": list(facts.connect_urls()),
        "max_subscriptions": facts.max_subscriptions,
        "tls_cert_not_after": facts.tls_ends(),
        "tags": list(facts.tags),
        "metadata": dict(facts.metadata),
        "system_account": facts.system_account,
    }
    return {name: value for name, value in values.items() if value}


def jetstream(facts: Facts) -> dict[str, Any]:
    """Return what JetStream is told to do and does; empty where it is off."""
    if facts.jetstream is None:
        return {}
    shown = {
        "config": jsz.settings(facts.jetstream),
        "stats": jsz.usage(facts.jetstream),
    }
    return {**shown, "limits": dict(facts.jetstream.limits)}


def _moment(facts: Facts) -> dict[str, Any]:
    now_ns = facts.clock.time_ns()
    return {
        "start": rfc3339(facts.started_ns),
        "now": rfc3339(now_ns),
        "uptime": uptime(now_ns - facts.started_ns),
        "mem": machine.resident_bytes(),
        "cores": machine.cores(),
        "cpu": facts.cpu(),
    }


def _traffic(facts: Facts) -> dict[str, Any]:
    counted = facts.traffic()
    totals = {name: counted.get(name, 0) for name in TOTALS}
    stale = facts.closed_by_reason().get(STALE, 0)
    links, moved = facts.links(), facts.link_traffic()
    return {
        **totals,
        "routes": sum(link.is_route for link in links),
        "remotes": sum(link.is_route for link in links),
        "leafnodes": sum(not link.is_route for link in links),
        **{
            f"{way}_client_{what}": totals[f"{way}_{what}"] - moved.get(f"{way}_{what}", 0)
            for way, what in _WAYS
        },
        "stale_connections": stale,
        "subscriptions": sum(a.interest.get("num_subscriptions", 0) for a in facts.accounts()),
        "slow_consumer_stats": _by_kind(totals["slow_consumers"], moved, "slow"),
        "stale_connection_stats": _by_kind(stale, moved, "stale"),
    }


_WAYS = (("in", "msgs"), ("in", "bytes"), ("out", "msgs"), ("out", "bytes"))


def _by_kind(total: int, moved: Mapping[str, int], what: str) -> dict[str, int]:
    routes, leafs = moved.get(f"{what}_routes", 0), moved.get(f"{what}_leafs", 0)
    return {"clients": total - routes - leafs, "routes": routes, "gateways": 0, "leafs": leafs}
