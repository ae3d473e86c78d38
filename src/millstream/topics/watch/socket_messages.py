"""What a WebSocket of the topics API carries: one JSON object a message, named by its ``op``."""

from typing import Any, TypeAlias

import msgspec

from millstream.errors import BadRequest, MillstreamError
from millstream.topics import bodies
from millstream.topics.page import json_text

NULL = msgspec.Raw(b"null")
_encode = msgspec.json.encode


class _Message(msgspec.Struct, tag_field="op", kw_only=True):
    request_id: msgspec.Raw = NULL


class Subscribe(_Message, tag="subscribe"):
    """Send the records of topics, from a position on."""

    topic: str | None = None
    topics: dict[str, bodies.WatchTopic | None] | None = None
    from_seq: int | None = None
    tail: bool | None = None
    node: str | list[str] | None = None
    limit: int | None = None
    max_batch_bytes: int | None = None
    include_data: bool | None = None
    include_tags: bool | None = None
    include_meta: bool | None = None
    lenient: bool | None = None
    filter: bodies.FilterBody | None = None


class Unsubscribe(_Message, tag="unsubscribe"):
    """Send no more of these topics."""

    topic: str | None = None
    topics: list[str] | None = None


class Publish(_Message, tag="publish"):
    """Write records, as ``POST /v0/topics/{topic}`` does."""

    topic: str
    records: list[bodies.RecordIn]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: dict[str, Any] | None = None
    disable_backpressure: bool | None = None
    return_seqs: bool | None = None


class PingRequest(_Message, tag="ping"):
    """Answer with a pong."""


Message: TypeAlias = Subscribe | Unsubscribe | Publish | PingRequest


class BadMessage(MillstreamError):
    """A message that cannot be carried out; the socket stays open."""

    http_status = 400

    def __init__(self, word: str, message: str, request_id: msgspec.Raw = NULL) -> None:
        super().__init__(message)
        self.word = word  # what stands as code in the answer
        self.request_id = request_id


class _Envelope(msgspec.Struct):
    op: str = ""
    request_id: msgspec.Raw = NULL


_MESSAGE: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_ENVELOPE = msgspec.json.Decoder(_Envelope)
_OPS = frozenset(("subscribe", "unsubscribe", "publish", "ping"))


def read_message(text: bytes) -> Message:
    """Return what a client says; raises BadMessage with the code that it is told."""
    try:
        text = json_text.normal(text)
    except BadRequest as error:
        raise BadMessage("invalid_json", error.message) from error
    try:
        return _MESSAGE.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _explained(text, str(error)) from error


def _explained(text: bytes, why: str) -> BadMessage:
    """Say whether the whole message is foreign, or only a field of a known one is wrong."""
    try:
        envelope = _ENVELOPE.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return BadMessage("invalid_json", f"a message is one JSON object: {why}")
    if envelope.op in _OPS:
        return BadMessage("invalid_request", why, envelope.request_id)
    known = ", ".join(sorted(_OPS))
    return BadMessage("invalid_json", f"op must be one of {known}", envelope.request_id)


def answer(op: str, request_id: msgspec.Raw, **fields: object) -> bytes:
    """Return a message that answers one of the client's."""
    return _encode({"op": op, "request_id": request_id, **fields})


def refusal(request_id: msgspec.Raw, code: str, message: str) -> bytes:
    """Return why something was not done."""
    return answer("error", request_id, code=code, message=message or code)
