"""``spark.readStream.format("millstream")``: micro-batches by sequence, exact on replay."""

import logging
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from millstream.client.errors import ClientError, PermissionDenied
from millstream.client.streams import ReadPlan, StreamMissing, Tail
from millstream.clock import SystemClock
from millstream.spark.offsets import Position, Positions, UnknownOffset, offset_of, positions_of
from millstream.spark.options import ReadOptions, StartFrom, check_streaming
from millstream.spark.problems import DataLoss, OptionError
from millstream.spark.reading.partitions import (
    Range,
    looked_at,
    planned,
    read_partition,
    resolved,
    stream_names,
)
from millstream.spark.reading.task import not_the_same
from millstream.spark.source import NO_SEGMENTS
from millstream.spark.worker_errors import in_one_line
from millstream.spark.worker_socket import Prompt

log = logging.getLogger(__name__)

SHOWN_EVERY = 30.0  # seconds: a quarter of what the broker remembers of a silent reader
REFUSED_FOR = 60.0  # seconds: rights may be given later
STREAM_DELETED = "stream deleted"  # the reason of a gap: a batch was planned, then its stream went


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says why there is no reader, once it is asked something.

    What is raised while a reader is made, Spark hides behind an error of its own.
    """

    def __init__(self, why: OptionError) -> None:
        self._why = why

    def initialOffset(self) -> dict[str, Any]:
        """Refuse."""
        with in_one_line():
            raise self._why

    def getDefaultReadLimit(self) -> ReadLimit:
        """Refuse."""
        with in_one_line():
            raise self._why

    def prepareForTriggerAvailableNow(self) -> None:
        """Refuse."""
        with in_one_line():
            raise self._why

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Refuse."""
        with in_one_line():
            raise self._why

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Refuse."""
        with in_one_line():
            raise self._why

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Refuse."""
        with in_one_line():
            raise self._why


