"""Request bodies: media types, unpacking and the shapes that are read from them."""

import re
from typing import Any, Literal

import msgspec

from millstream.errors import BadRequest
from millstream.http import compression
from millstream.http.number import whole_number
from millstream.http.request import FLAGS, Request
from millstream.subjects.subject import is_pattern
from millstream.topics.errors import PayloadTooLarge, UnsupportedMediaType
from millstream.topics.page import json_text
from millstream.topics.page.page import Filter
from millstream.topics.unknown_fields import note_topic_config, note_unknown, strict_twin

U32 = 2**32 - 1
U64 = 2**64 - 1
ABSENT = msgspec.Raw(b"")

_JSON = re.compile(rb"\s*application/json")
_NDJSON = re.compile(rb"\s*application/(x-ndjson|ndjson|jsonl|x-jsonlines)\s*(;|$)", re.IGNORECASE)


class RecordIn(msgspec.Struct, gc=False):
    """One record of a write; ``data`` and ``meta`` stay the text that they are."""

    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    meta: msgspec.Raw = ABSENT
    subject: str | None = None


class WriteBody(msgspec.Struct):
    """``POST /v0/topics/{topic}``."""

    records: list[RecordIn]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: dict[str, Any] | None = None
    disable_backpressure: bool | None = None
    delay_ms: int | None = None


class FilterBody(msgspec.Struct):
    """What a reader wants to see: times in milliseconds, a tag that may end in ``*``."""

    tag: str | None = None
    node: str | None = None
    subject: str | None = None
    since: int | None = None
    until: int | None = None


class DiffBody(msgspec.Struct):
    """``POST /v0/topics/{topic}/diff``."""

    from_seq: int | None = None
    limit: int | None = None
    node: str | list[str] | None = None
    include_tags: bool | None = None
    include_meta: bool | None = None
    wait_ms: int | None = None
    max_batch_bytes: int | None = None
    filter: FilterBody | None = None


class DeleteBody(msgspec.Struct):
    """``POST /v0/topics/{topic}/delete``."""

    before_seq: int | None = None
    match: str | list[str] | None = None


class RouterBody(msgspec.Struct):
    """``PUT /v0/routers/{router}``."""

    source: str
    dest: str
    preserve_node: bool | None = None
    preserve_tag: bool | None = None
    create_dest: bool | None = None
    filter: str | list[str] | None = None
    allow_cycle: bool | None = None
    guarantee: str | None = None


class WatchTopic(msgspec.Struct):
    """Where a watch of one topic begins."""

    from_seq: int | None = None
    tail: bool | None = None


class WatchBody(msgspec.Struct):
    """``POST /v0/watch``."""

    topics: dict[str, WatchTopic]
    node: str | list[str] | None = None
    limit: int | None = None
    max_batch_bytes: int | None = None
    heartbeat_ms: int | None = None
    include_meta: bool | None = None
    include_tags: bool | None = None
    include_data: bool | None = None
    consistency: Literal["eventual", "strong"] | None = None
    filter: FilterBody | None = None


class HeaderWish(msgspec.Struct):
    """A header that a message must have; without a value any will do."""

    name: str
    value: str | None = None


class JsonWish(msgspec.Struct):
    """What the JSON of a message must hold at a path such as ``$.order.lines[0].sku``."""

    path: str
    op: Literal["eq", "ne", "gt", "lt", "contains", "exists"] = "eq"
    value: Any = None


class BrowseBody(msgspec.Struct):
    """``POST /v0/topics/{topic}/browse``."""

    from_seq: int | None = None
    order: Literal["newest", "oldest"] | None = None
    limit: int | None = None
    preview_bytes: int | None = None
    max_scan: int | None = None
    since: int | None = None
    until: int | None = None
    subject: str | None = None
    tag: str | None = None
    node: str | None = None
    text: str | None = None
    header: HeaderWish | None = None
    json: JsonWish | None = None
    last_per_subject: bool | None = None


