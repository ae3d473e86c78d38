"""What became of an entry, from what the store says stands at its position (rule 2)."""

from typing import TypeAlias

import msgspec

from millstream.store.object_log.entry import EPOCH, Codec, LogObject, Unsound
from millstream.store.object_log.requests import (
    Accepted,
    ConditionFailed,
    Create,
    FoundObject,
    Get,
    Steps,
)


class Stored(msgspec.Struct, frozen=True):
    """Our entry stands there."""


class TakenBy(msgspec.Struct, frozen=True):
    """The entry of a later writer, or of a luckier candidate: we are not the writer."""

    epoch: int
    nonce: int


class Older(msgspec.Struct, frozen=True):
    """An entry of a lower epoch stands there. It is debris, and takes nothing from anybody."""

    entry: LogObject


class Open(msgspec.Struct, frozen=True):
    """Nobody can tell; ask again at the same position with the same bytes."""


class Broken(msgspec.Struct, frozen=True):
    """Something stands there that no writer of this log makes: the shard stops, and names it."""

    position: int
    why: str


Judgement: TypeAlias = Stored | TakenBy | Older | Open | Broken
STORED, OPEN = Stored(), Open()


def put(codec: Codec, data: bytes, position: int) -> Steps[Judgement]:
    """Try to make our entry the one at ``position``.

    The store's error classes are not trusted: unless it says plainly that the object is made, what
    stands there decides. Where nothing does, the outcome stays open, as the entry may still land.
    """
    name = codec.name(position)
    answer = yield Create(name, data)
    if isinstance(answer, Accepted):
        return STORED
    if not isinstance(answer, ConditionFailed):
        return OPEN
    found = yield Get(name)
    if not isinstance(found, FoundObject):
        return OPEN
    return judge(codec, data, found.data, position)


def judge(codec: Codec, ours: bytes, theirs: bytes, position: int) -> Judgement:
    """Compare our entry with the one that stands there."""
    if ours == theirs:
        return STORED
    mine, found = codec.decode(ours, position), codec.decode(theirs, position)
    assert isinstance(mine, LogObject)
    if isinstance(found, Unsound):
        return Broken(position, found.why)
    if found.stamp() == mine.stamp():
        return STORED
    if found.epoch > mine.epoch or (found.kind == mine.kind == EPOCH):
        return TakenBy(found.epoch, found.nonce)
    if found.epoch < mine.epoch:
        return Older(found)
    if found.nonce != mine.nonce:
        return Broken(position, "two writers have the same epoch")
    return Broken(position, "the writer made two entries for one position")
