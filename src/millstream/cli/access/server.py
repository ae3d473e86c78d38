"""ServerAccess: which server a command talks to, as whom, and how it gets there."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported where somebody connects: a help text needs none of it
    from millstream.client import Client
    from millstream.client.http_link import HttpLink, Place
    from millstream.client.jetstream.api import JetStreamApi
    from millstream.client.login import Login
    from millstream.client.topics import Topics

TIMEOUT = 5.0
NAME = "millstream cli"


class ServerAccess:
    """Connects over NATS or HTTP; what was not given comes from the context, then by default."""

    def __init__(self, given: Mapping[str, Any], context: Mapping[str, str]) -> None:
        self._settings = {**context, **{k: v for k, v in given.items() if v is not None}}
        self.timeout = float(self._settings.get("timeout") or TIMEOUT)

    @property
    def url(self) -> str | None:
        """Return where NATS is spoken, None for the usual place."""
        return self._settings.get("url")

    def nats(self) -> "Client":
        """Connect over NATS."""
        from millstream.client import connect

        return connect(self.url, name=NAME, timeout=self.timeout, login=self.login())

    @contextmanager
    def jetstream(self) -> "Iterator[JetStreamApi]":
        """Connect over NATS, for streams and consumers."""
        from millstream.client.jetstream.api import JetStreamApi

        with self.nats() as client:
            yield JetStreamApi(client, self.timeout)

    def topics(self, **more: Any) -> "Topics":
        """Return the HTTP API."""
        from millstream.client.topics import Topics

        place = _HttpPlace(self._settings)
        return Topics(place.given_url, place.token, tls=place.tls, **more)

    def link(self) -> "HttpLink":
        """Return requests over HTTP, one at a time."""
        from millstream.client.http_link import HttpLink

        return HttpLink(self.place())

    def place(self) -> "Place":
        """Return where HTTP is spoken, and as whom."""
        from millstream.client.http_link import Place

        found = _HttpPlace(self._settings)
        return Place(found.given_url, found.token, self.timeout, 0, found.tls)

    def login(self) -> "Login | None":
        """Return the credentials that are not in the url."""
        names = {
            "user": "user",
            "password": "password",
            "creds": "creds_file",
            "nkey": "nkey_file",
            "tls_ca": "ca_file",
            "tls_cert": "cert_file",
            "tls_key": "key_file",
        }
        given = {
            name: self._settings[own] for own, name in names.items() if self._settings.get(own)
        }
        if not given:
            return None
        from millstream.client.login import login_of

        return login_of(**given)


class _HttpPlace:
    """Where HTTP is: as given, or on the machine where NATS is."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        from millstream.client.http_link import trusting

        self.token = settings.get("token") or ""
        authority = settings.get("tls_ca")
        self.given_url = settings.get("http_url") or _beside(settings.get("url"))
        secure = (self.given_url or "").startswith("https:")
        self.tls = trusting(authority) if authority and secure else None
        user = settings.get("user")
        if user and not self.token:
            self.given_url = _as_user(self.given_url, user, settings.get("password") or "")


def _beside(url: str | None) -> str | None:
    """Return the HTTP url on the machine of a NATS url, None for this machine."""
    if not url:
        return None
    from urllib.parse import urlsplit

    first = url.split(",")[0].strip()
    parts = urlsplit(first if "://" in first else f"nats://{first}")
    if not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    who = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    return f"http://{who}{host}:8222"


def _as_user(url: str | None, user: str, password: str) -> str:
    from urllib.parse import quote

    scheme, _, rest = (url or "http://127.0.0.1:8222").partition("://")
    return f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{rest.rpartition('@')[2]}"
