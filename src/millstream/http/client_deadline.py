"""ClientDeadline: by when an HTTP/1.1 client owes the rest of a request, or has to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.http.connection import Door
    from millstream.http.parser import RequestParser


class ClientDeadline:
    """``at`` is the moment at which the client is late; None while it owes nothing."""

    def __init__(self, door: Door) -> None:
        self.at: float | None = None
        self._door = door
        self._limits = door.limits
        self._body_since = 0.0
        self._was_in_head = False

    def expect_head(self) -> None:
        """Start the clock of the first head."""
        self.at = self._door.now() + self._limits.head_seconds

    def expect_rest(self, parser: RequestParser, body_begins: bool) -> None:
        """Allow for the rest of a request as much as its bytes so far have earned."""
        now = self._door.now()
        if parser.in_body:
            if body_begins:
                self._body_since = now
                self._was_in_head = False
            allowed = parser.body_received / self._limits.body_bytes_per_second
            self.at = self._body_since + self._limits.body_grace_seconds + allowed
        elif parser.in_head and not self._was_in_head:
            # Each further byte of a slow head leaves the deadline where it is.
            self._was_in_head = True
            self.at = min(self.at or now, now) + self._limits.head_seconds

    def expect_next(self, parser: RequestParser) -> None:
        """Wait for the next request, of which a part may be here."""
        if not parser.in_body:
            limits = self._limits
            late = limits.head_seconds if parser.in_head else limits.idle_seconds
            self._was_in_head = parser.in_head
            self.at = self._door.now() + late

    def expect_reading(self) -> None:
        """Wait for the client to read its answer."""
        self.at = self._door.now() + self._limits.stall_seconds

    def linger(self) -> None:
        """Leave the client a moment to read the last answer."""
        self.at = self._door.now() + self._limits.linger_seconds

    def clear(self) -> None:
        """Owe it an answer: a whole request is here."""
        self.at = None
        self._was_in_head = False
