"""Seat: one watcher of a topic, and what those who watch a topic in the same way share."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from millstream.http.request import Caller
from millstream.http.response import Parcel, Push
from millstream.topics.audience.alarm import Alarm

MOST_CHUNKS = 16


class Variant:
    """One way to see a topic: what was rendered for it since the last change, by position."""

    __slots__ = ("__weakref__", "chunks")

    def __init__(self) -> None:
        self.chunks: dict[int, Any] = {}

    def keep(self, at: int, chunk: object) -> None:
        """Remember what a look from a position has rendered, for those who look next."""
        if len(self.chunks) < MOST_CHUNKS:
            self.chunks[at] = chunk


class News(msgspec.Struct, frozen=True):
    """What all who stood at one place of a topic get to see next, caught up before and after."""

    cursor: int
    parcel: Parcel | None  # as a session of this topic alone sends it; None: nothing to see
    records: bytes = b""
    caught_up: bytes = b""


class Held(Protocol):
    """What a seat knows of a session: who reads."""

    caller: Caller


class Seat(msgspec.Struct):
    """A watcher of a topic: where it stands, and the way to it."""

    name: str
    session: Held
    cursors: dict[str, int]
    announced: set[str]  # topics whose watcher knows that it has caught up
    alarm: Alarm
    variant: Variant
    find: Callable[[int], News | None]  # what is to be seen from a position; None: more than news
    wrap: Callable[[News], Parcel]  # news as a session of several topics sends them
    push: Push | None = None
    is_alone: bool = False  # nobody else looks at its cursors while it waits, or moves them
