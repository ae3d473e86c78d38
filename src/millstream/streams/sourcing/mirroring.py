"""Mirroring: a stream that is a copy of another, each record under its sequence and time.

Its newest sequence is the place to go on after a restart. What the origin lacks, or what the
mirror's filter leaves out, is a hole; what the origin removes later stays here.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from millstream.errors import MillstreamError
from millstream.streams.config import source as sources
from millstream.streams.config.times import time_ns
from millstream.streams.sourcing.incoming import Incoming
from millstream.streams.sourcing.intake import Intake, log
from millstream.streams.sourcing.origin import Stored

if TYPE_CHECKING:
    from millstream.streams.stream import Stream


class Mirroring(Intake):
    """Takes the records of an origin into a mirror as they are there."""

    def _resume(self, origin: "Stream") -> int:
        last = self._target.writes.last_seq()
        start = last + 1 if last else self._first(origin)
        oldest = origin.log.state().first_seq
        if start < oldest or not last:
            # The mirror begins or goes on where its origin does, even before a record comes.
            start = max(start, oldest)
            self._target.log.skip_to(start, _skipped)
        return start

    def _first(self, origin: "Stream") -> int:
        if self.source.opt_start_seq:
            return self.source.opt_start_seq
        if self.source.opt_start_time:
            return origin.log.seek_time(time_ns(self.source.opt_start_time))
        return 1

    def _packed(self, records: Iterable[Stored], origin: "Stream") -> Incoming:
        coming = Incoming(seqs=[])
        assert coming.seqs is not None
        for seq, ts_ns, subject, payload, headers, tag, node, meta in records:
            kept = sources.without_expectations(headers)
            coming.demand(kept)
            coming.seqs.append(seq)
            coming.times_ns.append(ts_ns)
            coming.batch.add(self._rewritten(subject), b"", kept, payload, tag, node, meta)
        return coming


def _skipped(error: MillstreamError | None) -> None:
    if error is not None:  # the next record that comes skips the same sequences
        log.warning("mirror could not note where it begins error=%s", error)
