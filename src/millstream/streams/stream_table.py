"""StreamTable: the streams of all accounts by name, and the subjects that they capture."""

from collections import defaultdict
from collections.abc import Iterator

from millstream.errors import StreamNotFound, SubjectsOverlap
from millstream.streams.config.config import StreamConfig
from millstream.streams.name_list import NameList, closest
from millstream.streams.promised_bytes import PromisedBytes
from millstream.streams.stream import Stream
from millstream.subjects.pattern_set import PatternSet

RESTORING = "millstream.restoring"  # in the metadata of a stream that is not all there yet


StreamsByName = dict[tuple[str, str], Stream]  # by account and name


class _Names:
    """The names of an account's streams: all, and those that JetStream can name."""

    def __init__(self) -> None:
        self.all = NameList()
        self.legal = NameList()

    def lists(self, config: StreamConfig) -> tuple[NameList, ...]:
        """Return the lists that a stream is in."""
        return (self.all, self.legal) if config.is_legal_stream else (self.all,)


class StreamTable:
    """Finds streams, and says what they hold together.

    What is asked for each stream that comes costs the same however many there are.
    """

    def __init__(self, streams: StreamsByName) -> None:
        """``streams`` is where others look streams up as well."""
        self._streams = streams
        self.by_id: dict[int, Stream] = {}
        self._names: defaultdict[str, _Names] = defaultdict(_Names)  # by account
        self._captured: defaultdict[str, PatternSet] = defaultdict(PatternSet)  # by account
        self.promised = PromisedBytes()

    def get(self, name: str, account: str) -> Stream:
        """Return a stream; raises StreamNotFound with the closest name there is."""
        stream = self._streams.get((account, name))
        if stream is None:
            raise StreamNotFound(name, self._closest(name, account))
        return stream

    def _closest(self, name: str, account: str) -> str | None:
        return closest(name, self._names[account].all.near(name), 0.75)

    def find(self, name: str, account: str) -> Stream | None:
        """Return a stream, None when there is none of that name."""
        return self._streams.get((account, name))

    def count(self, account: str) -> int:
        """Return how many streams an account has."""
        return len(self._names[account].all)

    def count_legal(self, account: str) -> int:
        """Return how many streams an account has that JetStream can name."""
        return len(self._names[account].legal)

    def page(self, account: str, start: int, count: int) -> list[Stream]:
        """Return some of an account's streams that JetStream can name, by name."""
        names = self._names[account].legal.page(start, count)
        return [self._streams[account, name] for name in names]

    def after(self, account: str, name: str | None = None, prefix: str = "") -> Iterator[Stream]:
        """Go through an account's streams by name, from behind one on."""
        for found in self._names[account].all.after(name, prefix):
            yield self._streams[account, found]

    def near(self, name: str, account: str) -> list[str]:
        """Return the account's names that one which is not there may have meant."""
        return self._names[account].all.near(name)

    def capturing(self, account: str, subject: str) -> list[Stream]:
        """Return an account's streams that capture some of a subject, by name."""
        found = self._captured[account].overlapping(subject)
        return sorted((self.by_id[owner] for owner in found), key=lambda stream: stream.name)

    def of(self, account: str) -> list[Stream]:
        """Return an account's streams by name."""
        return list(self.after(account))

    def everything(self) -> list[Stream]:
        """Return the streams of all accounts."""
        return list(self._streams.values())

    def put(self, stream: Stream) -> None:
        """Take a stream in under its name."""
        self._streams[stream.account, stream.name] = stream
        self.by_id[stream.incarnation] = stream
        for names in self._names[stream.account].lists(stream.config):
            names.add(stream.name)
        self.reserve(stream, stream.config)

    def reserve(self, stream: Stream, config: StreamConfig) -> None:
        """Keep the subjects and bytes that a configuration names for a stream, and no others."""
        self._captured[stream.account].put(stream.incarnation, config.subjects)
        self.promised.put(stream.account, config)

    def drop(self, stream: Stream) -> None:
        """Forget a stream."""
        del self._streams[stream.account, stream.name]
        del self.by_id[stream.incarnation]
        for names in self._names[stream.account].lists(stream.config):
            names.remove(stream.name)
        self._captured[stream.account].drop(stream.incarnation)
        self.promised.drop(stream.account, stream.name)

    def check_overlap(self, config: StreamConfig, account: str) -> None:
        """Raise when another stream of the account captures some of the subjects."""
        known = self._streams.get((account, config.name))
        besides = known.incarnation if known is not None else 0
        if self._captured[account].overlaps(config.subjects, besides):
            raise SubjectsOverlap()

    def coming_bytes(self, account: str, storage: str) -> int:
        """Return what an account's streams of one kind hold, with what is on its way in."""
        found = (s for s in self.of(account) if s.config.storage == storage)
        return sum(stream.state().bytes + stream.staged_size for stream in found)

    def stored_bytes(self, storage: str) -> int:
        """Return what the streams of one kind hold in all accounts."""
        found = (s for s in self._streams.values() if s.config.storage == storage)
        return sum(stream.state().bytes for stream in found)

    def is_restoring(self, name: str, account: str) -> bool:
        """Whether a stream still takes its records back in."""
        stream = self._streams.get((account, name))
        return stream is not None and RESTORING in stream.config.metadata
