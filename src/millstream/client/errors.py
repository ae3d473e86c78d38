"""What can go wrong for somebody who talks to a server, each with its fix in the text."""

from typing import Any


class ClientError(Exception):
    """Anything the blocking client raises; its text is one line that a person can act on."""


class InvalidUrl(ClientError):
    """The server address cannot be understood."""


class InvalidSubject(ClientError):
    """The subject could not be sent: it is empty, too long or holds white space."""


class ConnectFailed(ClientError):
    """No server could be reached, or what answered does not speak NATS."""


class CertificateRefused(ConnectFailed):
    """Somebody answered, but with a certificate that nothing here vouches for."""


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


class ApiError(ClientError):
    """The HTTP API refused a request: ``status`` and ``code`` say how, ``detail`` what about."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        detail: "dict[str, Any] | None" = None,
        url: str = "",
    ) -> None:
        super().__init__(f"{url}: {message} ({code})" if url else f"{message} ({code})")
        self.status = status
        self.code = code
        self.detail = detail or {}


class RecordsLost(ClientError):
    """Records that a reader wanted are gone: caps, age or damage took them."""

    def __init__(self, topic: str, gap_from: int, gap_to: int, reason: str) -> None:
        super().__init__(
            f"{topic}: records {gap_from} to {gap_to} are gone ({reason}); "
            "go on after them, or pass on_gap"
        )
        self.topic = topic
        self.gap_from = gap_from
        self.gap_to = gap_to
        self.reason = reason
