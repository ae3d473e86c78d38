"""HttpLink: requests to one server, one at a time, over connections that are opened as needed."""

import base64
import http.client
import ssl
import threading
import time
from collections.abc import Generator
from typing import Any
from urllib.parse import unquote, urlsplit

from millstream.client.errors import CertificateRefused, ClientError, ConnectFailed, InvalidUrl
from millstream.client.event_stream import EventReader, ServerEvent
from millstream.client.patience import FOLLOWERS_PATIENCE
from millstream.client.topic_calls import Call, Told, read

TLS_CA = "MILLSTREAM_TLS_CA"  # of the environment: a file of certificates to trust
DEFAULT_URL = "http://127.0.0.1:8222"
DEFAULT_TIMEOUT = 35.0  # above the longest poll
LONGEST_WAIT_MS = 30_000
LONGEST_SILENCE = 65.0  # of an event stream: above the longest heartbeat
_LOST = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)


class Place:
    """Where a server is, what it is told about us, and how long and how often it is asked."""

    def __init__(
        self,
        url: str | None,
        token: str,
        timeout: float = DEFAULT_TIMEOUT,
        retries: int = 3,
        tls: ssl.SSLContext | None = None,
        patience: float = FOLLOWERS_PATIENCE,
    ) -> None:
        self.url = url or DEFAULT_URL
        self.patience = patience
        self.timeout = timeout
        self.retries = retries
        self.tls = tls
        try:
            parts = urlsplit(self.url)
            self.port = parts.port or (443 if parts.scheme == "https" else 8222)
        except ValueError:
            raise InvalidUrl(
                f"'{shown(self.url)}' is not a server url: write http://host:port"
            ) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidUrl(f"'{shown(self.url)}' is not a server url: write http://host:port")
        self.secure, self.host = parts.scheme == "https", parts.hostname
        self.url = shown(self.url).rstrip("/")
        self.headers: dict[str, str] = {}
        if token or (parts.username and parts.password is None):
            self.headers["Authorization"] = f"Bearer {token or unquote(parts.username or '')}"
        elif parts.username:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self.headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"

    @property
    def wait_ms(self) -> int:
        """Return for how long a page is waited for: an answer is due before the timeout."""
        return min(LONGEST_WAIT_MS, int(self.timeout * 800))

    @property
    def silence(self) -> float:
        """Return after how many seconds without a sign of life an event stream counts as lost."""
        return max(self.timeout, LONGEST_SILENCE)

    def unreachable(self, error: Exception) -> ConnectFailed:
        """Return what somebody is told whose request found nobody, or nobody to be trusted."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return CertificateRefused(
                f"the certificate of {self.url} is not trusted ({error.verify_message}): "
                f"name the authority that signed it, by --tls-ca, {TLS_CA} or tls="
            )
        why = str(error) or type(error).__name__
        return ConnectFailed(
            f"no answer from {self.url} ({why}): is `millstream serve` running there?"
        )


class HttpLink:
    """Each thread has a connection of its own; one that was lost is opened again."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._own = threading.local()
        self._open: set[http.client.HTTPConnection] = set()

    def close(self) -> None:
        """End every connection; a later call opens another."""
        for connection in list(self._open):
            connection.close()
        self._open.clear()
        self._own = threading.local()

    def call(self, call: Call) -> Any:
        """Carry a call out; a busy server is asked again when it says so."""
        for left in range(self.place.retries, -1, -1):
            told = self._send(call)
            if told.status not in (429, 503) or not left:
                break
            time.sleep(told.retry_after or 1.0)
        return read(call, told, self.place.url)

    def events(self, path: str, headers: dict[str, str]) -> Generator[ServerEvent, None, None]:
        """Read an event stream until it ends; raises ApiError where it is refused."""
        connection = self._connection()
        try:
            connection.request("GET", path, headers={**self.place.headers, **headers})
            sock = connection.sock  # the response takes it over: leaving early must close it
            response = connection.getresponse()
            if response.status != 200:
                told = Told(response.status, response.read())
                read(Call("GET", path, dict[str, Any]), told, self.place.url)
            reader = EventReader()
            sock.settimeout(self.place.silence)
            try:
                while data := response.read1(65536):
                    yield from reader.feed(data)
            finally:
                response.close()
                sock.close()
        except (OSError, http.client.HTTPException) as error:
            raise self.place.unreachable(error) from error
        finally:
            connection.close()

    def _send(self, call: Call) -> Told:
        held = getattr(self._own, "connection", None)
        try:
            return self._send_once(call, held)
        except _LOST as error:
            if held is None or not call.again:
                raise self.place.unreachable(error) from error
        except (OSError, http.client.HTTPException) as error:
            raise self.place.unreachable(error) from error
        try:
            return self._send_once(call, None)  # it was idle for too long
        except (OSError, http.client.HTTPException) as error:
            raise self.place.unreachable(error) from error

    def _send_once(self, call: Call, held: http.client.HTTPConnection | None) -> Told:
        connection = held or self._connection()
        self._own.connection = connection
        self._open.add(connection)
        try:
            headers = {**self.place.headers, **(call.headers or {})}
            connection.request(call.method, call.path, call.body, headers)
            response = connection.getresponse()
            body = response.read()
        except BaseException:
            self._own.connection = None
            self._open.discard(connection)
            connection.close()
            raise
        return Told(response.status, body, seconds(response.getheader("Retry-After")))

    def _connection(self) -> http.client.HTTPConnection:
        place = self.place
        if place.secure:
            return http.client.HTTPSConnection(
                place.host, place.port, timeout=place.timeout, context=place.tls
            )
        return http.client.HTTPConnection(place.host, place.port, timeout=place.timeout)


def trusting(ca_file: str) -> ssl.SSLContext:
    """Return how to connect to servers that an authority in a PEM file vouches for."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ClientError(f"no certificates can be read from {ca_file} ({why})") from error


def seconds(text: str | None) -> float:
    """Return the seconds of a Retry-After, 0 where there are none."""
    return float(text) if text is not None and text.isdigit() else 0.0


def shown(url: str) -> str:
    """Return the url without what stands before its host."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"
