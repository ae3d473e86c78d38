"""SharedLog: the log of one shard at its place, with what reads, takes over and trims it."""

from millstream.store.fleet.fleet_file import FleetFile
from millstream.store.fleet.places import PatientPlace
from millstream.store.object_log.entry import Codec
from millstream.store.object_log.head import HeadCodec
from millstream.store.object_log.requests import carried_out
from millstream.store.object_log.take_over import LogReader, Read, Won
from millstream.store.object_log.trim import Trimmer


class SharedLog:
    """Asks the place until it answers plainly; every call may wait for the store."""

    def __init__(self, place: PatientPlace, terms: FleetFile, shard: int = 0) -> None:
        self.place = place
        self.shard = shard
        self.window = terms.window
        self.codec = Codec(shard, terms.secret)
        heads = HeadCodec(shard, terms.secret)
        self._reader = LogReader(self.codec, heads, terms.window)
        self.trimmer = Trimmer(self.codec, heads)

    def head(self) -> Read:
        """Read the head alone."""
        return carried_out(self._reader.open(), self.place)

    def read(self) -> Read:
        """Read the log from its head to its end."""
        read = self.head()
        self.read_on(read)
        return read

    def read_on(self, read: Read) -> None:
        """Add to a read what has come since."""
        carried_out(self._reader.read_on(read), self.place)

    def claim(self, read: Read, nonce: int, body: bytes) -> Won | Read:
        """Try to become the writer, exactly where a read ended (rules 4, 5 and 13)."""
        return carried_out(self._reader.claim(read, nonce, body), self.place)
