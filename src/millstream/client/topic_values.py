"""What the HTTP API deals in, as values: records, jobs, losses and answers."""

import base64
import re
from typing import Any, TypeAlias

import msgspec

_DOLLARS = {"seq": "$seq", "ts": "$ts", "node": "$node", "tag": "$tag", "subject": "$subject"}
_WRAPPED = re.compile(r"\$+base64")
_DOUBLED = re.compile(rb'\{"\$\$+base64[^"]*":')  # an object that would look like wrapped bytes


class Record(msgspec.Struct, frozen=True, rename={**_DOLLARS, "text": "data"}):
    """A record at rest; ``data`` is what was written, bytes where that was no JSON."""

    seq: int
    ts: int  # milliseconds since 1970
    text: msgspec.Raw = msgspec.Raw(b"null")
    node: str = ""
    tag: str = ""
    subject: str = ""
    meta: Any = None
    topic: str = ""

    @property
    def data(self) -> Any:
        """Return the record's value."""
        return value_of(self.text)


class Job(msgspec.Struct, frozen=True, rename={**_DOLLARS, "text": "data"}):
    """A job that is leased to this worker until ``deadline`` (milliseconds since 1970)."""

    seq: int
    lease_id: str
    deadline: int
    deliveries: int
    text: msgspec.Raw
    ts: int = 0
    tag: str = ""
    subject: str = ""
    meta: Any = None

    @property
    def data(self) -> Any:
        """Return the job's value, bytes where it was no JSON."""
        return value_of(self.text)

    def payload(self) -> bytes:
        """Return the job's bytes: JSON text, or what was no JSON as it was."""
        text = bytes(self.text)
        if text.startswith(b'{"$base64":'):
            return base64.b64decode(msgspec.json.decode(text)["$base64"])
        return b'{"' + text[3:] if _DOUBLED.match(text) else text


class Gap(msgspec.Struct, frozen=True):
    """Records that this reader can no longer get, and why."""

    gap_from: int
    gap_to: int
    reason: str
    earliest_seq: int
    head_seq: int
    topic: str = ""
    in_doubt: int = 0  # of them held a record perhaps, and not for sure


class CaughtUp(msgspec.Struct, frozen=True):
    """A watcher has seen all there is of a topic."""

    topic: str
    head_seq: int


class TopicDeleted(msgspec.Struct, frozen=True):
    """A watched topic is gone."""

    topic: str


Event: TypeAlias = Record | Gap | CaughtUp | TopicDeleted


class Appended(msgspec.Struct, frozen=True):
    """Where records were written; ``deduped`` when an earlier try had done it."""

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool


class Page(msgspec.Struct, frozen=True):
    """One answer of a diff."""

    records: list[Record]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    lag: int
    tombstone: Gap | None = None


class QueueCounters(msgspec.Struct, frozen=True):
    """What is in a queue."""

    ready: int
    in_flight: int
    dead_lettered: int


class TopicState(msgspec.Struct, frozen=True):
    """A topic at one moment."""

    topic: str
    type: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    config: dict[str, Any]
    queue: QueueCounters | None = None


class Redriven(msgspec.Struct, frozen=True):
    """What became of dead letters: how many went back to which queue, which stayed, and why.

    Where ``next_from_seq`` is told, the letters behind it were not looked at yet.
    """

    topic: str
    redriven: int
    skipped: list[int]
    to: dict[str, int]
    why: dict[str, int] = msgspec.field(default_factory=dict)
    next_from_seq: int | None = None


def value_of(text: msgspec.Raw) -> Any:
    """Return JSON as a value; an object that wraps bytes is those bytes."""
    value = msgspec.json.decode(text)
    if isinstance(value, dict) and len(value) == 1:
        ((key, inner),) = value.items()
        if key == "$base64":
            return base64.b64decode(inner)
        if _WRAPPED.match(key):
            return {key[1:]: inner}
    return value


def wrapped(value: Any) -> Any:
    """Return what stands for a value in a request: bytes are wrapped, look-alikes escaped."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$base64": base64.b64encode(value).decode()}
    if isinstance(value, dict) and len(value) == 1:
        ((key, inner),) = value.items()
        if isinstance(key, str) and _WRAPPED.match(key):
            return {"$" + key: inner}
    return value
