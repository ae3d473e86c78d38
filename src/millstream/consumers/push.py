"""PushState: heartbeats and flow control of a push consumer. Pure: callers pass ``now``."""

import secrets

from millstream.consumers.config import ConsumerConfig

MAX_WINDOW = 32 * 1024 * 1024
FIRST_WINDOW = MAX_WINDOW // 16
FOREVER = float("inf")


class PushState:
    """How much was sent since the client last said that it keeps up."""

    def __init__(self, config: ConsumerConfig) -> None:
        self.subject = config.deliver_subject.encode()
        self.stalled_on = b""  # the flow-control subject that an answer is awaited on
        self._heartbeat = config.idle_heartbeat / 1e9
        self._heartbeat_at = 0.0
        self._flow_control = config.flow_control
        self._window = FIRST_WINDOW
        self._outstanding = 0
        self._asked_at = 0  # outstanding bytes when the answer was asked for

    @property
    def may_send(self) -> bool:
        """Whether the window is open."""
        return not self._flow_control or self._outstanding <= self._window

    def sent(self, size: int, now: float) -> None:
        """Note a delivery, which also is a sign of life."""
        self._outstanding += size
        self.beat(now)

    def flow_token(self) -> str:
        """Return the token of a flow-control request when one is due, else an empty string."""
        if not self._flow_control or self.stalled_on or self._outstanding <= self._window // 2:
            return ""
        self._asked_at = self._outstanding
        return secrets.token_hex(2)

    def flow_answered(self) -> None:
        """Open the window again, and wider."""
        self.stalled_on = b""
        self._outstanding -= self._asked_at
        self._window = min(2 * self._window, MAX_WINDOW)

    def beat(self, now: float) -> None:
        """Start the silence anew."""
        if self._heartbeat:
            self._heartbeat_at = now + self._heartbeat

    def heartbeat_due(self, now: float) -> bool:
        """Whether the client has heard nothing for too long."""
        return 0 < self._heartbeat_at <= now

    def next_heartbeat(self, now: float) -> float:
        """Return when a heartbeat is due, infinity when never."""
        if not self._heartbeat:
            return FOREVER
        if not self._heartbeat_at:
            self.beat(now)
        return self._heartbeat_at
