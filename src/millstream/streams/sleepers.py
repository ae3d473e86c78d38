"""Sleepers: goes round the streams, some with each tick, and lets those sleep that nobody uses."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.streams.stream import Stream

SHARE = 256  # streams that each tick asks, or a part of all where that is more
TICKS = 60  # in which every stream is asked, however many there are


class Sleepers:
    """A stream falls asleep when it was not used from one round to the next."""

    def __init__(self, streams: "Mapping[int, Stream]") -> None:
        self._streams = streams
        self._left: list[int] = []
        self._share = SHARE
        self._pause = 0  # ticks until the next round: each takes as long, also where few are asked

    def next(self) -> None:
        """Ask the next share."""
        if self._pause:
            self._pause -= 1
            return
        if not self._left:
            self._left = list(self._streams)
            self._share = max(SHARE, len(self._left) // TICKS)
        some, self._left = self._left[-self._share :], self._left[: -self._share]
        for stream in filter(None, map(self._streams.get, some)):
            stream.sleep()
        if not self._left:
            self._pause = max(TICKS - len(self._streams) // self._share, 0)
