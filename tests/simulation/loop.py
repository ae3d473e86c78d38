"""An event loop without sockets, threads or waiting: its time is a clock that the world moves."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from millstream.clock import ManualClock


class NoSelector:
    """Stands where a loop expects one: there is nothing to select from."""

    def select(self, timeout: float | None) -> list[Any]:
        return []

    def get_map(self) -> dict[int, Any]:
        return {}


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs one round at a time, when the world says so.

    What a server registers as a reader (its hub) is looked at in every round: a simulated
    network makes no file readable.
    """

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self._selector = NoSelector()
        self._readers: dict[int, Callable[[], object]] = {}
        self.failures: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.failures.append(context))

    def time(self) -> float:
        return self._clock.monotonic()

    def turn(self) -> None:
        """Run what is ready or due now, once."""
        for poll in list(self._readers.values()):
            self.call_soon(poll)
        with self.running():
            self._run_once()  # type: ignore[attr-defined]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have what is called inside find this loop as the one that runs."""
        asyncio.events._set_running_loop(self)
        try:
            yield
        finally:
            asyncio.events._set_running_loop(None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is ready to run."""
        return not self._ready  # type: ignore[attr-defined]

    def next_deadline(self) -> float | None:
        """Return when the earliest timer is due."""
        waiting = [each for each in self._scheduled if not each._cancelled]  # type: ignore[attr-defined]
        return min((each.when() for each in waiting), default=None)

    def abandon(self) -> None:
        """Forget everything: the process is gone."""
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        self._readers.clear()

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:
        self._readers[fd] = callback

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass
