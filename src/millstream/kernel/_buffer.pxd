"""A byte queue: grows at the tail, drains at the head; inline."""

from libc.stdlib cimport free
from libc.string cimport memcpy, memmove

from millstream.kernel._memory cimport must_grow


cdef struct Buffer:
    char *data
    Py_ssize_t head
    Py_ssize_t tail
    Py_ssize_t room


cdef inline Py_ssize_t pending(const Buffer *b) noexcept nogil:
    return b.tail - b.head


# Return where ``size`` more bytes may be written; the caller then moves ``tail``.
cdef inline char *reserve(Buffer *b, Py_ssize_t size) noexcept nogil:
    if b.tail + size > b.room:
        make_room(b, size)
    return b.data + b.tail


# Move to the front only when at least as much was drained: else a queue that is emptied in small
# steps while it grows would be copied again and again.
cdef inline void make_room(Buffer *b, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t used = b.tail - b.head
    if b.head >= used:
        to_front(b)
    if b.tail + size > b.room:
        b.room = 2 * b.room if 2 * b.room > b.tail + size else b.tail + size + 512
        b.data = <char *>must_grow(b.data, b.room)


cdef inline void to_front(Buffer *b) noexcept nogil:
    cdef Py_ssize_t used = b.tail - b.head
    if b.head:
        memmove(b.data, b.data + b.head, used)
        b.head = 0
        b.tail = used


cdef inline void append(Buffer *b, const char *at, Py_ssize_t size) noexcept nogil:
    memcpy(reserve(b, size), at, size)
    b.tail += size


# Write at ``to`` and return where the next goes.
cdef inline char *put(char *to, const char *what, Py_ssize_t size) noexcept nogil:
    memcpy(to, what, size)
    return to + size


cdef inline void drain(Buffer *b, Py_ssize_t size) noexcept nogil:
    b.head += size
    if b.head == b.tail:
        b.head = b.tail = 0


cdef inline void discard(Buffer *b) noexcept nogil:
    free(b.data)
    b.data = NULL
    b.head = b.tail = b.room = 0
