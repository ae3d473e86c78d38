"""Read plans and ranges of a stream, over NATS or over HTTP.

A plan says where a stream's records are: sealed segments as files, the tail behind the server.
Both calls only read, so a connection that was lost in between is opened again and asked once more.
"""

import base64
import http.client
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec

from millstream.client.blocking import DEFAULT_TIMEOUT, DEFAULT_URL, Client, connect
from millstream.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    InvalidUrl,
    NoResponders,
    PermissionDenied,
    RequestTimeout,
)

PLAN_SUBJECT = "$MILLSTREAM.API.PLAN."
READ_SUBJECT = "$MILLSTREAM.API.READ."
DEFAULT_HTTP_PORT = 8222
READ_BYTES = 1 << 20


class StreamMissing(ClientError):
    """The server has no stream of that name."""

    def __init__(self, stream: str, hint: str | None = None) -> None:
        also = f"; did you mean {hint!r}?" if hint else ""
        super().__init__(f"the server has no stream named {stream!r}{also}")
        self.stream = stream


class ReadRefused(ClientError):
    """The server understood the request and will not answer it."""


class PlannedSegment(msgspec.Struct, frozen=True):
    """A sealed segment: two files that hold the records ``base_seq..last_seq`` for good."""

    path: str
    idx_path: str
    base_seq: int
    last_seq: int
    bytes: int = 0


class Tail(msgspec.Struct, frozen=True):
    """The range that only the server can read; empty when ``to_seq < from_seq``."""

    from_seq: int
    to_seq: int


class ReadPlan(msgspec.Struct, frozen=True):
    """One consistent look at where a stream's records are."""

    stream: str
    incarnation: int
    first_seq: int
    last_seq: int
    tail: Tail
    segments: list[PlannedSegment] = []
    gaps: list[tuple[int, int, str]] = []
    next_from_seq: int | None = None  # set when the list of segments goes on


class StreamReader(Protocol):
    """What Spark and the command line ask of a server about records at rest."""

    def plan(self, stream: str, from_seq: int = 0) -> ReadPlan:
        """Return the plan, its segments from ``from_seq`` on; raises ``StreamMissing``."""
        ...

    def read(self, stream: str, from_seq: int, to_seq: int, max_bytes: int = READ_BYTES) -> bytes:
        """Return raw frames from the range, oldest first, empty once nothing is left in it."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


def open_streams(url: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> StreamReader:
    """Return the reader for a ``nats://``, ``tls://``, ``http://`` or ``https://`` url."""
    address = url or DEFAULT_URL
    if address.startswith(("http://", "https://")):
        return HttpStreams(address, timeout)
    return NatsStreams(address, timeout)


class _Error(msgspec.Struct, frozen=True):
    code: int | str = 0
    err_code: int = 0
    description: str = ""
    message: str = ""
    detail: dict[str, Any] | None = None


class _Failure(msgspec.Struct, frozen=True):
    error: _Error


