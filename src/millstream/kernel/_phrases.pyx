# cython: boundscheck=False, wraparound=False
"""Phrases: the words that the hub says to clients, and the names that it keeps from them.

The hub knows when something is to be said. What is said is the door's matter.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memchr, memcmp


cdef class Phrases:
    """Values that the door hands in when it makes the hub; what is left out is empty."""

    def __cinit__(
        self, *, bytes bad_subject not None=b"", tuple reserved_reply not None=(b"", b""),
        tuple nobody not None=(b"", b""), bytes no_headers not None=b"\r\n",
        bytes sequence not None=b"", bytes time not None=b"", tuple reserved not None=(),
        tuple traced not None=(b"", b""), bytes scheduled not None=b"",
    ):
        cdef bytes prefix
        if not no_headers.endswith(b"\r\n"):
            raise ValueError("a header block ends with an empty line")
        self.bad_subject = bad_subject
        self.reserved_reply, self.reserved_reply_end = reserved_reply
        self.nobody, self.nobody_end = nobody
        self.no_headers = no_headers
        self.sequence = sequence
        self.time = time
        self.traced, self.traced_parent = traced
        self.scheduled = scheduled
        if len(reserved) > MOST_RESERVED:
            raise ValueError(f"at most {MOST_RESERVED} names are reserved")
        self.prefixes = tuple([prefix for prefix, _ in reserved])
        for prefix, least in reserved:
            if len(prefix) < 2:
                raise ValueError("a reserved name has at least two bytes")
            self.reserved[self.reserved_count] = PyBytes_AS_STRING(prefix)
            self.reserved_len[self.reserved_count] = PyBytes_GET_SIZE(prefix)
            self.reserved_least[self.reserved_count] = least
            self.begins[<unsigned char>PyBytes_AS_STRING(prefix)[0]] = True
            self.goes_on[<unsigned char>PyBytes_AS_STRING(prefix)[1]] = True
            self.reserved_count += 1

    cdef bint _is_among(self, const char *subject, Py_ssize_t size) noexcept:
        cdef int i
        for i in range(self.reserved_count):
            if size >= self.reserved_len[i] and size >= self.reserved_least[i] \
                    and memcmp(subject, self.reserved[i], self.reserved_len[i]) == 0:
                return True
        return False

    cdef bint has_trace(self, const char *block, Py_ssize_t size, bint parents) noexcept:
        """Look at the beginning of each line of a header block."""
        cdef const char *at = block
        cdef const char *end = block + size
        while True:
            at = <const char *>memchr(at, b"\n", end - at)
            if at == NULL:
                return False
            at += 1
            if begins_with(at, end - at, self.traced) \
                    or (parents and begins_in_any_case(at, end - at, self.traced_parent)):
                return True

    cdef bint has_schedule(self, const char *block, Py_ssize_t size) noexcept:
        cdef const char *at = block
        cdef const char *end = block + size
        while True:
            at = <const char *>memchr(at, b"\n", end - at)
            if at == NULL:
                return False
            at += 1
            if begins_with(at, end - at, self.scheduled):
                return True


cdef inline bint begins_with(const char *line, Py_ssize_t size, bytes word) noexcept:
    cdef Py_ssize_t length = PyBytes_GET_SIZE(word)
    return length and size >= length and memcmp(line, PyBytes_AS_STRING(word), length) == 0


cdef bint begins_in_any_case(const char *line, Py_ssize_t size, bytes word) noexcept:
    cdef Py_ssize_t i, length = PyBytes_GET_SIZE(word)
    if length == 0 or size < length:
        return False
    for i in range(length):
        if line[i] | 0x20 != PyBytes_AS_STRING(word)[i] | 0x20:
            return False
    return True
