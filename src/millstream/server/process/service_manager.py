"""ServiceManager: tells systemd, or who speaks its protocol, how the server is."""

import os
import socket
from collections.abc import Mapping


class ServiceManager:
    """Sends the states of the process to the socket that ``NOTIFY_SOCKET`` names.

    Without that variable there is nobody to tell, and every call does nothing. A manager that
    cannot be reached does no harm either: the server serves its clients all the same.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):  # the abstract namespace
            self._address = "\0" + self._address[1:]
        self.watchdog_seconds = _watchdog_seconds(environment)

    def ready(self, status: str) -> None:
        """Say that clients are welcome."""
        self._tell(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}")

    def stopping(self) -> None:
        """Say that the server has begun to stop."""
        self._tell("STOPPING=1\nSTATUS=stopping")

    def alive(self) -> None:
        """Say that the loop still turns; a server that is unwell but answers needs no restart."""
        self._tell("WATCHDOG=1")

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as to:
                to.sendto(state.encode(), self._address)
        except OSError:
            return


def _watchdog_seconds(environment: Mapping[str, str]) -> float:
    """Return how often the manager wants a sign of life; 0 when it does not."""
    pid, time = environment.get("WATCHDOG_PID", ""), environment.get("WATCHDOG_USEC", "")
    if not time.isdigit() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(time) / 1e6 / 2