class NatsStreams:
    """Requests to ``$MILLSTREAM.API`` over one held connection."""

    def __init__(self, url: str, timeout: float = DEFAULT_TIMEOUT) -> None:
        self._url = url
        self._timeout = timeout
        self._client: Client | None = None

    def plan(self, stream: str, from_seq: int = 0) -> ReadPlan:
        """Return the plan, its segments from ``from_seq`` on; raises ``StreamMissing``."""
        return _whole_plan(lambda page: self._plan_page(stream, page), from_seq)

    def read(self, stream: str, from_seq: int, to_seq: int, max_bytes: int = READ_BYTES) -> bytes:
        """Return raw frames from the range, oldest first, empty once nothing is left in it."""
        asked = {"from_seq": from_seq, "to_seq": to_seq, "max_bytes": max_bytes}
        reply = self._request(READ_SUBJECT + stream, asked)
        if reply.startswith(b"{"):  # a frame starts with its magic
            raise _refusal(reply, stream)
        return reply

    def close(self) -> None:
        """End the connection; the next call opens another."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _plan_page(self, stream: str, from_seq: int) -> ReadPlan:
        reply = self._request(PLAN_SUBJECT + stream, {"from_seq": from_seq})
        return _plan_of(reply, stream)

    def _request(self, subject: str, body: dict[str, int]) -> bytes:
        payload = msgspec.json.encode(body)
        held = self._client is not None
        try:
            return self._request_once(subject, payload)
        except ConnectionLost:
            self.close()
            if not held:
                raise
        except RequestTimeout:
            self.close()  # a late reply must not meet the next request
            raise
        return self._request_once(subject, payload)

    def _request_once(self, subject: str, payload: bytes) -> bytes:
        if self._client is None:
            self._client = connect(self._url, name="millstream streams", timeout=self._timeout)
        try:
            return self._client.request(subject, payload, self._timeout).payload
        except NoResponders:
            raise ReadRefused(
                f"{self._client.address} answers no read plans: it is not a millstream server, "
                "or this user may not ask it"
            ) from None


class HttpStreams:
    """The same two calls below ``/v0/topics/<stream>``."""

    def __init__(self, url: str, timeout: float = DEFAULT_TIMEOUT) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidUrl(f"cannot read {_shown(url)!r}: use http://host:port")
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port or (443 if self._secure else DEFAULT_HTTP_PORT)
        self._authorization = _authorization(parts.username, parts.password)
        self._timeout = timeout
        self._connection: http.client.HTTPConnection | None = None

    def plan(self, stream: str, from_seq: int = 0) -> ReadPlan:
        """Return the plan, its segments from ``from_seq`` on; raises ``StreamMissing``."""
        return _whole_plan(lambda page: self._plan_page(stream, page), from_seq)

    def read(self, stream: str, from_seq: int, to_seq: int, max_bytes: int = READ_BYTES) -> bytes:
        """Return raw frames from the range, oldest first, empty once nothing is left in it."""
        asked = {"from_seq": from_seq, "to_seq": to_seq, "max_bytes": max_bytes}
        return self._get(stream, "frames", asked)

    def close(self) -> None:
        """End the connection; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _plan_page(self, stream: str, from_seq: int) -> ReadPlan:
        return _plan_of(self._get(stream, "plan", {"from_seq": from_seq}), stream)

    def _get(self, stream: str, what: str, query: dict[str, int]) -> bytes:
        path = f"/v0/topics/{quote(stream, safe='')}/{what}?{urlencode(query)}"
        held = self._connection is not None
        try:
            return self._get_once(path, stream)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not held:
                raise ConnectFailed(f"cannot read from {self}: {_reason(error)}") from error
        try:
            return self._get_once(path, stream)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ConnectionLost(f"{self} went away: {_reason(error)}") from error

    def _get_once(self, path: str, stream: str) -> bytes:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            self._connection = kind(self._host, self._port, timeout=self._timeout)
        self._connection.request("GET", path, headers=self._authorization)
        response = self._connection.getresponse()
        body = response.read()
        if response.status == 200:
            return body
        raise _http_refusal(response.status, body, stream)

    def __str__(self) -> str:
        """Return the url without credentials."""
        return f"{'https' if self._secure else 'http'}://{self._host}:{self._port}"


class _PageOf(Protocol):
    def __call__(self, from_seq: int, /) -> ReadPlan: ...


def _whole_plan(page_of: _PageOf, from_seq: int) -> ReadPlan:
    """Join the pages of a plan; a stream that was replaced meanwhile starts over."""
    while True:
        plan = page_of(from_seq)
        segments = list(plan.segments)
        page = plan
        while page.next_from_seq is not None and page.incarnation == plan.incarnation:
            page = page_of(page.next_from_seq)
            segments += page.segments
        if page.incarnation == plan.incarnation:
            # The last page is the newest look: the tail starts where its segments end.
            return msgspec.structs.replace(page, segments=segments)


_Shape = TypeVar("_Shape")


def _plan_of(body: bytes, stream: str) -> ReadPlan:
    if body.startswith(b'{"error"'):
        raise _refusal(body, stream)
    return _decode(body, ReadPlan)


def _decode(body: bytes, shape: type[_Shape]) -> _Shape:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReadRefused(f"the server's answer is not understood: {error}") from error


def _refusal(body: bytes, stream: str) -> ClientError:
    error = _decode(body, _Failure).error
    if error.code in (404, "topic_not_found"):
        return StreamMissing(stream, (error.detail or {}).get("did_you_mean"))
    if error.code in (401, 403):
        return PermissionDenied(f"the server refused to show stream {stream!r}")
    return ReadRefused(f"stream {stream!r}: {error.description or error.message}")


def _http_refusal(status: int, body: bytes, stream: str) -> ClientError:
    if status == 401:
        return AuthenticationFailed(
            "the server wants a key: give it in the url as http://key@host:port"
        )
    if status == 403:
        return PermissionDenied(f"this key may not read stream {stream!r}")
    try:
        refusal = _refusal(body, stream)
    except ReadRefused:
        return ReadRefused(f"the server answered {status}: is it a millstream server?")
    if status == 404 and not isinstance(refusal, StreamMissing):
        return ReadRefused("this server does not read records out over HTTP: use its nats:// url")
    return refusal


def _authorization(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    if password is None:
        return {"Authorization": f"Bearer {unquote(user)}"}
    pair = f"{unquote(user)}:{unquote(password)}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _shown(url: str) -> str:
    """Return the url without what stands before its host."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
