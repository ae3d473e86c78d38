"""Removal: records deleted for good, by position, by tag, or by both."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from millstream.errors import BadRequest
from millstream.http.request import Request
from millstream.http.response import Response, json_response
from millstream.routers.tag_filter import TagFilter
from millstream.store.log.file_log import FileLog
from millstream.streams.config.data_size import data_bytes
from millstream.streams.reading.cold_reads import once_here
from millstream.streams.refusals import OperationDenied, StreamSealed
from millstream.topics import bodies
from millstream.topics.context import Topics
from millstream.topics.directory import topic_of
from millstream.topics.page.current_state import current_state
from millstream.topics.page.performance import Stopwatch

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

SCAN_RECORDS = 1000
SCAN_BYTES = 1024 * 1024
DELETED_AT_ONCE = 4096


async def delete_records(request: Request, topics: Topics) -> Response:
    """Delete what is there now and is selected; readers are not told."""
    watch = Stopwatch(topics.clock)
    body: bodies.DeleteBody = bodies.json_body(request, bodies.DeleteBody)
    if body.before_seq is None and body.match is None:
        raise BadRequest("give before_seq, match or both")
    before = bodies.unsigned(body.before_seq, "before_seq", bodies.U64)
    matches = None if body.match is None else TagFilter.read(body.match)
    stream = topics.directory.find(topic_of(request), request.caller)
    _refuse_if_closed(stream, by_position=matches is None)
    deleted = await _delete(stream, before, matches)
    state = current_state(stream, topics.clock.time_ns())
    answer = {
        "topic": stream.name,
        "deleted": deleted,
        "earliest_seq": state.first_seq,
        "head_seq": state.last_seq,
        "count": state.messages,
        "bytes": data_bytes(stream.log, stream.name, state.first_seq),
        "performance": watch.performance(),
    }
    return json_response(answer)


def _refuse_if_closed(stream: "Stream", *, by_position: bool) -> None:
    """Raise where a stream's configuration forbids what is asked, whatever it would select."""
    config = stream.config
    if config.sealed:
        raise StreamSealed()
    if config.mirror is not None:
        raise OperationDenied(10057, "a mirror's records are deleted at its origin")
    if by_position and config.deny_purge:
        raise OperationDenied(10110, "stream purge not permitted")
    if not by_position and config.deny_delete:
        raise OperationDenied(10057, "message delete not permitted")


async def _delete(stream: "Stream", before: int, matches: TagFilter | None) -> int:
    state = stream.state()
    stop = min(before - 1, state.last_seq)
    if stop < state.first_seq:
        return 0
    if matches is None:
        return await stream.purge(below=stop + 1)
    deleted, log = 0, stream.log
    if not isinstance(log, FileLog):
        doomed = _tagged(stream, matches, stop)
        return await stream.delete(doomed) if doomed else 0
    is_prefix, tag = matches.op == "Glob", matches.value.encode()
    tag = tag[:-1] if is_prefix else tag
    doomed = []
    at: int | None = 0
    while at is not None:  # in turns: the first search reads the tag of every record
        some, at = await once_here(partial(log.some_by_tag, tag, is_prefix, at, stop + 1))
        doomed += some
        if doomed and (at is None or len(doomed) >= DELETED_AT_ONCE):
            deleted += await stream.delete(doomed)
            doomed = []
        await asyncio.sleep(0)
    return deleted


def _tagged(stream: "Stream", matches: TagFilter, stop: int) -> list[int]:
    """Return what is selected up to ``stop``."""
    found, at = [], stream.state().first_seq
    while at <= stop:
        frames = stream.read(at, SCAN_RECORDS, SCAN_BYTES)
        if not len(frames):
            break
        found += [r[0] for r in frames if r[0] <= stop and matches.takes(r[5])]
        at = frames.last_seq + 1
    return found
