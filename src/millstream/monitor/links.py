"""/routez, /leafz, /gatewayz, /raftz and /ipqueuesz: what only a cluster or another server has."""

from typing import Any

from millstream.monitor import parameters
from millstream.monitor.facts import Facts
from millstream.monitor.parameters import Query
from millstream.wire.times import rfc3339


def describe_routes(facts: Facts, query: Query) -> dict[str, Any]:
    """Return the object that /routez answers; ``subs`` must be readable, and changes nothing."""
    if query.get("subs", "").lower() != "detail":
        parameters.flag(query, "subs")
    return {
        "server_id": facts.server_id,
        "server_name": facts.server_name,
        "now": rfc3339(facts.clock.time_ns()),
        "num_routes": 0,
        "routes": [],
    }


def describe_leafs(facts: Facts) -> dict[str, Any]:
    """Return the object that /leafz answers."""
    return {
        "server_id": facts.server_id,
        "now": rfc3339(facts.clock.time_ns()),
        "leafnodes": 0,
        "leafs": [],
    }


def describe_gateways(facts: Facts) -> dict[str, Any]:
    """Return the object that /gatewayz answers."""
    return {
        "server_id": facts.server_id,
        "now": rfc3339(facts.clock.time_ns()),
        "outbound_gateways": {},
        "inbound_gateways": {},
    }


NO_RAFT = b"No Raft nodes registered"  # one server has nobody to agree with


def describe_queues(facts: Facts) -> dict[str, Any]:
    """Return the object that /ipqueuesz answers: nothing here waits in such queues."""
    return {}
