"""Limits: what one HTTP client may cost before the door cuts it off."""

import msgspec

from millstream.http.request import MOST_BODY


class Limits(msgspec.Struct, frozen=True):
    """Sizes in bytes, times in seconds; every one of them is enforced by the door itself."""

    head_bytes: int = 16 * 1024
    header_count: int = 64
    body_bytes: int = MOST_BODY
    read_ahead_bytes: int = 64 * 1024  # pipelined bytes kept while a request is being answered
    connections: int = 16_384
    # The sweep runs every quarter second: a head that is late is cut within five seconds.
    head_seconds: float = 4.75
    body_grace_seconds: float = 5.0
    body_bytes_per_second: int = 16 * 1024  # slower bodies than this, after the grace, are cut
    idle_seconds: float = 75.0
    stall_seconds: float = 30.0  # how long a client may leave a response unread
    linger_seconds: float = 2.0  # how long a refused client may go on sending
    drain_seconds: float = 10.0
    sweep_seconds: float = 0.25
