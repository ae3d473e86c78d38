"""/subsz: the subject spaces in figures, and every subscription of a client if asked."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from millstream.errors import BadRequest
from millstream.monitor import parameters
from millstream.monitor.connz import DEFAULT_LIMIT, shown_sub
from millstream.monitor.facts import Facts
from millstream.monitor.parameters import Query
from millstream.subjects.subject import is_literal, matches
from millstream.wire.times import rfc3339

_SUMS = ("num_subscriptions", "num_cache", "num_inserts", "num_removes", "num_matches")


class SubszQuery(msgspec.Struct, frozen=True):
    """What is asked for; ``test`` keeps the subscriptions that a publish to it would reach."""

    subs: bool = False
    offset: int = 0
    limit: int = 0
    test: str = ""
    acc: str = ""

    @classmethod
    def of(cls, query: Query) -> "SubszQuery":
        """Read an HTTP query."""
        return cls(
            subs=parameters.flag(query, "subs"),
            offset=parameters.number(query, "offset"),
            limit=parameters.number(query, "limit"),
            test=query.get("test", ""),
            acc=query.get("acc", ""),
        )


def describe(facts: Facts, options: SubszQuery) -> dict[str, Any]:
    """Return the object that /subsz answers."""
    if options.test and not is_literal(options.test):
        raise BadRequest(f"cannot test {options.test}: give a subject that can be published to")
    limit = options.limit if options.limit > 0 else DEFAULT_LIMIT
    offset = max(options.offset, 0)
    accounts = [a.interest for a in facts.accounts() if options.acc in ("", a.name)]
    shown: dict[str, Any] = {
        "server_id": facts.server_id,
        "now": rfc3339(facts.clock.time_ns()),
        **interest_stats(accounts),
        "total": 0,
        "offset": offset,
        "limit": limit,
    }
    if options.subs:
        found = _subscriptions(facts, options)
        shown["total"] = len(found)
        shown["subscriptions_list"] = parameters.page(found, offset, limit)
    return shown


def _subscriptions(facts: Facts, options: SubszQuery) -> list[dict[str, Any]]:
    return [
        shown_sub(connection, subscription)
        for connection in facts.connections()
        if options.acc in ("", connection.account)
        for subscription in facts.subscriptions_of(connection)
        if not options.test or matches(subscription.subject, options.test)
    ]


def interest_stats(spaces: Iterable[Mapping[str, float]]) -> dict[str, Any]:
    """Return the figures of one or more subject spaces together."""
    spaces = list(spaces)
    sums: dict[str, Any] = {name: sum(s.get(name, 0) for s in spaces) for name in _SUMS}
    hits = sum(space.get("cache_hits", 0) for space in spaces)
    cached = [(space.get("num_cache", 0), space.get("avg_fanout", 0.0)) for space in spaces]
    fan_outs = sum(count * average for count, average in cached)
    return {
        **sums,
        "cache_hit_rate": hits / sums["num_matches"] if sums["num_matches"] else 0.0,
        "max_fanout": max((space.get("max_fanout", 0) for space in spaces), default=0),
        "avg_fanout": fan_outs / sums["num_cache"] if sums["num_cache"] else 0.0,
    }
