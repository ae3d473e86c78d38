"""Delete markers: what stays of a subject whose last record expired, so that readers notice."""

from millstream.streams.times import go_text

_REASON = b"Nats-Marker-Reason: "


def headers(ttl_ns: int) -> bytes:
    """Return a marker's header block; it replaces what it stands for and expires itself."""
    seconds = go_text(ttl_ns // 10**9 * 10**9).encode()
    return (
        b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: %s\r\nNats-Rollup: sub\r\n\r\n"
        % seconds
    )


def is_marker(block: bytes) -> bool:
    """Whether a record is a marker: it leaves none behind when it goes."""
    return _REASON in block
