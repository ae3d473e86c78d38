from collections.abc import Callable

from millstream.kernel._interest import Interest
from millstream.kernel._outboxes import Outboxes

class Peer:
    """What Python owns of a connection; opaque."""

class Connections(Outboxes):
    """Every connection by its id: opened, configured, held back, closed."""

    on_closing: Callable[[int, int], None] | None
    """Called with cid and reason before a connection loses its subscriptions and counters."""
    now_ns: int
    """What activity is stamped with; whoever wants to know keeps it current."""
    max_payload: int
    """Of connections to come; ``configure`` changes that of others."""
    max_pending: int
    """Of connections to come."""
    max_control_line: int
    """Of an operation's arguments."""
    write_deadline: float
    holds_publishers: bool
    """Whether publishers wait a moment for a client whose outbox is nearly full."""
    def attach(self, fd: int, interest: Interest) -> int: ...
    def attach_fed(self, interest: Interest) -> int: ...
    def configure(
        self,
        cid: int,
        *,
        verbose: bool,
        pedantic: bool,
        echo: bool,
        headers: bool,
        no_responders: bool,
        guarded: bool = False,
        track_replies: bool = False,
        mapped: bool = False,
        max_payload: int | None = None,
    ) -> None: ...
    def move(self, cid: int, interest: Interest) -> None: ...
    def tick(self, now: float = -1.0) -> None: ...
    def write(self, cid: int, data: bytes) -> None: ...
    def close_connection(self, cid: int, reason: int) -> None: ...
    def connections(self) -> list[int]: ...
    def take_activity(self, cid: int) -> bool: ...
    def is_stalled(self, cid: int) -> bool: ...
    def connection_stats(self, cid: int) -> dict[str, int]: ...
    def subscriptions(
        self, cid: int, most: int = -1
    ) -> list[tuple[bytes, bytes, bytes, int, int]]: ...
    def _resume(self, slot: object) -> None: ...
