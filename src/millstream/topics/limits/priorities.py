"""Priorities: which topic goes first, by what its config says and how lately it was consumed."""

from typing import TYPE_CHECKING

from millstream.clock import Clock
from millstream.delivery import priority

if TYPE_CHECKING:
    from millstream.streams.config.config import StreamConfig
    from millstream.streams.stream import Stream


class Priorities:
    """Remembers when each topic was last consumed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read_ms: dict[int, int] = {}  # incarnation → when it was last consumed
        # incarnation → its priority, and whether it has one of its own, as that config says
        self._wishes: dict[int, tuple[StreamConfig, int | None, bool]] = {}

    def touch(self, stream: "Stream") -> None:
        """Remember that somebody consumed the topic now."""
        self._read_ms[stream.incarnation] = self._clock.time_ns() // 1_000_000

    def last_read_ms(self, stream: "Stream") -> int | None:
        """Return when the topic was last consumed."""
        return self._read_ms.get(stream.incarnation)

    def forget(self, stream: "Stream") -> None:
        """Drop what was remembered about a topic that is gone."""
        self._read_ms.pop(stream.incarnation, None)
        self._wishes.pop(stream.incarnation, None)

    def of(self, stream: "Stream") -> int:
        """Return the manual priority in its range, else one that halves every idle 30 s."""
        config, read = stream.config, self.last_read_ms(stream)
        known = self._wishes.get(stream.incarnation)
        if known is None or known[0] is not config:
            shown = config.to_topic()
            known = config, shown["priority"], shown["auto_priority"]
            self._wishes[stream.incarnation] = known
        idle = None if read is None else self._clock.time_ns() // 1_000_000 - read
        return priority.effective(known[1], known[2], idle)

    def is_top(self, stream: "Stream") -> bool:
        """Say whether the topic waits for no other."""
        return priority.band_of(self.of(stream)) == priority.TOP
