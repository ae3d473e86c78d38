"""What can go wrong for somebody who talks to a server, each with its fix in the text."""


class ClientError(Exception):
    """Anything the blocking client raises; its text is one line that a person can act on."""


class InvalidUrl(ClientError):
    """The server address cannot be understood."""


class InvalidSubject(ClientError):
    """The subject could not be sent: it is empty, too long or holds white space."""


class ConnectFailed(ClientError):
    """No server could be reached, or what answered does not speak NATS."""


class AuthenticationFailed(ClientError):
    """The server turned the credentials down, or wanted some and got none."""


class PermissionDenied(ClientError):
    """The user may not publish or subscribe there; the connection stays usable."""


class ConnectionLost(ClientError):
    """The server went away; open a new connection."""


class RequestTimeout(ClientError):
    """Nothing arrived within the time allowed."""


class NoResponders(ClientError):
    """The server knows that nobody listens on the request's subject."""


class PayloadTooLarge(ClientError):
    """Headers and payload together exceed what the server accepts."""


class SlowSubscription(ClientError):
    """Messages were dropped because nobody took them from this subscription in time."""

    def __init__(self, subject: str, dropped: int) -> None:
        super().__init__(
            f"{dropped} messages on '{subject}' were dropped: read faster or raise pending_limit"
        )
        self.dropped = dropped
