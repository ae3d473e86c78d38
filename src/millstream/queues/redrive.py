"""Redrive: dead letters go back to the queue or stream that they came from, and leave their topic.

The copy is appended before the letter is deleted, so a crash in between leaves both: a job may
come twice, but never not at all.
"""

from collections.abc import Callable, Sequence

import msgspec

from millstream.errors import MillstreamError
from millstream.message import NewRecord, Record
from millstream.queues.dead_letters import (
    CONSUMER,
    DELIVERIES,
    FROM,
    REASON,
    SOURCE_SEQ,
    SUBJECT,
    without_marks,
)
from millstream.streams.stream import Stream
from millstream.subjects.subject import is_subset

Meta = dict[str, msgspec.Raw]
Letters = list[tuple[Record, Meta]]
Find = Callable[[str, bool], Stream | None]  # (name, whether it was a consumer's) → where it goes

NO_LETTER, NO_RECORD, NO_QUEUE, UNDER_WAY = "no_letter", "no_record", "no_queue", "under_way"


class RedriveRequest(msgspec.Struct, frozen=True):
    """Which letters are to go back: at most so many, all to ``to``, only those from ``origin``."""

    most: int
    to: str | None = None
    origin: str | None = None


class Redriven(msgspec.Struct):
    """What became of letters that were looked at: how many went where, which stayed, and why."""

    to: dict[str, int] = msgspec.field(default_factory=dict)
    skipped: list[int] = msgspec.field(default_factory=list)
    why: dict[str, int] = msgspec.field(default_factory=dict)  # reason → letters that stayed
    refusals: dict[str, MillstreamError] = msgspec.field(default_factory=dict)  # by queue

    @property
    def count(self) -> int:
        """Return how many went back."""
        return sum(self.to.values())

    def skip(self, seqs: Sequence[int], why: str) -> None:
        """Leave letters where they are."""
        if seqs:
            self.skipped += seqs
            self.why[why] = self.why.get(why, 0) + len(seqs)


class Redrive:
    """Sends letters back; those already on their way are left to whoever sent them first."""

    def __init__(self) -> None:
        self._under_way: set[tuple[int, int]] = set()

    async def send_back(
        self,
        letters: Stream,
        records: Sequence[Record],
        wish: RedriveRequest,
        find: Find,
        done: Redriven,
    ) -> int:
        """Send records to their queues until as many have gone as are wished for.

        ``find`` knows where one may go. What cannot go is skipped, and a queue that refuses is
        asked only once. Returns the sequence of the last one that was looked at.
        """
        groups, last = self._sorted(letters, records, wish, find, done)
        for target, group in groups:
            seqs = [record.seq for record, _ in group]
            marks = {(letters.incarnation, seq) for seq in seqs}
            self._under_way |= marks
            try:
                if await _is_taken(target, group, done):
                    await letters.delete(seqs)
                    done.to[target.name] = done.to.get(target.name, 0) + len(group)
            finally:
                self._under_way -= marks
        return last

    def _sorted(
        self,
        letters: Stream,
        records: Sequence[Record],
        wish: RedriveRequest,
        find: Find,
        done: Redriven,
    ) -> tuple[list[tuple[Stream, Letters]], int]:
        """Return the letters by where they go, and how far it was looked; skips the others."""
        groups: dict[str, tuple[Stream, Letters]] = {}
        chosen, last = 0, 0
        for record in records:
            if chosen >= wish.most - done.count:
                break
            last, meta = record.seq, _meta_of(record)
            origin = _text(meta.get(FROM))
            if wish.origin is not None and origin != wish.origin:
                continue
            name = wish.to or origin
            target = find(name, CONSUMER in meta) if origin else None
            if not origin:
                done.skip([last], NO_LETTER)
            elif (letters.incarnation, last) in self._under_way:
                done.skip([last], UNDER_WAY)
            elif target is None or target is letters:
                done.skip([last], NO_QUEUE)
            elif name in done.refusals:
                done.skip([last], done.refusals[name].code)
            else:
                groups.setdefault(name, (target, []))[1].append((record, meta))
                chosen += 1
        return list(groups.values()), last


async def _is_taken(target: Stream, group: Letters, done: Redriven) -> bool:
    """Append letters to a queue; one that refuses them, as it is full, keeps none of the others."""
    try:
        await target.append([job_of(record, meta, target) for record, meta in group])
    except MillstreamError as error:
        if error.http_status >= 500:
            raise
        done.refusals[target.name] = error
        done.skip([record.seq for record, _ in group], error.code)
        return False
    return True


def job_of(record: Record, meta: Meta, target: Stream) -> NewRecord:
    """Return a letter as the job that it was, where its queue still takes that subject."""
    subject = b""
    told = _text(meta.get(SUBJECT))
    if told and any(is_subset(told, pattern) for pattern in target.config.subjects):
        subject = told.encode()
    own = {FROM, DELIVERIES, SOURCE_SEQ, SUBJECT, CONSUMER, REASON}
    kept = {name: value for name, value in meta.items() if name not in own}
    shown = msgspec.json.encode(kept) if kept else b""
    headers = without_marks(record.headers)
    return NewRecord(subject, record.payload, headers, record.tag, record.node, shown)


def _meta_of(record: Record) -> Meta:
    try:
        return msgspec.json.decode(record.meta, type=Meta)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _text(value: msgspec.Raw | None) -> str:
    if value is None:
        return ""
    try:
        return msgspec.json.decode(value, type=str)
    except msgspec.DecodeError:
        return ""
