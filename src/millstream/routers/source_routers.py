"""SourceRouters: the routers of one source, and which of them have their turn next."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar


class Ready(Protocol):
    """What a line asks of those who stand in it."""

    @property
    def is_ready(self) -> bool:
        """Say whether there is something to do that can be done now."""
        ...


_R = TypeVar("_R", bound=Ready)


class SourceRouters(list[_R]):
    """Who is ready stands in the line, or the source grew: then all are asked once, in a round.

    Who is found at work or held up leaves the line, and comes ``again`` when that is over. So a
    turn costs what it takes on, not what the source has.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[_R] = deque()
        self._grew = False

    @property
    def is_idle(self) -> bool:
        """Say whether nobody waits for a turn."""
        return not self._grew and not self._waiting

    def grew(self) -> None:
        """Have all asked, once those who wait now had their turn."""
        self._grew = True

    def again(self, members: Iterable[_R]) -> None:
        """Let some wait for a turn that may be ready outside of a round."""
        self._waiting.extend(members)

    def first(self, members: Sequence[_R]) -> None:
        """Let those be next whose turn was cut short."""
        self._waiting.extendleft(reversed(members))

    def next(self, most: int) -> list[_R]:
        """Return whose turn it is; nobody twice."""
        found: dict[_R, None] = {}
        while len(found) < most:
            if not self._waiting:
                if found or not self._grew:
                    break
                self._grew = False
                self._waiting.extend(self)
                continue
            member = self._waiting.popleft()
            if member.is_ready:
                found[member] = None
        return list(found)
