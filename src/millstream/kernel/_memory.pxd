"""Allocation that cannot fail quietly, and a seeded hash; all inline."""

from libc.stdint cimport uint64_t
from libc.stdlib cimport malloc, realloc

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint64_t ms_fold(uint64_t a, uint64_t b) {
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    /* Both factors depend on the secret seed, so nobody can choose colliding names. */
    static inline uint64_t ms_hash(const char *at, size_t n, uint64_t seed) {
        const uint64_t k1 = 0x9E3779B97F4A7C15ull, k2 = 0xD6E8FEB86659FD93ull;
        uint64_t h = seed ^ (n * k1), w;
        while (n >= 8) {
            memcpy(&w, at, 8);
            h = ms_fold(w ^ seed ^ k2, h ^ k1);
            at += 8;
            n -= 8;
        }
        w = 0;
        switch (n) {
            case 7: w |= (uint64_t)(unsigned char)at[6] << 48; /* fall through */
            case 6: w |= (uint64_t)(unsigned char)at[5] << 40; /* fall through */
            case 5: w |= (uint64_t)(unsigned char)at[4] << 32; /* fall through */
            case 4: w |= (uint64_t)(unsigned char)at[3] << 24; /* fall through */
            case 3: w |= (uint64_t)(unsigned char)at[2] << 16; /* fall through */
            case 2: w |= (uint64_t)(unsigned char)at[1] << 8;  /* fall through */
            case 1: w |= (uint64_t)(unsigned char)at[0];       /* fall through */
            default: break;
        }
        return ms_fold(w ^ seed ^ k1, h ^ k2);
    }
    """
    uint64_t hash_bytes "ms_hash"(const char *at, size_t n, uint64_t seed) noexcept nogil


cdef extern from "Python.h":
    void Py_FatalError(const char *message) noexcept nogil


# Every size asked for is bounded by a limit, so a refusal means that the machine itself is out of
# memory: there is nothing sensible left to do with half a trie.
cdef inline void *must_alloc(size_t size) noexcept nogil:
    cdef void *got = malloc(size if size else 1)
    if got == NULL:
        Py_FatalError(b"millstream kernel: out of memory")
    return got


cdef inline void *must_grow(void *old, size_t size) noexcept nogil:
    cdef void *got = realloc(old, size if size else 1)
    if got == NULL:
        Py_FatalError(b"millstream kernel: out of memory")
    return got