class MessageBody(msgspec.Struct):
    """``POST /v0/publish`` and ``POST /v0/request``: the payload is data, text or base64."""

    subject: str
    data: msgspec.Raw = ABSENT
    text: str | None = None
    base64: str | None = None
    headers: dict[str, str | list[str]] | None = None
    reply: str | None = None
    ack: bool | None = None
    timeout_ms: int | None = None
    max_replies: int | None = None


class PauseBody(msgspec.Struct):
    """``POST …/consumers/{consumer}/pause``."""

    seconds: float | None = None
    until: str | None = None


class ResetBody(msgspec.Struct):
    """``POST …/consumers/{consumer}/reset``; without a sequence it goes back to the ack floor."""

    seq: int | None = None


_RECORD = msgspec.json.Decoder(RecordIn)
_RECORDS = msgspec.json.Decoder(list[RecordIn])
_STRICT_RECORD: msgspec.json.Decoder[RecordIn] = msgspec.json.Decoder(strict_twin(RecordIn))
_STRICT_RECORDS: msgspec.json.Decoder[list[RecordIn]] = msgspec.json.Decoder(
    strict_twin(list[RecordIn])
)
_VALUE = msgspec.json.Decoder(msgspec.Raw)
MOST_NOTED = 1000  # lines that are searched for unknown fields


def json_body(request: Request, kind: Any, *, may_be_empty: bool = False) -> Any:
    """Return the body as ``kind``; an empty one stands for all defaults where that is allowed."""
    given = request.header(b"content-type")
    if not request.body and given is None and may_be_empty:
        return json_text.decode(b"{}", kind)
    if given is None or _JSON.match(given) is None:
        raise UnsupportedMediaType("send application/json as the Content-Type")
    body = unpacked(request)
    if not body and may_be_empty:
        body = b"{}"
    return _read(request, body, kind)


def _read(request: Request, body: bytes, kind: Any) -> Any:
    """Return a body as ``kind``; fields that it does not have are ignored, with a warning."""
    try:
        return msgspec.json.decode(body, type=strict_twin(kind))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        made = json_text.decode(body, kind)
        note_unknown(request, body, kind)
        return made


def write_body(request: Request) -> WriteBody:
    """Return a write: one JSON object, or one record a line with the batch fields in the query."""
    given = request.header(b"content-type")
    if given != b"application/json":  # as most say it
        if given is not None and _NDJSON.match(given) is not None:
            return _lines(request)
        if given is None or _JSON.match(given) is None:
            raise UnsupportedMediaType("send application/json or application/x-ndjson")
    body: WriteBody = _read(request, json_text.normal(unpacked(request)), WriteBody)
    if body.config is not None:
        note_topic_config(request, body.config, "config.")
    return body


