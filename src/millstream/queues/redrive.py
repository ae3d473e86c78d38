"""Redrive: dead letters go back to the queue that they came from, and leave their topic.

The copy is appended before the letter is deleted, so a crash in between leaves both: a job may
come twice, but never not at all.
"""

from collections.abc import Callable, Sequence

import msgspec

from millstream.message import NewRecord, Record
from millstream.queues.dead_letters import DELIVERIES, FROM, SOURCE_SEQ, SUBJECT
from millstream.streams.stream import Stream

Meta = dict[str, msgspec.Raw]


class Redriven(msgspec.Struct):
    """What became of the letters that were asked for."""

    to: dict[str, int] = msgspec.field(default_factory=dict)
    skipped: list[int] = msgspec.field(default_factory=list)

    @property
    def count(self) -> int:
        """Return how many went back."""
        return sum(self.to.values())


class Redrive:
    """Sends letters back; those already on their way are left to whoever sent them first."""

    def __init__(self) -> None:
        self._under_way: set[tuple[int, int]] = set()

    async def send_back(
        self,
        letters: Stream,
        records: Sequence[Record],
        to: str | None,
        find: Callable[[str], Stream | None],
    ) -> Redriven:
        """Send records to their queues, or all to ``to``; ``find`` knows where one may go."""
        done = Redriven()
        for name, group in self._sorted(letters, records, to, done).items():
            target = find(name)
            if target is None or target is letters:
                done.skipped += [record.seq for record, _ in group]
                continue
            marks = {(letters.incarnation, record.seq) for record, _ in group}
            self._under_way |= marks
            try:
                await target.append([job_of(record, meta, target) for record, meta in group])
                await letters.delete([record.seq for record, _ in group])
            finally:
                self._under_way -= marks
            done.to[name] = len(group)
        done.skipped.sort()
        return done

    def _sorted(
        self, letters: Stream, records: Sequence[Record], to: str | None, done: Redriven
    ) -> dict[str, list[tuple[Record, Meta]]]:
        """Return the letters by where they go; what is none is skipped."""
        groups: dict[str, list[tuple[Record, Meta]]] = {}
        for record in records:
            meta = _meta_of(record)
            origin = _text(meta.get(FROM))
            if not origin or (letters.incarnation, record.seq) in self._under_way:
                done.skipped.append(record.seq)
            else:
                groups.setdefault(to or origin, []).append((record, meta))
        return groups


def job_of(record: Record, meta: Meta, target: Stream) -> NewRecord:
    """Return a letter as the job that it was, where its queue still takes that subject."""
    subject = b""
    told = _text(meta.get(SUBJECT))
    if told and told in target.config.subjects:
        subject = told.encode()
    own = {FROM, DELIVERIES, SOURCE_SEQ, SUBJECT}
    kept = {name: value for name, value in meta.items() if name not in own}
    shown = msgspec.json.encode(kept) if kept else b""
    return NewRecord(subject, record.payload, record.headers, record.tag, record.node, shown)


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
