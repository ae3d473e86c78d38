# cython: boundscheck=False, wraparound=False, cdivision=True
"""The inline scanners of _scan.pxd as functions, so that tests can hold them to the reference."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE


def words(bytes line not None, int most, bint at_cr=False):
    """Return up to ``most`` words of ``line``, or None when there are more."""
    cdef Word found[8]
    cdef int count
    if most < 0 or most > 8:
        raise ValueError("most is 0 to 8")
    count = split_words(
        PyBytes_AS_STRING(line), PyBytes_AS_STRING(line) + PyBytes_GET_SIZE(line), found, most,
        at_cr)
    if count > most:
        return None
    return [found[i].at[:found[i].size] for i in range(count)]


def size(bytes text not None):
    """Return the decimal in ``text``, or -1."""
    return read_size(PyBytes_AS_STRING(text), <uint32_t>PyBytes_GET_SIZE(text))


def decimal(unsigned long long value):
    """Return ``value`` as decimal digits."""
    cdef char digits[20]
    return digits[:write_decimal(digits, value)]


def time(unsigned long long ts_ns):
    """Return a time as RFC 3339 has it."""
    cdef char text[TIME_ROOM]
    return text[:write_time(text, ts_ns)]
