"""RequestParser: bytes in, whole requests out; it cannot touch a socket.

A head is first framed by its empty line, so that its size is bounded before anything looks
inside, then checked by httptools. Bodies are framed here: a length, or chunks. Whatever two
servers could read differently is refused, and a refusal ends the connection.
"""

import re

import httptools
import msgspec

from millstream.http.limits import Limits
from millstream.http.number import whole_number
from millstream.http.request import Headers, Request

REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([!-~]+) HTTP/1\.([01])\r\n")
HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%-]*(:[0-9]*)?|\[[0-9A-Fa-f:.]+\](:[0-9]*)?")
CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(;[\t -~]*)?\r\n")
LONGEST_CHUNK_LINE = 256
LONGEST_TRAILER = 4096
LARGEST_KNOWN, MOST_KNOWN = 1024, 4  # heads that a connection remembers


class Refusal(msgspec.Struct, frozen=True):
    """Why the connection must end: nothing after these bytes can be trusted."""

    status: int
    code: str
    message: str


class _BadRequest(Exception):
    def __init__(self, message: str, status: int = 400, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.refusal = Refusal(status, code, message)


class _Known(msgspec.Struct, frozen=True):
    """What a head means: clients that stay send the same one again and again."""

    request: Request
    missing: int | None  # bytes of its body; None = chunks
    expects_continue: bool


class _RequestHead:
    """Collects what httptools finds in one head."""

    def __init__(self) -> None:
        self.headers: Headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))


