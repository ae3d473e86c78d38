"""/connz: every connection, open or closed, sorted and cut as asked."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from millstream.errors import BadRequest
from millstream.monitor import parameters
from millstream.monitor.facts import ConnectionFacts, Facts, SubscriptionFacts
from millstream.monitor.parameters import Query
from millstream.monitor.times import duration, uptime
from millstream.subjects.subject import overlap
from millstream.wire.times import rfc3339

DEFAULT_LIMIT = 1024
OPEN, CLOSED, ALL = "open", "closed", "all"
_STATES = {"": OPEN, "open": OPEN, "closed": CLOSED, "any": ALL, "all": ALL}
_CLOSED_ONLY = ("stop", "reason")

# What each sort key looks at, and whether the largest comes first.
_SORTS: dict[str, tuple[Callable[[ConnectionFacts, int], Any], bool]] = {
    "cid": (lambda c, now: c.cid, False),
    "start": (lambda c, now: c.cid, False),
    "subs": (lambda c, now: c.num_subscriptions, True),
    "pending": (lambda c, now: c.pending_bytes, True),
    "msgs_to": (lambda c, now: c.out_msgs, True),
    "msgs_from": (lambda c, now: c.in_msgs, True),
    "bytes_to": (lambda c, now: c.out_bytes, True),
    "bytes_from": (lambda c, now: c.in_bytes, True),
    "last": (lambda c, now: c.last_activity_ns, True),
    "idle": (lambda c, now: now - c.last_activity_ns, True),
    "uptime": (lambda c, now: (c.stop_ns or now) - c.start_ns, False),
    "stop": (lambda c, now: c.stop_ns, True),
    "reason": (lambda c, now: c.reason, False),
    "rtt": (lambda c, now: c.rtt_ns, True),
}


class ConnzQuery(msgspec.Struct, frozen=True):
    """What is asked for; the $SYS form knows ``filter_subject`` too."""

    sort: str = ""
    auth: bool = False
    subs: bool = False
    subs_detail: bool = False
    offset: int = 0
    limit: int = 0
    cid: int = 0
    state: str = OPEN
    user: str = ""
    acc: str = ""
    mqtt_client: str = ""  # whose client id this is: nobody's here
    filter_subject: str = ""

    @classmethod
    def of(cls, query: Query) -> "ConnzQuery":
        """Read an HTTP query."""
        detail = query.get("subs", "").lower() == "detail"
        asked = query.get("state", "").lower()
        if asked not in _STATES:
            raise BadRequest(f"cannot read state={asked}: it takes open, closed, any or all")
        return cls(
            sort=query.get("sort", ""),
            auth=parameters.flag(query, "auth"),
            subs=detail or parameters.flag(query, "subs"),
            subs_detail=detail,
            offset=parameters.number(query, "offset"),
            limit=parameters.number(query, "limit"),
            cid=parameters.number(query, "cid"),
            state=_STATES[asked],
            user=query.get("user", ""),
            acc=query.get("acc", ""),
            mqtt_client=query.get("mqtt_client", ""),
        )


def describe(facts: Facts, options: ConnzQuery) -> dict[str, Any]:
    """Return the object that /connz answers."""
    _check(options)
    now_ns = facts.clock.time_ns()
    candidates = [c for c in _candidates(facts, options) if options.acc in ("", c.account)]
    found = [c for c in candidates if _is_wanted(facts, c, options)]
    key, largest_first = _SORTS[options.sort or "cid"]
    found.sort(key=lambda c: key(c, now_ns), reverse=largest_first)
    limit = 1 if options.cid > 0 else options.limit if options.limit > 0 else DEFAULT_LIMIT
    offset = max(options.offset, 0)
    page = parameters.page(found, offset, limit)
    shown = [{**_shown(c, now_ns), **_asked_for(facts, c, options)} for c in page]
    return {
        "server_id": facts.server_id,
        "now": rfc3339(now_ns),
        "num_connections": len(shown),
        "total": len(candidates),
        "offset": offset,
        "limit": limit,
        "connections": shown,
    }


def _check(options: ConnzQuery) -> None:
    if options.sort and options.sort not in _SORTS:
        raise BadRequest(f"cannot sort by {options.sort}: use one of {', '.join(_SORTS)}")
    if options.sort in _CLOSED_ONLY and options.state != CLOSED:
        raise BadRequest(f"sort by {options.sort} is for closed connections: add state=closed")
    if options.filter_subject not in ("", ">") and not options.acc:
        raise BadRequest("a filter by subject needs an account")


def _candidates(facts: Facts, options: ConnzQuery) -> Iterable[ConnectionFacts]:
    if options.state != CLOSED:
        yield from facts.connections()
    if options.state != OPEN:
        yield from facts.closed()


def _is_wanted(facts: Facts, connection: ConnectionFacts, options: ConnzQuery) -> bool:
    if options.mqtt_client or (options.cid > 0 and connection.cid != options.cid):
        return False
    if options.user and connection.user != options.user:
        return False
    wish = options.filter_subject
    if wish in ("", ">"):
        return True
    return any(overlap(wish, s.subject) for s in facts.subscriptions_of(connection))


def _shown(connection: ConnectionFacts, now_ns: int) -> dict[str, Any]:
    until = connection.stop_ns or now_ns
    shown: dict[str, Any] = {
        "cid": connection.cid,
        "kind": "Client",
        "type": connection.type,
        "ip": connection.ip,
        "port": connection.port,
        "start": rfc3339(connection.start_ns),
        "last_activity": rfc3339(connection.last_activity_ns),
    }
    if connection.stop_ns:
        shown |= {"stop": rfc3339(connection.stop_ns), "reason": connection.reason}
    shown |= {
        "rtt": duration(connection.rtt_ns),
        "uptime": uptime(until - connection.start_ns),
        "idle": uptime(until - connection.last_activity_ns),
        "pending_bytes": connection.pending_bytes,
        "in_msgs": connection.in_msgs,
        "out_msgs": connection.out_msgs,
        "in_bytes": connection.in_bytes,
        "out_bytes": connection.out_bytes,
        "subscriptions": connection.num_subscriptions,
    }
    about = {
        "stalls": connection.stalls,
        "name": connection.name,
        "lang": connection.lang,
        "version": connection.version,
        "tls_version": connection.tls_version,
        "tls_cipher_suite": connection.tls_cipher,
        "tls_first": connection.tls_first,
    }
    return shown | {name: value for name, value in about.items() if value}


def _asked_for(facts: Facts, connection: ConnectionFacts, options: ConnzQuery) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if options.auth:
        if connection.user:
            shown["authorized_user"] = connection.user
        if connection.account not in ("", "$G"):
            shown["account"] = connection.account
        if connection.account_label:
            shown["name_tag"] = connection.account_label
        if connection.certificate is not None:
            shown["tls_peer_certs"] = [dict(connection.certificate)]
    if not (options.subs or options.subs_detail):
        return shown
    found = facts.subscriptions_of(connection)
    if found and options.subs_detail:
        shown["subscriptions_list_detail"] = [shown_sub(connection, s) for s in found]
    elif found:
        shown["subscriptions_list"] = [s.subject for s in found]
    return shown


def shown_sub(connection: ConnectionFacts, subscription: SubscriptionFacts) -> dict[str, Any]:
    """Return a connection's subscription as /connz and /subsz show it."""
    shown: dict[str, Any] = {
        "account": subscription.account,
        "account_tag": connection.account_label,
        "subject": subscription.subject,
    }
    if subscription.queue:
        shown["qgroup"] = subscription.queue
    shown |= {"sid": subscription.sid, "msgs": subscription.msgs}
    if subscription.max:
        shown["max"] = subscription.max
    shown["cid"] = subscription.cid
    return shown
