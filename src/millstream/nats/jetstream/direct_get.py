"""DirectGet: records as messages, the sink behind ``$JS.API.DIRECT.GET.<stream>[.<subject>]``."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from millstream.errors import ColdUnavailable, MillstreamError, NotHere, RecordNotFound
from millstream.kernel._batch import Batch
from millstream.message import Record
from millstream.nats.jetstream import request_shapes
from millstream.nats.jetstream.errors import LevelTooLow, check_level, read_loosely
from millstream.nats.jetstream.messages import GetRequest, find, headers_of
from millstream.streams.config.config import InvalidJson
from millstream.streams.config.times import rfc3339, time_ns
from millstream.streams.stream import Stream
from millstream.streams.writing.copies import copy_under_way
from millstream.wire.headers import PLACE_FIELDS, encode_headers, without

if TYPE_CHECKING:
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest

BATCH_BYTES = 8 * 1024 * 1024
MOST_SUBJECTS = 1024

Fields = tuple[tuple[bytes, bytes], ...]


class _Status(Exception):
    """A request that is answered by this status line."""


class DirectGet:
    """Answers for one stream, without JSON around the record.

    ``name`` is what it is asked for under: a mirror may answer for its origin.
    """

    def __init__(self, stream: Stream, hub: "Hub", interest: "Interest", name: str = "") -> None:
        self._stream = stream
        self._hub = hub
        self._interest = interest
        self._before = len(f"$JS.API.DIRECT.GET.{name or stream.name}.".encode())
        self._head = b"Nats-Stream: %s\r\nNats-Subject: " % stream.name.encode()

    def deliver(self, batch: Batch) -> None:
        """Answer every request of the batch."""
        inflight, before = self._stream.writes.inflight, self._before
        for at in range(len(batch)):
            subject, reply, headers, payload, _ = batch.message(at)
            if not reply:
                continue
            subject = subject[before:]
            if inflight and subject and self._waits(reply, subject, headers, payload):
                continue
            if headers or payload or not self._send_newest(reply, subject):
                self._answer(reply, subject, headers, payload)

    def _waits(self, reply: bytes, subject: bytes, headers: bytes, payload: bytes) -> bool:
        """Answer later where a copy of the subject is under way whose publisher has the ack."""
        run = copy_under_way(self._stream.writes.inflight, subject)
        if run is None:
            return False
        run.waiting.append(partial(self._once_in, reply, subject, headers, payload))
        return True

    def _once_in(self, reply: bytes, subject: bytes, headers: bytes, payload: bytes) -> None:
        self._answer(reply, subject, headers, payload)
        self._hub.flush()

    def _send_newest(self, reply: bytes, subject: bytes) -> bool:
        """Answer what key-value stores ask for, in few steps; False for all that is not plain."""
        try:
            frames = self._stream.index.newest(subject)
        except ColdUnavailable:
            return False
        if frames is None or frames.has_headers(0):  # which may claim to be the server's own
            return False
        self._hub.publish_record(self._interest, reply, frames, 0, self._head)
        return True

    def _answer(self, reply: bytes, subject: bytes, headers: bytes, body: bytes) -> None:
        try:
            check_level(headers)
            asked = self._read(subject, body)
            if asked.multi_last:
                self._answer_multi(reply, asked)
            elif asked.batch:
                self._answer_batch(reply, asked)
            else:
                self._send(reply, find(self._stream, asked), asked, ())
        except NotHere as missing:
            missing.wait(partial(self._once_here, reply, subject, headers, body))
        except _Status as status:
            self._status(reply, str(status).encode())
        except LevelTooLow:
            self._status(reply, b"412 Required Api Level")
        except InvalidJson:
            self._status(reply, b"408 Malformed Request")
        except RecordNotFound:
            self._status(reply, b"404 Message Not Found")
        except ColdUnavailable:
            self._status(reply, b"503 Cold History Unavailable")
        except MillstreamError:
            self._status(reply, b"408 Bad Request")

    def _once_here(
        self,
        reply: bytes,
        subject: bytes,
        headers: bytes,
        body: bytes,
        error: MillstreamError | None,
    ) -> None:
        """Answer what had to wait for cold history."""
        if error is None:
            self._answer(reply, subject, headers, body)
        else:
            self._status(reply, b"503 Cold History Unavailable")
        self._hub.flush()

    def _read(self, subject: bytes, body: bytes) -> GetRequest:
        asked = read_loosely(body or b"{}", request_shapes.GET_MESSAGE, GetRequest)
        if subject:
            if not asked.is_empty or asked.batch or asked.up_to_seq or asked.up_to_time:
                raise _Status("408 Bad Request")
            return GetRequest(last_by_subj=subject.decode("utf-8", "replace"), no_hdr=asked.no_hdr)
        if asked.is_empty:
            raise _Status("408 Empty Request")
        if asked.conflicts:
            raise _Status("408 Bad Request")
        return asked

    # -- several -----------------------------------------------------------------------------

    def _answer_batch(self, reply: bytes, asked: GetRequest) -> None:
        index = self._stream.index
        chosen = index.select([asked.next_by_subj] if asked.next_by_subj else ())
        start = asked.seq
        if asked.start_time:
            start = self._stream.log.seek_time(time_ns(asked.start_time))
        left = self._stream.contents.count_from(max(start, 1), chosen)
        if not left:
            raise _Status("404 Message Not Found")
        seqs = index.seqs(chosen, max(start, 1), asked.batch)
        behind, before = self._send_all(reply, asked, seqs, left)
        # Without headers nobody counts down, and the reference tells what it began with.
        self._status(reply, b"204 EOB", _progress(left if asked.no_hdr else behind, before))

    def _answer_multi(self, reply: bytes, asked: GetRequest) -> None:
        """Send the newest record of each subject, as of a sequence or a time."""
        up_to = asked.up_to_seq or self._stream.log.committed_seq
        if asked.up_to_time:
            up_to = self._last_before(time_ns(asked.up_to_time))
            if up_to < self._stream.state().first_seq:
                raise _Status("404 No Results")
        in_files = self._stream.config.storage == "file"
        if in_files and asked.up_to_seq > self._stream.log.committed_seq:
            raise _Status("404 No Results")  # as the reference's files have it
        chosen = self._stream.index.select(asked.multi_last)
        newest = list(self._stream.index.last_seqs(chosen, up_to))
        if not newest:
            raise _Status("404 No Results")
        seqs = [seq for seq in newest if seq >= asked.seq]
        if len(seqs) > MOST_SUBJECTS:
            raise _Status("413 Too Many Results")
        most = asked.batch or len(seqs)
        left, before = self._send_all(reply, asked, seqs[:most], len(seqs))
        fields = (*_progress(left, before), (b"Nats-UpTo-Sequence", b"%d" % up_to))
        self._status(reply, b"204 EOB", fields)

    def _last_before(self, ts_ns: int) -> int:
        """Return the sequence before the first record that is there and not older."""
        log, index = self._stream.log, self._stream.index
        behind = index.seqs(index.select(()), max(log.seek_time(ts_ns), 1), 1)
        return next(behind, log.committed_seq + 1) - 1

    def _send_all(
        self, reply: bytes, asked: GetRequest, seqs: Iterable[int], left: int
    ) -> tuple[int, int]:
        """Send records within the byte limit; returns (how many are left, the last sequence)."""
        before = 0  # all of them first: what is in cold history begins anew when it is here
        for record in list(self._records(seqs, asked.max_bytes or BATCH_BYTES)):
            left -= 1
            self._send(reply, record, asked, _progress(left, before))
            before = record.seq
        return left, before

    def _records(self, seqs: Iterable[int], room: int) -> Iterator[Record]:
        for seq in seqs:
            try:
                record = self._stream.get(seq)
            except RecordNotFound:  # found damaged just now
                continue
            room -= len(record.subject) + len(record.headers) + len(record.payload)
            yield record
            if room <= 0:
                return

    # -- messages ----------------------------------------------------------------------------

    def _send(self, reply: bytes, record: Record, asked: GetRequest, more: Fields) -> None:
        block = b""
        if not asked.no_hdr or asked.multi_last:  # which would not say what is what
            block = self._block(record, more)
        self._hub.publish(self._interest, reply, b"", block, record.payload)

    def _block(self, record: Record, more: Fields) -> bytes:
        fields = (
            (b"Nats-Stream", self._stream.name.encode()),
            (b"Nats-Subject", record.subject),
            (b"Nats-Sequence", b"%d" % record.seq),
            (b"Nats-Time-Stamp", rfc3339(record.ts_ns).encode()),
            *more,
        )
        added, stored = encode_headers(fields), without(headers_of(record), PLACE_FIELDS)
        return stored[:-2] + added[len(b"NATS/1.0\r\n") :] if stored else added

    def _status(self, reply: bytes, line: bytes, fields: Fields = ()) -> None:
        self._hub.publish(self._interest, reply, b"", encode_headers(fields, line), b"")


def _progress(left: int, before: int) -> Fields:
    return ((b"Nats-Num-Pending", b"%d" % left), (b"Nats-Last-Sequence", b"%d" % before))
