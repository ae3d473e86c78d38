"""What a start found in the data directory: values for the layers above and for people."""

import msgspec

from millstream.store.log.log import Gap


class Control(msgspec.Struct, frozen=True):
    """A control frame for the layers above, in the order in which they were logged."""

    kind: int
    log_id: int
    body: bytes
    number: int


class LogRecovery(msgspec.Struct):
    """What came back of one log."""

    log_id: int
    records: int = 0
    lost: int = 0
    torn: int = 0
    unsynced: int = 0  # at most so many more: no trace shows how many of them held a record
    gaps: tuple[Gap, ...] = ()


class Recovery(msgspec.Struct):
    """What a start found; ``controls`` and ``sections`` are for the layers above."""

    logs: dict[int, LogRecovery] = msgspec.field(default_factory=dict)
    controls: list[Control] = msgspec.field(default_factory=list)
    sections: dict[str, bytes] = msgspec.field(default_factory=dict)
    torn_bytes: int = 0
    damaged_bytes: int = 0
    seconds: float = 0.0

    def taken_up(self) -> None:
        """Let go of what the layers above have taken up: it is as large as all that they hold."""
        self.controls.clear()
        self.sections.clear()
