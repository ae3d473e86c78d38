"""``$JS.API.INFO`` and ``$JS.API.STREAM.*``: create, change, look at and empty streams."""

from typing import TYPE_CHECKING, Any

import msgspec

from millstream.accounts.account import StreamLimits
from millstream.accounts.stream_quota import OUR_TIER, check_tiers
from millstream.eager_task import next_turn
from millstream.errors import InvalidStreamConfig
from millstream.nats.jetstream import account_limits, request_shapes, shapes
from millstream.nats.jetstream.drawers import drawing_from
from millstream.nats.jetstream.errors import (
    bad_request,
    expect_empty,
    name_mismatch,
    read_object,
    read_optional,
)
from millstream.streams.config.config import (
    PathInStreamName,
    ReplicasUnsupported,
    StreamConfig,
)
from millstream.streams.stream import Stream
from millstream.subjects.subject import is_literal, overlap
from millstream.wire.go_json import Shape

if TYPE_CHECKING:
    from millstream.nats.jetstream.endpoint import JetStream

NAMES_LIMIT = 1024
LIST_LIMIT = 256
SUBJECTS_LIMIT = 100_000
IN_A_TURN = 256  # streams that are looked at before others have the loop
TURN_BYTES = 1 << 8  # as next_turn weighs them: a first turn is never the last

Answer = dict[str, Any]


class _StreamPage(msgspec.Struct, frozen=True):
    offset: int = 0
    subject: str = ""


class _InfoRequest(msgspec.Struct, frozen=True):
    deleted_details: bool = False
    subjects_filter: str = ""
    offset: int = 0


class _Purge(msgspec.Struct, frozen=True):
    filter: str = ""
    seq: int = 0
    keep: int = 0


async def account_info(js: "JetStream", body: bytes) -> Answer:
    """Return what the account uses and may use."""
    used = await _used(js)
    return {
        **used,
        "limits": account_limits.shown(_NO_LIMITS if js.tiers() else js.limits()),
        **_tiers(js, used),
        **({"domain": js.terms.domain} if js.terms.domain else {}),
        "api": {"level": 5, "total": js.requests, "errors": js.errors},
    }


async def _used(js: "JetStream") -> Answer:
    """Count what the account uses, in turns: it may have a hundred thousand streams."""
    table, consumers, at = js.catalog.table, 0, 0
    usage = {"memory": 0, "file": 0}
    reserved = {"memory": 0, "file": 0}
    while page := table.page(js.account, at, IN_A_TURN):
        for stream in page:
            usage[stream.config.storage] += stream.state().bytes
            reserved[stream.config.storage] += max(0, stream.config.max_bytes)
            consumers += js.consumers.count(stream) + sum(feed.draws for feed in stream.feeds)
        at += len(page)
        await next_turn(at * TURN_BYTES)
    return {
        "memory": usage["memory"],
        "storage": usage["file"],
        "reserved_memory": reserved["memory"],
        "reserved_storage": reserved["file"],
        "streams": table.count_legal(js.account),
        "consumers": consumers,
    }


# Where limits are by replicas, there are none beside them.
_NO_LIMITS = StreamLimits(0, 0, 0, 0, 0, 0, 0)


def _tiers(js: "JetStream", used: Answer) -> Answer:
    """Return limits by replicas with what is used of them: all of it, of the tier that is ours."""
    tiers = dict(js.tiers())
    if tiers and used["streams"]:
        tiers.setdefault(OUR_TIER, _NO_LIMITS)
    unused = dict.fromkeys(used, 0)
    told = {
        name: {**(used if name == OUR_TIER else unused), "limits": account_limits.shown(limits)}
        for name, limits in tiers.items()
    }
    return {"tiers": told} if told else {}


async def create(js: "JetStream", body: bytes, name: str) -> Answer:
    """Create a stream; an identical one that exists is as good."""
    wire = _config_of(js, body)
    if wire.get("name", "") != name:
        raise name_mismatch()
    if "/" in name or "\\" in name:
        raise PathInStreamName()
    if wire.get("sealed") is True:
        raise InvalidStreamConfig("stream configuration for create can not be sealed")
    if wire.get("mirror_direct") is True and not wire.get("mirror"):
        raise InvalidStreamConfig("stream has no mirror but does have mirror direct")
    await next_turn(len(body))
    try:
        config = StreamConfig.from_request(js.terms.limits.fill_stream(wire))
    except ReplicasUnsupported:
        check_tiers(js.tiers(), f"R{wire['num_replicas']}")  # that comes first
        raise
    await next_turn(len(body))
    js.terms.limits.check_stream(config)
    js.check_copies(config)
    account_limits.check_stream(js, config)
    _check_reserved(js, config)
    stream, is_new = await js.catalog.create(config, js.account)
    if is_new:
        js.advisories.tell_stream("CREATED", "create", name)
    await next_turn(len(body))
    return {**_info(js, stream), "did_create": True}


def _config_of(js: "JetStream", body: bytes) -> dict[str, Any]:
    """Return a stream's configuration as it was sent, without unknown fields where they may be."""
    return read_object(body, request_shapes.STREAM_CONFIG, strict=js.terms.is_strict)


