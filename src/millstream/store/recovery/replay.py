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

from millstream.errors import StorageUnusable
from millstream.kernel._frames import RECORD, body, scan
from millstream.store.disk.files import File, Files
from millstream.store.disk.keys import ID_BYTES, KeyRing
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
from millstream.store.segments.salvage import Frame, frames_in, whole_batches
from millstream.store.wal.entry import (
    Damage,
    FrameRun,
    WalEntry,
    any_bytes,
    entries_in,
    first_entry,
    plain_body,
    scan_entries,
)
from millstream.store.wal.local_engine import (
    BOOT_MASK,
    HEADER,
    WalHeader,
    decode_header,
    wal_indexes,
    wal_name,
)

STREAM_DELETE = 17
SECTOR = 512  # bytes; pages are made of these
_ENDED = object()

log = logging.getLogger(__name__)


class WalFile(msgspec.Struct):
    """One WAL file as found: its header and the first position that a later file took over."""

    index: int
    path: str
    header: WalHeader | None
    first_position: int
    limit: int = 1 << 63
    used: int = HEADER.size  # nothing but zeros behind it
    data_end: int = 1 << 63  # nor from here on, as the file system knows without a look
    nonce: int = 0  # of the start that wrote it
    follows_empty: bool = False  # the file before it is there, with nothing in it

    @property
    def is_unsure(self) -> bool:
        """Say whether a power cut may have taken what came before its first entry."""
        return self.follows_empty or self.header is None


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
        self._files = files
        self._boot = boot
        self._ring = ring or KeyRing()
        self._logs = logs
        self.shard = shard
        self._from = snapshot.positions.get(shard, 0) if snapshot else 0
        self.control_number = snapshot.control_number if snapshot else 0
        self.position = self._from  # the last one accepted
        self.epoch = 0
        self.last_index = 0
        self.last_nonce = 0
        self.ran = (0, 0)  # epoch and nonce of the last run that went on behind its start
        self.torn_bytes = 0
        self.damaged_bytes = 0
        self.controls: list[Control] = []
        self.wal_files: list[WalFile] = []
        self.unused: list[str] = []
        self._newest: list[WalFile] = []  # of the last run
        self._mark = 0  # up to where they say that everything was stable
        self._ends_empty = False  # as the newest file is, made ahead or emptied
        self._relogging = False
        self._pending: list[tuple[FrameRun, bytes]] = []
        self._durable = 0
        self.relog: list[tuple[FrameRun, bytes]] = []  # for this shard's new file, in order
        self.torn = False
        self.cut = False  # the newest file ends inside an entry: what came behind is unknown
        self.emptied = False  # there are files, and nothing in them: not used yet, or a power cut
        self.elsewhere: set[int] = set()  # logs that other shards have frames of
        self.forced = False  # nobody has what the next frame waits for

    def find(self, directory: str) -> None:
        """Find the files of the shard."""
        self.wal_files = self._find_files(directory)
        self._newest = [wal for wal in self.wal_files if wal.nonce == self.last_nonce]
        self._mark = self._durable_mark()
        if self._newest and self._newest[0].is_unsure:
            self._give_up_again()
        self.ran = self._last_run()
        self.emptied = not self.wal_files and self._ends_empty
        if self.begins_late and (not self.wal_files[0].is_unsure or self._mark > self._from):
            raise StorageUnusable(
                f"{directory} begins at position {self.wal_files[0].first_position}, but the "
                f"newest readable snapshot ends at {self._from}: restore the missing files"
            )

    def run(self) -> Iterator[None]:
        """Replay every file in order, one at a time; yields where it waits for other shards."""
        for wal in self.wal_files:
            if wal.follows_empty and wal.first_position - 1 > self._mark:
                log.warning("wal file before is empty, its content torn file=%s", wal.path)
                self._miss()
            self._durable = self._mark if wal.nonce == self.last_nonce else wal.limit - 1
            yield from self._replay_file(wal, wal is self.wal_files[-1])

    def log_ids(self) -> set[int]:
        """Return the logs that the shard may speak of."""
        found: set[int] = set()
        for wal in self.wal_files:
            buffer = self._view(wal)
            for item in scan_entries(buffer, HEADER.size, 0, wal.data_end):
                if isinstance(item, WalEntry):
                    found.update(run.stream_id for run in item.runs)
                    frames = (
                        [] if all(run.first_seq for run in item.runs) else self._all(buffer, item)
                    )
                else:
                    frames = self._frames(buffer, item.start, item.end, False)
                    frames += self._frames(buffer, item.start, item.end, True)
                found.update(frame.stream_id for frame in frames)
                for frame in frames:
                    if frame.kind == DERIVE:
                        found.update(_derived_logs(body(frame.data, 0)))
        return found

    def _all(self, buffer: memoryview, entry: WalEntry) -> list[Frame]:
        return self._frames(buffer, entry.body, entry.end, entry.sealed)

    def _view(self, wal: WalFile) -> memoryview:
        file = self._files.open(wal.path)
        try:
            wal.data_end = file.data_end()
            return file.view(file.size())
        finally:
            file.close()

    def _find_files(self, directory: str) -> list[WalFile]:
        found: list[WalFile] = []
        for index in wal_indexes(self._files, directory):
            self.last_index = index
            path = f"{directory}/{wal_name(index)}"
            file = self._files.open(path)
            try:
                data = file.pread(HEADER.size, 0)
                header = decode_header(data, path)
                if header is not None:
                    self._ring.require(header.key_id.to_bytes(ID_BYTES, "little"), path)
                if header is None and not any(data) and not has_counted(file):
                    self.unused.append(path)  # made ahead, by a start that did not end, or emptied
                    self._ends_empty = True
                    continue
                first, nonce = self._beginning(header, file)
                if header is None:
                    log.error("damaged wal header file=%s offset=0", path)
                    first = 1 if index == 1 and first else first  # nothing came before it
            finally:
                file.close()
            if first == 0:
                self._ends_empty = True
                continue
            self.last_nonce = nonce
            for earlier in found:
                earlier.limit = min(earlier.limit, first)
            found.append(WalFile(index, path, header, first, nonce=nonce))
            found[-1].follows_empty, self._ends_empty = self._ends_empty, False
        return found

    def _beginning(self, header: WalHeader | None, file: File) -> tuple[int, int]:
        """Return (first position, nonce) of a file; its lowest entry tells when it must."""
        if header is not None:
            self.epoch = max(self.epoch, header.epoch)
            return header.first_position, header.nonce
        entry = first_entry(file.view(file.size()), 0)
        if entry is None:
            return 0, 0
        self.epoch = max(self.epoch, entry.epoch)
        return entry.position, entry.nonce

    def _replay_file(self, wal: WalFile, last: bool) -> Iterator[None]:
        buffer = self._view(wal)
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
            self.cut = _is_cut(buffer, wal)
            self.damaged_bytes += self.cut

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
        frames = self._frames(buffer, place.start, place.end, False)
        frames += self._frames(buffer, place.start, place.end, True)
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
        self.damaged_bytes += end - start
        log.error("damaged wal file=%s offset=%d bytes=%d", wal.path, start, end - start)
        frames = self._frames(buffer, start, end, False) + self._frames(buffer, start, end, True)
        yield from self._salvage(min(at, self._durable), _by_sequence(frames), -1)
        for item in items:
            told = [item] if isinstance(item, WalEntry) else self._headers(buffer, item, wal)
            yield from self._expect_all(told)

    @property
    def begins_late(self) -> bool:
        """Say whether what comes first behind the snapshot is not there."""
        return min((wal.first_position for wal in self.wal_files), default=0) > self._from + 1

    def _last_run(self) -> tuple[int, int]:
        """Return who appended last: a start may have been cut off behind other shards' files."""
        for wal in reversed(self.wal_files):
            buffer = self._view(wal)
            for item in scan_entries(buffer, HEADER.size, wal.first_position - 1, wal.data_end):
                if isinstance(item, WalEntry) and not item.again:
                    return item.epoch, item.nonce
        return 0, 0

    def _give_up_again(self) -> None:
        """Leave out what the last start left out, although it is not known where its run begins.

        What it kept was stable, as the first of its entries that is left says.
        """
        marks = next((found for wal in self._newest if (found := self._marks(wal))), [])
        for wal in self.wal_files:
            if wal.nonce != self.last_nonce:
                wal.limit = min([wal.limit, *(mark + 1 for mark in marks)])

    def _durable_mark(self) -> int:
        """Return up to where the entries of the last run say that everything was stable.

        Marks rise, so those of the last file that has any tell. Before the first of its files there
        was a start, which made everything stable; unless a power cut took where they begin.
        """
        before = self._from
        if self._newest and not self._newest[0].is_unsure:
            before = self._newest[0].first_position - 1
        for wal in reversed(self._newest):
            marks = self._marks(wal)
            if marks:
                return max(before, *marks)
        return before

    def _marks(self, wal: WalFile) -> list[int]:
        buffer = self._view(wal)
        marks: list[int] = []
        for item in scan_entries(buffer, HEADER.size, wal.first_position - 1, wal.data_end):
            if isinstance(item, WalEntry):
                marks += [item.durable] * (item.nonce == wal.nonce)
            else:
                marks += [each.durable for each in self._headers(buffer, item, wal)]
        return marks

    def _counts(self, buffer: memoryview, damage: Damage, wal: WalFile, position: int) -> bool:
        """Say whether damage may hold what the snapshot does not cover: a tear goes on there."""
        if position > min(self._from, self._durable) or self._logs.holes:
            return True
        return any(each.position > self._from for each in self._headers(buffer, damage, wal))

    def _headers(self, buffer: memoryview, damage: Damage, wal: WalFile) -> list[WalEntry]:
        """Return entries that stand in the wrong place: what their headers say is true still.

        The nonce tells them from what somebody stored.
        """
        found = entries_in(buffer, damage.start, damage.end)
        return [each for each in found if each.nonce == wal.nonce and each.position < wal.limit]

    def _replay_entry(self, buffer: memoryview, entry: WalEntry, wal: WalFile) -> Iterator[None]:
        if entry.position <= self._from and not self._logs.holes:
            return
        pieces = self._pieces(buffer, entry) if entry.sound(buffer) else None
        if pieces is not None:
            if entry.position > self._durable:
                self._relogging = True  # nothing proves that these bytes are stable
            yield from self._accept(entry, pieces)
            return
        unfinished = self._is_unfinished(buffer, entry, wal)
        if unfinished:
            self._tell_torn(buffer, entry, wal)
        else:
            at = (wal.path, entry.start, entry.position)
            log.error("damaged wal entry file=%s offset=%d position=%d", *at)
            self.damaged_bytes += entry.end - entry.body
        frames = self._frames(buffer, entry.body, entry.end, entry.sealed)
        start = 0 if entry.sealed else entry.body
        yield from self._salvage(entry.position, frames, -1 if entry.continues else start)
        if entry.commits and not unfinished:
            yield from self._expect(entry)

    def _tell_torn(self, buffer: memoryview, torn: WalEntry | Damage, wal: WalFile) -> None:
        self.torn_bytes += _used(buffer, torn.start, torn.end)
        log.warning("torn tail cut file=%s offset=%d", wal.path, torn.start)

    def _is_unfinished(self, buffer: memoryview, entry: WalEntry, wal: WalFile) -> bool:
        """Say whether its writer was killed inside the write: then nobody was told of it.

        The kernel ends a write of a killed process between two pages, and keeps what came before:
        the last of its pages is empty, where at least a checksum would end, and nothing is behind.
        A power cut may leave the same of a write that was answered, so there it is missed.
        """
        if wal is not self.wal_files[-1] or wal.nonce & BOOT_MASK != self._boot:
            return False
        page = (entry.end - 2) // SECTOR * SECTOR  # the very last byte is zero in any case
        is_open = not any_bytes(buffer, page, min(wal.data_end, len(buffer)))
        return is_open and entry.position > self._durable

    def _expect_all(self, entries: list[WalEntry]) -> Iterator[None]:
        for entry in sorted(entries, key=lambda entry: entry.position):
            if entry.commits and entry.position > self._from:
                yield from self._expect(entry)

    def _expect(self, entry: WalEntry) -> Iterator[None]:
        """Name what an entry should have brought and did not."""
        reason = "corruption" if entry.position <= self._durable else "torn"
        for run in entry.runs:
            if run.first_seq:
                yield from self._wait_for(run.stream_id, run.first_seq - 1)
                self._logs.expect(run.stream_id, run.first_seq + run.frames - 1, reason)

    def _frames(self, buffer: memoryview, start: int, end: int, sealed: bool) -> list[Frame]:
        """Return the sound frames of a damaged place, out of their blocks where they are sealed."""
        if sealed:
            plain = plain_body(buffer, start, end, self._ring)
            return frames_in(plain, 0, len(plain))
        return frames_in(buffer, start, end)

    def _pieces(self, buffer: memoryview, entry: WalEntry) -> list[tuple[FrameRun, bytes]] | None:
        pieces = []
        at = entry.body
        if entry.sealed:
            buffer, at = plain_body(buffer, entry.body, entry.end, self._ring), 0
            if len(buffer) != sum(run.size for run in entry.runs):
                return None
        for run in entry.runs:
            pieces.append((run, bytes(buffer[at : at + run.size])))
            at += run.size
        return pieces

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
            yield from self._wait_for(run.stream_id, run.first_seq - 1)
            self._logs.replay(run.stream_id, run.first_seq, run.frames, data)
        else:
            frames, _ = scan(data)
            for kind, _flags, stream_id, number, _ts, start, _size, _deleted in frames:
                content = body(data, start)
                if self.elsewhere and not 0 < number <= self.control_number:
                    for log_id, last in _needs(kind, stream_id, content):
                        yield from self._wait_for(log_id, last)
                self._control(kind, stream_id, number, content)
        if (
            self._relogging
        ):  # behind what it found missing: the next replay must learn of that first
            self._logs.relog.append((run, data))

    def _wait_for(self, log_id: int, last: int) -> Iterator[None]:
        """Let other shards bring a log's sequences up to ``last``, where they may have them."""
        if log_id not in self.elsewhere:
            return
        while not self.forced and self._logs.lacks(log_id, last):
            yield
        self.forced = False

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
        frames = self._frames(buffer, damage.start, damage.end, False)
        frames += self._frames(buffer, damage.start, damage.end, True)
        size = damage.end - damage.start
        if damage.last and position > self._durable:
            self._tell_torn(buffer, damage, wal)
        else:
            self.damaged_bytes += size
            log.error("damaged wal file=%s offset=%d bytes=%d", wal.path, damage.start, size)
        yield from self._salvage(position, frames, -1)
        yield from self._expect_all(self._headers(buffer, damage, wal))

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
        spoken = {replay.shard: replay.log_ids() for replay in replays}
        for replay in replays:
            others = [ids for shard, ids in spoken.items() if shard != replay.shard]
            replay.elsewhere = set().union(*others)
    running = [(replay, replay.run()) for replay in replays]
    while running:
        before, seen = len(running), logs.steps
        running = [(replay, steps) for replay, steps in running if _go_on(replay, steps, logs)]
        if len(running) == before and logs.steps == seen:
            # What they wait for is lost, and where one is torn, by that.
            next((replay for replay, _ in running if replay.torn), running[0][0]).forced = True


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


