"""Adoption: records of other streams, stored whole or not at all."""

import contextlib
from typing import Protocol

from millstream.errors import MillstreamError
from millstream.kernel._batch import Batch
from millstream.store.log.log import Committed
from millstream.streams.config.config import StreamConfig
from millstream.streams.publishing import counter
from millstream.streams.publishing.admission import Admission
from millstream.streams.sourcing.incoming import Incoming
from millstream.streams.writing import preconditions
from millstream.streams.writing.preconditions import PublishRefused
from millstream.streams.writing.run import Demand, Run
from millstream.streams.writing.writes import Writes


class Adopting(Protocol):
    """What adoption asks of the stream that takes records in."""

    @property
    def config(self) -> StreamConfig:
        """Return the stream's configuration."""
        ...

    @property
    def admission(self) -> Admission:
        """Return what checks records that come in."""
        ...

    @property
    def writes(self) -> Writes:
        """Return what brings runs into the log."""
        ...


class Adoption:
    """Takes pages of other streams in: their own stream has checked what publishers demanded."""

    def __init__(self, target: Adopting) -> None:
        self._target = target
        self._admission = target.admission
        self._writes = target.writes

    def take_in(self, coming: Incoming, done: Committed) -> None:
        """Store a page; ``done`` hears why not, or that it is committed."""
        try:
            if coming.seqs is None:
                coming = self._without_duplicates(coming)
            if not len(coming.batch):
                done(None)
                return
            if self._target.config.allow_msg_counter:
                coming.batch = self._counted(coming.batch)
            batch = self._admission.renamed(coming.batch)
            self._admission.check_whole(batch)
            self._admission.check_account(batch)
        except MillstreamError as error:
            done(error)
            return
        run = Run(batch, 0, len(batch), lambda _run, error: done(error))
        run.seqs, run.times_ns = coming.seqs, coming.times_ns
        for at, values in coming.demands.items():
            run.demands += self._kept(at, values)
        self._writes.append(run)

    def _kept(self, at: int, values: dict[bytes, bytes]) -> list[Demand]:
        """Return what this stream does about what a record demanded of its own."""
        config = self._target.config
        with contextlib.suppress(PublishRefused):  # its own stream may have had no use for it
            wanted = Demand.of(at, values)
            rolls = config.allow_rollup_hdrs and not config.deny_purge
            return [
                wanted._replace(
                    rollup=wanted.rollup if rolls else b"",
                    ttl=wanted.ttl if config.allow_msg_ttl else 0.0,
                    forever=wanted.forever and config.allow_msg_ttl,
                )
            ]
        return []

    def _without_duplicates(self, coming: Incoming) -> Incoming:
        """Leave out records whose message id is in the window; a mirror never does."""
        if self._target.config.duplicate_window <= 0:
            return coming
        seen = {at for at, values in coming.demands.items() if self._is_known(values)}
        if not seen:
            return coming
        kept = Incoming()
        for at in range(len(coming.batch)):
            if at in seen:
                continue
            subject, _, headers, payload, _ = coming.batch.message(at)
            if at in coming.demands:
                kept.demands[len(kept.batch)] = coming.demands[at]
            kept.batch.add(subject, b"", headers, payload, *coming.batch.extras(at))
        return kept

    def _is_known(self, values: dict[bytes, bytes]) -> bool:
        msg_id = values.get(preconditions.MSG_ID, b"")
        return bool(msg_id) and self._admission.knows_id(msg_id)

    def _counted(self, batch: Batch) -> Batch:
        """Return counters of other streams as what they add to this stream's."""
        made, ahead = Batch(), dict[bytes, counter.Count]()
        for at in range(len(batch)):
            subject, _, headers, payload, _ = batch.message(at)
            before = ahead.get(subject) or self._admission.count_of(subject)
            count, headers = counter.adopted(before, subject, headers, payload)
            ahead[subject] = count
            made.add(subject, b"", headers, counter.stored(count.total), *batch.extras(at))
        return made
