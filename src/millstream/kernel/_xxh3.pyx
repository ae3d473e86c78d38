# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# distutils: extra_compile_args = -O3 -fno-semantic-interposition
"""XXH3-64 with seed 0 and the default secret: the checksum of every frame."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

# C where Cython has no word for it: a constant table that the compiler can fold, the 128-bit
# product, and the stripe loop, which is written in vectors.
cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static const unsigned char XXH3_SECRET[192] = {
        0xb8,0xfe,0x6c,0x39,0x23,0xa4,0x4b,0xbe,0x7c,0x01,0x81,0x2c,0xf7,0x21,0xad,0x1c,
        0xde,0xd4,0x6d,0xe9,0x83,0x90,0x97,0xdb,0x72,0x40,0xa4,0xa4,0xb7,0xb3,0x67,0x1f,
        0xcb,0x79,0xe6,0x4e,0xcc,0xc0,0xe5,0x78,0x82,0x5a,0xd0,0x7d,0xcc,0xff,0x72,0x21,
        0xb8,0x08,0x46,0x74,0xf7,0x43,0x24,0x8e,0xe0,0x35,0x90,0xe6,0x81,0x3a,0x26,0x4c,
        0x3c,0x28,0x52,0xbb,0x91,0xc3,0x00,0xcb,0x88,0xd0,0x65,0x8b,0x1b,0x53,0x2e,0xa3,
        0x71,0x64,0x48,0x97,0xa2,0x0d,0xf9,0x4e,0x38,0x19,0xef,0x46,0xa9,0xde,0xac,0xd8,
        0xa8,0xfa,0x76,0x3f,0xe3,0x9c,0x34,0x3f,0xf9,0xdc,0xbb,0xc7,0xc7,0x0b,0x4f,0x1d,
        0x8a,0x51,0xe0,0x4b,0xcd,0xb4,0x59,0x31,0xc8,0x9f,0x7e,0xc9,0xd9,0x78,0x73,0x64,
        0xea,0xc5,0xac,0x83,0x34,0xd3,0xeb,0xc3,0xc5,0x81,0xa0,0xff,0xfa,0x13,0x63,0xeb,
        0x17,0x0d,0xdd,0x51,0xb7,0xf0,0xda,0x49,0xd3,0x16,0x55,0x26,0x29,0xd4,0x68,0x9e,
        0x2b,0x16,0xbe,0x58,0x7d,0x47,0xa1,0xfc,0x8f,0xf8,0xb8,0xd1,0x7a,0xd0,0x31,0xce,
        0x45,0xcb,0x3a,0x8f,0x95,0x16,0x04,0x28,0xaf,0xd7,0xfb,0xca,0xbb,0x4b,0x40,0x7e};

    static inline uint64_t fold_product(uint64_t a, uint64_t b) {
        unsigned __int128 wide = (unsigned __int128)a * b;
        return (uint64_t)wide ^ (uint64_t)(wide >> 64);
    }

    static inline uint64_t word(const void *at) {
        uint64_t value;
        memcpy(&value, at, 8);
        return value;
    }

    static inline uint64_t secret_word(int at) { return word(XXH3_SECRET + at); }

    typedef uint64_t Lanes __attribute__((vector_size(32)));
    #if defined(__clang__)
    #define CROSSED(value) __builtin_shufflevector(value, value, 1, 0, 3, 2)
    #else
    #define CROSSED(value) __builtin_shuffle(value, (Lanes){1, 0, 3, 2})
    #endif

    /* Adds ``count`` stripes of 64 bytes, each with the secret 8 bytes further on. Four lanes at
       a time in the compiler's own vectors: left to itself it does not find them. */
    static void add_stripes(uint64_t *sums, const char *data, int secret, int count) {
        Lanes lanes[2], value, key;
        memcpy(lanes, sums, 64);
        for (int n = 0; n < count; n++) {
            for (int i = 0; i < 2; i++) {
                memcpy(&value, data + 64 * n + 32 * i, 32);
                memcpy(&key, XXH3_SECRET + secret + 8 * n + 32 * i, 32);
                key ^= value;
                lanes[i] += CROSSED(value) + (key & 0xFFFFFFFFu) * (key >> 32);
            }
        }
        memcpy(sums, lanes, 64);
    }

    #if defined(__x86_64__)
    #include <immintrin.h>
    #define WIDE __attribute__((target("avx2"))) static
    #define MOST_LANES \
        (__builtin_cpu_supports("avx512f") ? 8 : __builtin_cpu_supports("avx2") ? 4 : 1)

    WIDE inline __m256i mixed(const char *data, int secret) {
        __m256i value = _mm256_loadu_si256((const __m256i *)data);
        __m256i key = _mm256_loadu_si256((const __m256i *)(XXH3_SECRET + secret));
        key = _mm256_xor_si256(key, value);
        key = _mm256_mul_epu32(key, _mm256_srli_epi64(key, 32));
        return _mm256_add_epi64(key, _mm256_shuffle_epi32(value, 0x4E));
    }

    WIDE inline __m256i stirred(__m256i lanes, int secret) {
        const __m256i prime = _mm256_set1_epi64x(0x9E3779B1);
        __m256i key = _mm256_loadu_si256((const __m256i *)(XXH3_SECRET + secret)), high;
        lanes = _mm256_xor_si256(lanes, _mm256_srli_epi64(lanes, 47));
        lanes = _mm256_xor_si256(lanes, key);
        high = _mm256_mul_epu32(_mm256_srli_epi64(lanes, 32), prime);
        return _mm256_add_epi64(_mm256_mul_epu32(lanes, prime), _mm256_slli_epi64(high, 32));
    }

    /* What _long does with add_stripes, with the lanes in registers throughout and one product
       where compilers make three: several times as fast. */
    WIDE void add_all_256(uint64_t *sums, const char *data, ptrdiff_t size) {
        __m256i low = _mm256_loadu_si256((const __m256i *)sums);
        __m256i high = _mm256_loadu_si256((const __m256i *)(sums + 4));
        const char *last = data + size - 64;
        for (; last + 63 - data >= 1024; data += 1024) {
            #pragma GCC unroll 16
            for (int n = 0; n < 16; n++) {
                low = _mm256_add_epi64(low, mixed(data + 64 * n, 8 * n));
                high = _mm256_add_epi64(high, mixed(data + 64 * n + 32, 8 * n + 32));
            }
            low = stirred(low, 128);
            high = stirred(high, 160);
        }
        for (int n = 0; data + 64 * n < last; n++) {
            low = _mm256_add_epi64(low, mixed(data + 64 * n, 8 * n));
            high = _mm256_add_epi64(high, mixed(data + 64 * n + 32, 8 * n + 32));
        }
        low = _mm256_add_epi64(low, mixed(last, 121));
        high = _mm256_add_epi64(high, mixed(last + 32, 153));
        _mm256_storeu_si256((__m256i *)sums, low);
        _mm256_storeu_si256((__m256i *)(sums + 4), high);
    }

    #define WIDEST __attribute__((target("avx512f"))) static

    WIDEST inline __m512i mixed_512(const char *data, int secret) {
        __m512i value = _mm512_loadu_si512(data);
        __m512i key = _mm512_xor_si512(_mm512_loadu_si512(XXH3_SECRET + secret), value);
        key = _mm512_mul_epu32(key, _mm512_srli_epi64(key, 32));
        return _mm512_add_epi64(key, _mm512_shuffle_epi32(value, (_MM_PERM_ENUM)0x4E));
    }

    /* The same with all lanes in one register. */
    WIDEST void add_all_512(uint64_t *sums, const char *data, ptrdiff_t size) {
        const __m512i prime = _mm512_set1_epi64(0x9E3779B1);
        const __m512i stirring = _mm512_loadu_si512(XXH3_SECRET + 128);
        __m512i lanes = _mm512_loadu_si512(sums), high;
        const char *last = data + size - 64;
        for (; last + 63 - data >= 1024; data += 1024) {
            #pragma GCC unroll 16
            for (int n = 0; n < 16; n++)
                lanes = _mm512_add_epi64(lanes, mixed_512(data + 64 * n, 8 * n));
            lanes = _mm512_xor_si512(lanes, _mm512_srli_epi64(lanes, 47));
            lanes = _mm512_xor_si512(lanes, stirring);
            high = _mm512_mul_epu32(_mm512_srli_epi64(lanes, 32), prime);
            lanes = _mm512_mul_epu32(lanes, prime);
            lanes = _mm512_add_epi64(lanes, _mm512_slli_epi64(high, 32));
        }
        for (int n = 0; data + 64 * n < last; n++)
            lanes = _mm512_add_epi64(lanes, mixed_512(data + 64 * n, 8 * n));
        _mm512_storeu_si512(sums, _mm512_add_epi64(lanes, mixed_512(last, 121)));
    }

    #else
    #define MOST_LANES 1
    static void add_all_256(uint64_t *sums, const char *data, ptrdiff_t size) {}
    static void add_all_512(uint64_t *sums, const char *data, ptrdiff_t size) {}
    #endif
    """
    uint64_t fold_product(uint64_t a, uint64_t b) noexcept nogil
    uint64_t word(const void *at) noexcept nogil
    uint64_t secret_word(int at) noexcept nogil
    void add_stripes(uint64_t *sums, const char *data, int secret, int count) noexcept nogil
    void add_all_256(uint64_t *sums, const char *data, Py_ssize_t size) noexcept nogil
    void add_all_512(uint64_t *sums, const char *data, Py_ssize_t size) noexcept nogil
    int MOST_LANES
    uint64_t __builtin_bswap64(uint64_t value) noexcept nogil

