from collections.abc import Callable
from typing import final

from millstream.kernel._hub import Handler
from millstream.kernel._outboxes import Outboxes

@final
class Peer:
    """What Python owns of a connection; opaque."""

@final
class Connections:
    """Every connection by its id; opaque."""

    def __init__(
        self,
        outboxes: Outboxes,
        handler: Handler,
        on_closing: Callable[[int, int], None] | None,
    ) -> None: ...
    def _resume(self, slot: object) -> None: ...
