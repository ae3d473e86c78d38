"""/jsz: what JetStream keeps, down to streams and consumers if asked."""

from typing import TYPE_CHECKING, Any

import msgspec

from millstream.monitor import parameters
from millstream.monitor.facts import Facts, JetStreamAccount, JetStreamFacts
from millstream.monitor.parameters import Query
from millstream.wire.times import rfc3339

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

DEFAULT_LIMIT = 1024
# What is shown where JetStream is off.
_NOTHING = {
    **dict.fromkeys(("memory", "storage", "reserved_memory", "reserved_storage"), 0),
    **dict.fromkeys(("accounts", "ha_assets"), 0),
    "api": {"level": 0, "total": 0, "errors": 0},
    "config": {"max_memory": 0, "max_storage": 0},
    **dict.fromkeys(("streams", "consumers", "messages", "bytes", "total"), 0),
}
_UNSIGNED = 1 << 64  # no limit, -1, is shown as the largest number, as the reference does


class JszQuery(msgspec.Struct, frozen=True):
    """What is asked for; leaders and Raft groups do not exist on a single server."""

    acc: str = ""
    accounts: bool = False
    streams: bool = False
    consumers: bool = False
    config: bool = False
    raft: bool = False
    offset: int = 0
    limit: int = 0

    @classmethod
    def of(cls, query: Query) -> "JszQuery":
        """Read an HTTP query; switches that change nothing here must still be readable."""
        for name in ("direct-consumers", "leader-only", "stream-leader-only"):
            parameters.flag(query, name)
        return cls(
            acc=query.get("acc", ""),
            accounts=parameters.flag(query, "accounts"),
            streams=parameters.flag(query, "streams"),
            consumers=parameters.flag(query, "consumers"),
            config=parameters.flag(query, "config"),
            raft=parameters.flag(query, "raft"),
            offset=parameters.number(query, "offset"),
            limit=parameters.number(query, "limit"),
        )


def describe(facts: Facts, options: JszQuery) -> dict[str, Any]:
    """Return the object that /jsz answers."""
    shown = {"server_id": facts.server_id, "now": rfc3339(facts.clock.time_ns())}
    kept = facts.jetstream
    if kept is None:
        return {**_NOTHING, **shown, "disabled": True}
    accounts = list(kept.accounts())
    streams = [stream for account in accounts for stream in account.streams()]
    states = [stream.state() for stream in streams]
    consumers = sum(a.consumers.count(s) for a in accounts for s in a.streams())
    answer: dict[str, Any] = {
        **usage(kept),
        **shown,
        "config": settings(kept),
        "limits": dict(kept.limits),
        "streams": len(streams),
        **({"streams_leader": len(streams)} if options.raft and streams else {}),
        "consumers": consumers,
        **({"consumers_leader": consumers} if options.raft and consumers else {}),
        "messages": sum(state.messages for state in states),
        "bytes": sum(state.bytes for state in states),
    }
    details = [_account(facts, kept, each, options) for each in _wanted(accounts, options)]
    if details:
        answer["account_details"] = details
    return {**answer, "total": len(accounts)}


def settings(kept: JetStreamFacts) -> dict[str, Any]:
    """Return the configuration; a duration of 0 means synced before every acknowledgement."""
    shown: dict[str, Any] = {
        "max_memory": kept.max_memory,
        "max_storage": kept.max_storage,
        "store_dir": kept.store_dir,
        "sync_interval": kept.sync_interval_ns or 0,
    }
    if kept.sync_interval_ns is None:
        shown["sync_always"] = True
    if kept.domain:
        shown["domain"] = kept.domain
    return shown | {"strict": True}


def usage(kept: JetStreamFacts) -> dict[str, Any]:
    """Return what all accounts use together."""
    accounts = list(kept.accounts())
    streams = [stream for account in accounts for stream in account.streams()]
    memory, storage = _used(streams)
    reserved_memory, reserved_storage = _reserved(streams)
    return {
        "memory": memory,
        "storage": storage,
        "reserved_memory": reserved_memory,
        "reserved_storage": reserved_storage,
        "accounts": len(accounts),
        "ha_assets": 0,
        "api": {
            "level": kept.api_level,
            "total": sum(account.requests for account in accounts),
            "errors": sum(account.errors for account in accounts),
        },
    }


def _used(streams: "list[Stream]") -> tuple[int, int]:
    used = {"memory": 0, "file": 0}
    for stream in streams:
        used[stream.config.storage] += stream.state().bytes
    return used["memory"], used["file"]


def _reserved(streams: "list[Stream]") -> tuple[int, int]:
    """Return what streams with ``max_bytes`` may still grow to, in memory and on disk."""
    reserved = {"memory": 0, "file": 0}
    for stream in streams:
        reserved[stream.config.storage] += max(0, stream.config.max_bytes)
    return reserved["memory"], reserved["file"]


def _wanted(accounts: list[JetStreamAccount], options: JszQuery) -> list[JetStreamAccount]:
    """Return the accounts to detail: the one that was named, else a page of all if asked."""
    named = [account for account in accounts if account.account == options.acc]
    if named:
        return named
    streams = options.streams or options.consumers
    if not (options.accounts or (streams and not options.acc)):
        return []
    ordered = sorted(accounts, key=lambda account: account.account)
    limit = DEFAULT_LIMIT if options.limit == 0 else options.limit
    return parameters.page(ordered, max(options.offset, 0), limit) if limit > 0 else ordered


def _account(
    facts: Facts, kept: JetStreamFacts, account: JetStreamAccount, options: JszQuery
) -> dict[str, Any]:
    streams = account.streams()
    memory, storage = _used(streams)
    limits = account.limits()
    shown: dict[str, Any] = {
        "name": account.account,
        "id": account.account,
        "memory": memory,
        "storage": storage,
        "reserved_memory": limits.max_memory % _UNSIGNED,
        "reserved_storage": limits.max_storage % _UNSIGNED,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": account.requests, "errors": account.errors},
    }
    if streams and (options.streams or options.consumers):
        shown["stream_detail"] = [_stream(facts, kept, account, s, options) for s in streams]
    return shown


def _stream(
    facts: Facts,
    kept: JetStreamFacts,
    account: JetStreamAccount,
    stream: "Stream",
    options: JszQuery,
) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": stream.name,
        "created": rfc3339(stream.created_ns),
        "cluster": {"leader": facts.server_name},
    }
    if options.config:
        shown["config"] = kept.shapes.stream_config(stream, full=False)
    consumers = account.consumers.listed(stream)
    shown["state"] = kept.shapes.stream_state(stream, len(consumers))
    if options.consumers and consumers:
        shown["consumer_detail"] = [_consumer(facts, kept, c, options) for c in consumers]
    origins = [feed.info() for feed in stream.feeds]
    if origins:
        is_mirror = stream.config.mirror is not None
        shown |= {"mirror": origins[0]} if is_mirror else {"sources": origins}
    return shown


def _consumer(facts: Facts, kept: JetStreamFacts, consumer: Any, options: JszQuery) -> Any:
    shown = kept.shapes.consumer_info(consumer, facts.clock.time_ns(), full=False)
    if not options.config:
        del shown["config"]
    return shown
