"""Mirroring: a stream that is a copy of another, each record under its sequence and time.

Its newest sequence is the place to go on after a restart. What the origin lacks, or what the
mirror's filter leaves out, is a hole; what the origin removes later stays here.
"""

from collections.abc import Iterable

from millstream.errors import MillstreamError
from millstream.streams.config import source as sources
from millstream.streams.sourcing.incoming import Incoming
from millstream.streams.sourcing.intake import Intake, log
from millstream.streams.sourcing.origin import Origin, OriginStart, Stored


class Mirroring(Intake):
    """Takes the records of an origin into a mirror as they are there."""

    def _start(self) -> OriginStart:
        last = self._target.writes.last_seq()
        if last:
            return OriginStart(last + 1)
        return OriginStart(self.source.opt_start_seq or 1, self.source.opt_start_time)

    def begun(self, seq: int, *, is_same: bool) -> None:
        """Begin or go on where the origin does, even before a record comes."""
        last = self._target.writes.last_seq()
        if seq > last + 1 or not last:
            self._target.log.skip_to(seq, _skipped)
        super().begun(seq, is_same=is_same)

    def _packed(self, records: Iterable[Stored], origin: Origin) -> Incoming:
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
