"""The replay of the WAL on top of snapshot and segments, shard by shard.

Reads only; whatever must outlive the damage it found is written anew by the store, ahead of the
first append. So a crash inside recovery leaves everything as it was, and running it twice gives
the same.

Torn and rotten are told apart by the durable mark. What the log itself says was on stable storage
and is damaged now has rotted: its neighbours are kept and the lost sequences are named. Above the
mark a crash may have torn it: there a batch is taken whole or not at all.

Shards know nothing of each other, save where a log's frames are in more than one: after a change
of their number, or with copies of another log's records. Such a frame waits until the others have
brought what comes before it.
"""

import logging
from collections.abc import Iterator

import msgspec

from millstream.kernel._frames import RECORD, body, scan
from millstream.store.disk.files import Files
from millstream.store.disk.keys import KeyRing
from millstream.store.log import derived
from millstream.store.log.control_frames import (
    DELETE,
    ERASE,
    RESERVE,
    SKIP,
    TRIM,
    VOID,
    Skipped,
    Trimmed,
    Voided,
)
from millstream.store.log.derived import DERIVE
from millstream.store.log.snapshot import Snapshot
from millstream.store.recovery.rebuild import Logs
from millstream.store.recovery.recovery import Control
from millstream.store.recovery.shard_wal import ShardWal, WalFile, headers_in, is_cut
from millstream.store.segments.salvage import Frame, whole_batches
from millstream.store.wal.entry import Damage, FrameRun, WalEntry, scan_entries
from millstream.store.wal.local_engine import HEADER

STREAM_DELETE = 17
_ENDED = object()

log = logging.getLogger(__name__)


class FoundDamage:
    """How much of a shard's WAL was not as written."""

    def __init__(self) -> None:
        self.bytes = 0
        self.torn_bytes = 0
        self.is_cut = False  # the newest file ends inside an entry: what came behind is unknown


class ShardWaits:
    """Where a shard waits for what other shards have of the same logs."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self.elsewhere: set[int] = set()  # logs that other shards have frames of
        self.forced = False  # nobody has what the next frame waits for

    def until(self, log_id: int, last: int) -> Iterator[None]:
        """Let other shards bring a log's sequences up to ``last``, where they may have them."""
        if log_id not in self.elsewhere:
            return
        while not self.forced and self._logs.lacks(log_id, last):
            yield
        self.forced = False


