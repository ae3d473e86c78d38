"""Delete markers: what stays of a subject whose last record expired, so that readers notice."""

from millstream.streams.config import extras
from millstream.streams.config.times import go_text


def headers(ttl_ns: int) -> bytes:
    """Return a marker's header block; it replaces what it stands for and expires itself."""
    seconds = go_text(ttl_ns // 10**9 * 10**9).encode()
    return (
        b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: %s\r\nNats-Rollup: sub\r\n\r\n"
        % seconds
    )


def is_marker(block: bytes) -> bool:
    """Whether a record is a marker, or a bucket's purge of a key: it leaves none when it goes."""
    values = extras.first_values(block) if block else {}
    return bool(values.get(b"Nats-Marker-Reason")) or values.get(b"KV-Operation") == b"PURGE"
