# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# distutils: extra_compile_args = -O3 -fno-semantic-interposition
"""Where every record is: 32 bytes a record, subjects interned, integers only.

    idx     0 u32 offset in .data   4 u32 seq - base_seq   8 u64 ts_ns   16 u32 subject id
           20 u32 payload_len      24 u16 headers_len     26 u16 meta_len
           28 u16 tag_len          30 u8 node_len         31 u8 flags (1 = deleted)
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

import os

cdef uint32_t NONE = 0xFFFFFFFF
cdef uint64_t MOST_DELTA = 0xFFFFFFFF
cdef Py_ssize_t SMALLEST = 61  # a frame with nothing in it


cdef inline uint64_t _rotate(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline void _sip_round(uint64_t *v) noexcept nogil:
    v[0] += v[1]
    v[2] += v[3]
    v[1] = _rotate(v[1], 13) ^ v[0]
    v[3] = _rotate(v[3], 16) ^ v[2]
    v[0] = _rotate(v[0], 32)
    v[2] += v[1]
    v[0] += v[3]
    v[1] = _rotate(v[1], 17) ^ v[2]
    v[3] = _rotate(v[3], 21) ^ v[0]
    v[2] = _rotate(v[2], 32)


cdef uint32_t _sip(uint64_t key0, uint64_t key1, const char *text, Py_ssize_t size) noexcept nogil:
    """SipHash-1-3: publishers choose subjects, so the hash must not be guessable."""
    cdef uint64_t[4] v = [
        key0 ^ 0x736f6d6570736575u, key1 ^ 0x646f72616e646f6du,
        key0 ^ 0x6c7967656e657261u, key1 ^ 0x7465646279746573u,
    ]
    cdef Py_ssize_t i = 0
    cdef uint64_t word
    while size - i >= 8:
        memcpy(&word, text + i, 8)
        v[3] ^= word
        _sip_round(v)
        v[0] ^= word
        i += 8
    word = 0
    if i and i < size:  # the last eight bytes without those that are already in
        memcpy(&word, text + size - 8, 8)
        word >>= 8 * (8 - (size - i))
    else:
        while i < size:
            word |= <uint64_t><uint8_t>text[i] << (8 * i)
            i += 1
    word |= <uint64_t>size << 56
    v[3] ^= word
    _sip_round(v)
    v[0] ^= word
    v[2] ^= 0xFF
    _sip_round(v)
    _sip_round(v)
    _sip_round(v)
    word = v[0] ^ v[1] ^ v[2] ^ v[3]
    return <uint32_t>(word ^ (word >> 32))


cdef class SubjectTable:
    """Interned subjects of one stream with first, last and live count of each."""

    def __cinit__(self):
        cdef bytes seed = os.urandom(16)
        memcpy(&self.key0, PyBytes_AS_STRING(seed), 8)
        memcpy(&self.key1, PyBytes_AS_STRING(seed) + 8, 8)
        self.free_id = self.youngest = self.memo = NONE
        self.buckets = <uint32_t *>calloc(16, sizeof(uint32_t))
        if self.buckets == NULL:
            raise MemoryError
        self.mask = 15

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.used):
            free(self.subjects[i].text)
        free(self.subjects)
        free(self.buckets)

    cdef long long find_raw(self, const char *text, Py_ssize_t size) noexcept nogil:
        cdef uint32_t hashed = _sip(self.key0, self.key1, text, size)
        cdef uint32_t at = hashed & self.mask
        cdef const Subject *subject
        while self.buckets[at]:
            subject = self.subjects + (self.buckets[at] - 1)
            if subject.hash == hashed and subject.size == size \
                    and memcmp(subject.text, text, size) == 0:
                return self.buckets[at] - 1
            at = (at + 1) & self.mask
        return -1

    cdef void _place(self, uint32_t subject) noexcept nogil:
        cdef uint32_t at = self.subjects[subject].hash & self.mask
        while self.buckets[at]:
            at = (at + 1) & self.mask
        self.buckets[at] = subject + 1

    cdef int _grow_buckets(self) except -1 nogil:
        cdef Py_ssize_t i
        cdef Py_ssize_t old = <Py_ssize_t>self.mask + 1
        cdef uint32_t *were = self.buckets
        cdef uint32_t *grown = <uint32_t *>calloc(2 * old, sizeof(uint32_t))
        if grown == NULL:
            with gil:
                raise MemoryError
        self.buckets = grown
        self.mask = <uint32_t>(2 * old - 1)
        for i in range(old):
            if were[i]:
                self._place(were[i] - 1)
        free(were)
        return 0

    cdef long long intern_raw(self, const char *text, Py_ssize_t size) except -1 nogil:
        cdef long long found
        cdef uint32_t fresh
        cdef Subject *subject
        cdef void *grown
        cdef char *kept
        if self.memo != NONE:  # publishers repeat themselves
            subject = self.subjects + self.memo
            if subject.size == size and memcmp(subject.text, text, size) == 0:
                return self.memo
        found = self.find_raw(text, size)
        if found >= 0:
            self.memo = <uint32_t>found
            return found
        if 2 * (self.alive + 1) > <Py_ssize_t>self.mask:
            self._grow_buckets()
        if self.free_id == NONE and self.used == self.room:
            grown = realloc(self.subjects, (2 * self.room + 1) * sizeof(Subject))
            if grown == NULL:
                with gil:
                    raise MemoryError
            self.subjects = <Subject *>grown
            self.room = 2 * self.room + 1  # most streams have one subject
        kept = <char *>malloc(size + 1)
        if kept == NULL:
            with gil:
                raise MemoryError
        memcpy(kept, text, size)
        if self.free_id != NONE:
            fresh = self.free_id
            self.free_id = self.subjects[fresh].newer
        else:
            fresh = <uint32_t>self.used
            self.used += 1
        self.births += 1
        self.alive += 1
        subject = self.subjects + fresh
        subject.text = kept
        subject.size = <uint32_t>size
        subject.hash = _sip(self.key0, self.key1, text, size)
        subject.first_seq = subject.last_seq = 0
        subject.count = subject.entries = 0
        subject.first_stale = subject.last_stale = False
        subject.born = self.births
        subject.older = self.youngest
        subject.newer = NONE
        if self.youngest != NONE:
            self.subjects[self.youngest].newer = fresh
        self.youngest = fresh
        self._place(fresh)
        self.memo = fresh
        return fresh

    cdef void _forget(self, uint32_t id_) noexcept nogil:
        """Free an id: close the hole in its probe run, leave the birth chain, chain as free."""
        cdef Subject *subject = self.subjects + id_
        cdef uint32_t hole = subject.hash & self.mask
        cdef uint32_t at, home
        while self.buckets[hole] != id_ + 1:
            hole = (hole + 1) & self.mask
        at = hole
        while True:
            at = (at + 1) & self.mask
            if not self.buckets[at]:
                break
            home = self.subjects[self.buckets[at] - 1].hash & self.mask
            if ((at - home) & self.mask) >= ((at - hole) & self.mask):
                self.buckets[hole] = self.buckets[at]
                hole = at
        self.buckets[hole] = 0
        if subject.older != NONE:
            self.subjects[subject.older].newer = subject.newer
        if subject.newer != NONE:
            self.subjects[subject.newer].older = subject.older
        else:
            self.youngest = subject.older
        free(subject.text)
        subject.text = NULL
        subject.size = 0
        subject.newer = self.free_id
        self.free_id = id_
        self.alive -= 1
        if self.memo == id_:
            self.memo = NONE

    cdef void added(self, uint32_t id_, uint64_t seq, bint live) noexcept nogil:
        cdef Subject *subject = self.subjects + id_
        subject.entries += 1
        if not live:
            return
        if subject.count == 0:
            self.living += 1
            subject.first_seq = subject.last_seq = seq
            subject.first_stale = subject.last_stale = False
        else:  # recovery may load segments in any order
            if seq > subject.last_seq:
                subject.last_seq = seq
                subject.last_stale = False
            if seq < subject.first_seq:
                subject.first_seq = seq
                subject.first_stale = False
        subject.count += 1

    cdef void died(self, uint32_t id_, uint64_t seq) noexcept nogil:
        cdef Subject *subject = self.subjects + id_
        if subject.count == 0:
            return
        subject.count -= 1
        if subject.count == 0:
            self.living -= 1
            subject.first_seq = subject.last_seq = 0
            subject.first_stale = subject.last_stale = False
            return
        if seq == subject.first_seq:
            subject.first_seq += 1
            subject.first_stale = True
        if seq == subject.last_seq:
            subject.last_seq -= 1
            subject.last_stale = True
        if subject.count == 1:  # both ends are the one that is left
            if not subject.last_stale:
                subject.first_seq = subject.last_seq
                subject.first_stale = False
            elif not subject.first_stale:
                subject.last_seq = subject.first_seq
                subject.last_stale = False

    cdef void released(self, uint32_t id_) noexcept nogil:
        cdef Subject *subject = self.subjects + id_
        if subject.entries:
            subject.entries -= 1
        if subject.entries == 0 and subject.text != NULL:
            self._forget(id_)

    cdef Subject *_known(self, Py_ssize_t id_) except NULL:
        if id_ < 0 or id_ >= self.used or self.subjects[id_].text == NULL:
            raise IndexError(id_)
        return self.subjects + id_

    def intern(self, bytes subject not None):
        """Return the id of ``subject``, a new one when it has none."""
        if PyBytes_GET_SIZE(subject) > 0xFFFF:
            raise ValueError("a subject holds at most 65535 bytes")
        return self.intern_raw(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))

    def find(self, bytes subject not None):
        """Return the id of ``subject``, -1 when it has none."""
        return self.find_raw(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))

    def subject(self, Py_ssize_t subject_id):
        """Return the subject behind an id."""
        cdef Subject *known = self._known(subject_id)
        return PyBytes_FromStringAndSize(known.text, known.size)

    def __len__(self):
        return self.alive

    @property
    def living(self):
        """How many subjects have a live record."""
        return self.living

    @property
    def headed(self):
        """How many live records have a header block."""
        return self.headed

    @property
    def bound(self):
        """Every id is below this: how many bits an id set needs."""
        return self.used

    def ids(self):
        """Return every id in use, oldest first."""
        return self.born_since(0)[1]

    def born_since(self, uint64_t mark):
        """Return (new mark, ids given out since ``mark``, oldest first); ids are used again."""
        cdef list fresh = []
        cdef uint32_t at = self.youngest
        while at != NONE and self.subjects[at].born > mark:
            fresh.append(at)
            at = self.subjects[at].older
        fresh.reverse()
        return self.births, fresh

    def count(self, Py_ssize_t subject_id):
        """Return how many live records the subject has."""
        return self._known(subject_id).count

    def first_seq(self, Py_ssize_t subject_id):
        """Return its oldest live sequence, 0 when none; a lower bound while stale."""
        return self._known(subject_id).first_seq

    def last_seq(self, Py_ssize_t subject_id):
        """Return its newest live sequence, 0 when none; an upper bound while stale."""
        return self._known(subject_id).last_seq

    def last_seqs(self, bytes ids=None, uint64_t up_to=0xFFFFFFFFFFFFFFFF):
        """Return (newest sequences, ids whose newest at or below ``up_to`` needs a search).

        ``ids`` is a set of subjects; neither list is in an order.
        """
        cdef const uint8_t *bits = NULL
        cdef Py_ssize_t bound = self.used, at
        cdef const Subject *subject
        cdef list seqs = [], unsure = []
        if ids is not None:
            bits = <const uint8_t *>PyBytes_AS_STRING(ids)
            bound = min(bound, 8 * PyBytes_GET_SIZE(ids))
        for at in range(bound):
            subject = self.subjects + at
            if subject.text == NULL or not subject.count \
                    or (bits != NULL and not (bits[at >> 3] >> (at & 7)) & 1):
                continue
            if subject.last_stale or subject.last_seq > up_to:
                unsure.append(at)
            else:
                seqs.append(subject.last_seq)
        return seqs, unsure

    def crowded(self, object subjects, uint64_t most, uint64_t up_to):
        """Return ({id: sequence}, subjects) of those with more than ``most`` live records.

        The sequence is the oldest of a subject that has one too many, all at or below ``up_to``;
        what is too many of the other subjects must be searched.
        """
        cdef dict oldest = {}
        cdef list unsure = []
        cdef const Subject *subject
        cdef bytes name
        cdef long long known
        for name in subjects:
            known = self.find_raw(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
            if known < 0:
                continue
            subject = self.subjects + known
            if subject.count <= most:
                continue
            if subject.count == most + 1 and not subject.first_stale and subject.last_seq <= up_to:
                oldest[known] = subject.first_seq
            else:
                unsure.append(name)
        return oldest, unsure

    def newest(self, Py_ssize_t subject_id, uint64_t up_to):
        """Return the newest live sequence of a subject if it is known and at most ``up_to``, else 0."""
        cdef Subject *known = self._known(subject_id)
        if known.count == 0 or known.last_stale or known.last_seq > up_to:
            return 0
        return known.last_seq

    def stale(self, Py_ssize_t subject_id):
        """Return (first is only a bound, last is only a bound): find it and ``settle`` it."""
        cdef Subject *known = self._known(subject_id)
        return known.first_stale, known.last_stale

    def settle(self, Py_ssize_t subject_id, uint64_t first_seq=0, uint64_t last_seq=0):
        """Record the sequences that a search found; 0 leaves that end as it is."""
        cdef Subject *known = self._known(subject_id)
        if first_seq:
            known.first_seq = first_seq
            known.first_stale = False
        if last_seq:
            known.last_seq = last_seq
            known.last_stale = False


@cython.no_gc_clear  # the table must still be there when the entries let go of it
cdef class SegmentIndex:
    """Entries of one segment: 32 bytes a record, in sequence order."""

    STRIDE = 32

    def __init__(self, uint64_t base_seq, SubjectTable subjects not None):
        if self.length:
            raise ValueError("the index is in use")
        self.base_seq = base_seq
        self.subjects = subjects

    def __dealloc__(self):
        if self.subjects is not None:
            self._cut(0)
        free(self.slots)

    cdef int reserve(self, Py_ssize_t extra) except -1 nogil:
        cdef Py_ssize_t room = self.room
        cdef void *grown
        if self.length + extra <= room:
            return 0
        # Doubling would cost 64 bytes a record right after it. Many streams have a record or two.
        room += (room >> 1) + (64 if room > 16 else 4)
        if room < self.length + extra:
            room = self.length + extra
        grown = realloc(self.slots, room * sizeof(Slot))
        if grown == NULL:
            with gil:
                raise MemoryError
        self.slots = <Slot *>grown
        self.room = room
        return 0

    cdef int fits(self, uint64_t seq) noexcept nogil:
        """Whether an entry with this sequence may come next."""
        if seq < self.base_seq or seq - self.base_seq > MOST_DELTA:
            return 0
        if self.length == 0:
            return 1
        return seq - self.base_seq > self.slots[self.length - 1].delta

    cdef int append_raw(self, const Slot *slot, const char *subject, Py_ssize_t size) except -1 nogil:
        cdef long long id_
        self.reserve(1)
        id_ = self.subjects.intern_raw(subject, size)
        self.slots[self.length] = slot[0]
        self.slots[self.length].subject = <uint32_t>id_
        self.length += 1
        if slot.flags & SLOT_DELETED:
            self.dead += 1
        elif slot.headers_len:
            self.subjects.headed += 1
        self.subjects.added(
            <uint32_t>id_, self.base_seq + slot.delta, not slot.flags & SLOT_DELETED
        )
        return 0

    cdef Py_ssize_t _at_or_after(self, uint64_t seq) noexcept nogil:
        cdef Py_ssize_t low = 0, high = self.length, middle
        cdef uint64_t delta
        if seq <= self.base_seq:
            return 0
        delta = seq - self.base_seq
        # Sequences only grow, so an entry is never left of its place in a dense run.
        if delta < <uint64_t>high:
            if self.slots[delta].delta == delta:
                return <Py_ssize_t>delta
            high = <Py_ssize_t>delta
        while low < high:
            middle = (low + high) >> 1
            if self.slots[middle].delta < delta:
                low = middle + 1
            else:
                high = middle
        return low

    cdef void _cut(self, Py_ssize_t count) noexcept nogil:
        cdef Slot *slot
        while self.length > count:
            self.length -= 1
            slot = self.slots + self.length
            if slot.flags & SLOT_DELETED:
                self.dead -= 1
            else:
                self.subjects.headed -= slot.headers_len > 0
                self.subjects.died(slot.subject, self.base_seq + slot.delta)
            self.subjects.released(slot.subject)

    cdef Slot *_slot(self, Py_ssize_t i) except NULL:
        if i < 0 or i >= self.length:
            raise IndexError(i)
        return self.slots + i

    def __len__(self):
        return self.length

    @property
    def live(self):
        """How many entries are not deleted."""
        return self.length - self.dead

    def append(
        self, uint32_t offset, uint64_t seq, uint64_t ts_ns, bytes subject not None,
        uint32_t payload_len, uint16_t headers_len, uint16_t meta_len, uint16_t tag_len,
        uint8_t node_len, uint8_t flags=0,
    ):
        """Add an entry; sequences ascend."""
        cdef Slot slot
        if not self.fits(seq):
            raise ValueError(f"sequence {seq} does not follow in an index from {self.base_seq}")
        if PyBytes_GET_SIZE(subject) > 0xFFFF:
            raise ValueError("a subject holds at most 65535 bytes")
        slot.offset = offset
        slot.delta = <uint32_t>(seq - self.base_seq)
        slot.ts_ns = ts_ns
        slot.subject = 0
        slot.payload_len = payload_len
        slot.headers_len = headers_len
        slot.meta_len = meta_len
        slot.tag_len = tag_len
        slot.node_len = node_len
        slot.flags = flags
        self.append_raw(&slot, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))

    def position(self, uint64_t seq):
        """Return the first position whose sequence is ``seq`` or more, the length if none."""
        return self._at_or_after(seq)

    def find(self, uint64_t seq):
        """Return the position of exactly ``seq``, deleted or not, -1 when it is not here."""
        cdef Py_ssize_t at = self._at_or_after(seq)
        if at < self.length and self.base_seq + self.slots[at].delta == seq:
            return at
        return -1

    def offset(self, Py_ssize_t i):
        """Return where frame ``i`` starts."""
        return self._slot(i).offset

    def seq(self, Py_ssize_t i):
        """Return the sequence of entry ``i``."""
        return self.base_seq + self._slot(i).delta

    def ts_ns(self, Py_ssize_t i):
        """Return the time of entry ``i``."""
        return self._slot(i).ts_ns

    def subject_id(self, Py_ssize_t i):
        """Return the subject id of entry ``i``."""
        return self._slot(i).subject

    def deleted(self, Py_ssize_t i):
        """Return whether entry ``i`` is deleted."""
        return bool(self._slot(i).flags & SLOT_DELETED)

    def frame_len(self, Py_ssize_t i):
        """Return the length of frame ``i``, by arithmetic."""
        return _frame_len(self.subjects, self._slot(i))

    def entry(self, Py_ssize_t i):
        """Return (offset, seq, ts_ns, subject id, payload, headers, meta, tag, node lengths, flags)."""
        cdef Slot *slot = self._slot(i)
        return (
            slot.offset, self.base_seq + slot.delta, slot.ts_ns, slot.subject, slot.payload_len,
            slot.headers_len, slot.meta_len, slot.tag_len, slot.node_len, slot.flags,
        )

    def seek_time(self, uint64_t ts_ns):
        """Return the first position whose time is ``ts_ns`` or later, the length if none."""
        cdef Py_ssize_t low = 0, high = self.length, middle
        while low < high:
            middle = (low + high) >> 1
            if self.slots[middle].ts_ns < ts_ns:
                low = middle + 1
            else:
                high = middle
        return low

    def delete(self, Py_ssize_t i):
        """Mark entry ``i`` deleted; False when it already was."""
        cdef Slot *slot = self._slot(i)
        if slot.flags & SLOT_DELETED:
            return False
        slot.flags |= SLOT_DELETED
        self.dead += 1
        self.subjects.headed -= slot.headers_len > 0
        self.subjects.died(slot.subject, self.base_seq + slot.delta)
        return True

    def live_ids(self, list seqs not None):
        """Return the subject ids of these sequences, -1 for what is not here or deleted."""
        cdef list found = []
        cdef Py_ssize_t at
        cdef uint64_t seq
        for seq in seqs:
            at = self._at_or_after(seq)
            if at < self.length and self.base_seq + self.slots[at].delta == seq \
                    and not self.slots[at].flags & SLOT_DELETED:
                found.append(self.slots[at].subject)
            else:
                found.append(-1)
        return found

    def delete_all(self, list seqs not None):
        """Mark these sequences deleted; returns (where the frames of the newly dead end, their

        bytes, the sequences that were not live here).
        """
        cdef list ends = [], others = []
        cdef Py_ssize_t at
        cdef uint64_t seq, length, size = 0
        cdef Slot *slot
        for seq in seqs:
            at = self._at_or_after(seq)
            slot = self.slots + at
            if at >= self.length or self.base_seq + slot.delta != seq or slot.flags & SLOT_DELETED:
                others.append(seq)
                continue
            length = _frame_len(self.subjects, slot)
            slot.flags |= SLOT_DELETED
            self.dead += 1
            self.subjects.headed -= slot.headers_len > 0
            self.subjects.died(slot.subject, seq)
            size += length
            ends.append(slot.offset + length)
        return ends, size, others

    def delete_below(self, uint64_t seq, uint64_t kept=0):
        """Mark every entry below ``seq`` deleted; returns (records, frame bytes) newly dead.

        Everything below ``kept`` is known to be deleted.
        """
        cdef Py_ssize_t stop = self._at_or_after(seq), i
        cdef uint64_t size = 0
        cdef Py_ssize_t dead = 0
        for i in range(self._at_or_after(kept), stop):
            if not self.slots[i].flags & SLOT_DELETED:
                size += _frame_len(self.subjects, self.slots + i)
                self.slots[i].flags |= SLOT_DELETED
                self.subjects.headed -= self.slots[i].headers_len > 0
                self.subjects.died(self.slots[i].subject, self.base_seq + self.slots[i].delta)
                dead += 1
        self.dead += dead
        return dead, size

    def live_bytes(self, Py_ssize_t start=0, Py_ssize_t stop=-1):
        """Return the frame bytes of the live entries in ``start..stop`` (-1: to the end)."""
        cdef Py_ssize_t i
        cdef uint64_t size = 0
        if stop < 0 or stop > self.length:
            stop = self.length
        for i in range(max(start, 0), stop):
            if not self.slots[i].flags & SLOT_DELETED:
                size += _frame_len(self.subjects, self.slots + i)
        return size

    def data_bytes(self, Py_ssize_t start, Py_ssize_t stop):
        """Return the payload and meta bytes of the live entries in ``start..stop``."""
        cdef Py_ssize_t i
        cdef uint64_t size = 0
        for i in range(max(start, 0), min(stop, self.length)):
            if not self.slots[i].flags & SLOT_DELETED:
                size += self.slots[i].payload_len
                size += self.slots[i].meta_len
        return size

    def runs(self, Py_ssize_t most, bint drop):
        """Return (start, end) of the frames that a copy keeps, neighbours joined up to ``most`` bytes.

        With ``drop`` dead entries stay out and are marked for ``compact``, all but the last one, so
        that the segment still tells its newest sequence.
        """
        cdef list found = []
        cdef Py_ssize_t i
        cdef Slot *slot
        cdef uint64_t start = 0, end = 0, length
        for i in range(self.length):
            slot = self.slots + i
            slot.flags &= ~SLOT_DROPPED
            if drop and slot.flags & SLOT_DELETED and i < self.length - 1:
                slot.flags |= SLOT_DROPPED
                continue
            length = _frame_len(self.subjects, slot)
            if end == slot.offset and end > start and end - start + length <= <uint64_t>most:
                end += length
                continue
            if end > start:
                found.append((start, end))
            start = slot.offset
            end = start + length
        if end > start:
            found.append((start, end))
        return found

    def compact(self, uint32_t start):
        """Take out the marked entries and lay the rest's offsets out from ``start`` on."""
        cdef Py_ssize_t i, to = 0
        cdef uint64_t offset = start
        for i in range(self.length):
            if self.slots[i].flags & SLOT_DROPPED:
                self.dead -= 1
                self.subjects.released(self.slots[i].subject)
                continue
            self.slots[to] = self.slots[i]
            self.slots[to].offset = <uint32_t>offset
            offset += _frame_len(self.subjects, self.slots + to)
            to += 1
        self.length = to
        return offset

    def tag_places(self, Py_ssize_t start, Py_ssize_t stop):
        """Return (position, frame offset, subject length, tag length) of live entries with a tag, as u32."""
        cdef Py_ssize_t i, taken = 0
        cdef bytes packed
        cdef uint32_t *to
        cdef const Slot *slot
        stop = min(stop, self.length)
        start = max(start, 0)
        for i in range(start, stop):
            taken += self.slots[i].tag_len > 0 and not self.slots[i].flags & SLOT_DELETED
        packed = PyBytes_FromStringAndSize(NULL, 16 * taken)
        to = <uint32_t *>PyBytes_AS_STRING(packed)
        for i in range(start, stop):
            slot = self.slots + i
            if slot.tag_len > 0 and not slot.flags & SLOT_DELETED:
                to[0] = <uint32_t>i
                to[1] = slot.offset
                to[2] = self.subjects.subjects[slot.subject].size
                to[3] = slot.tag_len
                to += 4
        return packed

    def truncate(self, Py_ssize_t count):
        """Keep the first ``count`` entries."""
        self._cut(max(count, 0))

    def next_live(self, Py_ssize_t i, bytes ids=None, Py_ssize_t stop=-1):
        """Return the first live position in ``i..stop``, -1 if none; ``ids`` is a set of subjects."""
        cdef const uint8_t *bits = NULL
        cdef uint64_t bound = 0
        if ids is not None:
            bits = <const uint8_t *>PyBytes_AS_STRING(ids)
            bound = 8 * <uint64_t>PyBytes_GET_SIZE(ids)
        if stop < 0 or stop > self.length:
            stop = self.length
        for i in range(max(i, 0), stop):
            if _wanted(self.slots + i, bits, bound):
                return i
        return -1

    def count_live(self, Py_ssize_t start=0, Py_ssize_t stop=-1, bytes ids=None):
        """Return how many live entries there are in ``start..stop``; ``ids`` is a set of subjects."""
        cdef const uint8_t *bits = NULL
        cdef uint64_t bound = 0
        cdef Py_ssize_t i, found = 0
        if ids is not None:
            bits = <const uint8_t *>PyBytes_AS_STRING(ids)
            bound = 8 * <uint64_t>PyBytes_GET_SIZE(ids)
        if stop < 0 or stop > self.length:
            stop = self.length
        if bits == NULL and start <= 0 and stop == self.length:
            return self.length - self.dead
        for i in range(max(start, 0), stop):
            found += _wanted(self.slots + i, bits, bound)
        return found

    def last_live(self, Py_ssize_t i, Py_ssize_t subject_id=-1):
        """Return the last live position at or before ``i`` (of one subject if given), -1 if none."""
        if i >= self.length:
            i = self.length - 1
        while i >= 0:
            if not self.slots[i].flags & SLOT_DELETED \
                    and (subject_id < 0 or self.slots[i].subject == <uint32_t>subject_id):
                return i
            i -= 1
        return -1

    def first_live(self, Py_ssize_t i, Py_ssize_t subject_id=-1):
        """Return the first live position at or after ``i`` (of one subject if given), -1 if none."""
        for i in range(max(i, 0), self.length):
            if not self.slots[i].flags & SLOT_DELETED \
                    and (subject_id < 0 or self.slots[i].subject == <uint32_t>subject_id):
                return i
        return -1

    def offsets_from(
        self, Py_ssize_t i, Py_ssize_t max_records, Py_ssize_t max_bytes,
        Py_ssize_t stop=-1, uint32_t shift=0, bytes ids=None,
    ):
        """Return (packed offsets for ``Frames``, where to go on) of live entries in ``i..stop``.

        At least one record if there is one and ``max_records`` allows it. ``shift`` is the segment
        offset at which the buffer starts; ``ids`` is a set of subjects.
        """
        cdef const uint8_t *bits = NULL
        cdef uint64_t bound = 0
        cdef uint64_t size = 0
        cdef Py_ssize_t taken = 0, room
        cdef uint32_t length
        cdef bytes packed
        cdef uint32_t *to
        if ids is not None:
            bits = <const uint8_t *>PyBytes_AS_STRING(ids)
            bound = 8 * <uint64_t>PyBytes_GET_SIZE(ids)
        if stop < 0 or stop > self.length:
            stop = self.length
        i = max(i, 0)
        max_bytes = max(max_bytes, 0)
        # No more than this can be taken, whatever is skipped in between.
        room = max(min(max_records, stop - i, max_bytes // SMALLEST + 1), 0)
        packed = PyBytes_FromStringAndSize(NULL, 4 * room)
        to = <uint32_t *>PyBytes_AS_STRING(packed)
        while i < stop and taken < max_records:
            if _wanted(self.slots + i, bits, bound):
                if self.slots[i].offset < shift:
                    raise ValueError(f"entry {i} lies before the buffer")
                length = _frame_len(self.subjects, self.slots + i)
                if taken and size + length > <uint64_t>max_bytes:
                    break
                size += length
                to[taken] = self.slots[i].offset - shift
                taken += 1
            i += 1
        return packed[:4 * taken], i

    def tobytes(self, Py_ssize_t start=0, Py_ssize_t stop=-1):
        """Return the entries as stored, with ids of the stream."""
        if stop < 0 or stop > self.length:
            stop = self.length
        start = min(max(start, 0), stop)
        return PyBytes_FromStringAndSize(
            <const char *>(self.slots + start), (stop - start) * sizeof(Slot)
        )

    def pack(self):
        """Return (entries with ids dense from 0, those ids' subjects in order): a file's content."""
        cdef bytes data = self.tobytes()
        cdef Slot *slots = <Slot *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t i
        cdef uint32_t *dense
        cdef list subjects = []
        dense = <uint32_t *>calloc(self.subjects.used + 1, sizeof(uint32_t))
        if dense == NULL:
            raise MemoryError
        try:
            for i in range(self.length):
                if not dense[slots[i].subject]:
                    subjects.append(self.subjects.subject(slots[i].subject))
                    dense[slots[i].subject] = <uint32_t>len(subjects)
                slots[i].subject = dense[slots[i].subject] - 1
        finally:
            free(dense)
        return data, subjects

    @classmethod
    def frombytes(cls, uint64_t base_seq, SubjectTable subjects not None, bytes data not None, list ids not None):
        """Load stored entries; ``ids[i]`` is the stream's id of the file's subject ``i``.

        Raises ValueError when sequences do not ascend or an id is unknown; callers have checked
        the file's checksum, so that means a wrong file, not a damaged one.
        """
        cdef SegmentIndex index = cls(base_seq, subjects)
        cdef Py_ssize_t count = PyBytes_GET_SIZE(data) // sizeof(Slot)
        cdef Py_ssize_t known = len(ids), i
        cdef uint32_t *mapped
        cdef Slot slot
        if PyBytes_GET_SIZE(data) % sizeof(Slot):
            raise ValueError("an index is a whole number of 32-byte entries")
        for i in range(known):
            subjects._known(ids[i])
        mapped = <uint32_t *>malloc(known * sizeof(uint32_t) + 1)
        if mapped == NULL:
            raise MemoryError
        try:
            for i in range(known):
                mapped[i] = ids[i]
            index.reserve(count)
            for i in range(count):
                memcpy(&slot, PyBytes_AS_STRING(data) + i * sizeof(Slot), sizeof(Slot))
                if slot.subject >= <uint64_t>known:
                    raise ValueError(f"entry {i} names subject {slot.subject} of {known}")
                if not index.fits(base_seq + slot.delta):
                    raise ValueError(f"entry {i} does not ascend")
                slot.subject = mapped[slot.subject]
                index.slots[i] = slot
                index.length += 1
                if slot.flags & SLOT_DELETED:
                    index.dead += 1
                elif slot.headers_len:
                    subjects.headed += 1
                subjects.added(
                    slot.subject, base_seq + slot.delta, not slot.flags & SLOT_DELETED
                )
        finally:
            free(mapped)
        return index


cdef inline uint32_t _frame_len(SubjectTable subjects, const Slot *slot) noexcept nogil:
    return <uint32_t>(
        SMALLEST + subjects.subjects[slot.subject].size + slot.payload_len + slot.headers_len
        + slot.meta_len + slot.tag_len + slot.node_len
    )


cdef inline bint _wanted(const Slot *slot, const uint8_t *bits, uint64_t bound) noexcept nogil:
    if slot.flags & SLOT_DELETED:
        return False
    if bits == NULL:
        return True
    return slot.subject < bound and (bits[slot.subject >> 3] >> (slot.subject & 7)) & 1


def id_set(ids, Py_ssize_t bound):
    """Return ``ids`` as the bit set that searches take, one bit for every id below ``bound``."""
    cdef bytearray bits = bytearray((bound + 7) >> 3)
    cdef Py_ssize_t i
    for i in ids:
        if i < 0 or i >= bound:
            raise IndexError(i)
        bits[i >> 3] |= 1 << (i & 7)
    return bytes(bits)