class StreamingReader(Prompt, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets and partitions of one query; lives on the driver, and pickled in its tasks."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        check_streaming(options)
        self._options = options
        # Sequences say what a batch holds: a time counted from now would change on replay.
        self._read_options = replace(options, start_time=None)
        self._columns = columns
        self._until: dict[str, int] | None = None  # where a run of AvailableNow ends
        self._heads: Positions = {}
        self._shown: Positions = {}
        self._shown_at = 0.0
        self._refused_until: dict[str, float] = {}
        # For a checkpoint that has none yet; it stays with the query from then on.
        self._reader = secrets.token_hex(6) if options.consumer else ""

    @in_one_line()
    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint starts."""
        self._options.server.reach()
        return offset_of(looked_at(self._options, self._start_of).values())

    def _start_of(self, name: str) -> Position:
        options = self._options
        at_ns = resolved(options.start_time, SystemClock().time_ns())
        plan = self._head(name, at_ns or 0)
        start = plan.first_seq
        if options.start_seq is not None:
            start = max(options.start_seq, 1)
        elif at_ns is not None:
            start = plan.first_seq if plan.time_seq is None else plan.time_seq
        elif options.start_from is StartFrom.LATEST:
            start = plan.last_seq + 1
        return self._known(Position(plan.stream, start - 1, plan.incarnation), plan)

    def _known(self, position: Position, plan: ReadPlan) -> Position:
        """Return the position with what a checkpoint of an earlier version does not say."""
        identity, reader = position.identity or plan.identity, position.reader or self._reader
        return replace(position, identity=identity, reader=reader)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much one micro-batch takes."""
        if self._options.max_records_per_trigger:
            return ReadMaxRows(self._options.max_records_per_trigger)
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    @in_one_line()
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end: what arrives from now on belongs to the next run."""
        self._until = {}
        self._options.server.reach()
        for name in stream_names(self._options):
            # Told where the query starts, or goes on.
            with suppress(StreamMissing, PermissionDenied):
                self._until[name] = self._head(name).last_seq

    @in_one_line()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next micro-batch ends: at the heads, or as far as the limit lets it."""
        begun = positions_of(start)
        self._show(begun)  # Spark asks for more once it has committed what came before
        looked = [(name, self._now(name, begun.get(name))) for name in self._present(begun)]
        now = {name: place for name, place in looked if place is not None}
        self._heads = {name: head for name, (_, head) in now.items()}
        ends = {name: self._bounded(name, *place) for name, place in now.items()}
        if isinstance(limit, ReadMaxRows | ReadMaxBytes):
            starts = {name: position for name, (position, _) in now.items()}
            ends = self._limited(starts, ends, limit)
        gone = {name: position for name, position in begun.items() if name not in ends}
        return offset_of([*gone.values(), *ends.values()])

    def _present(self, begun: Positions) -> list[str]:
        """Return the streams to look at: those that the query has, and those that came."""
        asked = self._options.streams
        for name in begun:
            if not any(fnmatchcase(name, pattern) for pattern in asked):
                raise UnknownOffset(
                    f"the checkpoint was written for stream {name!r}, which is not among "
                    f"{', '.join(asked)}: give the query a checkpoint of its own"
                )
        names = stream_names(self._options)
        if missing := sorted(set(begun) - set(names)):
            self._missing(missing[0])
        return names

    def _now(self, name: str, begun: Position | None) -> tuple[Position, Position] | None:
        """Return where a stream's next records start, and its head; None if it is gone.

        None too for one that a pattern fits and the user may not read; it is asked about seldom.
        """
        now = SystemClock().monotonic()
        if self._refused_until.get(name, now) > now:
            return None
        try:
            plan = self._head(name)
        except PermissionDenied:
            if begun is not None or name in self._options.streams:
                raise
            self._refused_until[name] = now + REFUSED_FOR
            return None
        except StreamMissing:
            if begun is None:  # it never was: a mistake, not a loss
                raise
            self._missing(name)
            return None
        if begun is None:
            begun = Position(name, plan.first_seq - 1, plan.incarnation, plan.first_seq)
        _same(begun, plan)
        if plan.last_seq < begun.seq and self._options.fail_on_data_loss:
            raise DataLoss(
                f"stream {name!r} ends at {plan.last_seq}, and this query has taken records up to "
                f"{begun.seq}: the server was set back, as by a restore, and gives those sequences "
                "to other records. Give the query a checkpointLocation that is new; "
                "failOnDataLoss=false goes on behind them"
            )
        begun = self._known(begun, plan)
        return begun, begun.at(plan.last_seq)

    def _bounded(self, name: str, begun: Position, head: Position) -> Position:
        """Return the head, or where a run of AvailableNow ends; what came later is for the next."""
        if self._until is None:
            return head
        return begun.at(min(head.seq, self._until.get(name, 0)))

    def _limited(self, starts: Positions, ends: Positions, limit: ReadLimit) -> Positions:
        """Share the limit among streams by how far each is behind."""
        behind = {name: max(ends[name].seq - starts[name].seq, 0) for name in ends}
        total = sum(behind.values()) or 1
        limited: Positions = {}
        for name, start in starts.items():
            share = behind[name] / total
            end = start.at(min(ends[name].seq, self._reach(start, share, limit)))
            limited[name] = end
        return limited

    def _reach(self, start: Position, share: float, limit: ReadLimit) -> int:
        options = self._options
        most_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        most_rows = most_rows or options.max_records_per_trigger
        reach = start.seq + max(round(most_rows * share), 1) if most_rows else 1 << 63
        most_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else 0
        most_bytes = most_bytes or options.max_bytes_per_trigger
        if most_bytes and share:
            room = max(int(most_bytes * share), 1)
            server = options.server.streams()
            plan = server.plan(start.stream, start.seq + 1, max_bytes=room)
            reach = reach if plan.until_seq is None else min(reach, plan.until_seq)
        return reach

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the heads, so that progress reports show how far behind the query is."""
        return offset_of(self._heads.values()) if self._heads else None

    @in_one_line()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut ``start..end`` into tasks; asked again after a restart, the rows are the same."""
        begun, ended = positions_of(start), positions_of(end)
        ranges = []
        for name, last in ended.items():
            first = begun.get(name, last.before())
            if last.seq <= first.seq:
                continue
            ranges.append(Range(self._planned(first, last), first.seq + 1, last.seq))
        return planned(self._read_options, self._columns, ranges)

    def _planned(self, first: Position, last: Position) -> ReadPlan:
        """Return where a batch's records of one stream are; all are lost with a stream that is."""
        try:
            plan = self._options.server.streams().plan(last.stream, first.seq + 1)
        except StreamMissing:
            self._missing(last.stream)
            gone = (first.seq + 1, last.seq, STREAM_DELETED)
            end = last.seq + 1
            nothing = Tail(end, last.seq)
            return ReadPlan(last.stream, last.incarnation, end, last.seq, nothing, gaps=[gone])
        _same(first, plan)
        _same(last, plan)
        return plan

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the Arrow batches of one partition."""
        return read_partition(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Show how far the query is; the checkpoint alone is the truth.

        Spark calls it behind ``latestOffset``, which has seen the same position as its start.
        """
        self._show(positions_of(end))

    def stop(self) -> None:
        """End the driver's connection."""
        self._options.server.streams().close()

    # -- holds -------------------------------------------------------------------------------

    def _show(self, positions: Positions) -> None:
        """Say how far the query is if that is new, or said so long ago that it is forgotten."""
        consumer, now = self._options.consumer, SystemClock().monotonic()
        due = min(self._options.retention_hold / 3 or SHOWN_EVERY, SHOWN_EVERY)
        if consumer is None or (positions == self._shown and now - self._shown_at < due):
            return
        self._shown, self._shown_at = positions, now
        server = self._options.server.streams()
        for position in positions.values():
            try:
                server.hold(
                    position.stream,
                    consumer,
                    position.seq,
                    self._options.retention_hold,
                    position.reader or self._reader,
                )
            except ClientError as error:  # only what others see of the query depends on it
                log.warning("position not shown stream=%s error=%s", position.stream, error)

    def _head(self, name: str, at_ns: int = 0) -> ReadPlan:
        return self._options.server.streams().plan(name, NO_SEGMENTS, at_ns=at_ns)

    def _missing(self, name: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"stream {name!r} is gone; set failOnDataLoss=false to go on with the others"
            )


def _same(position: Position, plan: ReadPlan) -> None:
    if not position.is_of(plan.incarnation, plan.identity):
        raise not_the_same(position.stream)
