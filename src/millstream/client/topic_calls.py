"""The HTTP API's requests and answers as values; both clients carry the same ones out."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from millstream.client.errors import ApiError, ClientError, ConnectFailed, RecordsLost
from millstream.client.topic_values import (
    Appended,
    CaughtUp,
    Event,
    Gap,
    Job,
    Page,
    Record,
    Redriven,
    TopicDeleted,
    TopicState,
    wrapped,
)

JSON = {"Content-Type": "application/json"}
LINES = {"Content-Type": "application/x-ndjson"}
_STATUS = {"server_shutting_down": 503, "throttled": 429, "forbidden": 403}
_NOBODY_BEHIND = (502, 503, 504)  # what a proxy says while the server behind it restarts
MANY = 64  # from so many records on they go one a line, which is read faster


@dataclass(frozen=True, slots=True)
class Call:
    """One request; ``kind`` is the shape of its answer."""

    method: str
    path: str
    kind: Any
    body: bytes | None = None
    headers: Mapping[str, str] | None = None
    again: bool = True  # whether it may be sent twice where its answer was lost


@dataclass(frozen=True, slots=True)
class Told:
    """What a server answered."""

    status: int
    body: bytes
    retry_after: float = 0.0


class _Failure(msgspec.Struct):
    code: str = ""
    message: str = ""
    detail: dict[str, Any] | None = None


class _Refused(msgspec.Struct):
    error: _Failure


class Claimed(msgspec.Struct):
    """The answer to a claim."""

    claimed: list[Job]


class ListedConsumers(msgspec.Struct, frozen=True):
    """A page of consumers."""

    consumers: list[dict[str, Any]]
    next_cursor: str | None = None


class Listed(msgspec.Struct):
    """A page of topics."""

    topics: list[dict[str, Any]]
    next_cursor: str | None = None


class Watch(msgspec.Struct):
    """The answer that opens a watch."""

    wid: str
    stream_url: str
    topics: dict[str, dict[str, int]]


class _Records(msgspec.Struct):
    topic: str
    records: list[Record]


def read(call: Call, told: Told, url: str) -> Any:
    """Return the answer in its shape; raises ApiError for a refusal."""
    try:
        if told.status in (200, 201):
            return msgspec.json.decode(told.body, type=call.kind)
        why = msgspec.json.decode(told.body, type=_Refused).error
    except msgspec.DecodeError:
        if told.status in _NOBODY_BEHIND:
            raise ConnectFailed(
                f"{url} answered {told.status}: no millstream answers there"
            ) from None
        raise ClientError(f"{url} answered {told.status}, but not as millstream") from None
    raise ApiError(told.status, why.code, why.message, why.detail, url)


def topic_path(topic: str, *rest: str) -> str:
    """Return the path of a topic, or of something below it."""
    return "/".join(("/v0/topics", quote(topic, safe=""), *rest))


def put(topic: str, config: Mapping[str, Any]) -> Call:
    """Create a topic, or replace its whole configuration."""
    return _json("PUT", f"{topic_path(topic)}?strict=true", dict(config), dict[str, Any])


def state(topic: str) -> Call:
    """Show a topic."""
    return Call("GET", topic_path(topic), TopicState)


def drop(topic: str, if_empty: bool) -> Call:
    """Delete a topic."""
    query = "?if_empty=true" if if_empty else ""
    return Call("DELETE", topic_path(topic) + query, dict[str, Any])


def listing(prefix: str, cursor: str | None) -> Call:
    """List topics, a page at a time."""
    query = {"prefix": prefix, "page_size": "1000", **({"cursor": cursor} if cursor else {})}
    return Call("GET", f"/v0/topics?{urlencode(query)}", Listed)


def consumers(cursor: str | None) -> Call:
    """List the consumers of all topics, a page at a time."""
    query = {"page_size": "1000", **({"cursor": cursor} if cursor else {})}
    return Call("GET", f"/v0/consumers?{urlencode(query)}", ListedConsumers)


def append(
    topic: str,
    data: Sequence[Any],
    *,
    tag: str | None = None,
    node: str | None = None,
    meta: Any = None,
    key: str | None = None,
    create: bool | None = None,
    config: Mapping[str, Any] | None = None,
    delay_ms: int | None = None,
) -> Call:
    """Write records, all or none; the key makes it safe to send again."""
    fields = {name: value for name, value in (("tag", tag), ("meta", meta)) if value is not None}
    records = [{"data": wrapped(each), **fields} for each in data]
    batch: dict[str, Any] = {"idempotency_key": key or uuid.uuid4().hex}
    if node is not None:
        batch["node"] = node
    if create is not None:
        batch["create"] = create
    if delay_ms is not None:
        batch["delay_ms"] = delay_ms
    path = topic_path(topic) + "?return_seqs=false&strict=true"
    if config is None and len(records) >= MANY:
        words = {name: str(value).lower() if value in (True, False) else value
                 for name, value in batch.items()}  # fmt: skip
        body = b"\n".join([msgspec.json.encode(record) for record in records])
        return Call("POST", f"{path}&{urlencode(words)}", Appended, body, LINES)
    if config is not None:
        batch["config"] = dict(config)
    return _json("POST", path, {"records": records, **batch}, Appended)


def diff(
    topic: str,
    from_seq: int,
    *,
    limit: int = 1000,
    wait_ms: int = 0,
    node: str | Sequence[str] | None = None,
    include_tags: bool = True,
    filter: Mapping[str, Any] | None = None,  # noqa: A002 - the API's word
) -> Call:
    """Read what comes after a position."""
    body: dict[str, Any] = {"from_seq": from_seq, "limit": limit, "include_tags": include_tags}
    if wait_ms:
        body["wait_ms"] = wait_ms
    if node is not None:
        body["node"] = node if isinstance(node, str) else list(node)
    if filter is not None:
        body["filter"] = dict(filter)
    return _json("POST", f"{topic_path(topic, 'diff')}?strict=true", body, Page)


def delete_records(topic: str, before_seq: int | None, match: str | Sequence[str] | None) -> Call:
    """Delete records below a position, or by tag."""
    body: dict[str, Any] = {}
    if before_seq is not None:
        body["before_seq"] = before_seq
    if match is not None:
        body["match"] = match if isinstance(match, str) else list(match)
    return _json("POST", topic_path(topic, "delete"), body, dict[str, Any])


def claim(topic: str, node: str, most: int, lease_ms: int | None) -> Call:
    """Lease jobs."""
    body: dict[str, Any] = {"node": node, "max": most}
    if lease_ms is not None:
        body["lease_ms"] = lease_ms
    return _json("POST", topic_path(topic, "claim"), body, Claimed)


def settle(verb: str, topic: str, node: str, jobs: Sequence[Job], **more: int) -> Call:
    """Ack, nack or extend jobs."""
    body = {
        "node": node,
        "seqs": [job.seq for job in jobs],
        "lease_ids": [job.lease_id for job in jobs],
        **more,
    }
    return _json("POST", topic_path(topic, verb), body, dict[str, Any])


def redrive(
    topic: str,
    seqs: Sequence[int],
    *,
    most: int | None = None,
    to: str | None = None,
    origin: str | None = None,
    from_seq: int | None = None,
) -> Call:
    """Send dead letters back."""
    named = list(seqs) or None
    wishes = {"seqs": named, "max": most, "to": to, "from": origin, "from_seq": from_seq}
    body = {name: value for name, value in wishes.items() if value is not None}
    return _json("POST", topic_path(topic, "redrive"), body, Redriven)


def work_path(topic: str, node: str, most: int, lease_ms: int | None) -> str:
    """Return the path that pushes jobs."""
    query: dict[str, Any] = {"node": node, "max": most}
    if lease_ms is not None:
        query["lease_ms"] = lease_ms
    return f"{topic_path(topic, 'work')}?{urlencode(query)}"


def open_watch(
    positions: Mapping[str, int | None], options: Mapping[str, Any], *, lenient: bool = False
) -> Call:
    """Open a watch; a position of None means from now on. ``lenient`` leaves out what is gone."""
    topics = {
        name: {"tail": True} if start is None else {"from_seq": start}
        for name, start in positions.items()
    }
    path = "/v0/watch?lenient=true" if lenient else "/v0/watch"
    return _json("POST", path, {"topics": topics, "include_tags": True, **options}, Watch)


def events_of(name: str, data: bytes) -> Iterable[Event]:
    """Return what an event of a watch tells; raises ApiError for one that ends it."""
    if name == "record":
        told = msgspec.json.decode(data, type=_Records)
        return [msgspec.structs.replace(each, topic=told.topic) for each in told.records]
    if name == "tombstone":
        return (msgspec.json.decode(data, type=Gap),)
    if name == "caught-up":
        return (msgspec.json.decode(data, type=CaughtUp),)
    if name == "topic-deleted":
        return (msgspec.json.decode(data, type=TopicDeleted),)
    if name == "error":
        error = stream_error(data)
        if error.code != "throttled":  # which pauses one topic, and ends nothing
            raise error
    return ()


def stream_error(data: bytes) -> ApiError:
    """Return the error that ends an event stream."""
    told = msgspec.json.decode(data)
    code, text = told.get("code", ""), told.get("message") or told.get("error", "")
    if isinstance(code, int):
        return ApiError(code, "stream_ended", text)
    return ApiError(_STATUS.get(code, 401), code, text)


def lost(topic: str, gap: Gap) -> RecordsLost:
    """Return what a reader that did not ask for gaps is told about one."""
    return RecordsLost(topic, gap.gap_from, gap.gap_to, gap.reason)


def _json(method: str, path: str, body: object, kind: Any) -> Call:
    return Call(method, path, kind, msgspec.json.encode(body), JSON)
