"""Syslog: log lines for the system's log, on this machine or on another one."""

import logging
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from millstream.nats.transport.trace import TRACE

_LOCAL = ("/dev/log", "/var/run/syslog", "/var/run/log")
_DAEMON = 3 << 3  # facility of what runs on this machine; a remote log gets facility 0, as it was
_SEVERITIES = {
    logging.CRITICAL: 2,
    logging.ERROR: 3,
    logging.WARNING: 4,
    logging.INFO: 5,
    logging.DEBUG: 7,
    TRACE: 5,
}
_PORT = 514
_CONNECT_SECONDS = 1.0
_RETRY_SECONDS = 1.0


class Syslog:
    """Sends one line at a time and never waits; it counts the lines that the log did not take."""

    def __init__(self, remote: str, tag: str) -> None:
        """Connect to ``remote``, a URL, or to this machine's log; raises ``OSError``."""
        self._remote = remote
        self._tag = tag
        self._retry_at = 0.0
        self.lost = 0
        self._socket: socket.socket | None = self._connect()

    def send(self, level: int, text: str, at: float) -> None:
        """Send a line, and connect again where that is due."""
        if self._socket is None and time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            with suppress(OSError):
                self._socket = self._connect()
        if self._socket is None:
            self.lost += 1
            return
        try:
            self._socket.send(self._packet(level, text, at))
        except BlockingIOError:
            self.lost += 1
        except OSError:
            self.lost += 1
            self.close()

    def _packet(self, level: int, text: str, at: float) -> bytes:
        severity = _SEVERITIES.get(level, 5)
        sender = f"{self._tag}[{os.getpid()}]: {text}\n"
        if self._remote:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(at))
            stamp = f"{stamp[:-2]}:{stamp[-2:]}"
            return f"<{severity}>{stamp} {socket.gethostname()} {sender}".encode()
        stamp = time.strftime("%b %e %H:%M:%S", time.localtime(at))
        return f"<{_DAEMON | severity}>{stamp} {sender}".encode()

    def _connect(self) -> socket.socket:
        made = _to_this_machine() if not self._remote else _to(self._remote)
        made.setblocking(False)
        return made

    def close(self) -> None:
        """Hang up; a later line connects again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _to_this_machine() -> socket.socket:
    for path in _LOCAL:
        if Path(path).exists():
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                with suppress(OSError):
                    return _unix(path, kind)
    raise FileNotFoundError(2, "no syslog daemon listens on this machine", _LOCAL[0])


def _to(remote: str) -> socket.socket:
    parts = urlsplit(remote)
    if parts.scheme == "unix":
        return _unix(parts.path, socket.SOCK_STREAM)
    address = (parts.hostname or "localhost", parts.port or _PORT)
    if parts.scheme == "tcp":
        return socket.create_connection(address, _CONNECT_SECONDS)
    found = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)
    made = socket.socket(found[0][0], socket.SOCK_DGRAM)
    made.connect(found[0][4])
    return made


def _unix(path: str, kind: socket.SocketKind) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, kind)
    try:
        made.settimeout(_CONNECT_SECONDS)
        made.connect(path)
    except OSError as error:
        made.close()
        raise OSError(error.errno, error.strerror, path) from error
    return made
