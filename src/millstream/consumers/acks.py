"""What clients answer to a delivery, and the subject that they answer on.

$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time ns>.<pending>
"""

from typing import TypeAlias

import msgspec

from millstream.streams.config.durations import go_duration
from millstream.wire.go_json import DURATION, GoJsonError, Shape, unmarshal

_TOKENS = 9
_NAK = Shape("ConsumerNakOptions", {"delay": DURATION})


class Ack(msgspec.Struct, frozen=True):
    """Done with it."""


class Nak(msgspec.Struct, frozen=True):
    """Could not handle it: deliver it again, after ``delay`` seconds."""

    delay: float


class InProgress(msgspec.Struct, frozen=True):
    """Still working on it: start the wait anew."""


class Term(msgspec.Struct, frozen=True):
    """Never deliver it again."""

    reason: str


class Next(msgspec.Struct, frozen=True):
    """Done with it, and give me more: ``request`` is the body of a pull request."""

    request: bytes


Answer: TypeAlias = Ack | Nak | InProgress | Term | Next


def parse(body: bytes) -> Answer | None:
    """Return what an ack message says, None when it says nothing known."""
    if body in (b"", b"+ACK", b"+OK"):
        return Ack()
    if body.startswith(b"-NAK"):
        return Nak(_delay(body[4:].strip()))
    if body == b"+WPI":
        return InProgress()
    if body.startswith(b"+TERM"):
        return Term(body[5:].strip().decode("utf-8", "replace"))
    if body.startswith(b"+NXT"):
        return Next(body[4:].strip())
    return None


def _delay(text: bytes) -> float:
    """Read ``{"delay": ns}`` or a Go duration; what is neither means at once."""
    if text.startswith(b"{"):
        try:
            return max(0.0, float(unmarshal(text, _NAK).get("delay", 0)) / 1e9)
        except GoJsonError:
            return 0.0
    return go_duration(text) or 0.0


def delivery(subject: bytes) -> tuple[int, int]:
    """Return which delivery an ack subject answers: (consumer sequence, deliveries so far)."""
    tokens = subject.split(b".")
    return (
        int(tokens[6]) if tokens[6].isdigit() else 0,
        int(tokens[4]) if tokens[4].isdigit() else 0,
    )


def stream_seq(subject: bytes) -> int:
    """Return the stream sequence that an ack subject names, 0 when it is no ack subject."""
    tokens = subject.split(b".")
    if len(tokens) != _TOKENS or not tokens[5].isdigit():
        return 0
    return int(tokens[5])
