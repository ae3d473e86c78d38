"""FrameQueue: the bytes of an HTTP/2 client, handed on frame by frame. Pure."""

FRAME_HEAD = 9
MOST_FRAME = 16_384  # what our settings allow


class FrameQueue:
    """Lets its owner stop between two frames: one read may bring twenty thousand of them."""

    def __init__(self, preface: int) -> None:
        self._bytes = bytearray()
        self._at = 0  # what is before it was handed on
        self.is_too_large = False  # the next frame, by its head
        self._preface = preface  # bytes that come before the first frame

    def add(self, data: bytes) -> None:
        """Take what the client sent."""
        del self._bytes[: self._at]
        self._at = 0
        self._bytes += data

    @property
    def has_more(self) -> bool:
        """Say whether there is a whole frame."""
        return 0 < self._size() <= len(self._bytes) - self._at

    def next(self) -> bytes:
        """Return the next frame, empty when the rest of it is still to come."""
        if not self.has_more:
            return b""
        begin, self._at = self._at, self._at + self._size()
        self._preface = 0
        return bytes(self._bytes[begin : self._at])

    def _size(self) -> int:
        """Return how long the next frame is with its head, 0 when that cannot be told yet."""
        if self._preface:
            return self._preface
        if len(self._bytes) - self._at < FRAME_HEAD:
            return 0
        length = int.from_bytes(self._bytes[self._at : self._at + 3], "big")
        self.is_too_large = length > MOST_FRAME
        return 0 if self.is_too_large else FRAME_HEAD + length
