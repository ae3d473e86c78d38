"""Single records: ``$JS.API.STREAM.MSG.*`` and ``$JS.API.DIRECT.GET.*``."""

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.consumers.config import time_ns
from millstream.errors import MillstreamError, RecordNotFound
from millstream.kernel._batch import Batch
from millstream.message import Record
from millstream.nats.jetstream.errors import ApiError, bad_request, read_as
from millstream.nats.jetstream.shapes import rfc3339
from millstream.streams import patterns
from millstream.streams.config import InvalidJson
from millstream.streams.stream import Stream
from millstream.wire.headers import encode_headers, with_extras

if TYPE_CHECKING:
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest
    from millstream.nats.jetstream.endpoint import JetStream

Answer = dict[str, Any]
BATCH_BYTES = 8 * 1024 * 1024


class GetRequest(msgspec.Struct, frozen=True):
    """Which record: by sequence, newest or next of a subject, or by time."""

    seq: int = 0
    last_by_subj: str = ""
    next_by_subj: str = ""
    start_time: str = ""
    no_hdr: bool = False
    batch: int = 0
    max_bytes: int = 0
    multi_last: tuple[str, ...] = ()
    up_to_seq: int = 0
    up_to_time: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether it names no record."""
        return not (self.seq or self.last_by_subj or self.next_by_subj or self.start_time)

    @property
    def conflicts(self) -> bool:
        """Whether it names records in two ways."""
        ways = (self.seq and not self.next_by_subj, self.last_by_subj, self.next_by_subj)
        return sum(map(bool, (*ways, self.start_time))) > 1


class _Delete(msgspec.Struct, frozen=True):
    seq: int = 0
    no_erase: bool = False


async def get(js: "JetStream", body: bytes, name: str) -> Answer:
    """Return one record as JSON."""
    asked: GetRequest = read_as(body, GetRequest)
    stream = js.catalog.get(name, js.account)
    if asked.is_empty or asked.conflicts or asked.batch or asked.multi_last:
        raise bad_request()
    record = find(stream, asked)
    shown: Answer = {"subject": record.subject.decode("utf-8", "replace"), "seq": record.seq}
    headers = _headers(record)
    if headers and not asked.no_hdr:
        shown["hdrs"] = base64.b64encode(headers).decode()
    if record.payload:
        shown["data"] = base64.b64encode(record.payload).decode()
    return {"message": {**shown, "time": rfc3339(record.ts_ns)}}


async def delete(js: "JetStream", body: bytes, name: str) -> Answer:
    """Remove one record."""
    asked: _Delete = read_as(body, _Delete)
    stream = js.catalog.get(name, js.account)
    if asked.seq <= 0:
        raise bad_request()
    if not stream.config.sealed and not stream.config.deny_delete:
        if asked.seq > stream.state().last_seq:
            raise ApiError(500, 10057, "stream store EOF")
        try:
            stream.get(asked.seq)
        except RecordNotFound as error:
            if asked.seq < stream.state().first_seq:
                raise ApiError(500, 10057, "no message found") from error
            raise ApiError(400, 10043, f"sequence {asked.seq} not found") from error
    await stream.delete([asked.seq])
    return {"success": True}


def find(stream: Stream, asked: GetRequest) -> Record:
    """Return the record that a request names; raises RecordNotFound."""
    index = stream.index
    if asked.last_by_subj:
        if patterns.is_literal(asked.last_by_subj):
            return stream.get(stream.log.last_by_subject(asked.last_by_subj.encode()))
        return stream.get(index.last_seq(patterns.matcher([asked.last_by_subj])))
    if asked.next_by_subj:
        match = patterns.matcher([asked.next_by_subj])
        return stream.get(next(iter(index.next_seqs(max(asked.seq, 1), 1, match)), 0))
    if asked.start_time:
        frames = stream.read(stream.log.seek_time(time_ns(asked.start_time)), 1, 1)
        return stream.get(frames.first_seq if len(frames) else 0)
    return stream.get(asked.seq)


def _headers(record: Record) -> bytes:
    if record.tag or record.node or record.meta:
        return with_extras(record.headers, record.tag, record.node, record.meta)
    return record.headers


class DirectGet:
    """The sink behind ``$JS.API.DIRECT.GET.<stream>`` and ``….<stream>.<subject>``."""

    def __init__(self, stream: Stream, hub: "Hub", interest: "Interest") -> None:
        self._stream = stream
        self._hub = hub
        self._interest = interest
        self._prefix = f"$JS.API.DIRECT.GET.{stream.name}".encode()

    def deliver(self, batch: Batch) -> None:
        """Answer every request of the batch."""
        for at in range(len(batch)):
            subject, reply, _, payload, _ = batch.message(at)
            if reply:
                self._answer(reply, subject[len(self._prefix) + 1 :], payload)

    def _answer(self, reply: bytes, subject: bytes, body: bytes) -> None:
        try:
            asked = self._read(subject, body)
            if asked.batch:
                self._answer_batch(reply, asked)
            else:
                self._send(reply, find(self._stream, asked), asked, ())
        except _Status as status:
            self._status(reply, str(status).encode())
        except InvalidJson:
            self._status(reply, b"408 Malformed Request")
        except RecordNotFound:
            self._status(reply, b"404 Message Not Found")
        except MillstreamError:
            self._status(reply, b"408 Bad Request")

    def _read(self, subject: bytes, body: bytes) -> GetRequest:
        asked: GetRequest = read_as(body, GetRequest)
        if subject:
            if not asked.is_empty:
                raise _Status("408 Bad Request")
            return GetRequest(last_by_subj=subject.decode("utf-8", "replace"), no_hdr=asked.no_hdr)
        if asked.multi_last:
            raise _Status("408 Bad Request")  # multi_last is not served yet
        if asked.is_empty and not asked.batch:
            raise _Status("408 Empty Request")
        if asked.conflicts:
            raise _Status("408 Bad Request")
        return asked

    def _answer_batch(self, reply: bytes, asked: GetRequest) -> None:
        match = patterns.matcher([asked.next_by_subj]) if asked.next_by_subj else None
        start = asked.seq
        if asked.start_time:
            start = self._stream.log.seek_time(time_ns(asked.start_time))
        left, before = self._stream.count_from(max(start, 1), match), 0
        if not left:
            raise _Status("404 Message Not Found")
        for record in self._records(max(start, 1), asked, match):
            left -= 1
            self._send(reply, record, asked, _progress(left, before))
            before = record.seq
        self._status(reply, b"204 EOB", _progress(left, before))

    def _records(self, start: int, asked: GetRequest, match: Any) -> Iterator[Record]:
        room = asked.max_bytes or BATCH_BYTES
        for seq in self._stream.index.next_seqs(start, asked.batch, match):
            record = self._stream.get(seq)
            room -= len(record.subject) + len(record.headers) + len(record.payload)
            yield record
            if room <= 0:
                return

    def _send(
        self,
        reply: bytes,
        record: Record,
        asked: GetRequest,
        more: tuple[tuple[bytes, bytes], ...],
    ) -> None:
        fields = (
            (b"Nats-Stream", self._stream.name.encode()),
            (b"Nats-Subject", record.subject),
            (b"Nats-Sequence", b"%d" % record.seq),
            (b"Nats-Time-Stamp", rfc3339(record.ts_ns).encode()),
            *more,
        )
        added = encode_headers(fields)
        stored = b"" if asked.no_hdr else _headers(record)
        block = stored[:-2] + added[len(b"NATS/1.0\r\n") :] if stored else added
        self._hub.publish(self._interest, reply, b"", block, record.payload)

    def _status(
        self, reply: bytes, line: bytes, fields: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        self._hub.publish(self._interest, reply, b"", encode_headers(fields, line), b"")


class _Status(Exception):
    """A request that is answered by this status line."""


def _progress(left: int, before: int) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"Nats-Num-Pending", b"%d" % left), (b"Nats-Last-Sequence", b"%d" % before))
