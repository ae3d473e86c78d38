"""IncomingMessages: the messages of a WebSocket, put together from its frames."""

from collections import deque

from millstream.wire import websocket
from millstream.wire.websocket import FrameError, FrameReader, Status

MOST_WAITING = 4  # messages that are read ahead of the one being carried out


class IncomingMessages:
    """What was read and not carried out yet, and the latest control frame that wants an answer."""

    def __init__(self, most_bytes: int, compressed: bool) -> None:
        self._most = most_bytes
        self._frames = FrameReader(most_bytes if compressed else None, ends=True)
        self._parts: list[bytes] = []
        self._size = 0
        self._waiting: deque[bytes | None] = deque()
        self.pong: bytes | None = None  # to the latest ping, which answers those before it
        self.closed_with: int | None = None  # the status that the client closes with

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Say whether no more should be read for now."""
        return len(self._waiting) >= MOST_WAITING

    def feed(self, data: bytes) -> None:
        """Take bytes of the connection."""
        self._frames.feed(data)

    def read(self) -> None:
        """Read messages while there is room for them; raises FrameError where a frame is wrong."""
        while self.closed_with is None and not self.is_full:
            event = self._frames.next()
            if event is None:
                return
            self._take(event)

    def pop(self) -> bytes | None:
        """Return the oldest message; None stands for a binary one."""
        return self._waiting.popleft()

    def clear(self) -> None:
        """Forget what was not carried out."""
        self._waiting.clear()

    def _take(self, event: websocket.Event) -> None:
        match event:
            case websocket.Data(payload):
                self._size += len(payload)
                if self._size > self._most:
                    raise FrameError(Status.TOO_BIG, f"a message holds at most {self._most} bytes")
                self._parts.append(payload)
            case websocket.End(is_text):
                self._waiting.append(b"".join(self._parts) if is_text else None)
                self._parts, self._size = [], 0
            case websocket.PingFrame(payload):
                self.pong = websocket.pong(payload)
            case websocket.Close(status):
                self.closed_with = status
            case websocket.PongFrame():
                pass
