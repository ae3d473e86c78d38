"""Idempotency: a write that is sent twice under one key happens once."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import msgspec

MOST_KEYS = 100_000  # per topic; the oldest goes first


class Written(msgspec.Struct, frozen=True):
    """What a write was answered."""

    first_seq: int
    last_seq: int
    head_seq: int


Entry = tuple[int, Written]  # when, in wall nanoseconds, and what
Write = Callable[[], Awaitable[Written]]


class Idempotency:
    """Keys of finished writes within their topic's window, and of those under way."""

    def __init__(self) -> None:
        self._done: dict[int, OrderedDict[str, Entry]] = {}
        self._under_way: dict[tuple[int, str], asyncio.Task[Written]] = {}

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
                keys = self._done.setdefault(topic, OrderedDict())
                keys[key] = (now_ns(), written)
                if len(keys) > MOST_KEYS:
                    keys.popitem(last=False)
            return written
        finally:
            del self._under_way[topic, key]

    def _find(self, topic: int, key: str, window_ns: int, now_ns: int) -> Written | None:
        keys = self._done.get(topic)
        if not keys:
            return None
        while keys:
            when, _ = next(iter(keys.values()))
            if when >= now_ns - window_ns:
                break
            keys.popitem(last=False)
        entry = keys.get(key)
        return None if entry is None else entry[1]
