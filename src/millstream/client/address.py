"""Where a server is and who asks, from a ``nats://`` url."""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from millstream.client.errors import InvalidUrl

DEFAULT_PORT = 4222
SCHEMES = ("nats", "tls")


@dataclass(frozen=True, slots=True)
class Address:
    """One server; its text never shows the secret."""

    host: str
    port: int = DEFAULT_PORT
    tls: bool = False
    user: str | None = None
    password: str | None = None
    token: str | None = None

    def __str__(self) -> str:
        """Return the url without credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.tls else 'nats'}://{host}:{self.port}"

    def __repr__(self) -> str:
        """Return the text that is safe to log."""
        return f"Address({self})"


def parse_urls(text: str) -> list[Address]:
    """Return the addresses of a comma-separated list, at least one."""
    urls = [url.strip() for url in text.split(",") if url.strip()]
    if not urls:
        raise InvalidUrl("the server url is empty: use nats://host:port")
    return [parse_url(url) for url in urls]


def parse_url(url: str) -> Address:
    """Return the address that one url names; the scheme may be left out."""
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    if parts.scheme not in SCHEMES:
        raise InvalidUrl(f"cannot speak {parts.scheme}://: use nats:// or tls://")
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise InvalidUrl("the port in the server url must be a number up to 65535") from None
    user = unquote(parts.username) if parts.username else None
    if user is not None and parts.password is None:
        return Address(parts.hostname or "127.0.0.1", port, parts.scheme == "tls", token=user)
    password = unquote(parts.password) if parts.password is not None else None
    return Address(parts.hostname or "127.0.0.1", port, parts.scheme == "tls", user, password)
