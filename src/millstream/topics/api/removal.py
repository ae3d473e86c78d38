"""Removal: records deleted for good, by position, by tag, or by both."""

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
    tags = matches
    doomed = await once_here(lambda: _tagged(stream, tags, stop))
    return await stream.delete(doomed) if doomed else 0


def _tagged(stream: "Stream", matches: TagFilter, stop: int) -> list[int]:
    """Return what is selected up to ``stop``, by the log's index of tags where it has one."""
    log, value = stream.log, matches.value.encode()
    if isinstance(log, FileLog):
        is_prefix = matches.op == "Glob"
        return log.by_tag(value[:-1] if is_prefix else value, is_prefix, stop + 1)
    found, at = [], stream.state().first_seq
    while at <= stop:
        frames = stream.read(at, SCAN_RECORDS, SCAN_BYTES)
        if not len(frames):
            break
        found += [r[0] for r in frames if r[0] <= stop and matches.takes(r[5])]
        at = frames.last_seq + 1
    return found
