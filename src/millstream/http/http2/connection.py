"""Http2Connection: a client that speaks HTTP/2 with prior knowledge, on the same port.

The framing, its checks and the flow-control windows are h2's; requests become the same values
as over HTTP/1.1 and reach the same application, many at a time.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from millstream.http.http2.frame_queue import FrameQueue
from millstream.http.http2.leaky_count import LeakyCount
from millstream.http.http2.window_writer import WindowWriter
from millstream.http.request import Request
from millstream.http.response import Answer, Response, StreamedResponse, Upgraded, error_body
from millstream.http.sockets import keep_little, peer_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from millstream.http.connection import Door
    from millstream.http.limits import Limits

log = logging.getLogger(__name__)

STREAM_WINDOW = 1024 * 1024
CONNECTION_WINDOW = 4 * 1024 * 1024
MOST_STREAMS = 1024
FIELD_BYTES = 32  # that each field of a head counts beside its name and value (RFC 9113, 6.5.2)
PING_SECONDS = 20.0  # how often a client with requests under way is asked whether it is there
PING = b"are you?"
GOAWAY = struct.Struct(">B H B B I I I")  # 24-bit length, type, flags, stream, last stream, code
MOST_RESETS = 1000  # streams a client may open and drop again before it is cut
RESETS_PER_SECOND = 30.0  # that count no longer: behind a proxy many people leave one connection
MOST_IDLE_FRAMES = 1000  # that bring no request and take no answer, before a client is cut
IDLE_FRAMES_PER_SECOND = 100.0
PREFACE_BYTES = 24
TURN_FRAMES = 64
TURN_SECONDS = 0.001  # what a client's frames take of the loop before others have their turn
IDLE = (
    h2.events.PriorityUpdated
    | h2.events.PingReceived
    | h2.events.RemoteSettingsChanged
    | h2.events.UnknownFrameReceived
)


@dataclass(slots=True)
class _Stream:
    request: Request
    since: float  # when its head came: what bounds a slow body
    body: bytearray = field(default_factory=bytearray)
    is_whole: bool = False  # all of it has come: it is we who owe something
    task: asyncio.Task[None] | None = None


class Http2Connection(asyncio.Protocol):
    """Same duties as an HTTP/1.1 connection: limits, deadlines, a clean end."""

    def __init__(self, door: Door, app: Callable[[Request], Awaitable[Answer]]) -> None:
        self._door = door
        self._app = app
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, _Stream] = {}
        self._resets = LeakyCount(MOST_RESETS, RESETS_PER_SECOND)
        self._idle = LeakyCount(MOST_IDLE_FRAMES, IDLE_FRAMES_PER_SECOND)
        self._input = FrameQueue(PREFACE_BYTES)
        self._greeted = False
        self._asked = False  # by a ping that nothing has followed yet
        self._finishing = False
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding=None)
        )
        # Changed settings count only once the client has said so: these are the first ones.
        self._h2.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: MOST_STREAMS,
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: door.limits.head_bytes,
            },
        )
        self._out = WindowWriter(self._h2, door.unread.share(self))
        self.deadline: float | None = None

    @property
    def stalled(self) -> bool:
        """Return whether an answer waits for the client to read."""
        return not self._out.is_writable

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send our settings; the preface is expected in the first bytes."""
        self._transport = self._out.transport = cast("asyncio.Transport", transport)
        keep_little(self._transport)
        self._door.admit(self)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(CONNECTION_WINDOW - 65_535)
        self._out.flush()
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what nobody will read."""
        self._transport = self._out.transport = None
        self.deadline = None
        self._cancel_all()
        self._door.forget(self)

    def _cancel_all(self) -> None:
        """End all answers: nobody will read them."""
        for stream in list(self._streams.values()):
            if stream.task is not None:
                stream.task.cancel()
        self._streams.clear()
        self._out.moved.set()

    def data_received(self, data: bytes) -> None:
        """Act on what came, for a moment; the rest waits until others had their turn."""
        self._asked = False
        is_due = self._input.has_more
        self._input.add(data)
        if not is_due:
            self._take_turn()

    def _take_turn(self) -> None:
        """Feed h2 frame by frame, and act on what it found."""
        transport, end = self._transport, self._door.now() + TURN_SECONDS
        if transport is None or transport.is_closing() or not self._out.is_writable:
            return
        try:
            for _ in range(TURN_FRAMES):
                frame = self._input.next()
                for event in self._h2.receive_data(frame):
                    self._handle(event)
                if not frame or self._door.now() > end:
                    break
            if self._input.is_too_large:
                self.close_for("a frame is too large", h2.errors.ErrorCodes.FRAME_SIZE_ERROR)
                return
        except h2.exceptions.ProtocolError:
            self._out.flush()  # h2 has queued the GOAWAY that says why
            transport.close()
            return
        self._out.flush()
        self._set_deadline()
        self._read_on()

    def _read_on(self) -> None:
        """Read more once all that was read is done with; until then go on after the others."""
        if self._transport is None or not self._out.is_writable:
            return
        if self._input.has_more:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._take_turn)
        else:
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read."""
        self._out.is_writable = False
        self.deadline = self._door.now() + self._door.limits.stall_seconds
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._out.is_writable = True
        self._set_deadline()
        self._out.moved.set()
        self._read_on()

    def expire(self) -> None:
        """Drop a client that is late or idle; ask one that waits whether it is still there."""
        if self._finishing or not self._out.is_writable or self._asked:
            self.abort()
            return
        if self._is_waited_for():
            self._asked = True
            self._h2.ping(PING)
            self._out.flush()
            self.deadline = self._door.now() + PING_SECONDS
            return
        self._finishing = True
        self._goodbye()
        self.deadline = self._door.now() + self._door.limits.linger_seconds
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def finish(self) -> None:
        """Take no new requests; close once those under way have their answers."""
        self._finishing = True
        self._goodbye()
        self._close_if_done()

    def _goodbye(self) -> None:
        """Say which requests are the last; h2's own way to say so would end them unanswered."""
        if self._transport is not None:
            self._out.flush()
            last = self._h2.highest_inbound_stream_id
            self._transport.write(GOAWAY.pack(0, 8, 7, 0, 0, last, h2.errors.ErrorCodes.NO_ERROR))

    def _close_if_done(self) -> None:
        if self._finishing and not self._streams and self._transport is not None:
            self._transport.close()

    def _is_waited_for(self) -> bool:
        """Say whether there are requests, all of them whole."""
        return bool(self._streams) and all(s.is_whole for s in self._streams.values())

    def _set_deadline(self) -> None:
        if not self._out.is_writable or self._transport is None or self._transport.is_closing():
            return
        limits, waiting = self._door.limits, [s for s in self._streams.values() if not s.is_whole]
        if not self._greeted:
            self.deadline = self.deadline or self._door.now() + limits.head_seconds
        elif waiting:
            rate, grace = limits.body_bytes_per_second, limits.body_grace_seconds
            self.deadline = min(s.since + grace + len(s.body) / rate for s in waiting)
        else:
            late = PING_SECONDS if self._streams else limits.idle_seconds
            self.deadline = self._door.now() + late

    def _handle(self, event: h2.events.Event) -> None:
        self._greeted = True
        if isinstance(event, h2.events.RequestReceived) and self._finishing:
            self._h2.reset_stream(event.stream_id, h2.errors.ErrorCodes.REFUSED_STREAM)
        elif isinstance(event, h2.events.RequestReceived):
            request = _request(event.headers)
            request.peer = peer_of(self._transport)
            request.most_body = self._door.limits.body_bytes
            stream = self._streams[event.stream_id] = _Stream(request, self._door.now())
            refusal = _why_refused(event.headers, request, self._door.limits)
            if refusal:
                answer = Response(431, error_body("headers_too_large", refusal))
                self._run(event.stream_id, stream, _answer_with(answer))
        elif isinstance(event, h2.events.DataReceived):
            self._take(event)
        elif isinstance(event, h2.events.StreamEnded):
            self._start(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self._drop(event.stream_id)
        elif isinstance(event, h2.events.WindowUpdated):
            self._out.moved.set()
        elif isinstance(event, IDLE):
            self._out.moved.set()  # settings may have opened the windows
            if self._idle.is_too_many(self._door.now()):
                self.close_for("too many PING, PRIORITY or SETTINGS frames")
        elif isinstance(event, h2.events.ConnectionTerminated):
            self._finishing = True
            self._close_if_done()

    def _take(self, event: h2.events.DataReceived) -> None:
        self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        stream = self._streams.get(event.stream_id)
        if stream is None or stream.is_whole:
            return
        stream.body += event.data
        if len(stream.body) > self._door.limits.body_bytes:
            body = error_body("payload_too_large", "the body is above the limit")
            stream.body.clear()
            self._run(event.stream_id, stream, _answer_with(Response(413, body)))

    def _start(self, stream_id: int) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.is_whole:
            stream.is_whole = True
            stream.request.body = bytes(stream.body)
            run = partial(self._run, stream_id, stream, self._app)
            self._door.turns.take(stream.request, run, self._door.now(), stream)

    def _run(
        self, stream_id: int, stream: _Stream, app: Callable[[Request], Awaitable[Answer]]
    ) -> None:
        stream.is_whole = True
        if self._streams.get(stream_id) is not stream:  # it was reset while others had their turn
            return
        loop = asyncio.get_running_loop()
        stream.task = loop.create_task(self._serve(stream_id, stream.request, app))

    def _drop(self, stream_id: int) -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is not None and stream.task is not None:
            stream.task.cancel()
        self._out.moved.set()
        if self._resets.is_too_many(self._door.now()):
            self.close_for("too many requests were dropped before their answers")

    def unsent(self) -> int:
        """Return how many bytes wait for the client."""
        waits = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return waits + self._out.unread.held

    def close_for(
        self, reason: str, code: h2.errors.ErrorCodes = h2.errors.ErrorCodes.ENHANCE_YOUR_CALM
    ) -> None:
        """Say why, and drop the connection: whoever deserves that may not read it."""
        with suppress(h2.exceptions.ProtocolError):
            self._h2.close_connection(code, reason.encode())
            self._out.flush()
        self._finishing = True
        self._cancel_all()
        self.deadline = self._door.now() + self._door.limits.linger_seconds
        if self._transport is not None:
            self._transport.close()  # what was said may still be on its way

    async def _serve(
        self, stream_id: int, request: Request, app: Callable[[Request], Awaitable[Answer]]
    ) -> None:
        try:
            if self._out.unread.is_full:
                await self._out.unread.room()
            request.room = self._out.unread
            answer = await app(request)
            self._out.unread.owned_by(request.caller.key)
            if isinstance(answer, Upgraded):  # streams of HTTP/2 do not become anything else
                answer.refuse()
                answer = Response(400, error_body("invalid_request", "ask over HTTP/1.1"))
            headers = _head(answer, self._door.date())
            ends = request.method == "HEAD" or (isinstance(answer, Response) and not answer.body)
            self._h2.send_headers(stream_id, headers, end_stream=ends)
            self._out.flush()
            if isinstance(answer, StreamedResponse):
                await self._out.stream(stream_id, answer, skip=ends)
            elif not ends:
                await self._out.send(stream_id, answer.body, end=True)
        except h2.exceptions.ProtocolError:
            pass  # the client reset the stream or left while we were writing
        except Exception:  # half an answer is there, and no more would come
            log.exception("answer not finished method=%s path=%r", request.method, request.path)
            self._out.give_up(stream_id)
        finally:
            self._streams.pop(stream_id, None)
            self._set_deadline()
            self._close_if_done()


def _why_refused(headers: list[tuple[bytes, bytes]], request: Request, limits: Limits) -> str:
    """Say what is wrong with the size of a head, as HTTP/2 counts it; empty when nothing is."""
    if sum(len(name) + len(value) + FIELD_BYTES for name, value in headers) > limits.head_bytes:
        return "the header block is too large"
    return "too many headers" if len(request.headers) > limits.header_count else ""


def _head(answer: Response | StreamedResponse, date: bytes) -> list[tuple[bytes, bytes]]:
    headers = [(b":status", b"%d" % answer.status), (b"date", date)]
    if answer.status not in (204, 304):
        headers.append((b"content-type", answer.content_type))
        headers.append((b"x-content-type-options", b"nosniff"))
    if isinstance(answer, Response):
        headers.append((b"content-length", b"%d" % len(answer.body)))
    headers.extend((name.lower(), value) for name, value in answer.headers)
    return headers


def _answer_with(answer: Answer) -> Callable[[Request], Awaitable[Answer]]:
    async def app(request: Request) -> Answer:
        return answer

    return app


def _request(headers: list[tuple[bytes, bytes]]) -> Request:
    """Return h2's checked header list as a request; the authority stands in for Host."""
    pseudo = {name: value for name, value in headers if name.startswith(b":")}
    plain = [(name, value) for name, value in headers if not name.startswith(b":")]
    if b":authority" in pseudo:
        plain = [(n, v) for n, v in plain if n != b"host"]
        plain.append((b"host", pseudo[b":authority"]))
    # CONNECT has no path; it finds no route, like anything else that is not served.
    path, _, query = pseudo.get(b":path", b"").decode("latin-1").partition("?")
    return Request(
        method=pseudo[b":method"].decode("latin-1"),
        path=path,
        query_string=query,
        headers=plain,
        version="2",
    )
