"""Read plans, ranges and staged batches of a stream, over NATS or over HTTP.

A plan says where a stream's records are: sealed segments as files, the tail behind the server.
Every call may be repeated without harm: a connection that was lost in between is opened again and
asked once more, and for as long as ``patience`` says where the server itself went away.
"""

import base64
import http.client
import ssl
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec

from millstream.client.blocking import DEFAULT_TIMEOUT, Client, connect
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
from millstream.client.login import Login
from millstream.wire.info import DEFAULT_URL

PLAN_SUBJECT = "$MILLSTREAM.API.PLAN."
READ_SUBJECT = "$MILLSTREAM.API.READ."
STAGE_SUBJECT = "$MILLSTREAM.API.STAGE."
COMMIT_SUBJECT = "$MILLSTREAM.API.COMMIT."
ABORT_SUBJECT = "$MILLSTREAM.API.ABORT."
HOLD_SUBJECT = "$MILLSTREAM.API.HOLD."
NAMES_SUBJECT = "$JS.API.STREAM.NAMES"
DEFAULT_HTTP_PORT = 8222
READ_BYTES = 1 << 20
HTTP_PART = 4 << 20
HEADROOM = 1024  # for the line of JSON before staged entries
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


class StreamMissing(ClientError):
    """The server has no stream of that name."""

    def __init__(self, stream: str, hint: str | None = None) -> None:
        also = f"; did you mean {hint!r}?" if hint else ""
        super().__init__(f"the server has no stream named {stream!r}{also}")
        self.stream = stream


class ReadRefused(ClientError):
    """The server understood the request and will not answer it."""


class StagedAway(ReadRefused):
    """What a commit names is not staged (any more), or not as it was sent."""


class PlannedSegment(msgspec.Struct, frozen=True):
    """A sealed segment: two files that hold the records ``base_seq..last_seq`` for good."""

    path: str
    idx_path: str
    base_seq: int
    last_seq: int
    bytes: int = 0


class ColdFile(msgspec.Struct, frozen=True):
    """A Parquet file that holds the live records ``base_seq..last_seq`` for good."""

    path: str
    base_seq: int
    last_seq: int


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
    time_seq: int | None = None  # the first sequence at or after the time asked for
    until_seq: int | None = None  # as far as the bytes asked for reach
    cold: list[ColdFile] = []  # history that any reader of Parquet can take
    whole: bool = True  # false: some subjects are hidden, so no file is named
    cold_deleted: list[tuple[int, int]] = []  # rows of cold files that do not count
    identity: str = ""  # tells the stream from all others, also of other servers


class StagedFile(msgspec.Struct, frozen=True):
    """Records that wait for a commit: what names them, their size and XXH3-64."""

    id: str
    bytes: int
    check: str


class Batch(msgspec.Struct, frozen=True):
    """One batch of a sink; ``once`` says that the sink ends with it.

    ``query`` says who counts the batches, where the sink's name does not: a number that another
    query has used is then refused, not taken for the same batch.
    """

    sink: str
    batch: int
    once: bool = False
    query: str = ""


class Committed(msgspec.Struct, frozen=True):
    """What a commit did; nothing where the batch had been committed before."""

    sink: str
    batch: int
    records: int
    first_seq: int = 0
    last_seq: int = 0
    duplicate: bool = False


class StreamReader(Protocol):
    """What Spark and the command line ask of a server about records at rest."""

    def names(self) -> list[str]:
        """Return the names of all streams that may be seen."""
        ...

    def plan(
        self, stream: str, from_seq: int = 0, *, at_ns: int = 0, max_bytes: int = 0
    ) -> ReadPlan:
        """Return the plan, its segments from ``from_seq`` on; raises ``StreamMissing``.

        With ``at_ns`` it tells ``time_seq``, with ``max_bytes`` how far so many bytes from
        ``from_seq`` on reach, as ``until_seq``.
        """
        ...

    def read(self, stream: str, from_seq: int, to_seq: int, max_bytes: int = READ_BYTES) -> bytes:
        """Return raw frames from the range, oldest first, empty once nothing is left in it."""
        ...

    def hold(self, stream: str, holder: str, seq: int, seconds: float, reader: str = "") -> None:
        """Tell that ``holder`` has taken everything up to ``seq``, and show it as a consumer.

        Limits take nothing above ``seq`` for so many seconds; 0 holds nothing. ``reader`` tells
        those apart that go by one name: the one furthest behind is shown.
        """
        ...

    def stage(self, stream: str, batch: Batch, staged_id: str, at: int, data: bytes) -> None:
        """Keep a part of a batch's entries where no reader sees it."""
        ...

    def commit(self, stream: str, batch: Batch, files: list[StagedFile]) -> Committed:
        """Append what was staged, whole and once."""
        ...

    def abort(self, stream: str, batch: Batch, staged_id: str = "") -> None:
        """Forget what was staged."""
        ...

    @property
    def part_bytes(self) -> int:
        """Return how much one call of ``stage`` takes."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


def open_streams(
    url: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    login: Login | None = None,
    patience: float = 0.0,
) -> StreamReader:
    """Return the reader for a ``nats://``, ``tls://``, ``http://`` or ``https://`` url."""
    address = url or DEFAULT_URL
    if address.startswith(("http://", "https://")):
        return HttpStreams(address, timeout, login, patience)
    return NatsStreams(address, timeout, login, patience)


