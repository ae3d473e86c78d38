"""WebSocket frames as values (RFC 6455, RFC 7692), as one stream of bytes or message by message.

    0 FIN RSV1 RSV2 RSV3 opcode(4)   1 MASK length(7)   [u16 | u64 length]   [mask key]   payload

A data frame's payload comes out as it arrives: nothing waits for a frame, however long it says it
is, to be whole. Compressed messages come out in pieces and only up to a limit.
"""

import codecs
import zlib
from enum import IntEnum
from typing import TypeAlias

import msgspec

LONGEST_CONTROL = 125
PIECE = 64 * 1024
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_FIN, _RSV1, _RSV23, _MASK = 0x80, 0x40, 0x30, 0x80
_TAIL = b"\x00\x00\xff\xff"  # what a sender leaves off the end of a compressed message
_ENDS = (_TAIL, b"\x00" + _TAIL)
_WORTH_COMPRESSING = 64


def apply_mask(data: bytes, mask: bytes) -> bytes:
    """Return the data with a client's mask taken off or put on.

    Imported at the first use: a start that meets no WebSocket does without the package.
    """
    try:
        from websockets.speedups import apply_mask as masked
    except ImportError:  # built without a compiler
        from websockets.utils import apply_mask as masked
    return masked(data, mask)


class Status(IntEnum):
    """Why a connection is closed."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    NONE = 1005  # never on the wire: the frame said nothing
    BAD_DATA = 1007
    POLICY = 1008
    TOO_BIG = 1009
    INTERNAL = 1011


class Data(msgspec.Struct, frozen=True):
    """Some bytes of the stream."""

    payload: bytes


class PingFrame(msgspec.Struct, frozen=True):
    """To be answered with a pong of the same payload."""

    payload: bytes


class Close(msgspec.Struct, frozen=True):
    """The client's last frame."""

    status: int


class PongFrame(msgspec.Struct, frozen=True):
    """An answer, to nobody's question."""


class End(msgspec.Struct, frozen=True):
    """The message ends whose data came before; told only to readers who want to know."""

    is_text: bool


Event: TypeAlias = Data | PingFrame | PongFrame | Close | End


