"""Times as NATS writes them in JSON."""

from datetime import UTC, datetime

_NS = 1_000_000_000


def rfc3339(ns: int) -> str:
    """Return nanoseconds since the Unix epoch as text, with no more digits than needed."""
    seconds, rest = divmod(ns, _NS)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"
