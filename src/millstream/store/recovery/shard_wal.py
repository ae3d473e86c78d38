"""ShardWal: the WAL files of one shard as a start finds them, before anything is replayed."""

import logging

import msgspec

from millstream.errors import StorageUnusable
from millstream.kernel._frames import body
from millstream.store.disk.files import File, Files
from millstream.store.disk.keys import ID_BYTES, KeyRing
from millstream.store.log import derived
from millstream.store.log.derived import DERIVE
from millstream.store.segments.salvage import Frame, frames_in
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

SECTOR = 512  # bytes; pages are made of these

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


class ShardWal:
    """Which files there are, who wrote them, and up to where they say that all was stable.

    ``covered`` is the position up to which a snapshot vouches for what they hold.
    """

    def __init__(self, disk: Files, ring: KeyRing, covered: int, boot: int) -> None:
        self._disk = disk
        self._ring = ring
        self._from = covered
        self._boot = boot
        self.files: list[WalFile] = []
        self.unused: list[str] = []
        self.epoch = 0
        self.last_index = 0
        self.last_nonce = 0
        self.ran = (0, 0)  # epoch and nonce of the last run that went on behind its start
        self.mark = 0  # up to where the last run says that everything was stable
        self.is_emptied = False  # there are files, and nothing in them: not used, or a power cut
        self._newest: list[WalFile] = []  # of the last run
        self._ends_empty = False  # as the newest file is, made ahead or emptied

    def find(self, directory: str) -> None:
        """Find the files of the shard."""
        self.files = self._find_files(directory)
        self._newest = [wal for wal in self.files if wal.nonce == self.last_nonce]
        self.mark = self._durable_mark()
        if self._newest and self._newest[0].is_unsure:
            self._give_up_again()
        self.ran = self._last_run()
        self.is_emptied = not self.files and self._ends_empty
        if self.begins_late and (not self.files[0].is_unsure or self.mark > self._from):
            raise StorageUnusable(
                f"{directory} begins at position {self.files[0].first_position}, but the "
                f"newest readable snapshot ends at {self._from}: restore the missing files"
            )

    def view(self, wal: WalFile) -> memoryview:
        """Return the bytes of a file, and note where its data ends."""
        file = self._disk.open(wal.path)
        try:
            wal.data_end = file.data_end()
            return file.view(file.size())
        finally:
            file.close()

    def _find_files(self, directory: str) -> list[WalFile]:
        found: list[WalFile] = []
        for index in wal_indexes(self._disk, directory):
            self.last_index = index
            path = f"{directory}/{wal_name(index)}"
            file = self._disk.open(path)
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

    @property
    def begins_late(self) -> bool:
        """Say whether what comes first behind the snapshot is not there."""
        return min((wal.first_position for wal in self.files), default=0) > self._from + 1

    def _last_run(self) -> tuple[int, int]:
        """Return who appended last: a start may have been cut off behind other shards' files."""
        for wal in reversed(self.files):
            buffer = self.view(wal)
            for item in scan_entries(buffer, HEADER.size, wal.first_position - 1, wal.data_end):
                if isinstance(item, WalEntry) and not item.again:
                    return item.epoch, item.nonce
        return 0, 0

    def _give_up_again(self) -> None:
        """Leave out what the last start left out, although it is not known where its run begins.

        What it kept was stable, as the first of its entries that is left says.
        """
        marks = next((found for wal in self._newest if (found := self._marks(wal))), [])
        for wal in self.files:
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
        buffer = self.view(wal)
        marks: list[int] = []
        for item in scan_entries(buffer, HEADER.size, wal.first_position - 1, wal.data_end):
            if isinstance(item, WalEntry):
                marks += [item.durable] * (item.nonce == wal.nonce)
            else:
                marks += [each.durable for each in headers_in(buffer, item, wal)]
        return marks

    def log_ids(self) -> set[int]:
        """Return the logs that the shard may speak of."""
        found: set[int] = set()
        for wal in self.files:
            buffer = self.view(wal)
            for item in scan_entries(buffer, HEADER.size, 0, wal.data_end):
                if isinstance(item, WalEntry):
                    found.update(run.stream_id for run in item.runs)
                    frames = []
                    if not all(run.first_seq for run in item.runs):
                        frames = self.frames(buffer, item.body, item.end, item.sealed)
                else:
                    frames = self.frames(buffer, item.start, item.end, False)
                    frames += self.frames(buffer, item.start, item.end, True)
                found.update(frame.stream_id for frame in frames)
                for frame in frames:
                    if frame.kind == DERIVE:
                        found.update(_derived_logs(body(frame.data, 0)))
        return found

    def frames(self, buffer: memoryview, start: int, end: int, sealed: bool) -> list[Frame]:
        """Return the sound frames of a damaged place, out of their blocks where they are sealed."""
        if sealed:
            plain = plain_body(buffer, start, end, self._ring)
            return frames_in(plain, 0, len(plain))
        return frames_in(buffer, start, end)

    def pieces(self, buffer: memoryview, entry: WalEntry) -> list[tuple[FrameRun, bytes]] | None:
        """Return the runs of an entry with their frames, None when a sealed block is damaged."""
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

    def is_cut_off(self, buffer: memoryview, entry: WalEntry, wal: WalFile) -> bool:
        """Say whether its writer was killed inside the write: then nobody was told of it.

        The kernel ends a write of a killed process between two pages, and keeps what came before:
        the last of its pages is empty, where at least a checksum would end, and nothing is behind.
        A power cut may leave the same of a write that was answered, so there it is missed.
        """
        if wal is not self.files[-1] or wal.nonce & BOOT_MASK != self._boot:
            return False
        page = (entry.end - 2) // SECTOR * SECTOR  # the very last byte is zero in any case
        return not any_bytes(buffer, page, min(wal.data_end, len(buffer)))


def headers_in(buffer: memoryview, damage: Damage, wal: WalFile) -> list[WalEntry]:
    """Return entries that stand in the wrong place: what their headers say is true still.

    The nonce tells them from what somebody stored.
    """
    found = entries_in(buffer, damage.start, damage.end)
    return [each for each in found if each.nonce == wal.nonce and each.position < wal.limit]


def is_cut(buffer: memoryview, wal: WalFile) -> bool:
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


def _derived_logs(content: bytes) -> set[int]:
    derivation = derived.decode(content)
    return {derivation.source, *(part.target for part in derivation.parts)}
