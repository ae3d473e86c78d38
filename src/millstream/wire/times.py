"""Times as NATS writes them in JSON."""

from datetime import UTC, datetime
from functools import lru_cache

_NS = 1_000_000_000


def rfc3339(ns: int) -> str:
    """Return nanoseconds since the Unix epoch as text, with no more digits than needed."""
    seconds, rest = divmod(ns, _NS)
    digits = f"{rest:09d}".rstrip("0")
    return f"{_whole(seconds)}.{digits}Z" if digits else f"{_whole(seconds)}Z"


@lru_cache(maxsize=1024)  # records of one second are shown together
def _whole(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
