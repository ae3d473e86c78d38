"""Fanout in plain Python: one socket after the other."""

import os
from collections.abc import Sequence


def send(fds: Sequence[int], data: bytes) -> list[tuple[int, int]]:
    """Send ``data`` on each; returns (place in ``fds``, bytes taken) of who took less."""
    taken = [_taken(fd, data) for fd in fds]
    return [(place, count) for place, count in enumerate(taken) if count < len(data)]


def _taken(fd: int, data: bytes) -> int:
    try:
        return os.write(fd, data)
    except OSError:
        return 0
