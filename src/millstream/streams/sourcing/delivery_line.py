"""DeliveryLine: what an origin's consumer has delivered, in order, until the target has it."""

from collections import deque
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from millstream.streams.config.extras import first_values, take_extras

_ACK_TOKENS = 9
DeliveredRecord = tuple[int, int, bytes, bytes, bytes, bytes, bytes, bytes]  # as frames give them


class Flow(NamedTuple):
    """A request for flow control that waits for the records before it."""

    reply: bytes
    consumer_seq: int
    stream_seq: int


class DeliveryLine:
    """Records of one consumer, with its requests for flow control where they came."""

    def __init__(self, consumer: str) -> None:
        self.lag = 0
        self._consumer = consumer.encode()
        self._line: deque[DeliveredRecord | Flow] = deque()
        self._last = 0  # the newest record in line, or stored
        self._consumer_seq = 0

    def begin_at(self, position: int) -> None:
        """Take nothing that lies before a sequence."""
        self._last = position - 1

    def begin_again(self) -> None:
        """Expect the consumer's first delivery next."""
        self._consumer_seq = 0

    def clear(self) -> None:
        """Forget what nobody has taken."""
        self._line.clear()

    def add_control(self, reply: bytes, headers: bytes) -> bool:
        """Take a heartbeat or a request for flow control; False when something is missing."""
        if reply:
            self._line.append(Flow(reply, self._consumer_seq, self._last))
            return True
        told = first_values(headers)
        last = told.get(b"Nats-Last-Consumer", b"")
        if last.isdigit() and int(last) != self._consumer_seq:
            return not int(last)
        stalled = told.get(b"Nats-Consumer-Stalled", b"")
        if stalled and not self._line:
            self._line.append(Flow(stalled, self._consumer_seq, self._last))
        return True

    def add_record(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> bool:
        """Let a record stand in line; False when one before it is missing."""
        tokens = reply.split(b".")
        if len(tokens) != _ACK_TOKENS or tokens[3] != self._consumer:
            return True  # somebody else's
        deliveries, seq, consumer_seq, ts_ns, self.lag = (int(token) for token in tokens[4:])
        if deliveries > 1:
            return True
        if consumer_seq != self._consumer_seq + 1:
            return False
        self._consumer_seq = consumer_seq
        if seq > self._last:
            kept, tag, node, meta = take_extras(headers)
            self._line.append((seq, ts_ns, subject, payload, kept, tag, node, meta))
            self._last = seq
        return True

    def page(self, most: int) -> list[DeliveredRecord]:
        """Return the next records; they stay in line."""
        return [record for record, _ in zip(self._records(), range(most), strict=False)]

    def _records(self) -> Iterator[DeliveredRecord]:
        return (item for item in takewhile(_is_record, self._line) if not isinstance(item, Flow))

    def take(self, last: int) -> None:
        """Let records up to ``last`` leave the line."""
        while self._line and not isinstance(self._line[0], Flow) and self._line[0][0] <= last:
            self._line.popleft()

    def next_flow(self) -> Flow | None:
        """Take a request for flow control that no record stands before."""
        flow = self._line[0] if self._line else None
        if not isinstance(flow, Flow):
            return None
        self._line.popleft()
        return flow


def _is_record(item: DeliveredRecord | Flow) -> bool:
    return not isinstance(item, Flow)
