"""Unanswered deliveries in plain Python: a dictionary that the compiled table must agree with."""

import struct

from millstream.kernel._batch import Batch
from millstream.kernel._frames import Frames

ROW = struct.Struct("<QQI")
_PLAIN = (b"", b"+ACK", b"+OK")


class PendingAcks:
    """Deliveries by stream sequence."""

    def __init__(self) -> None:
        # consumer seq, deliveries, deadline, changed since it was taken down, taken down as pending
        self._slots: dict[int, list[float]] = {}
        self._answered: list[int] = []

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, seq: int) -> bool:
        return seq in self._slots

    def deliver(
        self, frames: Frames, start: int, count: int, first_consumer_seq: int, deadline: float
    ) -> None:
        """Note the first delivery of ``count`` frames."""
        for i in range(count):
            self.put(frames.seq(start + i), first_consumer_seq + i, 1, deadline)

    def put(
        self, seq: int, consumer_seq: int, deliveries: int, deadline: float, changed: bool = True
    ) -> None:
        """Set one delivery, known or not."""
        known = seq in self._slots and self._slots[seq][4]
        self._slots[seq] = [consumer_seq, deliveries, deadline, changed, known or not changed]

    def get(self, seq: int) -> tuple[int, int, float] | None:
        """Return (consumer sequence, deliveries, deadline)."""
        slot = self._slots.get(seq)
        return None if slot is None else (int(slot[0]), int(slot[1]), slot[2])

    def wait_until(self, seq: int, deadline: float) -> bool:
        """Set a deadline; False when it is not pending."""
        if seq in self._slots:
            self._slots[seq][2] = deadline
        return seq in self._slots

    def remove(self, seq: int) -> bool:
        """Forget one delivery; False when it is not pending."""
        slot = self._slots.pop(seq, None)
        if slot is not None and slot[4]:
            self._answered.append(seq)
        return slot is not None

    def up_to(self, seq: int) -> list[int]:
        """Return the pending sequences at or below ``seq``, ascending."""
        return sorted(known for known in self._slots if known <= seq)

    def oldest(self) -> tuple[int, int]:
        """Return (stream sequence, consumer sequence) of the lowest pending one."""
        if not self._slots:
            return 0, 0
        seq = min(self._slots)
        return seq, int(self._slots[seq][0])

    def expired(self, now: float) -> list[int]:
        """Return the sequences whose deadline has come, ascending."""
        return sorted(seq for seq, slot in self._slots.items() if slot[2] <= now)

    def next_deadline(self) -> float:
        """Return the earliest deadline, infinity when there is none."""
        return min((slot[2] for slot in self._slots.values()), default=float("inf"))

    def take_acks(
        self, batch: Batch, prefix: int, acked: list[int] | None = None
    ) -> tuple[int, list[int]]:
        """Answer the plain acks of a batch; returns (how many, positions of all others)."""
        done, others = 0, []
        for i in range(len(batch)):
            subject, reply, _, payload, _ = batch.message(i)
            seq = _stream_seq(subject[prefix:])
            slot = self._slots.get(seq)
            plain = not reply and payload in _PLAIN
            if not plain or slot is None or slot[1] != 1 or slot[2] == float("inf"):
                others.append(i)
                continue
            self.remove(seq)
            done += 1
            if acked is not None:
                acked.append(seq)
        return done, others

    def take_changes(self, floor: int) -> tuple[bytes, bytes]:
        """Return (rows that are new, sequences above ``floor`` answered) since the last call."""
        rows = b"".join(self._row(seq) for seq in sorted(self._slots) if self._slots[seq][3])
        for slot in self._slots.values():
            slot[3], slot[4] = False, True
        gone, self._answered = [seq for seq in self._answered if seq > floor], []
        return rows, struct.pack(f"<{len(gone)}Q", *gone)

    def rows(self) -> bytes:
        """Return everything."""
        return b"".join(self._row(seq) for seq in sorted(self._slots))

    def _row(self, seq: int) -> bytes:
        consumer_seq, deliveries, *_ = self._slots[seq]
        return ROW.pack(seq, int(consumer_seq), int(deliveries))


def _stream_seq(numbers: bytes) -> int:
    tokens = numbers.split(b".")
    if len(tokens) != 5 or not all(t.isdigit() and len(t) <= 20 for t in tokens):
        return 0
    return int(tokens[1]) % 2**64


def ack_replies(
    prefix: bytes,
    frames: Frames,
    start: int,
    count: int,
    deliveries: int,
    first_consumer_seq: int,
    left: int,
) -> tuple[list[bytes], int]:
    """Return (ack subjects of ``count`` frames, their size as clients count it)."""
    replies, size = [], 0
    for i in range(count):
        seq, ts_ns, subject, payload, headers, *_ = frames.record(start + i)
        numbers = (deliveries, seq, first_consumer_seq + i, ts_ns, max(left - i, 0))
        replies.append(prefix + b"%d.%d.%d.%d.%d" % numbers)
        size += len(subject) + len(headers) + len(payload) + len(replies[-1])
    return replies, size


def ack_sizes(frames: Frames, start: int, replies: list[bytes]) -> list[int]:
    """Return the size of each frame from ``start`` on as clients count it, with its ack subject."""
    sizes = []
    for i, reply in enumerate(replies):
        _, _, subject, payload, headers, *_ = frames.record(start + i)
        sizes.append(len(subject) + len(headers) + len(payload) + len(reply))
    return sizes
