"""Dead letters sent back: ``POST /v0/topics/{topic}/redrive``."""

from typing import TYPE_CHECKING

import msgspec

from millstream.errors import BadRequest, RecordNotFound
from millstream.http.request import Caller, Request
from millstream.http.response import Response, json_response
from millstream.message import Record
from millstream.queues.redrive import Redrive
from millstream.queues.settings import is_queue
from millstream.streams.presence import once_here
from millstream.topics import bodies
from millstream.topics.authorize import check_scope
from millstream.topics.context import Topics, check_name, topic_of
from millstream.topics.errors import BatchTooLarge, NotAQueue
from millstream.topics.performance import Stopwatch

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

MOST = 1000
MOST_BYTES = 8 * 1024 * 1024


class RedriveBody(msgspec.Struct):
    """``POST /v0/topics/{topic}/redrive``: which letters, and where to if not home."""

    seqs: list[int] | None = None
    max: int | None = None
    to: str | None = None


class Redrives:
    """Sends dead letters back to their queues; one per server."""

    def __init__(self) -> None:
        self._redrive = Redrive()

    async def redrive(self, request: Request, topics: Topics) -> Response:
        """Append the letters to their queues as the jobs they were, and delete them here."""
        watch = Stopwatch(topics.clock)
        body: RedriveBody = bodies.json_body(request, RedriveBody, may_be_empty=True)
        most = bodies.unsigned(body.max, "max", MOST, bodies.U32)
        for seq in body.seqs or ():
            bodies.unsigned(seq, "each of seqs", 0)
        if len(body.seqs or ()) > MOST:
            raise BatchTooLarge(f"a call names at most {MOST} records", {"max": MOST})
        letters = topics.find(topic_of(request), request.caller)
        if body.to == letters.name:
            raise BadRequest("to names the topic that the letters are in")
        if body.to is not None:
            self._queue(body.to, request.caller, topics)
        found, missing = await once_here(
            lambda: _letters(letters, body.seqs, min(most or MOST, MOST))
        )
        done = await self._redrive.send_back(
            letters, found, body.to, lambda name: self._home(name, request.caller, topics)
        )
        return json_response(
            {
                "topic": letters.name,
                "redriven": done.count,
                "skipped": sorted([*done.skipped, *missing]),
                "to": done.to,
                "performance": watch.performance(),
            }
        )

    @staticmethod
    def _queue(name: str, caller: Caller, topics: Topics) -> "Stream":
        judged = caller.asking_for("write", name)
        check_scope(judged, "write")
        check_name(name, judged)
        stream = topics.find(name, judged)
        if not is_queue(stream.config):
            raise NotAQueue(name)
        return stream

    def _home(self, name: str, caller: Caller, topics: Topics) -> "Stream | None":
        """Return the queue that a letter names; a foreign or missing one only skips the letter."""
        judged = caller.asking_for("write", name)
        if not judged.may_touch(name):
            return None
        stream = topics.find_or_none(name, judged)
        return stream if stream is not None and is_queue(stream.config) else None


def _letters(stream: "Stream", seqs: list[int] | None, most: int) -> tuple[list[Record], list[int]]:
    """Return the records asked for, or the oldest ones, and which are not there."""
    if seqs is None:
        frames = stream.read(stream.state().first_seq, most, MOST_BYTES)
        return [Record(*frames.record(at)) for at in range(len(frames))], []
    found, missing = [], []
    for seq in dict.fromkeys(seqs):
        try:
            found.append(stream.get(seq))
        except RecordNotFound:
            missing.append(seq)
    return found, missing
