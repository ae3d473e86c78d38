cimport cython

cdef enum:
    MOST_RESERVED = 8


@cython.final
cdef class Phrases:
    cdef bytes bad_subject
    cdef bytes reserved_reply
    cdef bytes reserved_reply_end
    cdef bytes nobody
    cdef bytes nobody_end
    cdef bytes no_headers
    cdef bytes sequence
    cdef bytes time
    cdef bytes traced                         # headers that have the handler asked,
    cdef bytes traced_parent                  # this one in any case, and only where that is set
    cdef bytes scheduled                      # a header that has it asked about the guarded
    cdef tuple prefixes                       # kept, as ``reserved`` points into them
    cdef const char *reserved[MOST_RESERVED]
    cdef Py_ssize_t reserved_len[MOST_RESERVED]
    cdef Py_ssize_t reserved_least[MOST_RESERVED]
    cdef int reserved_count
    cdef bint begins[256]                     # whether a reserved name begins with this byte,
    cdef bint goes_on[256]                    # or has it as its second one

    cdef bint has_trace(self, const char *block, Py_ssize_t size, bint parents) noexcept
    cdef bint has_schedule(self, const char *block, Py_ssize_t size) noexcept
    cdef bint _is_among(self, const char *subject, Py_ssize_t size) noexcept

    # Is this a reply subject that no client may choose? Asked for each request.
    cdef inline bint is_reserved(self, const char *subject, Py_ssize_t size) noexcept:
        return size > 1 and self.begins[<unsigned char>subject[0]] \
            and self.goes_on[<unsigned char>subject[1]] and self._is_among(subject, size)
