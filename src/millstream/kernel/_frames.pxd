from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

# The fixed part of a frame; then subject | tag | node | meta | headers | payload, an 8-byte
# checksum and the delete flag. Integers are little-endian.
cdef packed struct Head:
    uint32_t magic
    uint32_t frame_len
    uint8_t kind
    uint8_t flags
    uint16_t subject_len
    uint32_t payload_len
    uint16_t headers_len
    uint16_t meta_len
    uint16_t tag_len
    uint8_t node_len
    uint8_t zero
    uint64_t stream_id
    uint64_t seq
    uint64_t ts_ns
    uint32_t check

cdef inline const char *frame_subject(const Head *head) noexcept nogil:
    return <const char *>head + sizeof(Head)

# Headers and payload are adjacent, as they are on the wire.
cdef inline const char *frame_tail(const Head *head) noexcept nogil:
    return <const char *>head + sizeof(Head) + head.subject_len + head.tag_len + head.node_len + head.meta_len


cdef class Frames:
    cdef Py_buffer view
    cdef bint held
    cdef const char *data
    cdef Py_ssize_t extent       # bytes in the buffer
    cdef uint32_t *starts
    cdef Py_ssize_t length

    cdef const Head *_at(self, Py_ssize_t i) except NULL
    cdef int _take(self, object offsets) except -1
    # Every frame of a Frames lies inside the buffer and its lengths add up: no caller checks again.
    cdef inline const Head *head(self, Py_ssize_t i) noexcept nogil:
        return <const Head *>(self.data + self.starts[i])
