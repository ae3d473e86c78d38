from libc.stdint cimport uint32_t

# One published message inside a batch: this header, then
# subject | reply | tag | node | meta | headers | payload, unpadded.
cdef packed struct Entry:
    uint32_t size           # the whole entry, this header included
    uint32_t headers_len
    uint32_t payload_len
    uint32_t origin         # connection id of the publisher, 0 = the server itself
    unsigned short subject_len
    unsigned short reply_len
    unsigned short tag_len
    unsigned short node_len
    uint32_t meta_len
    uint32_t flags


cdef class Batch:
    cdef char *data
    cdef Py_ssize_t used
    cdef Py_ssize_t room
    cdef Py_ssize_t expected  # what it may come to; one that grows gets this much at once
    cdef uint32_t *starts
    cdef Py_ssize_t length
    cdef Py_ssize_t starts_room
    cdef readonly bint any_headers
    cdef readonly bint any_oversized  # an entry is more than a frame can hold

    cdef int reserve(self, Py_ssize_t extra) except -1 nogil
    cdef int add_raw(
        self, const char *subject, Py_ssize_t subject_len, const char *reply, Py_ssize_t reply_len,
        const char *tail, Py_ssize_t headers_len, Py_ssize_t payload_len, uint32_t origin,
        const char *tag, Py_ssize_t tag_len,
    ) except -1 nogil
    cdef inline const Entry *entry(self, Py_ssize_t i) noexcept nogil:
        return <const Entry *>(self.data + self.starts[i])