def _derived_logs(content: bytes) -> set[int]:
    derivation = derived.decode(content)
    return {derivation.source, *(part.target for part in derivation.parts)}


def _by_sequence(frames: list[Frame]) -> list[Frame]:
    """Put records of a log in order, before what is said of them; not where that would mislead.

    Skipped sequences and copies stand where they belong on the timeline, or mean nothing.
    """
    if any(frame.kind in (SKIP, DERIVE) for frame in frames):
        return frames
    return sorted(frames, key=lambda frame: (frame.kind != RECORD, frame.seq))


def _is_cut(buffer: memoryview, wal: WalFile) -> bool:
    """Say whether the newest file lost its end: it is made with zeros behind all that is used."""
    last: WalEntry | Damage | None = None
    if wal.used == len(buffer):
        for item in scan_entries(buffer, HEADER.size, wal.first_position - 1, wal.data_end):
            last = item
    cut = (
        last.cut if isinstance(last, WalEntry) else last is not None and any(buffer[-HEADER.size :])
    )
    if cut:
        log.error("wal file was cut, its end is unknown file=%s offset=%d", wal.path, len(buffer))
    return cut


def has_counted(file: File) -> bool:
    """Say whether a file whose header is zeros had one: a start writes it behind its entries."""
    entries = scan_entries(file.view(file.size()), HEADER.size, 0, file.data_end())
    return any(isinstance(item, WalEntry) and not item.again for item in entries)


def _continues(entry: WalEntry) -> bool:
    """Say whether the entry goes on with the batch of the one before: its writer marks that."""
    return entry.continues


def _used(buffer: memoryview, start: int, end: int) -> int:
    """Return how many bytes up to the last one that is not zero."""
    return len(bytes(buffer[start:end]).rstrip(b"\0"))
