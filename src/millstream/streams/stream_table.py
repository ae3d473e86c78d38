"""StreamTable: the streams of all accounts by name, and the subjects that they capture."""

import difflib
from collections import defaultdict

from millstream.errors import StreamNotFound, SubjectsOverlap
from millstream.streams.config.config import StreamConfig
from millstream.streams.stream import Stream
from millstream.subjects.pattern_set import PatternSet

RESTORING = "millstream.restoring"  # in the metadata of a stream that is not all there yet


StreamsByName = dict[tuple[str, str], Stream]  # by account and name


class StreamTable:
    """Finds streams, and says what they hold together."""

    def __init__(self, streams: StreamsByName) -> None:
        """``streams`` is where others look streams up as well."""
        self._streams = streams
        self._captured: defaultdict[str, PatternSet] = defaultdict(PatternSet)  # by account

    def get(self, name: str, account: str) -> Stream:
        """Return a stream; raises StreamNotFound with the closest name there is."""
        stream = self._streams.get((account, name))
        if stream is None:
            raise StreamNotFound(name, self._closest(name, account))
        return stream

    def _closest(self, name: str, account: str) -> str | None:
        names = [known for owner, known in self._streams if owner == account]
        return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.75)), None)

    def find(self, name: str, account: str) -> Stream | None:
        """Return a stream, None when there is none of that name."""
        return self._streams.get((account, name))

    def of(self, account: str) -> list[Stream]:
        """Return an account's streams."""
        return [s for (owner, _), s in self._streams.items() if owner == account]

    def everything(self) -> list[Stream]:
        """Return the streams of all accounts."""
        return list(self._streams.values())

    def put(self, stream: Stream) -> None:
        """Take a stream in under its name."""
        self._streams[stream.account, stream.name] = stream
        self.reserve(stream, stream.config)

    def reserve(self, stream: Stream, config: StreamConfig) -> None:
        """Keep the subjects that a configuration names for a stream, and no others any more."""
        self._captured[stream.account].put(stream.incarnation, config.subjects)

    def drop(self, stream: Stream) -> None:
        """Forget a stream."""
        del self._streams[stream.account, stream.name]
        self._captured[stream.account].drop(stream.incarnation)

    def check_overlap(self, config: StreamConfig, account: str) -> None:
        """Raise when another stream of the account captures some of the subjects."""
        known = self._streams.get((account, config.name))
        besides = known.incarnation if known is not None else 0
        if self._captured[account].overlaps(config.subjects, besides):
            raise SubjectsOverlap()

    def coming_bytes(self, account: str, storage: str) -> int:
        """Return what an account's streams of one kind hold, with what is on its way in."""
        found = (s for s in self.of(account) if s.config.storage == storage)
        return sum(stream.state().bytes + stream.writes.staged_size for stream in found)

    def stored_bytes(self, storage: str) -> int:
        """Return what the streams of one kind hold in all accounts."""
        found = (s for s in self._streams.values() if s.config.storage == storage)
        return sum(stream.state().bytes for stream in found)

    def is_restoring(self, name: str, account: str) -> bool:
        """Whether a stream still takes its records back in."""
        stream = self._streams.get((account, name))
        return stream is not None and RESTORING in stream.config.metadata
