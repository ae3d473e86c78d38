"""How the head rises over a new snapshot, and how entries below it go (rules 5 and 8)."""

from msgspec.structs import replace

from millstream.store.object_log.entry import Codec
from millstream.store.object_log.head import HeadCodec, LogHead, joined
from millstream.store.object_log.requests import (
    Absent,
    Accepted,
    ConditionFailed,
    FoundObject,
    Get,
    Remove,
    Replace,
    Steps,
)
from millstream.store.object_log.take_over import BrokenLog


class Trimmer:
    """Raises the head of one shard and lets go of what it covers."""

    def __init__(self, codec: Codec, heads: HeadCodec) -> None:
        self._codec = codec
        self._heads = heads

    def raise_head(self, new: LogHead, old: LogHead, tag: str | None) -> Steps[tuple[LogHead, str]]:
        """Put ``new`` in place of ``old``; where another one came first, whatever is further.

        Returns the head that stands now, and its tag.
        """
        while True:
            wanted = joined(new, old)
            answer = yield Replace(self._heads.name, self._heads.encode(wanted), tag)
            if isinstance(answer, Accepted):
                return wanted, answer.tag
            found = yield Get(self._heads.name)
            if isinstance(found, FoundObject):
                there = self._heads.decode(found.data)
                if there is None:
                    raise BrokenLog(0, "its head was not written with the fleet's key")
                if there == wanted:
                    return there, found.tag  # ours has landed, though the answer did not say so
                old, tag = there, found.tag
            elif isinstance(answer, ConditionFailed) and tag is None:
                continue

    def replace(self, new: LogHead, tag: str | None) -> Steps[tuple[LogHead, str | None]]:
        """Put ``new`` in place of the head with this tag, once; returns the one that stands now."""
        answer = yield Replace(self._heads.name, self._heads.encode(new), tag)
        if isinstance(answer, Accepted):
            return new, answer.tag
        while True:
            found = yield Get(self._heads.name)
            if isinstance(found, Absent):
                return LogHead(), None
            if isinstance(found, FoundObject):
                there = self._heads.decode(found.data)
                if there is None:
                    raise BrokenLog(0, "its head was not written with the fleet's key")
                return there, found.tag

    def sweep(self, head: LogHead, tag: str, most: int) -> Steps[tuple[LogHead, str]]:
        """Remove up to ``most`` entries below the floor, each by its exact name; then say so.

        Epoch entries stay for ever: they fence writers whose entries land after this. The floor
        was raised before, so whoever finds a position free down here knows that it means nothing.
        """
        last = min(head.floor, head.swept + most)
        kept = set(head.epochs)
        for position in range(head.swept + 1, last + 1):
            if position not in kept:
                answer = yield Remove(self._codec.name(position))
                while not isinstance(answer, Accepted):
                    answer = yield Remove(self._codec.name(position))
        if last <= head.swept:
            return head, tag
        return (yield from self.raise_head(replace(head, swept=last), head, tag))
