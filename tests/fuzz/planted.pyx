# cython: boundscheck=False, wraparound=False
"""A fault on purpose: it believes the length that its input names."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE


def total(bytes data not None):
    """Add up as many bytes as the fourth byte says, after the word PUB."""
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(data)
    cdef int i
    cdef int found = 0
    if PyBytes_GET_SIZE(data) < 4 or data[:3] != b"PUB":
        return 0
    for i in range(at[3]):
        found += at[4 + i]
    return found
