"""What subjects and patterns are, token by token; inline."""

from libc.string cimport memchr, memcmp


cdef inline bint has_empty_token(const char *subject, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    cdef char previous = b"."
    for i in range(size):
        if subject[i] == b"." and previous == b".":
            return True
        previous = subject[i]
    return previous == b"."


# A subscription's subject: no empty token, and nothing behind a whole-token ``>``.
cdef inline bint pattern_is_legal(const char *pattern, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    if has_empty_token(pattern, size):
        return False
    for i in range(size - 1):
        if pattern[i] == b">" and pattern[i + 1] == b"." and (i == 0 or pattern[i - 1] == b"."):
            return False
    return True


# A publish subject: no empty token and no wildcard token.
cdef inline bint subject_is_legal(const char *subject, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    cdef char previous = b"."
    cdef char c
    for i in range(size):
        c = subject[i]
        if previous == b".":
            if c == b".":
                return False
            if (c == b"*" or c == b">") and (i + 1 == size or subject[i + 1] == b"."):
                return False
        previous = c
    return previous != b"."


cdef inline const char *token_end(const char *at, const char *end) noexcept nogil:
    cdef const char *dot = <const char *>memchr(at, b".", end - at)
    return dot if dot != NULL else end


cdef inline bint is_token(const char *at, const char *stop, char c) noexcept nogil:
    return stop - at == 1 and at[0] == c


# Does a legal pattern match a subject? Wildcards in the subject are ordinary tokens.
cdef inline bint pattern_matches(
    const char *pattern, Py_ssize_t pattern_len, const char *subject, Py_ssize_t subject_len
) noexcept nogil:
    cdef const char *p = pattern
    cdef const char *p_end = pattern + pattern_len
    cdef const char *s = subject
    cdef const char *s_end = subject + subject_len
    cdef const char *p_stop
    cdef const char *s_stop
    while True:
        p_stop = token_end(p, p_end)
        s_stop = token_end(s, s_end)
        if s == s_stop:
            return False
        if is_token(p, p_stop, b">") and p_stop == p_end:
            return not has_empty_token(s, s_end - s)
        if not is_token(p, p_stop, b"*") \
                and (p_stop - p != s_stop - s or memcmp(p, s, p_stop - p) != 0):
            return False
        if p_stop == p_end or s_stop == s_end:
            return p_stop == p_end and s_stop == s_end
        p = p_stop + 1
        s = s_stop + 1


# Could one literal subject match both patterns?
cdef inline bint patterns_collide(
    const char *a, Py_ssize_t a_len, const char *b, Py_ssize_t b_len
) noexcept nogil:
    cdef const char *a_end = a + a_len
    cdef const char *b_end = b + b_len
    cdef const char *a_stop
    cdef const char *b_stop
    while True:
        a_stop = token_end(a, a_end)
        b_stop = token_end(b, b_end)
        if is_token(a, a_stop, b">") or is_token(b, b_stop, b">"):
            return True
        if not is_token(a, a_stop, b"*") and not is_token(b, b_stop, b"*") \
                and (a_stop - a != b_stop - b or memcmp(a, b, a_stop - a) != 0):
            return False
        if a_stop == a_end or b_stop == b_end:
            return a_stop == a_end and b_stop == b_end
        a = a_stop + 1
        b = b_stop + 1


# Does ``wide`` match every literal that ``narrow`` matches?
cdef inline bint pattern_covers(
    const char *wide, Py_ssize_t wide_len, const char *narrow, Py_ssize_t narrow_len
) noexcept nogil:
    cdef const char *w_end = wide + wide_len
    cdef const char *n_end = narrow + narrow_len
    cdef const char *w_stop
    cdef const char *n_stop
    while True:
        w_stop = token_end(wide, w_end)
        n_stop = token_end(narrow, n_end)
        if is_token(wide, w_stop, b">") and w_stop == w_end:
            return True
        if is_token(narrow, n_stop, b">") and n_stop == n_end:
            return False
        if not is_token(wide, w_stop, b"*") \
                and (w_stop - wide != n_stop - narrow or memcmp(wide, narrow, w_stop - wide) != 0):
            return False
        if w_stop == w_end or n_stop == n_end:
            return w_stop == w_end and n_stop == n_end
        wide = w_stop + 1
        narrow = n_stop + 1
