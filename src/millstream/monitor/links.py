"""/routez, /leafz, /gatewayz, /raftz and /ipqueuesz: links, and what only another server has."""

from typing import Any

from millstream.monitor import parameters
from millstream.monitor.facts import Facts, LinkFacts, SubscriptionFacts
from millstream.monitor.parameters import Query
from millstream.monitor.times import duration, uptime
from millstream.wire.times import rfc3339

_MOVED = ("in_msgs", "out_msgs", "in_bytes", "out_bytes")


def describe_routes(facts: Facts, query: Query) -> dict[str, Any]:
    """Return the object that /routez answers; ``subs`` is a flag, or ``detail``."""
    is_detailed = query.get("subs", "").lower() == "detail"
    subs = is_detailed or parameters.flag(query, "subs")
    now_ns = facts.clock.time_ns()
    routes = [link for link in facts.links() if link.is_route]
    return {
        "server_id": facts.server_id,
        "server_name": facts.server_name,
        "now": rfc3339(now_ns),
        "num_routes": len(routes),
        "routes": [_route(link, now_ns, subs=subs, detail=is_detailed) for link in routes],
    }


def _route(link: LinkFacts, now_ns: int, *, subs: bool, detail: bool) -> dict[str, Any]:
    shown = {
        "rid": link.cid,
        "remote_id": link.remote_id,
        "remote_name": link.name,
        "did_solicit": link.did_solicit,
        "is_configured": link.is_configured,
        "ip": link.ip,
        "port": link.port,
        "start": rfc3339(link.start_ns),
        "last_activity": rfc3339(link.last_activity_ns),
        **({"rtt": duration(link.rtt_ns)} if link.rtt_ns else {}),
        "uptime": uptime(now_ns - link.start_ns),
        "idle": uptime(max(now_ns - link.last_activity_ns, 0)),
        "pending_size": link.stats["pending_bytes"],
        **{name: link.stats[name] for name in _MOVED},
        "subscriptions": link.num_subscriptions,
        "compression": "off",
    }
    if detail:
        shown["subscriptions_list_detail"] = [_detail(sub) for sub in link.subscriptions()]
    elif subs:
        shown["subscriptions_list"] = [sub.subject for sub in link.subscriptions()]
    return shown


def _detail(sub: SubscriptionFacts) -> dict[str, Any]:
    shown = {"account": sub.account, "subject": sub.subject, "sid": sub.sid, "msgs": sub.msgs}
    return {**shown, **({"qgroup": sub.queue} if sub.queue else {}), "cid": sub.cid}


def describe_leafs(facts: Facts, query: Query) -> dict[str, Any]:
    """Return the object that /leafz answers; ``acc`` names one account."""
    subs, account = parameters.flag(query, "subs"), query.get("acc", "")
    leafs = [
        link
        for link in facts.links()
        if not link.is_route and (not account or link.account == account)
    ]
    return {
        "server_id": facts.server_id,
        "now": rfc3339(facts.clock.time_ns()),
        "leafnodes": len(leafs),
        "leafs": [_leaf(link, subs=subs) for link in leafs],
    }


def _leaf(link: LinkFacts, *, subs: bool) -> dict[str, Any]:
    shown = {
        "id": link.cid,
        "name": link.name,
        "is_spoke": link.is_spoke,
        **({"is_isolated": True} if link.is_isolated else {}),
        "account": link.account,
        "ip": link.ip,
        "port": link.port,
        **({"rtt": duration(link.rtt_ns)} if link.rtt_ns else {}),
        **{name: link.stats[name] for name in _MOVED},
        "subscriptions": link.num_subscriptions,
        "compression": "off",
    }
    if subs:
        shown["subscriptions_list"] = [sub.subject for sub in link.subscriptions()]
    return shown


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
