"""Single records: ``$JS.API.STREAM.MSG.*``, and which record a request names."""

import asyncio
import base64
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.errors import RecordNotFound
from millstream.message import Record
from millstream.nats.jetstream import request_shapes
from millstream.nats.jetstream.errors import ApiError, bad_request, is_empty, read_as
from millstream.streams.config.times import rfc3339, time_ns
from millstream.streams.reading.cold_reads import once_here
from millstream.streams.stream import Stream, settle
from millstream.streams.writing.copies import copy_under_way
from millstream.subjects.subject import has_wildcard
from millstream.wire.headers import with_extras

if TYPE_CHECKING:
    from millstream.nats.jetstream.endpoint import JetStream
    from millstream.streams.reading.subject_index import Selection

Answer = dict[str, Any]
MOST_DAMAGED = 256  # records that one look passes by; the next look begins behind them


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
        return not (
            self.seq or self.last_by_subj or self.next_by_subj or self.start_time or self.multi_last
        )

    @property
    def conflicts(self) -> bool:
        """Whether it names records in two ways."""
        if self.up_to_seq and self.up_to_time:
            return True
        if self.seq and self.start_time:
            return True
        if self.multi_last and (self.last_by_subj or self.next_by_subj):
            return True
        others = self.seq or self.next_by_subj or self.start_time or self.batch
        return bool(self.last_by_subj and others)


class _Delete(msgspec.Struct, frozen=True):
    seq: int = 0
    no_erase: bool = False


async def get(js: "JetStream", body: bytes, name: str) -> Answer:
    """Return one record as JSON."""
    if is_empty(body):
        raise bad_request()
    asked = read_as(body, request_shapes.GET_MESSAGE, GetRequest, strict=js.terms.is_strict)
    if asked.batch > 0 or asked.max_bytes > 0:
        raise bad_request()
    asked = msgspec.structs.replace(asked, batch=0, multi_last=(), up_to_seq=0, up_to_time="")
    if asked.is_empty or asked.conflicts:
        raise bad_request()
    stream = js.catalog.get(name, js.account)
    if stream.writes.inflight and asked.last_by_subj:
        await _copied(stream, asked.last_by_subj.encode())
    record = await once_here(lambda: find(stream, asked))
    shown: Answer = {"subject": record.subject.decode("utf-8", "replace"), "seq": record.seq}
    headers = headers_of(record)
    if headers and not asked.no_hdr:
        shown["hdrs"] = base64.b64encode(headers).decode()
    if record.payload:
        shown["data"] = base64.b64encode(record.payload).decode()
    return {"message": {**shown, "time": rfc3339(record.ts_ns)}}


async def delete(js: "JetStream", body: bytes, name: str) -> Answer:
    """Remove one record, and overwrite its bytes unless it is asked not to."""
    if is_empty(body):
        raise bad_request()
    asked = read_as(body, request_shapes.DELETE_MESSAGE, _Delete, strict=js.terms.is_strict)
    stream = js.catalog.get(name, js.account)
    if not stream.config.sealed and not stream.config.deny_delete:
        in_memory = stream.config.storage == "memory"
        if asked.seq > stream.state().last_seq and not in_memory:
            raise ApiError(500, 10057, "stream store EOF")
        if asked.seq < 1 or not stream.index.is_live(asked.seq):
            if asked.seq < stream.state().first_seq and not in_memory:
                raise ApiError(500, 10057, "no message found")
            raise ApiError(400, 10043, f"sequence {asked.seq} not found")
    await stream.delete([asked.seq], erase=not asked.no_erase)
    return {"success": True}


async def _copied(stream: Stream, subject: bytes) -> None:
    """Wait for a copy that another stream republished, as its publisher may have the ack."""
    run = copy_under_way(stream.writes.inflight, subject)
    if run is not None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        run.waiting.append(partial(settle, done, None))
        await done


def find(stream: Stream, asked: GetRequest) -> Record:
    """Return the record that a request names; raises RecordNotFound."""
    index = stream.index
    if asked.last_by_subj:
        if not has_wildcard(asked.last_by_subj):
            return stream.get(index.last_of(stream.log.subjects.find(asked.last_by_subj.encode())))
        return stream.get(index.last_seq(index.select([asked.last_by_subj])))
    if asked.next_by_subj:
        chosen, start = index.select([asked.next_by_subj]), asked.seq
        if asked.start_time:
            start = stream.log.seek_time(time_ns(asked.start_time))
        return _first_readable(stream, chosen, start)
    if asked.start_time:
        start = stream.log.seek_time(time_ns(asked.start_time))
        return _first_readable(stream, index.select(()), start)
    return stream.get(asked.seq)


def _first_readable(stream: Stream, chosen: "Selection", start: int) -> Record:
    """Return the first chosen record from ``start`` on; one found damaged just now is passed by."""
    for seq in stream.index.seqs(chosen, max(start, 1), MOST_DAMAGED):
        try:
            return stream.get(seq)
        except RecordNotFound:
            continue
    raise RecordNotFound()


def headers_of(record: Record) -> bytes:
    """Return a record's header block as NATS clients see it."""
    if record.tag or record.node or record.meta:
        return with_extras(record.headers, record.tag, record.node, record.meta)
    return record.headers
