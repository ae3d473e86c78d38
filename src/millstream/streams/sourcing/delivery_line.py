"""DeliveryLine: what an origin's consumer has delivered, in order, until the target has it.

Batches stay as they came until a page is asked for, so that however much comes at once holds
nobody up.
"""

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from millstream.streams.config.extras import first_values, take_extras
from millstream.streams.sourcing.origin import Stored

if TYPE_CHECKING:
    from millstream.kernel._batch import Batch

_ACK = b"$JS.ACK."
_TOKENS = 9  # $JS.ACK.stream.consumer.deliveries.seq.consumer_seq.time.pending
_LONG_TOKENS = 11  # domain and account stand before the stream, and more may follow
CONTROL = b"NATS/1.0 100"


class Flow(NamedTuple):
    """A request for flow control that waits for the records before it."""

    reply: bytes
    consumer_seq: int
    stream_seq: int


class Place(NamedTuple):
    """Where a delivered record stands, as its reply says."""

    consumer: bytes
    deliveries: int
    seq: int
    consumer_seq: int
    ts_ns: int
    pending: int


class DeliveryLine:
    """Records of one consumer, with its requests for flow control where they came."""

    def __init__(self) -> None:
        self.last = 0  # the newest record in line, or stored
        self.size = 0  # bytes that nobody has looked at yet
        self.is_broken = False  # a delivery is missing
        self._pending = 0
        self._consumer = b""
        self._consumer_seq = 0
        self._batches: deque[Batch] = deque()
        self._at = 0
        self._page: list[Stored] = []
        self._flow: Flow | None = None

    @property
    def lag(self) -> int:
        """Return how many records the target still lacks."""
        return self._pending + len(self._page)

    @property
    def is_empty(self) -> bool:
        """Whether everything that came was taken."""
        return not self._page and not self._batches

    def begin_again(self, consumer: str, pending: int) -> None:
        """Expect the first delivery of a consumer next; what was read of another stays."""
        self._consumer = consumer.encode()
        self._consumer_seq = 0
        self._pending = pending
        self.is_broken = False
        self.drop_unread()

    def drop_unread(self) -> None:
        """Forget what nobody has looked at: it comes again."""
        self._batches.clear()
        self._at = self.size = 0
        self._flow = None

    def add(self, batch: "Batch") -> None:
        """Let deliveries stand in line."""
        self._batches.append(batch)
        self.size += batch.size

    def page(self, most: int) -> list[Stored]:
        """Return the next records; they stay in line."""
        if not self._page and self._flow is None:
            self._read(most)
        return self._page[:most]

    def take(self, last: int) -> None:
        """Let records up to ``last`` leave the line."""
        self._page = [record for record in self._page if record[0] > last]

    def next_flow(self) -> Flow | None:
        """Take a request for flow control that no record stands before."""
        if self._page:
            return None
        flow, self._flow = self._flow, None
        return flow

    def _read(self, most: int) -> None:
        """Look at deliveries until there are so many records, or one must be answered first."""
        while self._batches and len(self._page) < most and self._flow is None:
            batch = self._batches[0]
            if not self._look_at(*batch.message(self._at)[:4]):
                self.is_broken = True
                self.drop_unread()
                return
            self._at += 1
            if self._at == len(batch):
                self._batches.popleft()
                self._at = 0
                self.size -= batch.size

    def _look_at(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> bool:
        """Take one delivery; False when one before it is missing."""
        if headers.startswith(CONTROL) and not payload:
            return self._control(reply, headers)
        place = place_of(reply)
        if place is None or place.consumer != self._consumer or place.deliveries > 1:
            return True  # somebody else's
        if place.consumer_seq != self._consumer_seq + 1:
            return False
        self._consumer_seq = place.consumer_seq
        self._pending = place.pending
        if place.seq > self.last:
            kept, tag, node, meta = take_extras(headers)
            self._page.append((place.seq, place.ts_ns, subject, payload, kept, tag, node, meta))
            self.last = place.seq
        return True

    def _control(self, reply: bytes, headers: bytes) -> bool:
        """Take a heartbeat or a request for flow control; False when something is missing."""
        if reply:
            self._flow = Flow(reply, self._consumer_seq, self.last)
            return True
        told = first_values(headers)
        last = told.get(b"Nats-Last-Consumer", b"")
        if last.isdigit() and int(last) != self._consumer_seq:
            return not int(last)
        stalled = told.get(b"Nats-Consumer-Stalled", b"")
        if stalled:
            self._flow = Flow(stalled, self._consumer_seq, self.last)
        return True


def place_of(reply: bytes) -> Place | None:
    """Read the reply of a delivery; None for anything else."""
    if not reply.startswith(_ACK):
        return None
    tokens = reply.split(b".")
    if len(tokens) >= _LONG_TOKENS:
        del tokens[2:4]
    elif len(tokens) != _TOKENS:
        return None
    numbers = tokens[4:_TOKENS]
    if not all(number.isdigit() for number in numbers):
        return None
    return Place(tokens[3], *map(int, numbers))
