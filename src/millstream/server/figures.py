"""Figures of the machine and of the server that monitoring and the page ask for."""

import os
from typing import TYPE_CHECKING

from millstream.nats.sessions import Sessions
from millstream.nats.transport.closed import Closed

if TYPE_CHECKING:
    from millstream.topics.context import Topics


def pressure_of(topics: "Topics") -> dict[str, float]:
    """Return how hard the server is pressed, in figures."""
    scheduler = topics.scheduler
    return {
        "pressure_ratio": scheduler.measures.pressure,
        "scheduler_waiting": scheduler.depth,
        "scheduler_latency_seconds": scheduler.latency_ms / 1000,
        "refused_writes": topics.commits.refused,
    }


def disk_of(directory: str) -> tuple[int, int]:
    """Return how much of the file system of a directory is used, and how large it is."""
    try:
        found = os.statvfs(directory if os.path.isdir(directory) else ".")
    except OSError:
        return 0, 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize, found.f_blocks * found.f_frsize


def room_on_disk(directory: str | os.PathLike[str]) -> int:
    """Return how many bytes the file system of a directory has left, -1 where nobody knows."""
    try:
        found = os.statvfs(directory if os.path.isdir(directory) else ".")
    except OSError:
        return -1
    return found.f_bavail * found.f_frsize


def memory_of_machine() -> int:
    """Return how many bytes of memory this machine has, -1 where nobody knows."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return -1


def kick(sessions: Sessions, cid: int) -> bool:
    """Close a client's connection as an operator asks; False when there is none."""
    session = sessions.session(cid)
    if session is None:
        return False
    sessions.hub.close_connection(cid, Closed.KICKED)
    sessions.hub.flush()
    return True
