"""WatchSession: where a reader stands in each of its topics, from one connection to the next."""

import base64
import binascii

import msgspec
from msgspec.structs import replace

from millstream.http.request import Caller
from millstream.topics.audience.read_position import ReadPosition
from millstream.topics.page.page import Query

_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Use(msgspec.Struct):
    """How many connections a session has, and since when it has none."""

    idle_since_ms: int = 0
    open_streams: int = 0


class WatchSession(msgspec.Struct):
    """The places of a reader by topic, and what it wants to see; one connection reads it."""

    positions: dict[str, ReadPosition]
    query: Query
    heartbeat_ms: int
    caller: Caller
    use: Use = msgspec.field(default_factory=Use)
    gone: set[str] = msgspec.field(default_factory=set)  # topics whose end was reported

    def continued(self, caller: Caller) -> "WatchSession":
        """Return the session as the next connection goes on with it.

        The one before may not know yet that its client is gone: what it still sends must not count
        as seen.
        """
        positions = {name: position.copy() for name, position in self.positions.items()}
        return replace(self, positions=positions, caller=caller, gone=set(self.gone))

    def event_id(self) -> bytes:
        """Return all cursors as one opaque id."""
        return event_id({name: position.cursor for name, position in self.positions.items()})

    def resume(self, last_event_id: bytes | None) -> None:
        """Step back to what a client says it has seen; nothing is ever skipped by it."""
        for topic, seq in read_event_id(last_event_id).items():
            position = self.positions.get(topic)
            if position is not None:
                position.cursor = min(position.cursor, seq)


def event_id(cursors: dict[str, int]) -> bytes:
    """Return positions by topic as one opaque id."""
    text = binascii.b2a_base64(msgspec.json.encode(cursors), newline=False)
    return text.rstrip(b"=").translate(_URL_SAFE)


def read_event_id(last_event_id: bytes | None) -> dict[str, int]:
    """Return the cursors inside an event id; what is no such id says nothing."""
    if not last_event_id:
        return {}
    try:
        raw = base64.urlsafe_b64decode(last_event_id + b"=" * (-len(last_event_id) % 4))
        cursors = msgspec.json.decode(raw, type=dict[str, int])
    except (binascii.Error, ValueError, msgspec.DecodeError):
        return {}
    return {topic: seq for topic, seq in cursors.items() if seq >= 0}