_Result = TypeVar("_Result")


def patiently(call: Callable[[], _Result], patience: float) -> _Result:
    """Repeat ``call`` for so many seconds while the server cannot be reached."""
    until = time.monotonic() + patience
    pause = FIRST_PAUSE
    while True:
        try:
            return call()
        except (ConnectFailed, ConnectionLost, RequestTimeout):
            if time.monotonic() + pause > until:
                raise
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


class _Error(msgspec.Struct, frozen=True):
    code: int | str = 0
    err_code: int = 0
    description: str = ""
    message: str = ""
    detail: dict[str, Any] | None = None


class _StreamFailure(msgspec.Struct, frozen=True):
    error: _Error


class _Names(msgspec.Struct, frozen=True):
    total: int = 0
    streams: list[str] | None = None


class _TopicBody(msgspec.Struct, frozen=True):
    topic: str


class _Listed(msgspec.Struct, frozen=True):
    topics: list[_TopicBody]
    next_cursor: str | None = None


def _further(at_ns: int, max_bytes: int) -> dict[str, int]:
    return {n: v for n, v in (("at_ns", at_ns), ("max_bytes", max_bytes)) if v}


def _commit_body(batch: Batch, files: list[StagedFile]) -> dict[str, object]:
    named = [msgspec.to_builtins(file) for file in files]
    body = {"sink": batch.sink, "batch": batch.batch, "once": batch.once, "files": named}
    return body | ({"query": batch.query} if batch.query else {})


def _hold_body(holder: str, seq: int, seconds: float, reader: str) -> dict[str, object]:
    body: dict[str, object] = {"holder": holder, "seq": seq, "seconds": seconds}
    return body | ({"reader": reader} if reader else {})


def _path(stream: str, what: str) -> str:
    return f"/v0/topics/{quote(stream, safe='')}/{what}"


