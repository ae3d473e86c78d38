"""Forwarder: carries out the routers' steps, those of one source in one commit.

A copy costs no frame of its own in the WAL. One DERIVE frame names what all routers of the source
copied in this step, and where to. What that means when the process ends
- before the frame is written: the copies were never visible, the cursor is where it was, and the
  step is taken again. The sequences that the copies had are free again, or given up for good where
  the ``disk`` class had reserved them;
- after the frame: the replay makes the copies again, from the source, under the same sequences.
  The frame stands where their own frames would, so that what was written to the destination
  directly before or after is where it was;
- while only segment files have them (a power cut took the frame, not the file): they are kept as
  records, and the router, whose cursor is older, copies their originals once more. A router that
  promises exactly one copy finds them by their mark first.
Where the source does not outlive the process, copies are ordinary records; where the destination
does not, the frame only says how far the router is.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from millstream.clock import Clock
from millstream.errors import MillstreamError, NotHere, RecordTooLarge
from millstream.kernel._batch import Batch
from millstream.routers.choice import Choice, Fit, choose, lost_through, next_loss
from millstream.routers.router import Router
from millstream.store.log.derived import (
    SOURCE_TRIM,
    Derivation,
    DerivedPart,
    Fields,
    add_copy,
    as_ranges,
)
from millstream.store.log.log import Committed, Durability, LogState, Staged
from millstream.streams.config.size import record_size
from millstream.streams.publishing import copies
from millstream.streams.stream import Stream

if TYPE_CHECKING:
    from millstream.routers.hops import Hops

log = logging.getLogger(__name__)

PAGE_RECORDS = 1024
PAGE_BYTES = 1024 * 1024
LONGEST_STEP = 0.001  # seconds after which a step takes no further router


class ForwarderStore(Protocol):
    """What forwarding asks of the store."""

    def derive(self, derivation: Derivation, staged: Sequence[Staged], done: Committed) -> None:
        """Log what copies were made of; they commit with it."""
        ...


class Step:
    """What the routers of one source do in one go."""

    def __init__(self, source: Stream, ts_ns: int) -> None:
        self.source = source
        self.state: LogState = source.log.state()
        self.is_kept = source.log.durability is not Durability.EPHEMERAL
        self.ts_ns = ts_ns
        self.taken: list[tuple[Router, DerivedPart]] = []
        self.logged: list[DerivedPart] = []
        self.staged: list[Staged] = []
        self._pages: dict[int, tuple[list[Fields], int]] = {}
        self._choices: dict[int, Choice] = {}
        self._lost: dict[int, int] = {}

    def lost(self, cursor: int) -> int:
        """Return the last of the sequences after a cursor that the source lost, 0 for none."""
        found = self._lost.get(cursor)
        if found is None:
            found = lost_through(cursor, self.state.evict_floor, self.state.gaps)
            self._lost[cursor] = found
        return found

    def choice(self, router: Router, hops_of: Callable[[int], int]) -> Choice:
        """Return what a router copies; those that take everything share it."""
        room = CopyBudget(router.dest)
        takes_all = router.tags is None and room.takes_all and not router.held
        made = self._choices.get(router.cursor) if takes_all else None
        if made is not None:
            return made
        records, reach = self.page(router.cursor)
        held = router.held.__contains__
        made = choose(records, router.cursor, router.tags, hops_of, held, room.fits)
        if not made.is_blocked and (not records or made.passed == records[-1][0]):
            made.passed = reach  # what is missing behind the last record was deleted
        made.ranges = as_ranges(record[0] for record in made.records)
        if takes_all:
            self._choices[router.cursor] = made
        return made

    def page(self, cursor: int) -> tuple[list[Fields], int]:
        """Return what follows the cursor, and how far that reaches; read once for all routers."""
        found = self._pages.get(cursor)
        if found is None:
            found = self._pages[cursor] = self._read(cursor)
        return found

    def _read(self, cursor: int) -> tuple[list[Fields], int]:
        head = self.state.last_seq
        if self.state.gaps and (loss := next_loss(cursor, self.state.gaps)) is not None:
            head = min(head, loss - 1)
        frames = self.source.read(cursor + 1, PAGE_RECORDS, PAGE_BYTES)
        records = [record for record in frames if record[0] <= head] if len(frames) else []
        whole = not len(frames) or frames.last_seq >= head
        return records, head if whole else frames.last_seq


class Forwarder:
    """Copies records into the routers' destinations; ``settled`` hears of routers that moved."""

    def __init__(
        self,
        store: ForwarderStore | None,
        clock: Clock,
        settled: Callable[[Sequence[Router], MillstreamError | None], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._settled = settled
        self.hops: dict[int, Hops] = {}  # stream → copies that its own routers have not passed

    def step(self, source: Stream, routers: Sequence[Router]) -> Sequence[Router]:
        """Take each router one step on: at most a page of records, all in one commit.

        What takes too long ends early, so that writers do not wait for copies; returns the routers
        that had no turn. Nothing is copied behind the frame that deletes the source: a replay would
        find nothing to make the copies from.
        """
        if source.is_leaving:
            return ()
        step, began = Step(source, self._clock.time_ns()), self._clock.monotonic()
        left: Sequence[Router] = ()
        for at, router in enumerate(routers):
            if self._clock.monotonic() - began > LONGEST_STEP:
                left = routers[at:]
                break
            if not router.is_busy and router.is_behind:
                try:
                    self._take(router, step)
                except NotHere as missing:
                    missing.wait(partial(self._settled, [router]))
                except MillstreamError as error:  # the store takes nothing now
                    self._settled([router], error)
        self._commit(step)
        return left

    def _commit(self, step: Step) -> None:
        if not step.logged:
            return
        source = step.source
        if self._store is None:  # nothing outlives the process
            for staged in step.staged:
                staged.committed(None)
            self._arrived(step.taken, None)
            return
        derivation = Derivation(source.incarnation, step.ts_ns, source.name, step.logged)
        self._store.derive(derivation, step.staged, partial(self._arrived, step.taken))

    def _take(self, router: Router, step: Step) -> None:
        lost = step.lost(router.cursor)
        if lost:
            self._skip(router, step, lost)
            return
        made = step.choice(router, self._hops_of(step.source))
        router.is_blocked = made.is_blocked
        if made.records:
            self._copy(router, step, made)
            return
        router.cursor = max(router.cursor, made.passed)
        router.forwarded += made.known
        self._settled([router], None)

    def _hops_of(self, source: Stream) -> Callable[[int], int]:
        hops = self.hops.get(source.incarnation)
        return _none if hops is None else hops.of

    def _skip(self, router: Router, step: Step, lost: int) -> None:
        """Leave sequences out in the destination for what the source lost first."""
        count = lost - router.cursor
        staged = copies.skip(router.dest, count, SOURCE_TRIM)
        part = _part(router, lost, 0, staged.first_seq + count, count, [])
        self._log(router, step, staged, part)

    def _copy(self, router: Router, step: Step, made: Choice) -> None:
        ranges = made.ranges
        draft = _part(router, made.passed, made.hops, 0, 0, ranges)
        derivation = Derivation(step.source.incarnation, step.ts_ns, step.source.name, [])
        batch = Batch()
        for record in made.records:
            add_copy(batch, record, derivation, draft)
        if not step.is_kept and _is_kept(router.dest):
            router.is_busy = True
            base = router.dest.writes.last_seq() + 1
            part = _part(router, made.passed, made.hops, base, 0, ranges)
            copies.store(router.dest, batch, partial(self._arrived, [(router, part)]))
            return
        staged = copies.stage(router.dest, batch, step.ts_ns)
        part = _part(router, made.passed, made.hops, staged.first_seq, 0, ranges)
        self._log(router, step, staged, part)

    def _log(self, router: Router, step: Step, staged: Staged, part: DerivedPart) -> None:
        router.is_busy = True
        kept = _is_kept(router.dest)
        if not kept:
            staged.committed(None)
        if not kept and not step.is_kept:
            self._arrived([(router, part)], None)
            return
        if kept:
            step.staged.append(staged)
        # What is not kept cannot be made again: the frame is then only a place to go on from.
        step.logged.append(part if kept else msgspec.structs.replace(part, target=0))
        step.taken.append((router, part))

    def _arrived(
        self, taken: Sequence[tuple[Router, DerivedPart]], error: MillstreamError | None
    ) -> None:
        for router, part in taken:
            if error is None:
                self._note(router, part)
            router.settled()
        self._settled([router for router, _ in taken], error)

    def _note(self, router: Router, part: DerivedPart) -> None:
        router.advance(part)
        hops = self.hops.get(router.dest.incarnation)
        if hops is not None and part.hops:
            hops.add(part.base, part.last, part.hops)


class CopyBudget:
    """Whether a destination takes one record after another."""

    def __init__(self, dest: Stream) -> None:
        config = dest.config
        self._dest = dest
        self.takes_all = (
            config.discard != "new"
            and config.max_msg_size <= 0
            and not config.sealed
            and not config.allow_msg_counter
            and not dest.admission.is_bounded
        )
        self._count = 0
        self._size = 0

    def fits(self, record: Fields) -> Fit:
        """Say whether a copy of the record may follow those asked about before."""
        if self.takes_all:
            return Fit.YES
        _, _, subject, payload, headers, _, _, meta = record
        size = record_size(self._dest.config, subject, headers, payload, meta)
        try:
            self._dest.admission.check_copy(
                subject, headers, payload, self._count, self._size + size
            )
        except RecordTooLarge:
            log.warning("record too large for %s, left out seq=%d", self._dest.name, record[0])
            return Fit.NEVER
        except MillstreamError:
            return Fit.NOT_NOW
        self._count += 1
        self._size += size
        return Fit.YES


def _part(
    router: Router, passed: int, hops: int, base: int, lost: int, ranges: list[tuple[int, int]]
) -> DerivedPart:
    one = router.definition
    return DerivedPart(
        one.id, passed, hops, one.dest_id, base, lost, ranges, one.dest, one.bits, one.stamp
    )


def _is_kept(stream: Stream) -> bool:
    return stream.log.durability is not Durability.EPHEMERAL


def _none(seq: int) -> int:
    return 0
