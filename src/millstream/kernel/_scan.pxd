"""Splitting a control line and reading its numbers; inline, because the hub does it per message."""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, strlen


cdef struct Word:
    const char *at
    uint32_t size


cdef inline bint is_blank(char c) noexcept nogil:
    return c == b" " or c == b"\t"


# Find up to ``most`` words between runs of space and TAB (and CR, if told so); the answer may
# exceed ``most`` by one, which is how a caller learns of too many.
cdef inline int split_words(
    const char *at, const char *end, Word *words, int most, bint at_cr
) noexcept nogil:
    cdef int count = 0
    cdef const char *start
    while True:
        while at < end and (is_blank(at[0]) or (at_cr and at[0] == b"\r")):
            at += 1
        if at == end:
            return count
        if count == most:
            return most + 1
        start = at
        while at < end and not is_blank(at[0]) and not (at_cr and at[0] == b"\r"):
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


cdef enum:
    NO_VERB
    PING
    PONG
    OK
    LONE_VERBS = OK           # those above take an argument
    PUB
    HPUB
    SUB
    UNSUB
    CONNECT
    INFO
    ERR


# Compare with a lower-case verb, ignoring case (``verb`` holds letters only).
cdef inline bint same_verb(const char *at, const char *verb, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        if (at[i] | 0x20) != verb[i]:
            return False
    return True


# Name the verb of a line of ``size`` bytes and set ``args`` to its first argument (or the end).
# CONNECT and INFO need no blank behind them, and what follows PING, PONG and +OK is ignored.
cdef inline int read_verb(const char *at, Py_ssize_t size, const char **args) noexcept nogil:
    cdef int verb = NO_VERB
    cdef Py_ssize_t length = 4
    args[0] = at
    if size > 3 and same_verb(at, b"pub", 3) and is_blank(at[3]):
        verb = PUB
    elif size > 4 and same_verb(at, b"hpub", 4) and is_blank(at[4]):
        verb, length = HPUB, 5
    elif size >= 4 and same_verb(at, b"ping", 4):
        verb = PING
    elif size >= 4 and same_verb(at, b"pong", 4):
        verb = PONG
    elif size > 3 and same_verb(at, b"sub", 3) and is_blank(at[3]):
        verb = SUB
    elif size > 5 and same_verb(at, b"unsub", 5) and is_blank(at[5]):
        verb, length = UNSUB, 6
    elif size >= 7 and same_verb(at, b"connect", 7):
        verb, length = CONNECT, 7
    elif size >= 4 and same_verb(at, b"info", 4):
        verb = INFO
    elif size >= 3 and at[0] == b"+" and same_verb(at + 1, b"ok", 2):
        verb, length = OK, 3
    elif size > 4 and at[0] == b"-" and same_verb(at + 1, b"err", 3) and is_blank(at[4]):
        verb, length = ERR, 5
    if verb != NO_VERB:
        while length < size and is_blank(at[length]):
            length += 1
        args[0] = at + length
    return verb


cdef inline bint may_become(const char *at, Py_ssize_t size, const char *verb) noexcept nogil:
    return <size_t>size <= strlen(verb) and same_verb(at, verb, size)


# Could these first bytes of a line still grow into a verb? (``|0x20`` keeps + and - as they are.)
cdef inline bint verb_may_come(const char *at, Py_ssize_t size) noexcept nogil:
    return may_become(at, size, b"pub") or may_become(at, size, b"hpub") \
        or may_become(at, size, b"ping") or may_become(at, size, b"pong") \
        or may_become(at, size, b"sub") or may_become(at, size, b"unsub") \
        or may_become(at, size, b"connect") or may_become(at, size, b"info") \
        or may_become(at, size, b"+ok") or may_become(at, size, b"-err")


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


cdef inline void write_padded(char *to, uint32_t value, int width) noexcept nogil:
    cdef int i
    for i in range(width):
        to[width - 1 - i] = <char>(c'0' + value % 10)
        value //= 10


cdef enum:
    TIME_ROOM = 32


# Write a time as RFC 3339 has it, with as many fractional digits as it needs, and return how many
# characters that took: at most TIME_ROOM. No time at all is the zero time.
cdef inline int write_time(char *to, uint64_t ts_ns) noexcept nogil:
    cdef uint64_t seconds = ts_ns // 1_000_000_000
    cdef uint32_t fraction = <uint32_t>(ts_ns % 1_000_000_000)
    cdef uint32_t of_day = <uint32_t>(seconds % 86400)
    cdef uint32_t day = <uint32_t>(seconds // 86400) + 719468   # since the first of March of year 0
    cdef uint32_t era = day // 146097                           # of 400 years
    cdef uint32_t of_era = day % 146097
    cdef uint32_t year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    cdef uint32_t of_year = of_era - (365 * year + year // 4 - year // 100)
    cdef uint32_t month = (5 * of_year + 2) // 153              # counted from March
    cdef int end = 19
    if ts_ns == 0:
        memcpy(to, b"0001-01-01T00:00:00Z", 20)
        return 20
    memcpy(to, b"0000-00-00T00:00:00.000000000", 29)
    write_padded(to + 8, of_year - (153 * month + 2) // 5 + 1, 2)
    month = month + 3 if month < 10 else month - 9
    write_padded(to, year + 400 * era + (month <= 2), 4)
    write_padded(to + 5, month, 2)
    write_padded(to + 11, of_day // 3600, 2)
    write_padded(to + 14, of_day // 60 % 60, 2)
    write_padded(to + 17, of_day % 60, 2)
    if fraction:
        write_padded(to + 20, fraction, 9)
        end = 29
        while to[end - 1] == c'0':
            end -= 1
    to[end] = c'Z'
    return end + 1
