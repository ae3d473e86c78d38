"""The texts a server may put into ``-ERR``; clients match on them, so they are exact."""

UNKNOWN_OPERATION = "Unknown Protocol Operation"
MAXIMUM_PAYLOAD = "Maximum Payload Violation"
MAXIMUM_CONTROL_LINE = "maximum control line exceeded"
AUTHORIZATION_VIOLATION = "Authorization Violation"
AUTHENTICATION_TIMEOUT = "Authentication Timeout"
MAXIMUM_CONNECTIONS = "maximum connections exceeded"
MAXIMUM_SUBSCRIPTIONS = "maximum subscriptions exceeded"
STALE_CONNECTION = "Stale Connection"
INVALID_CLIENT_PROTOCOL = "invalid client protocol"
NO_RESPONDERS_REQUIRES_HEADERS = "no responders requires headers support"
INVALID_SUBJECT = "Invalid Subject"


def err(text: str) -> bytes:
    """Return the ``-ERR`` line for ``text``."""
    return f"-ERR '{text}'\r\n".encode()