class FrameError(Exception):
    """The client broke the protocol; ``status`` is what it is told."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status


class FrameReader:
    """``feed`` bytes as they come, then call ``next`` until it returns None.

    With ``inflate_limit`` compression was agreed on, and a message may inflate to so many bytes.
    With ``ends`` each message is followed by an ``End``; NATS reads one stream and wants none.
    """

    def __init__(self, inflate_limit: int | None = None, *, ends: bool = False) -> None:
        self._buffer = bytearray()
        self._ends = ends
        self._end: End | None = None  # to be told next
        self._limit = inflate_limit
        self._left = 0  # bytes that the data frame under way still has
        self._in_frame = False
        self._final = True  # the message under way ends with this frame
        self._between = True  # no message is under way
        self._mask = b""
        self._inflater: _Inflater | None = None
        self._text: codecs.IncrementalDecoder | None = None

    def feed(self, data: bytes) -> None:
        """Take bytes from the connection."""
        self._buffer += data

    def next(self) -> Event | None:
        """Return what comes next, or None while bytes are missing; raises FrameError."""
        while True:
            if self._end is not None:
                end, self._end = self._end, None
                return end
            if self._inflater is not None and (piece := self._inflater.more()):
                return self._data(piece)
            if self._in_frame and not self._left:
                self._end_frame()
                continue
            if self._in_frame:
                payload = self._take_payload()
                if not payload:
                    return None
                if self._inflater is None:
                    return self._data(payload)
                self._inflater.feed(payload)
                continue
            event = self._take_head()
            if not self._in_frame:
                return event

    def _take_payload(self) -> bytes:
        """Return what has come of the frame's payload, unmasked."""
        taken = bytes(self._buffer[: min(self._left, PIECE)])
        del self._buffer[: len(taken)]
        self._left -= len(taken)
        payload = apply_mask(taken, self._mask)
        turn = len(taken) & 3
        self._mask = self._mask[turn:] + self._mask[:turn]
        return payload

    def _end_frame(self) -> None:
        self._in_frame = False
        if not self._final:
            return
        if self._inflater is not None:
            self._end_inflating()
            return
        self._end_message()

    def _end_inflating(self) -> None:
        """Have the rest of a compressed message come out before the message ends."""
        assert self._inflater is not None
        if not self._inflater.finishing:
            self._inflater.finish()
        if self._inflater.busy:
            self._in_frame = True  # with nothing left: back here once the pieces are out
            return
        self._end_message()

    def _end_message(self) -> None:
        self._between, self._inflater = True, None
        if self._ends:
            self._end = End(is_text=self._text is not None)
        if self._text is not None:
            self._check_text(b"", final=True)
            self._text = None

    def _data(self, payload: bytes) -> Data:
        if self._text is not None:
            self._check_text(payload, final=False)
        return Data(payload)

    def _check_text(self, payload: bytes, final: bool) -> None:
        assert self._text is not None
        try:
            self._text.decode(payload, final)
        except UnicodeDecodeError:
            raise FrameError(Status.BAD_DATA, "a text message is not UTF-8") from None

    def _take_head(self) -> Event | None:
        """Read a head; a control frame is returned whole, a data frame begins."""
        buffer = self._buffer
        if buffer:
            self._check_first(buffer[0])
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        opcode, length = first & 0x0F, second & 0x7F
        self._check_second(opcode, second)
        if opcode >= _CLOSE:
            return self._take_control(opcode, length)
        size = 2 + {126: 2, 127: 8}.get(length, 0)
        if len(buffer) < size + 4:
            self._check_length(bytes(buffer[2:size]), length)
            return None
        if length >= 126:
            self._check_length(bytes(buffer[2:size]), length)
            length = int.from_bytes(buffer[2:size], "big")
        self._mask = bytes(buffer[size : size + 4])
        del buffer[: size + 4]
        self._begin(first, length)
        return None

    def _check_first(self, first: int) -> None:
        """Refuse a first byte that no client may send now."""
        opcode, final, compressed = first & 0x0F, first & _FIN, first & _RSV1
        if first & _RSV23:
            raise _broken("RSV2 and RSV3 must be clear")
        if compressed and self._limit is None:
            raise _broken("a compressed frame, and compression was not agreed on")
        if opcode in (_CLOSE, _PING, _PONG):
            if not final:
                raise _broken("a control frame must not be fragmented")
            if compressed:
                raise _broken("a control frame must not be compressed")
        elif opcode in (_TEXT, _BINARY):
            if not self._between:
                raise _broken("a message begins before the one before has ended")
        elif opcode == _CONTINUATION:
            if self._between or compressed:
                raise _broken("an invalid continuation frame")
        else:
            raise _broken(f"unknown opcode {opcode}")

    def _check_second(self, opcode: int, second: int) -> None:
        if not second & _MASK:
            raise _broken("the mask bit is missing")
        if opcode >= _CLOSE and second & 0x7F > LONGEST_CONTROL:
            raise _broken(f"a control frame is longer than {LONGEST_CONTROL} bytes")

    def _check_length(self, written: bytes, length: int) -> None:
        if length == 127 and written and written[0] & 0x80:
            raise _broken("invalid 64-bit payload length")

    def _begin(self, first: int, length: int) -> None:
        opcode = first & 0x0F
        self._in_frame, self._left, self._final = True, length, bool(first & _FIN)
        if opcode == _CONTINUATION:
            return
        self._between = False
        if opcode == _TEXT:
            self._text = codecs.getincrementaldecoder("utf-8")()
        if first & _RSV1:
            assert self._limit is not None
            self._inflater = _Inflater(self._limit)

    def _take_control(self, opcode: int, length: int) -> Event | None:
        if len(self._buffer) < 6 + length:
            return None
        mask = bytes(self._buffer[2:6])
        payload = apply_mask(bytes(self._buffer[6 : 6 + length]), mask)
        del self._buffer[: 6 + length]
        if opcode == _PING:
            return PingFrame(payload)
        return _closing(payload) if opcode == _CLOSE else PongFrame()