class NatsStreams:
    """Requests to ``$MILLSTREAM.API`` over one held connection."""

    def __init__(
        self,
        url: str,
        timeout: float = DEFAULT_TIMEOUT,
        login: Login | None = None,
        patience: float = 0.0,
        connected: Callable[[], Client] | None = None,
    ) -> None:
        """``connected`` opens connections in another way than by the url."""
        self._opened = connected
        self._url = url
        self._timeout = timeout
        self._login = login
        self._patience = patience
        self._client: Client | None = None

    def names(self) -> list[str]:
        """Return the names of all streams that may be seen."""
        found: list[str] = []
        while True:
            reply = self._ask(NAMES_SUBJECT, {"offset": len(found)})
            if b'"error"' in reply[:200]:
                raise _refusal(reply, "")
            page = _decode(reply, _Names)
            found += page.streams or []
            if not page.streams or len(found) >= page.total:
                return found

    def plan(
        self, stream: str, from_seq: int = 0, *, at_ns: int = 0, max_bytes: int = 0
    ) -> ReadPlan:
        """Return the plan, its segments from ``from_seq`` on; raises ``StreamMissing``."""
        further = _further(at_ns, max_bytes)
        return _whole_plan(lambda page: self._plan_page(stream, page, further), from_seq)

    def read(self, stream: str, from_seq: int, to_seq: int, max_bytes: int = READ_BYTES) -> bytes:
        """Return raw frames from the range, oldest first, empty once nothing is left in it."""
        asked = {"from_seq": from_seq, "to_seq": to_seq, "max_bytes": max_bytes}
        reply = self._ask(READ_SUBJECT + stream, asked)
        if reply.startswith(b"{"):  # a frame starts with its magic
            raise _refusal(reply, stream)
        return reply

    def hold(self, stream: str, holder: str, seq: int, seconds: float, reader: str = "") -> None:
        """Tell that ``holder`` has taken everything up to ``seq``."""
        asked = _hold_body(holder, seq, seconds, reader)
        _checked(self._ask(HOLD_SUBJECT + stream, asked), stream)

    def stage(self, stream: str, batch: Batch, staged_id: str, at: int, data: bytes) -> None:
        """Keep a part of a batch's entries where no reader sees it."""
        line = {"sink": batch.sink, "batch": batch.batch, "id": staged_id, "at": at}
        payload = msgspec.json.encode(line) + b"\n" + data
        _checked(self._request(STAGE_SUBJECT + stream, payload), stream)

    def commit(self, stream: str, batch: Batch, files: list[StagedFile]) -> Committed:
        """Append what was staged, whole and once."""
        reply = _checked(self._ask(COMMIT_SUBJECT + stream, _commit_body(batch, files)), stream)
        return _decode(reply, Committed)

    def abort(self, stream: str, batch: Batch, staged_id: str = "") -> None:
        """Forget what was staged."""
        asked = {"sink": batch.sink, "batch": batch.batch, "id": staged_id}
        _checked(self._ask(ABORT_SUBJECT + stream, asked), stream)

    @property
    def part_bytes(self) -> int:
        """Return how much one call of ``stage`` takes."""
        return patiently(lambda: self._connected().info.max_payload - HEADROOM, self._patience)

    def close(self) -> None:
        """End the connection; the next call opens another."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _plan_page(self, stream: str, from_seq: int, further: dict[str, int]) -> ReadPlan:
        reply = self._ask(PLAN_SUBJECT + stream, {"from_seq": from_seq} | further)
        return _decode(_checked(reply, stream), ReadPlan)

    def _ask(self, subject: str, body: object) -> bytes:
        return self._request(subject, msgspec.json.encode(body))

    def _request(self, subject: str, payload: bytes) -> bytes:
        return patiently(lambda: self._request_twice(subject, payload), self._patience)

    def _request_twice(self, subject: str, payload: bytes) -> bytes:
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
        client = self._connected()
        try:
            return client.request(subject, payload, self._timeout).payload
        except NoResponders:
            raise ReadRefused(
                f"{client.address} does not answer this: it is not a millstream server with "
                "streams, or this user may not ask it"
            ) from None

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self._opened() if self._opened is not None else self._connect()
        return self._client

    def _connect(self) -> Client:
        return connect(
            self._url, name="millstream streams", timeout=self._timeout, login=self._login
        )


class HttpStreams:
    """The same calls below ``/v0/topics/<stream>``."""

    part_bytes = HTTP_PART

    def __init__(
        self,
        url: str,
        timeout: float = DEFAULT_TIMEOUT,
        login: Login | None = None,
        patience: float = 0.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidUrl(f"cannot read {_shown(url)!r}: use http://host:port")
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port or (443 if self._secure else DEFAULT_HTTP_PORT)
        self._login = login or Login()
        self._authorization = _authorization(
            parts.username or self._login.user or self._login.token,
            parts.password if parts.username else self._login.password,
        )
        self._timeout = timeout
        self._patience = patience
        self._connection: http.client.HTTPConnection | None = None

    def names(self) -> list[str]:
        """Return the names of all streams that may be seen."""
        found: list[str] = []
        query: dict[str, int | str] = {"page_size": 1000}
        while True:
            page = _decode(self._call("GET", f"/v0/topics?{urlencode(query)}", "", b""), _Listed)
            found += [one.topic for one in page.topics]
            if page.next_cursor is None:
                return found
            query["cursor"] = page.next_cursor

    def plan(
        self, stream: str, from_seq: int = 0, *, at_ns: int = 0, max_bytes: int = 0
    ) -> ReadPlan:
        """Return the plan, its segments from ``from_seq`` on; raises ``StreamMissing``."""
        further = _further(at_ns, max_bytes)
        return _whole_plan(lambda page: self._plan_page(stream, page, further), from_seq)

    def read(self, stream: str, from_seq: int, to_seq: int, max_bytes: int = READ_BYTES) -> bytes:
        """Return raw frames from the range, oldest first, empty once nothing is left in it."""
        asked = {"from_seq": from_seq, "to_seq": to_seq, "max_bytes": max_bytes}
        return self._get(stream, "frames", asked)

    def hold(self, stream: str, holder: str, seq: int, seconds: float, reader: str = "") -> None:
        """Tell that ``holder`` has taken everything up to ``seq``."""
        self._post(stream, "hold", _hold_body(holder, seq, seconds, reader))

    def stage(self, stream: str, batch: Batch, staged_id: str, at: int, data: bytes) -> None:
        """Keep a part of a batch's entries where no reader sees it."""
        query = {"sink": batch.sink, "batch": batch.batch, "id": staged_id, "at": at}
        self._call("POST", f"{_path(stream, 'stage')}?{urlencode(query)}", stream, data)

    def commit(self, stream: str, batch: Batch, files: list[StagedFile]) -> Committed:
        """Append what was staged, whole and once."""
        return _decode(self._post(stream, "commit", _commit_body(batch, files)), Committed)

    def abort(self, stream: str, batch: Batch, staged_id: str = "") -> None:
        """Forget what was staged."""
        self._post(stream, "abort", {"sink": batch.sink, "batch": batch.batch, "id": staged_id})

    def close(self) -> None:
        """End the connection; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _plan_page(self, stream: str, from_seq: int, further: dict[str, int]) -> ReadPlan:
        body = self._get(stream, "plan", {"from_seq": from_seq} | further)
        return _decode(_checked(body, stream), ReadPlan)

    def _get(self, stream: str, what: str, query: dict[str, int]) -> bytes:
        return self._call("GET", f"{_path(stream, what)}?{urlencode(query)}", stream, b"")

    def _post(self, stream: str, what: str, body: object) -> bytes:
        return self._call("POST", _path(stream, what), stream, msgspec.json.encode(body))

    def _call(self, method: str, path: str, stream: str, body: bytes) -> bytes:
        call = (method, path, stream, body)
        return patiently(lambda: self._call_twice(*call), self._patience)

    def _call_twice(self, method: str, path: str, stream: str, body: bytes) -> bytes:
        held = self._connection is not None
        try:
            return self._call_once(method, path, stream, body)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not held:
                raise ConnectFailed(f"cannot read from {self}: {_reason(error)}") from error
        try:
            return self._call_once(method, path, stream, body)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ConnectionLost(f"{self} went away: {_reason(error)}") from error

    def _call_once(self, method: str, path: str, stream: str, body: bytes) -> bytes:
        connection = self._connected()
        headers = dict(self._authorization)
        if method == "POST":
            kind = "octet-stream" if "/stage?" in path else "json"
            headers["Content-Type"] = f"application/{kind}"
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status == 200:
            return answer
        raise _http_refusal(response.status, answer, stream)

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            where = (self._host, self._port)
            if self._secure:
                tls = self._login.tls()
                self._connection = http.client.HTTPSConnection(
                    *where, timeout=self._timeout, context=tls
                )
            else:
                self._connection = http.client.HTTPConnection(*where, timeout=self._timeout)
        return self._connection

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


def _checked(body: bytes, stream: str) -> bytes:
    """Return an answer that is none of an error."""
    if body.startswith(b'{"error"'):
        raise _refusal(body, stream)
    return body


def _decode(body: bytes, shape: type[_Shape]) -> _Shape:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReadRefused(f"cannot read the server's answer: {error}") from error


def _refusal(body: bytes, stream: str) -> ClientError:
    error = _decode(body, _StreamFailure).error
    if error.code in (404, "topic_not_found"):
        return StreamMissing(stream, (error.detail or {}).get("did_you_mean"))
    if error.code in (401, 403):
        return PermissionDenied(f"the server refused to show stream {stream!r}")
    if error.code in (409, "staged_missing"):
        return StagedAway(f"stream {stream!r}: {error.description or error.message}")
    return ReadRefused(f"stream {stream!r}: {error.description or error.message}")


def _http_refusal(status: int, body: bytes, stream: str) -> ClientError:
    if status == 401:
        return AuthenticationFailed(
            "the server wants a key: give it in the url as http://key@host:port"
        )
    if status == 403:
        return PermissionDenied(f"this key may not do this to stream {stream!r}")
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
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
        return "no HTTP is spoken there; a NATS port is named by nats://"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "no TLS is spoken there; use http://"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