def _lines(request: Request) -> WriteBody:
    body = unpacked(request)
    if b"\\u" in body or b"\\/" in body or not body.isascii():
        body = json_text.normal_escapes(body)
    lines = body.split(b"\n")
    records = _records_of(request, [kept for line in lines if (kept := line.strip())])
    if records is None:  # one of them is wrong: find out which
        records = [_line(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    query, config = request.query, request.query.get("config")
    return WriteBody(
        records=records,
        node=query.get("node"),
        idempotency_key=query.get("idempotency_key"),
        create=FLAGS.get(query.get("create", "")),
        config=None if config is None else json_text.decode(config.encode(), dict[str, Any] | None),
        disable_backpressure=FLAGS.get(query.get("disable_backpressure", "")),
        delay_ms=query_number(request, "delay_ms"),
    )


def _records_of(request: Request, lines: list[bytes]) -> list[RecordIn] | None:
    """Return one record a line, read all at once; None where that is not what they are."""
    text = b"\n".join(lines)
    try:
        # Lines that are not whole values could still make sense together: each is compared.
        if [bytes(value) for value in _VALUE.decode_lines(text)] != lines:
            return None
    except (msgspec.DecodeError, RecursionError):
        return None
    try:
        if b" " not in text and b"\t" not in text:
            return _STRICT_RECORD.decode_lines(text)
        return _STRICT_RECORDS.decode(msgspec.json.format(b"[%b]" % b",".join(lines), indent=-1))
    except (msgspec.DecodeError, RecursionError):
        return _loosely(request, lines)


def _loosely(request: Request, lines: list[bytes]) -> list[RecordIn] | None:
    """Return records with unknown fields, with a warning; None where that is not what they are."""
    try:
        made = _RECORDS.decode(msgspec.json.format(b"[%b]" % b",".join(lines), indent=-1))
    except (msgspec.DecodeError, RecursionError):
        return None
    note_unknown(request, b"[%b]" % b",".join(lines[:MOST_NOTED]), list[RecordIn])
    return made


def _line(number: int, line: bytes) -> RecordIn:
    try:
        if b" " in line or b"\t" in line:
            line = msgspec.json.format(line, indent=-1)
        return _RECORD.decode(line)
    except msgspec.DecodeError as error:
        raise BadRequest(f"line {number}: {error}") from error
    except RecursionError:
        raise BadRequest(f"line {number}: JSON may be at most 64 levels deep") from None


def unpacked(request: Request) -> bytes:
    """Return the body, inflated within the limit where it was sent compressed."""
    coding = request.header(b"content-encoding")
    if coding is None or coding.lower() == b"identity":
        return request.body
    if coding.lower() not in (b"gzip", b"zstd"):
        raise UnsupportedMediaType("the server reads only the Content-Encodings gzip and zstd")
    try:
        return compression.unpack(coding.lower(), request.body, request.most_body)
    except compression.TooLarge:
        most = request.most_body
        raise PayloadTooLarge(f"a body may hold at most {most} bytes, unpacked too") from None
    except compression.NotPacked as error:
        raise BadRequest(str(error)) from error


def unsigned(value: int | None, name: str, default: int, most: int = U64) -> int:
    """Return a number of the body that must not be negative nor above its type."""
    if value is None:
        return default
    if not 0 <= value <= most:
        raise BadRequest(f"{name} must be between 0 and {most}")
    return value


def query_number(request: Request, name: str, most: int = U64) -> int | None:
    """Return a number of the query, None where it is left out."""
    text = request.query.get(name)
    if text is None:
        return None
    number = whole_number(text, most)
    if number is None:
        raise BadRequest(f"{name} must be a number between 0 and {most}")
    return number


def query_filter(request: Request) -> FilterBody | None:
    """Return the filter of a query: whole, as JSON, or by its fields; ``node`` is none of them."""
    whole = request.query.get("filter")
    made: FilterBody = json_text.decode(b"{}" if whole is None else whole.encode(), FilterBody)
    single: dict[str, Any] = {
        **{name: request.query[name] for name in ("tag", "subject") if name in request.query},
        **{
            name: query_number(request, name)
            for name in ("since", "until")
            if name in request.query
        },
    }
    if whole is None and not single:
        return None
    return msgspec.structs.replace(made, **single)


def nodes(value: str | list[str] | None) -> frozenset[bytes]:
    """Return the nodes whose records a reader does not want back."""
    if value is None:
        return frozenset()
    return frozenset(
        node.encode() for node in ([value] if isinstance(value, str) else value) if node
    )


def read_filter(body: FilterBody | None) -> Filter | None:
    """Return what a reader wants to see; a tag that ends in ``*`` is a prefix."""
    if body is None:
        return None
    tag = body.tag.encode() if body.tag is not None else None
    is_prefix = tag is not None and tag.endswith(b"*")
    if body.subject is not None and not is_pattern(body.subject):
        raise BadRequest("filter.subject is not one that could be subscribed to")
    return Filter(
        tag=None if is_prefix else tag,
        tag_prefix=tag[:-1] if tag is not None and is_prefix else None,
        node=body.node.encode() if body.node is not None else None,
        subject=body.subject,
        since_ns=None if body.since is None else body.since * 1_000_000,
        until_ns=None if body.until is None else body.until * 1_000_000,
    )
