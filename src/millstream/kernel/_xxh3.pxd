from libc.stdint cimport uint64_t

cdef uint64_t xxh3(const char *data, Py_ssize_t size) noexcept nogil
