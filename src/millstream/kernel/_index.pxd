from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

# One subject of a stream. ``entries`` counts index entries, deleted ones too: an id is given to
# another subject only when nothing refers to it any more.
cdef struct Subject:
    char *text
    uint32_t size
    uint32_t hash
    uint64_t first_seq
    uint64_t last_seq
    uint64_t born            # number of the intern that made it
    uint32_t count           # live records
    uint32_t entries
    uint32_t older           # by birth, NONE at the end; ``newer`` also chains free ids
    uint32_t newer
    bint first_stale         # first_seq is only a lower bound
    bint last_stale          # last_seq is only an upper bound

# One index entry, in memory and on disk alike.
cdef struct Slot:
    uint32_t offset
    uint32_t delta           # seq - base_seq
    uint64_t ts_ns
    uint32_t subject
    uint32_t payload_len
    uint16_t headers_len
    uint16_t meta_len
    uint16_t tag_len
    uint8_t node_len
    uint8_t flags

cdef enum:
    SLOT_DELETED = 1
    SLOT_DROPPED = 2     # in memory: on its way out of the file


cdef class SubjectTable:
    cdef Subject *subjects
    cdef Py_ssize_t used         # ids ever given out
    cdef Py_ssize_t room
    cdef Py_ssize_t alive
    cdef uint32_t *buckets       # id + 1, 0 = empty
    cdef uint32_t mask
    cdef uint32_t free_id
    cdef uint32_t youngest
    cdef uint32_t memo
    cdef uint64_t births
    cdef uint64_t key0
    cdef uint64_t key1
    cdef Py_ssize_t living       # subjects with a live record
    cdef Py_ssize_t headed       # live records with a header block

    cdef long long intern_raw(self, const char *text, Py_ssize_t size) except -1 nogil
    cdef long long find_raw(self, const char *text, Py_ssize_t size) noexcept nogil
    cdef int _grow_buckets(self) except -1 nogil
    cdef Subject *_known(self, Py_ssize_t id_) except NULL
    cdef void _place(self, uint32_t subject) noexcept nogil
    cdef void _forget(self, uint32_t subject) noexcept nogil
    cdef void added(self, uint32_t subject, uint64_t seq, bint live) noexcept nogil
    cdef void died(self, uint32_t subject, uint64_t seq) noexcept nogil
    cdef void released(self, uint32_t subject) noexcept nogil


cdef class SegmentIndex:
    cdef readonly uint64_t base_seq
    cdef readonly SubjectTable subjects
    cdef Slot *slots
    cdef Py_ssize_t length
    cdef Py_ssize_t room
    cdef Py_ssize_t dead

    cdef int reserve(self, Py_ssize_t extra) except -1 nogil
    cdef int fits(self, uint64_t seq) noexcept nogil
    cdef int append_raw(self, const Slot *slot, const char *subject, Py_ssize_t size) except -1 nogil
    cdef Py_ssize_t _at_or_after(self, uint64_t seq) noexcept nogil
    cdef Slot *_slot(self, Py_ssize_t i) except NULL
    cdef void _cut(self, Py_ssize_t count) noexcept nogil
