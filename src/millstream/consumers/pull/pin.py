"""Pin: which client of a priority group gets everything. Pure: callers pass ``now``."""

import secrets

FOREVER = float("inf")


class Pin:
    """The current pin of a consumer, if any; it ends unless its holder asks again in time."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.id = ""
        self.since_ns = 0
        self._until = FOREVER

    def assign(self, now: float, now_ns: int) -> str:
        """Pin whoever asks now; returns the new id."""
        self.id = secrets.token_urlsafe(16)[:22]
        self.since_ns = now_ns
        self._until = now + self.timeout
        return self.id

    def renew(self, now: float) -> None:
        """Start the time anew: the holder is alive."""
        self._until = now + self.timeout

    def release(self) -> bool:
        """Let the next one be pinned; False when nobody was."""
        held, self.id, self.since_ns, self._until = bool(self.id), "", 0, FOREVER
        return held

    def has_ended(self, now: float) -> bool:
        """Whether the holder has been silent for too long."""
        return bool(self.id) and self._until <= now

    @property
    def next_deadline(self) -> float:
        """Return when the pin ends, infinity when there is none."""
        return self._until
