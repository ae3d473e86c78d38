"""Dead letters sent back: ``POST /v0/topics/{topic}/redrive``."""

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from millstream.errors import BadRequest, RecordNotFound
from millstream.http.request import Caller, Request
from millstream.http.response import Response, json_response
from millstream.message import Record
from millstream.queues.redrive import NO_RECORD, Find, Redrive, Redriven, RedriveRequest
from millstream.queues.settings import is_queue
from millstream.streams.reading.cold_reads import once_here
from millstream.topics import bodies
from millstream.topics.authorize import check_scope
from millstream.topics.context import Topics
from millstream.topics.directory import check_name, topic_of
from millstream.topics.errors import BatchTooLarge, NotAQueue
from millstream.topics.page.performance import Stopwatch

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

MOST = 1000
MOST_BYTES = 8 * 1024 * 1024
MOST_LOOKED_AT = 10_000  # letters, in one call


class RedriveBody(msgspec.Struct, rename={"origin": "from"}):
    """``POST /v0/topics/{topic}/redrive``: which letters, and where to if not home."""

    seqs: list[int] | None = None
    max: int | None = None
    to: str | None = None
    origin: str | None = None
    from_seq: int | None = None


class Redrives:
    """Sends dead letters back to their queues; one per server."""

    def __init__(self) -> None:
        self._redrive = Redrive()

    async def redrive(self, request: Request, topics: Topics) -> Response:
        """Append the letters to their queues as the jobs they were, and delete them here."""
        return await topics.unbroken.run(self._send_back(request, topics))

    async def _send_back(self, request: Request, topics: Topics) -> Response:
        watch = Stopwatch(topics.clock)
        body: RedriveBody = bodies.json_body(request, RedriveBody, may_be_empty=True)
        most = bodies.unsigned(body.max, "max", MOST, bodies.U32)
        after = bodies.unsigned(body.from_seq, "from_seq", 0)
        for seq in body.seqs or ():
            bodies.unsigned(seq, "each of seqs", 0)
        if len(body.seqs or ()) > MOST:
            raise BatchTooLarge(f"a call names at most {MOST} records", {"max": MOST})
        letters = topics.directory.find(topic_of(request), request.caller)
        if body.to == letters.name:
            raise BadRequest("to must be another topic than the one that holds the letters")
        if body.to is not None:
            self._queue(body.to, request.caller, topics)
        wish = RedriveRequest(min(most or MOST, MOST), body.to, body.origin)
        find = partial(self._home, caller=request.caller, topics=topics)
        done, next_from_seq = Redriven(), None
        if body.seqs is None:
            next_from_seq = await self._oldest(letters, wish, after, find, done)
        else:
            await self._named(letters, wish, body.seqs, find, done)
        if done.refusals and not done.count and next_from_seq is None:
            raise next(iter(done.refusals.values()))
        answer: dict[str, object] = {
            "topic": letters.name,
            "redriven": done.count,
            "skipped": sorted(done.skipped),
            "why": done.why,
            "to": done.to,
            "performance": watch.performance(),
        }
        if next_from_seq is not None:
            answer["next_from_seq"] = next_from_seq
        return json_response(answer)

    async def _named(
        self, letters: "Stream", wish: RedriveRequest, seqs: list[int], find: Find, done: Redriven
    ) -> None:
        found, missing = await once_here(lambda: _letters(letters, seqs))
        done.skip(missing, NO_RECORD)
        await self._redrive.send_back(letters, found, replace(wish, most=MOST), find, done)

    async def _oldest(
        self, letters: "Stream", wish: RedriveRequest, after: int, find: Find, done: Redriven
    ) -> int | None:
        """Send the oldest that can go; returns where to go on, None when all was looked at.

        What cannot go is passed over, however much of it there is, but not in one call.
        """
        looked = 0
        while done.count < wish.most and looked < MOST_LOOKED_AT:
            frames = await once_here(partial(letters.read, after + 1, MOST, MOST_BYTES))
            if not len(frames):
                return None
            records = [Record(*frames.record(at)) for at in range(len(frames))]
            after = await self._redrive.send_back(letters, records, wish, find, done)
            looked += len(records)
        return after if after < letters.log.committed_seq else None

    @staticmethod
    def _queue(name: str, caller: Caller, topics: Topics) -> "Stream":
        judged = caller.asking_for("write", name)
        check_scope(judged, "write")
        check_name(name, judged)
        stream = topics.directory.find(name, judged)
        if not is_queue(stream.config) and not stream.config.subjects:
            raise NotAQueue(name)
        return stream

    def _home(
        self, name: str, of_consumer: bool, caller: Caller, topics: Topics
    ) -> "Stream | None":
        """Return where a letter goes: to a queue, or to the stream whose consumer gave it up.

        A foreign or missing one only skips the letter.
        """
        judged = caller.asking_for("write", name)
        if not judged.may_touch(name):
            return None
        stream = topics.directory.find_or_none(name, judged)
        if stream is None or not (of_consumer or is_queue(stream.config) or stream.config.subjects):
            return None
        return stream


def _letters(stream: "Stream", seqs: list[int]) -> tuple[list[Record], list[int]]:
    """Return the records asked for, and which are not there."""
    found, missing = [], []
    for seq in dict.fromkeys(seqs):
        try:
            found.append(stream.get(seq))
        except RecordNotFound:
            missing.append(seq)
    return found, missing
