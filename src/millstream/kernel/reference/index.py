"""The index in plain Python: lists and dictionaries that the compiled one must agree with."""

import struct
from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field

SLOT = struct.Struct("<IIQIIHHHBB")


@dataclass(slots=True)
class Entry:
    """One record's place, its subject by name."""

    offset: int
    seq: int
    ts_ns: int
    subject: bytes
    lengths: tuple[int, int, int, int, int]  # payload, headers, meta, tag, node
    deleted: bool = False

    @property
    def frame_len(self) -> int:
        """Return the frame's length, by arithmetic."""
        return 61 + len(self.subject) + sum(self.lengths)


@dataclass(slots=True)
class Index:
    """Entries of one segment in sequence order."""

    base_seq: int
    entries: list[Entry] = field(default_factory=list)

    def position(self, seq: int) -> int:
        """Return the first position whose sequence is ``seq`` or more."""
        return bisect_left(self.entries, seq, key=lambda entry: entry.seq)

    def seek_time(self, ts_ns: int) -> int:
        """Return the first position whose time is ``ts_ns`` or later."""
        return bisect_left(self.entries, ts_ns, key=lambda entry: entry.ts_ns)

    def live(self, subject: bytes) -> list[int]:
        """Return the live sequences of a subject."""
        return [e.seq for e in self.entries if e.subject == subject and not e.deleted]

    @property
    def headed(self) -> int:
        """Return how many live records have a header block."""
        return sum(1 for e in self.entries if e.lengths[1] and not e.deleted)

    def wanted(self, i: int, subjects: Collection[bytes] | None = None) -> bool:
        """Return whether entry ``i`` is live and of one of these subjects."""
        entry = self.entries[i]
        return not entry.deleted and (subjects is None or entry.subject in subjects)

    def next_live(self, i: int, subjects: Collection[bytes] | None = None) -> int:
        """Return the first wanted position at or after ``i``, -1 if none."""
        return next((n for n in range(i, len(self.entries)) if self.wanted(n, subjects)), -1)

    def offsets_from(
        self, i: int, max_records: int, max_bytes: int, subjects: Collection[bytes] | None = None
    ) -> tuple[list[int], int]:
        """Return (offsets of wanted entries from ``i`` on within the limits, where to go on)."""
        offsets: list[int] = []
        size = 0
        while i < len(self.entries) and len(offsets) < max_records:
            if self.wanted(i, subjects):
                size += self.entries[i].frame_len
                if offsets and size > max_bytes:
                    break
                offsets.append(self.entries[i].offset)
            i += 1
        return offsets, i

    def _kept(self, drop: bool) -> list[Entry]:
        """Return what a copy keeps: with ``drop`` the dead stay out, all but the last entry."""
        return [e for e in self.entries if not (drop and e.deleted) or e is self.entries[-1]]

    def runs(self, most: int, drop: bool) -> list[tuple[int, int]]:
        """Return (start, end) of the frames that a copy keeps, neighbours joined up to ``most``."""
        found: list[tuple[int, int]] = []
        for entry in self._kept(drop):
            start, end = found[-1] if found else (0, -1)
            if end == entry.offset and end - start + entry.frame_len <= most:
                found[-1] = (start, end + entry.frame_len)
            else:
                found.append((entry.offset, entry.offset + entry.frame_len))
        return found

    def compact(self, start: int, drop: bool) -> int:
        """Lay out from ``start`` on what a copy keeps, and forget the rest; returns the end."""
        self.entries = self._kept(drop)
        for entry in self.entries:
            entry.offset = start
            start += entry.frame_len
        return start

    def data_bytes(self, start: int, stop: int) -> int:
        """Return the payload and meta bytes of the live entries in ``start..stop``."""
        live = (e for e in self.entries[max(start, 0) : max(stop, 0)] if not e.deleted)
        return sum(e.lengths[0] + e.lengths[2] for e in live)

    def tag_places(self, start: int, stop: int) -> list[tuple[int, int, int, int]]:
        """Return (position, frame offset, subject length, tag length) of live ones with a tag."""
        return [
            (i, e.offset, len(e.subject), e.lengths[3])
            for i, e in enumerate(self.entries)
            if start <= i < stop and e.lengths[3] and not e.deleted
        ]

    def pack(self) -> tuple[bytes, list[bytes]]:
        """Return (entries with ids dense from 0, those ids' subjects in order)."""
        ids: dict[bytes, int] = {}
        packed = b"".join(
            SLOT.pack(
                entry.offset,
                entry.seq - self.base_seq,
                entry.ts_ns,
                ids.setdefault(entry.subject, len(ids)),
                *entry.lengths,
                entry.deleted,
            )
            for entry in self.entries
        )
        return packed, list(ids)
