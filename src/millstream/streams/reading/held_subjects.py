"""HeldSubjects: what a stream may hold, for whoever judges who may read it."""

from itertools import islice
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from millstream.streams.reading.subject_index import Selection
from millstream.subjects.matcher import matcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.kernel._index import SubjectTable
    from millstream.streams.config.config import StreamConfig
    from millstream.streams.stream import Stream

MOST_NAMED = 64  # subjects beside those that a stream lists; with more it may hold anything
ANYTHING = (">",)


class Unlisted(Selection):
    """The subjects of records that came although the stream does not list them, or no longer."""

    def __init__(self, table: "SubjectTable", config: "StreamConfig") -> None:
        super().__init__(table, ())
        listed = matcher((*config.subjects, config.name))
        self._match = None if listed is None else lambda subject: not listed(subject)
        self._ids = b""
        self.config = config

    def named(self) -> list[str]:
        """Return those of which there are records, one more than are to be told at most."""
        if self._match is None:
            return []
        found = islice(self.each(), MOST_NAMED + 1)
        return [self._table.subject(each).decode("utf-8", "surrogateescape") for each in found]


class HeldSubjects:
    """Answers (account, stream) with patterns, the stream's own name last; None: no such stream.

    A stream keeps records of subjects that it listed once, and takes what a consumer delivers to
    it under the subject that it was stored with. So what it lists is not all that it shows.
    """

    def __init__(self, streams: "Mapping[tuple[str, str], Stream]") -> None:
        self._streams = streams
        self._unlisted: WeakKeyDictionary[Stream, Unlisted] = WeakKeyDictionary()

    def __call__(self, account: str, name: str) -> tuple[str, ...] | None:
        """Return the patterns of what a stream holds."""
        stream = self._streams.get((account, name))
        if stream is None:
            return None
        config = stream.config
        if config.mirror or config.sources or config.subject_transform:
            return ANYTHING  # records come under subjects that the stream itself does not name
        others = self._beside(stream)
        if len(others) > MOST_NAMED:
            return ANYTHING
        if others and not config.subjects:
            return (name, *others, name)
        return (*config.subjects, *others, name)

    def _beside(self, stream: "Stream") -> list[str]:
        known = self._unlisted.get(stream)
        if known is None or known.config is not stream.config:
            known = self._unlisted[stream] = Unlisted(stream.log.subjects, stream.config)
        return known.named()