cdef extern from *:
    """
    #define P32_1 0x9E3779B1ull
    #define P32_2 0x85EBCA77ull
    #define P32_3 0xC2B2AE3Dull
    #define P64_1 0x9E3779B185EBCA87ull
    #define P64_2 0xC2B2AE3D27D4EB4Full
    #define P64_3 0x165667B19E3779F9ull
    #define P64_4 0x85EBCA77C2B2AE63ull
    #define P64_5 0x27D4EB2F165667C5ull
    #define P_MX1 0x165667919E3779F9ull
    #define P_MX2 0x9FB21C651E98DF25ull
    """
    const uint64_t P32_1, P32_2, P32_3, P64_1, P64_2, P64_3, P64_4, P64_5, P_MX1, P_MX2


cdef enum:
    SHORT = 240  # a longer text is summed in stripes


cdef inline uint64_t _rotate(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline uint64_t _avalanche(uint64_t h) noexcept nogil:
    h = (h ^ (h >> 37)) * P_MX1
    return h ^ (h >> 32)


cdef inline uint64_t _avalanche_short(uint64_t h) noexcept nogil:
    h = (h ^ (h >> 33)) * P64_2
    h = (h ^ (h >> 29)) * P64_3
    return h ^ (h >> 32)


cdef inline uint64_t _mix16(const char *at, int secret) noexcept nogil:
    return fold_product(word(at) ^ secret_word(secret), word(at + 8) ^ secret_word(secret + 8))


cdef inline uint64_t _upto_3(const unsigned char *data, Py_ssize_t size) noexcept nogil:
    cdef uint64_t joined = (
        (<uint64_t>data[0] << 16) | (<uint64_t>data[size >> 1] << 24)
        | data[size - 1] | (<uint64_t>size << 8)
    )
    return _avalanche_short(joined ^ ((secret_word(0) ^ (secret_word(0) >> 32)) & 0xFFFFFFFFu))


cdef inline uint64_t _upto_8(const char *data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t first, last
    cdef uint64_t h
    memcpy(&first, data, 4)
    memcpy(&last, data + size - 4, 4)
    h = (last + (<uint64_t>first << 32)) ^ secret_word(8) ^ secret_word(16)
    h = (h ^ _rotate(h, 49) ^ _rotate(h, 24)) * P_MX2
    h = (h ^ ((h >> 35) + <uint64_t>size)) * P_MX2
    return h ^ (h >> 28)


cdef inline uint64_t _upto_16(const char *data, Py_ssize_t size) noexcept nogil:
    cdef uint64_t low = word(data) ^ secret_word(24) ^ secret_word(32)
    cdef uint64_t high = word(data + size - 8) ^ secret_word(40) ^ secret_word(48)
    return _avalanche(<uint64_t>size + __builtin_bswap64(low) + high + fold_product(low, high))


cdef inline uint64_t _upto_128(const char *data, Py_ssize_t size) noexcept nogil:
    cdef uint64_t h = <uint64_t>size * P64_1
    if size > 32:
        if size > 64:
            if size > 96:
                h += _mix16(data + 48, 96) + _mix16(data + size - 64, 112)
            h += _mix16(data + 32, 64) + _mix16(data + size - 48, 80)
        h += _mix16(data + 16, 32) + _mix16(data + size - 32, 48)
    h += _mix16(data, 0) + _mix16(data + size - 16, 16)
    return _avalanche(h)


cdef inline uint64_t _upto_240(const char *data, Py_ssize_t size) noexcept nogil:
    cdef uint64_t h = <uint64_t>size * P64_1
    cdef uint64_t tail = _mix16(data + size - 16, 119)
    cdef int i
    for i in range(8):
        h += _mix16(data + 16 * i, 16 * i)
    for i in range(8, <int>(size >> 4)):
        tail += _mix16(data + 16 * i, 16 * (i - 8) + 3)
    return _avalanche(_avalanche(h) + tail)


cdef uint64_t _long(const char *data, Py_ssize_t size, int at_once) noexcept nogil:
    cdef uint64_t[8] lanes = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]
    cdef Py_ssize_t last = size - 1  # the last stripe is always read from the end
    cdef Py_ssize_t block
    cdef uint64_t h = <uint64_t>size * P64_1
    cdef int i
    if at_once == 8:
        add_all_512(lanes, data, size)
    elif at_once == 4:
        add_all_256(lanes, data, size)
    else:
        for block in range(last >> 10):
            add_stripes(lanes, data + 1024 * block, 0, 16)
            for i in range(8):
                lanes[i] = (lanes[i] ^ (lanes[i] >> 47) ^ secret_word(128 + 8 * i)) * P32_1
        add_stripes(lanes, data + (last & ~<Py_ssize_t>1023), 0, <int>((last & 1023) >> 6))
        add_stripes(lanes, data + size - 64, 121, 1)
    for i in range(4):
        h += fold_product(
            lanes[2 * i] ^ secret_word(11 + 16 * i), lanes[2 * i + 1] ^ secret_word(19 + 16 * i)
        )
    return _avalanche(h)


cdef uint64_t xxh3(const char *data, Py_ssize_t size) noexcept nogil:
    if size <= 16:
        if size > 8:
            return _upto_16(data, size)
        if size >= 4:
            return _upto_8(data, size)
        if size > 0:
            return _upto_3(<const unsigned char *>data, size)
        return _avalanche_short(secret_word(56) ^ secret_word(64))
    if size <= 128:
        return _upto_128(data, size)
    if size <= SHORT:
        return _upto_240(data, size)
    return _long(data, size, MOST_LANES)


def xxh3_64(bytes data not None, int lanes=8):
    """Return the XXH3-64 hash of ``data``, with so many ``lanes`` at once as a processor has."""
    if PyBytes_GET_SIZE(data) > SHORT:
        return _long(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), min(lanes, MOST_LANES))
    return xxh3(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