class Replay:
    """Applies a shard's WAL to the logs; the store gives the logs and takes the outcome."""

    def __init__(
        self,
        files: Files,
        logs: Logs,
        snapshot: Snapshot | None,
        ring: KeyRing | None = None,
        shard: int = 0,
        boot: int = -1,
    ) -> None:
        self._from = snapshot.positions.get(shard, 0) if snapshot else 0
        self.wal = ShardWal(files, ring or KeyRing(), self._from, boot)
        self._logs = logs
        self.shard = shard
        self.waits = ShardWaits(logs)
        self.control_number = snapshot.control_number if snapshot else 0
        self.position = self._from  # the last one accepted
        self.damage = FoundDamage()
        self.controls: list[Control] = []
        self._relogging = False
        self._pending: list[tuple[FrameRun, bytes]] = []
        self._durable = 0
        self.relog: list[tuple[FrameRun, bytes]] = []  # for this shard's new file, in order
        self.torn = False

    def run(self) -> Iterator[None]:
        """Replay every file in order, one at a time; yields where it waits for other shards."""
        found = self.wal
        for wal in found.files:
            if wal.follows_empty and wal.first_position - 1 > found.mark:
                log.warning("wal file before is empty, its content torn file=%s", wal.path)
                self._miss()
            self._durable = found.mark if wal.nonce == found.last_nonce else wal.limit - 1
            yield from self._replay_file(wal, wal is found.files[-1])

    def _replay_file(self, wal: WalFile, last: bool) -> Iterator[None]:
        buffer = self.wal.view(wal)
        at = wal.first_position - 1
        follows_damage = False
        rotten: list[WalEntry | Damage] = []  # adjacent, and stable once
        for item in scan_entries(buffer, HEADER.size, wal.first_position - 1, wal.data_end):
            wal.used = item.end
            if isinstance(item, WalEntry):
                if item.position >= wal.limit:
                    wal.used = len(buffer)
                    break  # a later start decided about these
                at = item.position
            elif at + 1 >= wal.limit:
                continue
            if self._is_rotten(buffer, item, wal, at):
                rotten.append(item)
                continue
            yield from self._replay_rotten(buffer, rotten, wal, at)
            rotten = []
            if isinstance(item, Damage):
                yield from self._replay_damage(buffer, item, wal, at + 1)
            elif follows_damage and self._is_misplaced(buffer, item):
                yield from self._replay_newer(buffer, item)
            else:
                yield from self._replay_entry(buffer, item, wal)
            follows_damage = isinstance(item, Damage)
        yield from self._replay_rotten(buffer, rotten, wal, at)
        if self._durable < at + 1 < wal.limit and not last:
            log.warning("torn end of a full wal file file=%s offset=%d", wal.path, wal.used)
            self._miss()
        if last:
            self._pending.clear()
            self.damage.is_cut = is_cut(buffer, wal)
            self.damage.bytes += self.damage.is_cut

    def _miss(self) -> None:
        """Note that entries are gone that a power cut kept from the disk."""
        self._pending.clear()
        self._relogging = self._logs.torn = True

    def _is_rotten(
        self, buffer: memoryview, item: WalEntry | Damage, wal: WalFile, at: int
    ) -> bool:
        """Say whether an item was stable, counts for this replay, and is damaged."""
        if isinstance(item, Damage):
            return at < self._durable and self._counts(buffer, item, wal, at + 1)
        wanted = item.position > self._from or bool(self._logs.holes)
        return wanted and item.position <= self._durable and not item.sound(buffer)

    def _is_misplaced(self, buffer: memoryview, entry: WalEntry) -> bool:
        """Say whether a header behind damage may have come there with a page: nothing fits it.

        The snapshot covers the entry that it was written for, but not what it now stands before.
        """
        is_covered = entry.position <= min(self._from, self._durable) and not self._logs.holes
        return is_covered and not entry.sound(buffer)

    def _replay_newer(self, buffer: memoryview, place: WalEntry | Damage) -> Iterator[None]:
        """Take what the snapshot cannot cover out of a place that it should: numbers tell."""
        frames = self.wal.frames(buffer, place.start, place.end, False)
        frames += self.wal.frames(buffer, place.start, place.end, True)
        if isinstance(place, Damage) and place.last:
            frames = whole_batches(frames, -1)  # an earlier start may have found it torn
        for frame in frames:
            if frame.kind != RECORD:
                is_newer = frame.seq > self.control_number
            else:
                is_known = frame.stream_id in self._logs.logs  # a log may have been dropped since
                is_newer = is_known and self._logs.lacks(frame.stream_id, frame.seq)
            if is_newer:
                yield from self._apply_one(frame)

    def _apply_one(self, frame: Frame) -> Iterator[None]:
        first = frame.seq if frame.kind == RECORD else 0
        yield from self._apply(FrameRun(frame.stream_id, first, 1, len(frame.data)), frame.data)

    def _replay_rotten(
        self, buffer: memoryview, items: list[WalEntry | Damage], wal: WalFile, at: int
    ) -> Iterator[None]:
        """Read adjacent damage as one: a page in a wrong place moves frames over its borders."""
        if len(items) == 1:
            item = items[0]
            if isinstance(item, WalEntry):
                yield from self._replay_entry(buffer, item, wal)
            else:
                yield from self._replay_damage(buffer, item, wal, min(at + 1, self._durable))
        if len(items) < 2:
            return
        start, end = items[0].start, items[-1].end
        self.damage.bytes += end - start
        log.error("damaged wal file=%s offset=%d bytes=%d", wal.path, start, end - start)
        frames = self.wal.frames(buffer, start, end, False) + self.wal.frames(
            buffer, start, end, True
        )
        yield from self._salvage(min(at, self._durable), _by_sequence(frames), -1)
        for item in items:
            told = [item] if isinstance(item, WalEntry) else headers_in(buffer, item, wal)
            yield from self._expect_all(told)

    def _counts(self, buffer: memoryview, damage: Damage, wal: WalFile, position: int) -> bool:
        """Say whether damage may hold what the snapshot does not cover: a tear goes on there."""
        if position > min(self._from, self._durable) or self._logs.holes:
            return True
        return any(each.position > self._from for each in headers_in(buffer, damage, wal))

    def _replay_entry(self, buffer: memoryview, entry: WalEntry, wal: WalFile) -> Iterator[None]:
        if entry.position <= self._from and not self._logs.holes:
            return
        pieces = self.wal.pieces(buffer, entry) if entry.sound(buffer) else None
        if pieces is not None:
            if entry.position > self._durable:
                self._relogging = True  # nothing proves that these bytes are stable
            yield from self._accept(entry, pieces)
            return
        unfinished = entry.position > self._durable and self.wal.is_cut_off(buffer, entry, wal)
        if unfinished:
            self._tell_torn(buffer, entry, wal)
        else:
            at = (wal.path, entry.start, entry.position)
            log.error("damaged wal entry file=%s offset=%d position=%d", *at)
            self.damage.bytes += entry.end - entry.body
        frames = self.wal.frames(buffer, entry.body, entry.end, entry.sealed)
        start = 0 if entry.sealed else entry.body
        yield from self._salvage(entry.position, frames, -1 if entry.continues else start)
        if entry.commits and not unfinished:
            yield from self._expect(entry)

    def _tell_torn(self, buffer: memoryview, torn: WalEntry | Damage, wal: WalFile) -> None:
        self.damage.torn_bytes += _used(buffer, torn.start, torn.end)
        log.warning("torn tail cut file=%s offset=%d", wal.path, torn.start)

    def _expect_all(self, entries: list[WalEntry]) -> Iterator[None]:
        for entry in sorted(entries, key=lambda entry: entry.position):
            if entry.commits and entry.position > self._from:
                yield from self._expect(entry)

    def _expect(self, entry: WalEntry) -> Iterator[None]:
        """Name what an entry should have brought and did not."""
        reason = "corruption" if entry.position <= self._durable else "torn"
        for run in entry.runs:
            if run.first_seq:
                yield from self.waits.until(run.stream_id, run.first_seq - 1)
                self._logs.expect(run.stream_id, run.first_seq + run.frames - 1, reason)

    def _accept(self, entry: WalEntry, pieces: list[tuple[FrameRun, bytes]]) -> Iterator[None]:
        """Take a sound entry; one that does not commit waits for the one that does."""
        if not self._relogging:
            self.position = max(self.position, entry.position)
        if self._pending and not _continues(entry):
            self._pending.clear()  # given up by its writer, or torn: absent as a whole
        if entry.continues and not self._pending and entry.position > self._durable:
            self._logs.torn = True  # the beginning was torn: the batch is absent as a whole
            if entry.commits:
                yield from self._expect(entry)
            return
        if not entry.commits:
            self._pending += pieces
            return
        waiting, self._pending = self._pending, []
        for run, data in (*waiting, *pieces):
            yield from self._apply(run, data)

    def _apply(self, run: FrameRun, data: bytes) -> Iterator[None]:
        if run.first_seq:
            yield from self.waits.until(run.stream_id, run.first_seq - 1)
            self._logs.replay(run.stream_id, run.first_seq, run.frames, data)
        else:
            frames, _ = scan(data)
            for kind, _flags, stream_id, number, _ts, start, _size, _deleted in frames:
                content = body(data, start)
                if self.waits.elsewhere and not 0 < number <= self.control_number:
                    for log_id, last in _needs(kind, stream_id, content):
                        yield from self.waits.until(log_id, last)
                self._control(kind, stream_id, number, content)
        if (
            self._relogging
        ):  # behind what it found missing: the next replay must learn of that first
            self._logs.relog.append((run, data))

    def _control(self, kind: int, log_id: int, number: int, content: bytes) -> None:
        if number == 0:  # a SKIP, or made by a recovery, which put it where it belongs
            self._logs.control(kind, log_id, content)
            return
        if kind == DERIVE and self._logs.holes:
            self._logs.offer_derived(content)
        if number <= self.control_number:
            return  # in the snapshot, or the second copy
        self.control_number = number
        if kind == RESERVE:
            self._logs.reserve(log_id, number, content)
            return
        if kind in (TRIM, DELETE, ERASE, VOID):
            self._logs.control(kind, log_id, content)
            return
        if kind == STREAM_DELETE:
            self._logs.drop(log_id)
        elif kind == DERIVE:
            self._logs.derive(content)
        self.controls.append(Control(kind, log_id, content, number))

    def _replay_damage(
        self, buffer: memoryview, damage: Damage, wal: WalFile, position: int
    ) -> Iterator[None]:
        """Read what no entry header vouches for: the frames vouch for themselves."""
        if not self._counts(buffer, damage, wal, position):
            yield from self._replay_newer(buffer, damage)
            return
        frames = self.wal.frames(buffer, damage.start, damage.end, False)
        frames += self.wal.frames(buffer, damage.start, damage.end, True)
        size = damage.end - damage.start
        if damage.last and position > self._durable:
            self._tell_torn(buffer, damage, wal)
        else:
            self.damage.bytes += size
            log.error("damaged wal file=%s offset=%d bytes=%d", wal.path, damage.start, size)
        yield from self._salvage(position, frames, -1)
        yield from self._expect_all(headers_in(buffer, damage, wal))

    def _salvage(self, position: int, frames: list[Frame], start: int) -> Iterator[None]:
        """Take single frames where damage is rot, whole batches where it may be a torn write."""
        if position <= self._durable:
            self._logs.rotten = True
            pending, self._pending = self._pending, []
            for run, data in pending:
                yield from self._apply(run, data)
            taken = frames
            self.position = max(self.position, position)
        else:
            self._pending.clear()
            self._relogging = self._logs.torn = True
            taken = whole_batches(frames, start)
        for frame in taken:
            yield from self._apply_one(frame)