class _Inflater:
    """One compressed message: input goes in, output comes out in pieces, up to a limit."""

    def __init__(self, limit: int) -> None:
        self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        self._input = b""
        self._trail = b""
        self._room = limit
        self._full = False  # the last piece was as large as it may be: more may come without input
        self.finishing = False

    @property
    def busy(self) -> bool:
        return bool(self._input) or self._full

    def feed(self, data: bytes) -> None:
        self._input += data

    def finish(self) -> None:
        self.finishing = True
        self._input += _TAIL

    def more(self) -> bytes:
        """Return the next piece, empty when more input is needed."""
        if not self.busy:
            return b""
        if self._inflate.eof:
            self._after_the_end()
            return b""
        try:
            piece = self._inflate.decompress(self._input, min(PIECE, self._room + 1))
        except zlib.error:
            raise FrameError(Status.BAD_DATA, "a compressed message cannot be inflated") from None
        self._input = self._inflate.unconsumed_tail
        self._trail = self._inflate.unused_data
        self._full = len(piece) == PIECE
        self._room -= len(piece)
        if self._room < 0:
            raise FrameError(Status.TOO_BIG, "a compressed message inflates to more than allowed")
        return piece

    def _after_the_end(self) -> None:
        """Nothing but an empty block may follow a last one."""
        self._trail += self._input
        self._input, self._full = b"", False
        if not any(end.startswith(self._trail) for end in _ENDS):
            raise FrameError(Status.BAD_DATA, "a compressed message goes on after its end")


def encode(payload: bytes, compressed: bool = False, *, text: bool = False) -> bytes:
    """Return one unmasked frame; ``compressed`` where that was agreed on and is worth it."""
    opcode = _TEXT if text else _BINARY
    if not compressed or len(payload) < _WORTH_COMPRESSING:
        return _head(_FIN | opcode, len(payload)) + payload
    deflate = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = deflate.compress(payload) + deflate.flush(zlib.Z_SYNC_FLUSH)
    packed = packed.removesuffix(_TAIL)
    return _head(_FIN | _RSV1 | opcode, len(packed)) + packed


def ping(payload: bytes = b"") -> bytes:
    """Return a question whether the other end lives."""
    return _head(_FIN | _PING, len(payload)) + payload


def pong(payload: bytes) -> bytes:
    """Return the answer to a ping."""
    return _head(_FIN | _PONG, len(payload)) + payload


def close(status: int, text: str = "") -> bytes:
    """Return a close frame; a text that is too long is cut."""
    if status == Status.NONE:
        return _head(_FIN | _CLOSE, 0)
    reason = text.encode()
    if len(reason) > LONGEST_CONTROL - 2:
        kept = reason[: LONGEST_CONTROL - 5].decode(errors="ignore")
        reason = kept.encode() + b"..."
    return _head(_FIN | _CLOSE, 2 + len(reason)) + status.to_bytes(2, "big") + reason


def _head(first: int, length: int) -> bytes:
    if length < 126:
        return bytes((first, length))
    if length < 1 << 16:
        return bytes((first, 126)) + length.to_bytes(2, "big")
    return bytes((first, 127)) + length.to_bytes(8, "big")


def _closing(payload: bytes) -> Close:
    if not payload:
        return Close(Status.NONE)
    if len(payload) == 1:
        raise _broken("a close frame of one byte")
    status = int.from_bytes(payload[:2], "big")
    if not _may_close_with(status):
        raise _broken(f"invalid close status {status}")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise FrameError(Status.BAD_DATA, "the text of a close frame is not UTF-8") from None
    return Close(status)


def _may_close_with(status: int) -> bool:
    """Whether an endpoint may send this status (RFC 6455, section 7.4)."""
    if status in (1004, 1005, 1006, 1015):
        return False
    return 1000 <= status <= 1014 or 3000 <= status <= 4999


def _broken(text: str) -> FrameError:
    return FrameError(Status.PROTOCOL_ERROR, text)
