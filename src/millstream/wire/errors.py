"""The texts a server may put into ``-ERR``; clients match on them, so they are exact."""

UNKNOWN_OPERATION = "Unknown Protocol Operation"
MAXIMUM_PAYLOAD = "Maximum Payload Violation"
MAXIMUM_CONTROL_LINE = "maximum control line exceeded"
AUTHORIZATION_VIOLATION = "Authorization Violation"
AUTHENTICATION_TIMEOUT = "Authentication Timeout"
AUTHENTICATION_EXPIRED = "User Authentication Expired"
ACCOUNT_EXPIRED = "Account Authentication Expired"
AUTHENTICATION_REVOKED = "User Authentication Revoked"
MAXIMUM_CONNECTIONS = "maximum connections exceeded"
MAXIMUM_ACCOUNT_CONNECTIONS = "maximum account active connections exceeded"
MAXIMUM_SUBSCRIPTIONS = "maximum subscriptions exceeded"
STALE_CONNECTION = "Stale Connection"
INVALID_CLIENT_PROTOCOL = "invalid client protocol"
NO_RESPONDERS_REQUIRES_HEADERS = "no responders requires headers support"
INVALID_SUBJECT = "Invalid Subject"
TLS_REQUIRED = "Secure Connection - TLS Required"
THROTTLED = "Connection throttling is active. Please try again later."


def err(text: str) -> bytes:
    """Return the ``-ERR`` line for ``text``."""
    return f"-ERR '{text}'\r\n".encode()


def publish_violation(subject: bytes) -> str:
    """Return what a client reads that may not publish to ``subject``."""
    return f"Permissions Violation for Publish to {quoted(subject)}"


def reply_violation(reply: bytes) -> str:
    """Return what a client reads that may not ask for answers at ``reply``."""
    return f"Permissions Violation for Publish with Reply of {quoted(reply)}"


def subscription_violation(subject: bytes, queue: bytes) -> str:
    """Return what a client reads that may not subscribe to ``subject``."""
    group = f" using queue {quoted(queue)}" if queue else ""
    return f"Permissions Violation for Subscription to {quoted(subject)}{group}"


def removed_subscription(subject: bytes, queue: bytes, sid: bytes) -> str:
    """Return what a client reads whose subscription a change of permissions took away."""
    return f"{subscription_violation(subject, queue)} (sid {quoted(sid)})"


def too_many_tokens(subject: bytes) -> str:
    """Return what a client reads whose subscription has more tokens than allowed."""
    return f"{subscription_violation(subject, b'')}, too many tokens"


def quoted(text: bytes) -> str:
    """Quote bytes from the wire as clients expect: printable text as it is, the rest escaped."""
    shown = "".join(map(_shown, text.decode("utf-8", "surrogateescape")))
    return f'"{shown}"'


def _shown(char: str) -> str:
    code = ord(char)
    if char in _ESCAPES:
        return _ESCAPES[char]
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if char.isprintable():
        return char
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}
