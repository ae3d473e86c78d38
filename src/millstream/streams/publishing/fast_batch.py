"""Fast batches: messages that publishers send without waiting, acknowledged every so many.

The reply subject carries what a message is: ``<prefix>.<id>.<flow>.<ok|fail>.<seq>.<op>.$FI``.
Messages are stored as they come; the answers say how far that is and how often to expect one.

Pure: callers say what came and what became of it, and send what ``answer`` is called with.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from millstream.errors import MillstreamError
from millstream.streams.writing.batch_limits import BatchLimits
from millstream.streams.writing.preconditions import PublishRefused

SUFFIX = b".$FI"
LONGEST_ID = 64
START, APPEND, COMMIT, COMMIT_EOB, PING = range(5)
_DEFAULT_FLOW, _MOST_FLOW = 10, 0xFFFF
_SHARED_FLOW = 500  # messages between two answers, of all batches of a stream together
_LAST_SEQ = 2**64 - 1


class FastMessage(NamedTuple):
    """What the reply subject of one message says."""

    batch_id: bytes
    seq: int
    flow: int  # messages between two answers, at most
    gap_ok: bool
    operation: int

    @property
    def is_commit(self) -> bool:
        """Whether it ends its batch."""
        return self.operation in (COMMIT, COMMIT_EOB)


def read(reply: bytes) -> FastMessage:
    """Read a reply subject that ends with the suffix; raises PublishRefused."""
    tokens = reply[: -len(SUFFIX)].rsplit(b".", 5)
    if len(tokens) != 6:
        raise _bad_pattern()
    _, batch_id, flow, gap, seq, operation = tokens
    message = FastMessage(batch_id, _number(seq), _flow(flow), gap == b"ok", _number(operation))
    at_first = message.seq == 1
    if (
        not START <= message.operation <= PING
        or not 0 < message.seq < _LAST_SEQ
        or gap not in (b"ok", b"fail")
        or (at_first and message.operation in (APPEND, COMMIT_EOB))
        or (not at_first and message.operation == START)
    ):
        raise _bad_pattern()
    if len(batch_id) > LONGEST_ID:
        raise PublishRefused(400, 10207, "batch publish ID is invalid")
    return message


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() else -1


def _flow(text: bytes) -> int:
    number = _number(text)
    return min(number, _MOST_FLOW) if number > 0 else _DEFAULT_FLOW


def _bad_pattern() -> PublishRefused:
    return PublishRefused(400, 10206, "batch publish pattern is invalid")


class _OpenFastBatch(msgspec.Struct):
    """One batch; sequences are its own but for ``stream_seq``."""

    most_flow: int
    gap_ok: bool
    flow: int = 0
    last: int = 0  # newest that came
    stored: int = 0  # newest that is in the stream
    told: int = 0  # newest that an answer named
    stream_seq: int = 0
    pending: int = 0  # on their way into the stream
    commit_reply: bytes | None = None  # where to tell of the end, once all is stored
    idle_at: int = 0


class FastBatches:
    """The fast batches of one stream that are still open."""

    def __init__(
        self, stream: str, limits: BatchLimits, answer: Callable[[bytes, bytes], None]
    ) -> None:
        self._prefix = b'{"stream":%s,"seq":' % msgspec.json.encode(stream)
        self._limits = limits
        self._answer = answer
        self._open: dict[bytes, _OpenFastBatch] = {}

    def __len__(self) -> int:
        return len(self._open)

    # -- messages ----------------------------------------------------------------------------

    def arrived(self, message: FastMessage, reply: bytes, now_ns: int) -> bool:
        """Count a message in; returns whether it is to be stored."""
        batch = self._find(message)
        batch.idle_at = now_ns + int(self._limits.idle * 1e9)
        if message.operation == PING:
            self._ping(batch, message, reply)
            return False
        if batch.commit_reply is not None:
            return False  # it ends already; its publisher waits for the answer to that
        if message.seq != batch.last + 1 and not self._leap(batch, message, reply):
            return False
        batch.last = message.seq
        if message.operation == COMMIT_EOB:
            batch.last -= 1
            self._all_stored(batch)
        if message.is_commit:
            self._commit(message.batch_id, batch, reply)
            return message.operation == COMMIT
        if message.seq == 1:
            self._tell(reply, 0, batch.flow)
        return True

    def accepted(self, message: FastMessage) -> None:
        """Take note that a message is on its way into the stream."""
        batch = self._open.get(message.batch_id)
        if batch is not None:
            batch.pending += 1

    def stored(self, message: FastMessage, reply: bytes, stream_seq: int) -> None:
        """Take note that a message is in the stream."""
        batch = self._open.get(message.batch_id)
        if batch is None:
            return
        batch.pending = max(0, batch.pending - 1)
        batch.stream_seq = stream_seq
        batch.stored = message.seq if batch.pending else batch.last
        if batch.stored == batch.last and batch.commit_reply is not None:
            self._end(message.batch_id, batch, batch.commit_reply)
        else:
            self._keep_telling(batch, reply)

    def skipped(self, message: FastMessage, reply: bytes, stream_seq: int) -> None:
        """Take note that a message was stored before, as ``stream_seq``, and is not again."""
        batch = self._open[message.batch_id]
        if not batch.pending:
            batch.stored = message.seq
            self._keep_telling(batch, reply)
        if not message.is_commit:
            return
        if not message.gap_ok and batch.last == 1:
            self.forget(message.batch_id)
            name = msgspec.json.encode(message.batch_id.decode("utf-8", "replace"))
            told = b'%s%d,"duplicate": true,"batch":%s,"count":%d}'
            self._answer(reply, told % (self._prefix, stream_seq, name, message.seq))
            return
        self._commit(message.batch_id, batch, reply)

    def refused(self, message: FastMessage, reply: bytes, error: MillstreamError) -> bool:
        """Take note that a message may not be stored; returns whether to answer as always."""
        batch = self._open[message.batch_id]
        if not message.gap_ok and batch.last == 1:
            self.forget(message.batch_id)
            return True
        fault = {"code": error.status, "err_code": error.err_code, "description": error.message}
        told = {"type": "err", "seq": message.seq, "error": fault}
        self._answer(reply, msgspec.json.encode(told))
        if message.gap_ok and not message.is_commit:
            return False
        batch.last -= 1
        self._all_stored(batch)
        self._commit(message.batch_id, batch, reply)
        return False

    def _find(self, message: FastMessage) -> _OpenFastBatch:
        found = self._open.get(message.batch_id)
        if found is not None:
            return found
        if message.seq != 1 or message.operation == PING:
            raise PublishRefused(400, 10208, "batch publish ID unknown")
        self._limits.fast.take(len(self._open))
        made = self._open[message.batch_id] = _OpenFastBatch(message.flow, message.gap_ok)
        # Who is alone gets what it asked for; among others it begins slowly.
        made.flow = min(_SHARED_FLOW, made.most_flow) if len(self._open) == 1 else 1
        return made

    def _leap(self, batch: _OpenFastBatch, message: FastMessage, reply: bytes) -> bool:
        """Tell of what is missing; returns whether the batch goes on without it."""
        self._tell_gap(reply, batch.last + 1, message.seq)
        if batch.gap_ok and message.seq > batch.last:
            return True
        self._commit(message.batch_id, batch, reply)
        return False

    def _ping(self, batch: _OpenFastBatch, message: FastMessage, reply: bytes) -> None:
        if message.seq > batch.last:
            self._tell_gap(reply, batch.last + 1, message.seq + 1)
            if batch.gap_ok:
                batch.last = message.seq
                self._all_stored(batch)
                if self._keep_telling(batch, reply):
                    return
            elif self._commit(message.batch_id, batch, reply):
                return
        self._tell(reply, batch.told, batch.flow)

    # -- answers -----------------------------------------------------------------------------

    def _all_stored(self, batch: _OpenFastBatch) -> None:
        if not batch.pending:
            batch.stored = batch.last

    def _keep_telling(self, batch: _OpenFastBatch, reply: bytes) -> bool:
        """Tell how far the batch is, when that is due; returns whether it was."""
        if batch.stored < batch.told + batch.flow:
            return False
        batch.told += (batch.stored - batch.told) // batch.flow * batch.flow
        share = min(max(1, _SHARED_FLOW // len(self._open)), batch.most_flow)
        if batch.flow < share:
            batch.flow = min(2 * batch.flow, share)
        elif batch.flow > share:
            batch.flow = max(batch.flow // 2, share)
        self._tell(reply, batch.told, batch.flow)
        return True

    def _commit(self, batch_id: bytes, batch: _OpenFastBatch, reply: bytes) -> bool:
        """End a batch, now or when all of it is stored; returns whether it is over."""
        batch.commit_reply = reply
        if batch.last != batch.stored:
            return False
        self._end(batch_id, batch, reply)
        return True

    def _end(self, batch_id: bytes, batch: _OpenFastBatch, reply: bytes) -> None:
        self.forget(batch_id)
        name = msgspec.json.encode(batch_id.decode("utf-8", "replace"))
        told = b'%s%d,"batch":%s,"count":%d}'
        self._answer(reply, told % (self._prefix, batch.stream_seq, name, batch.last))

    def _tell(self, reply: bytes, seq: int, flow: int) -> None:
        self._answer(reply, b'{"type":"ack","seq":%d,"msgs":%d}' % (seq, flow))

    def _tell_gap(self, reply: bytes, expected: int, seq: int) -> None:
        self._answer(reply, b'{"type":"gap","last_seq":%d,"seq":%d}' % (expected, seq))

    # -- ends --------------------------------------------------------------------------------

    def forget(self, batch_id: bytes) -> None:
        """Close a batch without a word; what it stored stays."""
        if self._open.pop(batch_id, None) is not None:
            self._limits.fast.give_back()

    def clear(self) -> None:
        """Close all of them."""
        for batch_id in list(self._open):
            self.forget(batch_id)

    def expire(self, now_ns: int) -> None:
        """Close what nobody went on with; a batch that ends waits for its records alone."""
        for batch_id, one in list(self._open.items()):
            if one.idle_at <= now_ns and one.commit_reply is None:
                self.forget(batch_id)

    @property
    def idle_at(self) -> int | None:
        """Return when to look for idle ones next, None when none is open."""
        waiting = (one.idle_at for one in self._open.values() if one.commit_reply is None)
        return min(waiting, default=None)
