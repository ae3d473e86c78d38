"""HeldInterrupts: Ctrl-C that waits until an exchange with the server is over."""

import signal
from types import FrameType
from typing import Any


class HeldInterrupts:
    """Within ``with``, the first interrupt is only noted, so that an answer on its way is heard.

    The second one counts at once. ``heed`` raises what was noted.
    """

    def __init__(self) -> None:
        self._noted = False
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is not signal.SIG_IGN:  # as a script has it that starts us with &
            signal.signal(signal.SIGINT, self._note)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def heed(self) -> None:
        """Raise KeyboardInterrupt where one was noted."""
        if self._noted:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.heed()
        self._noted = True
