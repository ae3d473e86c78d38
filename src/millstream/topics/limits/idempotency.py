"""Idempotency: a write that is sent twice under one key happens once."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import msgspec

MOST_KEYS = 100_000  # per topic; the oldest goes first
MOST_DROPPED = 100  # keys whose window is over, in one go


class Written(msgspec.Struct, frozen=True):
    """What a write was answered."""

    first_seq: int
    last_seq: int
    head_seq: int


Write = Callable[[], Awaitable[Written]]


class _Keys:
    """The keys of one topic, the oldest first."""

    __slots__ = ("_done", "window_ns")

    def __init__(self) -> None:
        self.window_ns = 0
        self._done: OrderedDict[str, tuple[int, Written]] = OrderedDict()  # when, and what

    def __len__(self) -> int:
        return len(self._done)

    def find(self, key: str, now_ns: int) -> Written | None:
        when, written = self._done.get(key, (0, None))
        return written if when >= now_ns - self.window_ns else None

    def keep(self, key: str, now_ns: int, written: Written) -> None:
        self._done[key] = (now_ns, written)
        self._done.move_to_end(key)
        if len(self._done) > MOST_KEYS:
            self._done.popitem(last=False)

    def drop_old(self, now_ns: int) -> None:
        """Drop some of those whose window is over."""
        for _ in range(min(MOST_DROPPED, len(self._done))):
            when, _ = next(iter(self._done.values()))
            if when >= now_ns - self.window_ns:
                return
            self._done.popitem(last=False)


class Idempotency:
    """Keys of finished writes within their topic's window, and of those under way."""

    def __init__(self) -> None:
        self._done: OrderedDict[int, _Keys] = OrderedDict()
        self._under_way: dict[tuple[int, str], asyncio.Task[Written]] = {}

    def __len__(self) -> int:
        return sum(len(keys) for keys in self._done.values())

    async def once(
        self, topic: int, key: str, window_ns: int, now_ns: Callable[[], int], write: Write
    ) -> tuple[Written, bool]:
        """Run ``write`` unless its key was used within the window; True when it was.

        Concurrent writers of a key wait for the first one; if that fails, the next one tries.
        The write goes on when its client leaves: its outcome must be known to a retry.
        """
        while True:
            known = self._find(topic, key, window_ns, now_ns())
            if known is not None:
                return known, True
            first = self._under_way.get((topic, key))
            if first is None:
                break
            await asyncio.wait([first])
        task = asyncio.ensure_future(self._run(topic, key, window_ns, now_ns, write))
        self._under_way[topic, key] = task
        return await asyncio.shield(task), False

    def forget(self, topic: int) -> None:
        """Drop the keys of a topic that is gone."""
        self._done.pop(topic, None)

    async def _run(
        self, topic: int, key: str, window_ns: int, now_ns: Callable[[], int], write: Write
    ) -> Written:
        try:
            written = await write()
            if window_ns > 0:
                keys = self._done.setdefault(topic, _Keys())
                keys.window_ns = window_ns
                keys.keep(key, now_ns(), written)
            self._tidy(now_ns())
            return written
        finally:
            del self._under_way[topic, key]

    def _find(self, topic: int, key: str, window_ns: int, now_ns: int) -> Written | None:
        keys = self._done.get(topic)
        if keys is None:
            return None
        keys.window_ns = window_ns
        keys.drop_old(now_ns)
        return keys.find(key, now_ns)

    def _tidy(self, now_ns: int) -> None:
        """Look at one topic after another: to one where nothing is written nobody else comes."""
        topic = next(iter(self._done), None)
        if topic is None:
            return
        self._done[topic].drop_old(now_ns)
        self._done.move_to_end(topic)
        if not self._done[topic]:
            del self._done[topic]
