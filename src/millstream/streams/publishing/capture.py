"""Capture: the subjects under which a stream receives what is published."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.kernel._batch import Batch
    from millstream.kernel._interest import Interest


class Captor(Protocol):
    """Who stores what is published."""

    def deliver(self, batch: "Batch") -> None:
        """Store publishes in order."""
        ...


class Capture:
    """Registers one stream's subjects in the interest of its account, where there is one."""

    __slots__ = ("_captor", "_handles", "_interest")

    def __init__(self, interest: "Interest | None", captor: Captor) -> None:
        self._interest = interest
        self._captor = captor
        self._handles: list[int] = []

    def register(self, subjects: Sequence[str]) -> None:
        """Receive what is published to these subjects, and to no others any more."""
        if self._interest is not None:
            self.release()
            encoded = [subject.encode() for subject in subjects]
            self._handles = self._interest.add_sinks(encoded, self._captor)

    def pause(self, paused: bool) -> None:
        """Stall publishers, or let them go on."""
        if self._interest is not None:
            for handle in self._handles:
                self._interest.pause_sink(handle, paused)

    def release(self) -> None:
        """Receive nothing any more."""
        if self._interest is not None:
            self._interest.remove_sinks(self._handles)
        self._handles = []