def _check_reserved(js: "JetStream", config: StreamConfig) -> None:
    """Refuse more than the server has left, whichever accounts took the rest."""
    reserved = js.catalog.table.promised.in_all_beside(js.account, config)
    js.terms.limits.check_reserved(config, reserved)


async def update(js: "JetStream", body: bytes, name: str) -> Answer:
    """Change a stream's configuration."""
    wire = js.terms.limits.fill_stream(_config_of(js, body))
    await next_turn(len(body))
    known = js.catalog.find(name, js.account)
    try:
        config = StreamConfig.from_request(wire, known.config if known is not None else None)
    except ReplicasUnsupported:
        js.catalog.get(name, js.account)  # that there is no such stream is said first
        raise
    if config.name != name:
        raise name_mismatch()
    await next_turn(len(body))
    js.catalog.get(name, js.account)
    js.terms.limits.check_stream(config)
    js.check_copies(config)
    account_limits.check_stream(js, config, is_new=False)
    _check_reserved(js, config)
    stream = await js.catalog.update(config, js.account)
    js.advisories.tell_stream("UPDATED", "modify", name)
    await next_turn(len(body))
    return _info(js, stream)


async def delete(js: "JetStream", body: bytes, name: str) -> Answer:
    """Delete a stream with its records and consumers."""
    expect_empty(body)
    await js.catalog.delete(name, js.account)
    js.advisories.tell_stream("DELETED", "delete", name)
    return {"success": True}


async def info(js: "JetStream", body: bytes, name: str) -> Answer:
    """Return one stream, on request with its subjects and holes."""
    asked = read_optional(body, request_shapes.STREAM_INFO, _InfoRequest, strict=js.terms.is_strict)
    stream = js.catalog.get(name, js.account)
    shown = _info(js, stream)
    shown["state"]["consumer_count"] += len(drawing_from(js, stream))
    page = {"total": 0, "offset": 0, "limit": 0}
    counts = (
        stream.contents.subject_counts([asked.subjects_filter]) if asked.subjects_filter else {}
    )
    if counts:
        offset = max(asked.offset, 0)
        names = sorted(counts)[offset : offset + SUBJECTS_LIMIT]
        page = {"total": len(counts), "offset": offset, "limit": SUBJECTS_LIMIT}
        if names:
            shown["state"]["subjects"] = {
                subject.decode("utf-8", "replace"): counts[subject] for subject in names
            }
    if asked.deleted_details and "num_deleted" in shown["state"]:
        shown["state"]["deleted"] = stream.contents.deleted()
    return {**page, **shown, "cluster": {"leader": js.terms.server_name}}


async def names(js: "JetStream", body: bytes) -> Answer:
    """Return a page of stream names."""
    total, start, page = await _page(js, body, request_shapes.STREAM_NAMES, NAMES_LIMIT)
    shown = [stream.name for stream in page]
    return {"total": total, "offset": start, "limit": NAMES_LIMIT, "streams": shown or None}


async def listing(js: "JetStream", body: bytes) -> Answer:
    """Return a page of StreamInfos."""
    total, start, page = await _page(js, body, request_shapes.STREAM_LIST, LIST_LIMIT)
    shown = [_info(js, stream, full=False) for stream in page]
    return {"total": total, "offset": start, "limit": LIST_LIMIT, "streams": shown}


async def purge(js: "JetStream", body: bytes, name: str) -> Answer:
    """Remove records by filter, up to a sequence, or all but the newest."""
    asked = read_optional(body, request_shapes.PURGE, _Purge, strict=js.terms.is_strict)
    if asked.seq and asked.keep:
        raise bad_request()
    stream = js.catalog.get(name, js.account)
    stream.removal.recent.purges += 1
    try:
        purged = await stream.purge(asked.filter, asked.seq, asked.keep)
    finally:
        stream.removal.recent.purges -= 1
    js.consumers.purged(stream, asked.filter)
    return {"success": True, "purged": purged}


def _info(js: "JetStream", stream: Stream, *, full: bool = True) -> Answer:
    consumers = js.consumers.by_name(stream).listed
    return shapes.stream_info(stream, consumers, js.now_ns(), full=full)


async def _page(
    js: "JetStream", body: bytes, shape: Shape, most: int
) -> tuple[int, int, list[Stream]]:
    """Return how many streams a list shows, where the page begins, and the page."""
    page = read_optional(body, shape, _StreamPage, strict=js.terms.is_strict)
    if page.subject:
        found = await _capturing(js, page.subject)
        start = min(max(page.offset, 0), len(found))
        return len(found), start, found[start : start + most]
    table = js.catalog.table
    total = table.count_legal(js.account)
    start = min(max(page.offset, 0), total)
    return total, start, table.page(js.account, start, most)


async def _capturing(js: "JetStream", subject: str) -> list[Stream]:
    """Return the streams that capture some of a subject, by name.

    One without a wildcard has few that begin as it does; all others are looked at in turns.
    """
    table = js.catalog.table
    if is_literal(subject):
        return [s for s in table.capturing(js.account, subject) if s.config.is_legal_stream]
    found, at = [], 0
    while page := table.page(js.account, at, IN_A_TURN):
        found += [s for s in page if _captures(s, subject)]
        at += len(page)
        await next_turn(at * TURN_BYTES)
    return found


def _captures(stream: Stream, subject: str) -> bool:
    return any(overlap(subject, captured) for captured in stream.config.subjects)
