"""SourcePositions: how far each source of each stream was taken in.

Written down behind the records, without waiting: a record that is there says the same itself, so
that this only counts once the newest record of a source is gone.
"""

import contextlib
from collections.abc import Container, Iterable
from typing import NamedTuple, Protocol

import msgspec

from millstream.errors import MillstreamError
from millstream.store.log.log import Committed
from millstream.store.recovery.recovery import Control

SOURCE_POSITION = 27

Identity = tuple[str, str, str]


class SourcePosition(NamedTuple):
    """A place in an origin."""

    at: int  # newest sequence of the target when it was reached
    seq: int  # the origin's newest sequence that was taken in
    origin: str  # which incarnation of the origin


class _PositionEntry(msgspec.Struct, array_like=True, frozen=True):
    target: int  # the log that takes in
    identity: Identity
    at: int
    seq: int
    origin: str


class PositionControls(Protocol):
    """Whatever writes control frames."""

    def control(
        self, kind: int, log_id: int, body: bytes, done: Committed, sync: bool = True
    ) -> None:
        """Write a control frame."""
        ...


class SourcePositions:
    """Positions by target and source; rebuilt from the snapshot and the frames behind it."""

    def __init__(self, store: PositionControls) -> None:
        self._store = store
        self._known: dict[int, dict[Identity, SourcePosition]] = {}

    def get(self, target: int, identity: Identity) -> SourcePosition | None:
        """Return how far a source was taken in, None when nothing was."""
        return self._known.get(target, {}).get(identity)

    def note(self, target: int, identity: Identity, position: SourcePosition) -> None:
        """Remember and write down how far a source was taken in."""
        self._known.setdefault(target, {})[identity] = position
        body = msgspec.json.encode(_PositionEntry(target, identity, *position))
        with contextlib.suppress(MillstreamError):
            self._store.control(SOURCE_POSITION, target, body, _ignored, sync=False)

    def forget(self, target: int) -> None:
        """Forget a stream that is gone."""
        self._known.pop(target, None)

    def replay(self, saved: Iterable[bytes], controls: Iterable[Control]) -> None:
        """Take on what was saved, then what was written behind it."""
        bodies = [*saved, *(one.body for one in controls if one.kind == SOURCE_POSITION)]
        for body in bodies:
            entry = msgspec.json.decode(body, type=_PositionEntry)
            position = SourcePosition(entry.at, entry.seq, entry.origin)
            self._known.setdefault(entry.target, {})[entry.identity] = position

    def section(self, targets: Container[int]) -> list[msgspec.Raw]:
        """Return the positions of these streams for a snapshot."""
        return [
            msgspec.Raw(msgspec.json.encode(_PositionEntry(target, identity, *position)))
            for target, positions in self._known.items()
            if target in targets
            for identity, position in positions.items()
        ]


def _ignored(error: MillstreamError | None) -> None:
    """A position that was not written costs nothing: the record itself has it."""
