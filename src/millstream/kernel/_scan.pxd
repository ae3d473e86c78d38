"""Splitting a control line and reading its numbers; inline, because the hub does it per message."""

from libc.stdint cimport uint32_t


cdef struct Word:
    const char *at
    uint32_t size


# Find up to ``most`` words between runs of space and TAB; the answer may exceed ``most`` by one,
# which is how a caller learns of too many.
cdef inline int split_words(
    const char *at, const char *end, Word *words, int most
) noexcept nogil:
    cdef int count = 0
    cdef const char *start
    while True:
        while at < end and (at[0] == b" " or at[0] == b"\t"):
            at += 1
        if at == end:
            return count
        if count == most:
            return most + 1
        start = at
        while at < end and at[0] != b" " and at[0] != b"\t":
            at += 1
        words[count].at = start
        words[count].size = <uint32_t>(at - start)
        count += 1


# Read a decimal of at most nine digits; -1 for anything else.
cdef inline Py_ssize_t read_size(const char *at, uint32_t size) noexcept nogil:
    cdef Py_ssize_t value = 0
    cdef uint32_t i
    if size == 0 or size > 9:
        return -1
    for i in range(size):
        if at[i] < b"0" or at[i] > b"9":
            return -1
        value = 10 * value + (at[i] - c'0')
    return value


# Compare with a lower-case verb, ignoring case.
cdef inline bint same_verb(const char *at, const char *verb, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        if (at[i] | 0x20) != verb[i]:
            return False
    return True


# Write ``value`` in decimal and return how many characters that took.
cdef inline int write_decimal(char *to, unsigned long long value) noexcept nogil:
    cdef char digits[20]
    cdef int count = 0
    cdef int i
    while True:
        digits[count] = <char>(c'0' + value % 10)
        value //= 10
        count += 1
        if value == 0:
            break
    for i in range(count):
        to[i] = digits[count - 1 - i]
    return count