def replay_all(replays: list[Replay], logs: Logs) -> None:
    """Replay all shards; each runs until it waits for what another one has."""
    if len(replays) > 1:
        spoken = {replay.shard: replay.wal.log_ids() for replay in replays}
        for replay in replays:
            others = [ids for shard, ids in spoken.items() if shard != replay.shard]
            replay.waits.elsewhere = set().union(*others)
    running = [(replay, replay.run()) for replay in replays]
    while running:
        before, seen = len(running), logs.steps
        running = [(replay, steps) for replay, steps in running if _go_on(replay, steps, logs)]
        if len(running) == before and logs.steps == seen:
            # What they wait for is lost, and where one is torn, by that.
            next(
                (replay for replay, _ in running if replay.torn), running[0][0]
            ).waits.forced = True


def _go_on(replay: Replay, steps: Iterator[None], logs: Logs) -> bool:
    """Let a shard run until it waits; False when it has ended. Torn is each for itself."""
    logs.torn, logs.relog = replay.torn, replay.relog
    waits = next(steps, _ENDED) is None
    replay.torn = logs.torn
    return waits


def _needs(kind: int, log_id: int, content: bytes) -> Iterator[tuple[int, int]]:
    """Yield (log, sequence up to which it must be there) for a control frame to make sense."""
    if kind == TRIM:
        yield log_id, msgspec.json.decode(content, type=Trimmed).first_kept - 1
    elif kind in (DELETE, ERASE):
        yield log_id, max(msgspec.json.decode(content, type=list[int]))
    elif kind == VOID:
        yield log_id, msgspec.json.decode(content, type=Voided).first - 1
    elif kind == SKIP:
        skipped = msgspec.json.decode(content, type=Skipped)
        if skipped.next_seq:  # otherwise the records behind it wait
            yield log_id, skipped.ranges[0][0] - 1
    elif kind == DERIVE:
        derivation = derived.decode(content)
        for part in derivation.parts:
            yield part.target, part.base - part.lost - 1
            yield derivation.source, max((last for _, last in part.ranges), default=0)


def _by_sequence(frames: list[Frame]) -> list[Frame]:
    """Put records of a log in order, before what is said of them; not where that would mislead.

    Skipped sequences and copies stand where they belong on the timeline, or mean nothing.
    """
    if any(frame.kind in (SKIP, DERIVE) for frame in frames):
        return frames
    return sorted(frames, key=lambda frame: (frame.kind != RECORD, frame.seq))


def _continues(entry: WalEntry) -> bool:
    """Say whether the entry goes on with the batch of the one before: its writer marks that."""
    return entry.continues


def _used(buffer: memoryview, start: int, end: int) -> int:
    """Return how many bytes up to the last one that is not zero."""
    return len(bytes(buffer[start:end]).rstrip(b"\0"))