class RequestParser:
    """``feed`` bytes as they come, then call ``next`` until it returns None."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buffer = bytearray()
        self._searched = 0  # how far the buffer is known to hold no end of head
        self._request: Request | None = None  # its head is whole, its body is not
        self._body = bytearray()
        self._missing: int | None = None  # bytes of a body with a length; None = chunks
        self._chunk_left = 0
        self._chunk_stage = "size"
        self._known: dict[bytes, _Known] = {}
        self.expects_continue = False

    @property
    def buffered(self) -> int:
        """Return how many bytes wait here."""
        return len(self._buffer) + len(self._body)

    @property
    def in_head(self) -> bool:
        """Return whether a head has begun and not ended."""
        return self._request is None and bool(self._buffer)

    @property
    def in_body(self) -> bool:
        """Return whether a body is under way."""
        return self._request is not None

    @property
    def body_received(self) -> int:
        """Return how much of the body under way has come."""
        return len(self._body)

    def feed(self, data: bytes) -> None:
        """Take bytes from the connection."""
        self._buffer += data

    def whole(self, data: bytes) -> Request | None:
        """Return the one request that ``data`` is, where all that came before is dealt with.

        It has a head that is known and nothing behind its body; None takes nothing of it.
        """
        if self._buffer or self._request is not None:
            return None
        end = data.find(b"\r\n\r\n") + 4
        known = self._known.get(data[:end])
        if known is None or known.missing != len(data) - end or known.expects_continue:
            return None
        request = known.request.again()
        request.body = data[end:]
        return request

    def next(self) -> Request | Refusal | None:
        """Return the next whole request, why there can be none, or None while bytes are missing."""
        try:
            if self._request is None and not self._take_head():
                return None
            return self._take_body()
        except _BadRequest as refused:
            return refused.refusal

    def _take_head(self) -> bool:
        buffer = self._buffer
        if not buffer:
            return False
        while buffer.startswith(b"\r\n"):  # an empty line or two before a request is tolerated
            del buffer[:2]
            self._searched = 0
        end = buffer.find(b"\r\n\r\n", max(0, self._searched - 3))
        if end < 0:
            self._searched = len(buffer)
            if len(buffer) > self._limits.head_bytes:
                raise _BadRequest("the header block is too large", 431, "headers_too_large")
            if len(buffer) > 64 and b"\n" not in buffer and REQUEST_LINE.match(buffer) is None:
                self._check_start(bytes(buffer))
            return False
        if end + 4 > self._limits.head_bytes:
            raise _BadRequest("the header block is too large", 431, "headers_too_large")
        head = bytes(buffer[: end + 4])
        del buffer[: end + 4]
        self._searched = 0
        known = self._known.get(head)
        if known is None:
            self._request = self._parse_head(head)
            self._remember(head, self._request)
        else:
            self._request, self._missing = known.request.again(), known.missing
            self.expects_continue = known.expects_continue
            self._body, self._chunk_left, self._chunk_stage = bytearray(), 0, "size"
        return True

    def _remember(self, head: bytes, request: Request) -> None:
        if len(head) <= LARGEST_KNOWN:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[head] = _Known(request.again(), self._missing, self.expects_continue)

    def _check_start(self, start: bytes) -> None:
        if re.match(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32} [!-~]", start) is None:
            raise _BadRequest("this is not an HTTP request")

    def _parse_head(self, head: bytes) -> Request:
        line = REQUEST_LINE.match(head)
        if line is None:
            raise _BadRequest("the request line is not of the form METHOD TARGET HTTP/1.1")
        collected = _RequestHead()
        parser = httptools.HttpRequestParser(collected)
        try:
            parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            pass  # an upgrade that nobody asked for is answered as the plain request that it is
        except httptools.HttpParserInvalidMethodError:
            raise _BadRequest("unknown method", 405, "method_not_allowed") from None
        except httptools.HttpParserError as error:
            raise _BadRequest(f"malformed request: {error}") from None
        if len(collected.headers) > self._limits.header_count:
            raise _BadRequest("too many headers", 431, "headers_too_large")
        path, query = _origin_form(line.group(1), line.group(2))
        request = Request(
            method=line.group(1).decode(),
            path=path,
            query_string=query,
            headers=collected.headers,
            version="1.1" if line.group(3) == b"1" else "1.0",
            keep_alive=_keeps_alive(line.group(3) == b"1", collected.headers),
        )
        self._expect(request)
        self._frame_body(request)
        return request

    def _expect(self, request: Request) -> None:
        hosts = [value for name, value in request.headers if name == b"host"]
        if len(hosts) > 1 or (not hosts and request.version == "1.1"):
            raise _BadRequest("exactly one Host header is required")
        if hosts and HOST.fullmatch(hosts[0]) is None:
            raise _BadRequest("the Host header is malformed")
        expect = request.header(b"expect")
        if expect is not None and expect.lower() != b"100-continue":
            raise _BadRequest("only 100-continue can be expected", 417, "expectation_failed")
        self.expects_continue = expect is not None and request.version == "1.1"

    def _frame_body(self, request: Request) -> None:
        self._body = bytearray()
        coding = request.header(b"transfer-encoding")
        if coding is not None:
            if request.version == "1.0" or coding.lower() != b"chunked":
                raise _BadRequest("chunked, over HTTP/1.1, is the only transfer coding accepted")
            self._missing, self._chunk_left, self._chunk_stage = None, 0, "size"
            return
        given = (request.header(b"content-length") or b"0").decode("latin-1")
        length = whole_number(given, self._limits.body_bytes)
        if length is None:
            self._too_large()
        self._missing = length

    def _too_large(self) -> None:
        most = self._limits.body_bytes
        raise _BadRequest(f"a body may hold at most {most} bytes", 413, "payload_too_large")

    def _take_body(self) -> Request | None:
        whole = self._take_chunks() if self._missing is None else self._take_length()
        if not whole:
            return None
        request = self._request
        assert request is not None
        request.body = bytes(self._body)
        self._request, self._body, self.expects_continue = None, bytearray(), False
        return request

    def _take_length(self) -> bool:
        assert self._missing is not None
        taken = min(self._missing, len(self._buffer))
        if taken == len(self._buffer) and not self._body:
            self._body, self._buffer = self._buffer, bytearray()
        elif taken:
            self._body += self._buffer[:taken]
            del self._buffer[:taken]
        self._missing -= taken
        return self._missing == 0

    def _take_chunks(self) -> bool:
        while True:
            if self._chunk_stage == "size":
                line = self._line(LONGEST_CHUNK_LINE)
                if line is None:
                    return False
                match = CHUNK_LINE.fullmatch(line)
                if match is None:
                    raise _BadRequest("malformed chunk size")
                self._chunk_left = int(match.group(1), 16)
                if len(self._body) + self._chunk_left > self._limits.body_bytes:
                    self._too_large()
                self._chunk_stage = "data" if self._chunk_left else "trailer"
            elif self._chunk_stage == "data":
                if not self._take_chunk_data():
                    return False
                self._chunk_stage = "size"
            else:
                return self._skip_trailer()

    def _take_chunk_data(self) -> bool:
        taken = min(self._chunk_left, len(self._buffer))
        self._body += self._buffer[:taken]
        del self._buffer[:taken]
        self._chunk_left -= taken
        if self._chunk_left or len(self._buffer) < 2:
            if not self._chunk_left and self._buffer and self._buffer[0] != 13:
                raise _BadRequest("a chunk is longer than its size")
            return False
        if self._buffer[:2] != b"\r\n":
            raise _BadRequest("a chunk is longer than its size")
        del self._buffer[:2]
        return True

    def _skip_trailer(self) -> bool:
        """Drop the trailer: nothing in it may change what the head has said."""
        dropped = 0
        while True:
            line = self._line(LONGEST_TRAILER)
            if line is None:
                return False
            if line == b"\r\n":
                return True
            dropped += len(line)
            if dropped > LONGEST_TRAILER or not re.match(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:", line):
                raise _BadRequest("malformed trailer")

    def _line(self, longest: int) -> bytes | None:
        end = self._buffer.find(b"\n", 0, longest)
        if end < 0:
            if len(self._buffer) >= longest:
                raise _BadRequest("a line of the chunked body is too long")
            return None
        line = bytes(self._buffer[: end + 1])
        if not line.endswith(b"\r\n"):
            raise _BadRequest("a line of the chunked body ends without CR")
        del self._buffer[: end + 1]
        return line


def _origin_form(method: bytes, target: bytes) -> tuple[str, str]:
    """Return path and query of a target; an absolute one is accepted as a proxy would send it."""
    if method == b"CONNECT" or b"#" in target:
        raise _BadRequest("the request target is not acceptable")
    if not target.startswith(b"/") and not (method == b"OPTIONS" and target == b"*"):
        absolute = re.fullmatch(rb"https?://[^/?]+(.*)", target, re.IGNORECASE)
        if absolute is None:
            raise _BadRequest("the request target is not acceptable")
        target = absolute.group(1) or b"/"
    path, _, query = target.decode().partition("?")
    return path or "/", query


def _keeps_alive(is_1_1: bool, headers: Headers) -> bool:
    wishes = b",".join(value.lower() for name, value in headers if name == b"connection")
    tokens = {token.strip() for token in wishes.split(b",")}
    return b"close" not in tokens if is_1_1 else b"keep-alive" in tokens
