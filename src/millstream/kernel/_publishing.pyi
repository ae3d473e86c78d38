from millstream.kernel._batch import Batch
from millstream.kernel._frames import Frames
from millstream.kernel._interest import Interest
from millstream.kernel._operations import Operations

class Publishing(Operations):
    """Messages that the server itself sends; nothing leaves before the next flush."""

    def publish(
        self,
        interest: Interest,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        payload: bytes,
        shown: bytes = b"",
        origin: int = 0,
    ) -> int: ...
    def publish_acks(
        self,
        interest: Interest,
        batch: Batch,
        start: int,
        count: int,
        first_seq: int,
        prefix: bytes,
        suffix: bytes,
    ) -> int: ...
    def publish_frames(
        self,
        interest: Interest,
        routes: list[bytes],
        frames: Frames,
        start: int,
        replies: list[bytes],
    ) -> int: ...
    def publish_record(
        self, interest: Interest, reply: bytes, frames: Frames, i: int, about: bytes
    ) -> int: ...
    def room(self, interest: Interest, subject: bytes) -> int: ...
    def heard_for(self, interest: Interest, subject: bytes) -> int: ...
