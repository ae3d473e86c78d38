"""Closed: why a connection ended, in nats-server's words."""

from enum import IntEnum

from millstream.kernel import _hub


class Closed(IntEnum):
    """Why a connection ended: the kernel's reasons, then the door's own."""

    CLIENT = _hub.CLIENT_CLOSED
    WRITE = _hub.WRITE_FAILED
    SLOW_CONSUMER = _hub.SLOW_CONSUMER
    PROTOCOL = _hub.PROTOCOL_ERROR
    SHUTDOWN = _hub.SERVER_SHUTDOWN
    INTERNAL = _hub.INTERNAL_ERROR
    WRITE_DEADLINE = _hub.WRITE_DEADLINE
    STALE = 100
    HANDSHAKE = 101
    MAX_CONNECTIONS = 102
    AUTHENTICATION = 103
    TLS_HANDSHAKE = 110
    MAX_PAYLOAD = 111
    MAX_CONTROL_LINE = 112
    CLIENT_PROTOCOL = 113
    NO_RESPONDERS = 114
    EXPIRED = 104
    ACCOUNT_FULL = 105
    REVOKED = 106
    KICKED = 107

    @property
    def text(self) -> str:
        """Return the reason as monitoring shows it."""
        return _TEXTS[self]


_TEXTS = {
    Closed.CLIENT: "Client Closed",
    Closed.WRITE: "Write Error",
    Closed.SLOW_CONSUMER: "Slow Consumer (Pending Bytes)",
    Closed.PROTOCOL: "Protocol Violation",
    Closed.SHUTDOWN: "Server Shutdown",
    Closed.INTERNAL: "Internal Error",
    Closed.WRITE_DEADLINE: "Slow Consumer (Write Deadline)",
    Closed.STALE: "Stale Connection",
    Closed.HANDSHAKE: "Authentication Timeout",
    Closed.MAX_CONNECTIONS: "Maximum Connections Exceeded",
    Closed.AUTHENTICATION: "Authentication Failure",
    Closed.TLS_HANDSHAKE: "TLS Handshake Failure",
    Closed.MAX_PAYLOAD: "Maximum Message Payload Exceeded",
    Closed.MAX_CONTROL_LINE: "Maximum Control Line Exceeded",
    Closed.CLIENT_PROTOCOL: "Bad Client Protocol Version",
    Closed.NO_RESPONDERS: "No Responders Requires Headers",
    Closed.EXPIRED: "Authentication Expired",
    Closed.ACCOUNT_FULL: "Maximum Account Connections Exceeded",
    Closed.REVOKED: "Credentials Revoked",
    Closed.KICKED: "Kicked",
}

SLOW_CONSUMERS = (Closed.SLOW_CONSUMER, Closed.WRITE_DEADLINE)


def reason_text(reason: int) -> str:
    """Return why a connection ended in words, for codes that only others know too."""
    try:
        return Closed(reason).text
    except ValueError:
        return "Unknown Reason"
