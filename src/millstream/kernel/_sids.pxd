"""Sids: a connection's subscriptions by the id that the client gave them; inline.

A table of pointers, as the id stands in the subscription itself: a million of them cost no object.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memset

from millstream.kernel._interest cimport Sub, sub_sid
from millstream.kernel._memory cimport hash_bytes, must_alloc

cdef enum:
    FEWEST_SLOTS = 8


cdef struct Sids:
    Sub **slots           # probed one after the other; NULL is free
    uint32_t size         # a power of two, or 0
    uint32_t count
    uint64_t seed         # secret, so that nobody can choose ids that collide


cdef inline uint32_t sids_home(const Sids *sids, const char *sid, Py_ssize_t size) noexcept nogil:
    return <uint32_t>hash_bytes(sid, size, sids.seed) & (sids.size - 1)


cdef inline uint32_t sids_home_of(const Sids *sids, const Sub *sub) noexcept nogil:
    return sids_home(sids, sub_sid(sub) + 1, sub.sid_len - 2)


cdef inline Sub *sids_find(const Sids *sids, const char *sid, Py_ssize_t size) noexcept nogil:
    cdef uint32_t at
    cdef Sub *sub
    if sids.count == 0:
        return NULL
    at = sids_home(sids, sid, size)
    while True:
        sub = sids.slots[at]
        if sub == NULL:
            return NULL
        if sub.sid_len == <uint32_t>size + 2 and memcmp(sub_sid(sub) + 1, sid, size) == 0:
            return sub
        at = (at + 1) & (sids.size - 1)


cdef inline void sids_place(Sids *sids, Sub *sub) noexcept nogil:
    cdef uint32_t at = sids_home_of(sids, sub)
    while sids.slots[at] != NULL:
        at = (at + 1) & (sids.size - 1)
    sids.slots[at] = sub


cdef inline void sids_resize(Sids *sids, uint32_t size) noexcept nogil:
    cdef Sub **old = sids.slots
    cdef uint32_t old_size = sids.size
    cdef uint32_t i
    sids.slots = <Sub **>must_alloc(size * sizeof(Sub *))
    memset(sids.slots, 0, size * sizeof(Sub *))
    sids.size = size
    for i in range(old_size):
        if old[i] != NULL:
            sids_place(sids, old[i])
    free(old)


# Add a subscription whose id is not in the table.
cdef inline void sids_add(Sids *sids, Sub *sub) noexcept nogil:
    if 4 * (sids.count + 1) > 3 * sids.size:
        sids_resize(sids, 2 * sids.size if sids.size else FEWEST_SLOTS)
    sids_place(sids, sub)
    sids.count += 1


# Take a subscription out; those behind it move up, so that no search ends too early.
cdef inline void sids_remove(Sids *sids, const Sub *sub) noexcept nogil:
    cdef uint32_t mask = sids.size - 1
    cdef uint32_t at = sids_home_of(sids, sub)
    cdef uint32_t follower
    while sids.slots[at] != sub:
        at = (at + 1) & mask
    follower = at
    while True:
        follower = (follower + 1) & mask
        if sids.slots[follower] == NULL:
            break
        if ((follower - sids_home_of(sids, sids.slots[follower])) & mask) \
                >= ((follower - at) & mask):
            sids.slots[at] = sids.slots[follower]
            at = follower
    sids.slots[at] = NULL
    sids.count -= 1
    if sids.size > FEWEST_SLOTS and 8 * sids.count < sids.size:
        sids_resize(sids, sids.size >> 1)


cdef inline void sids_discard(Sids *sids) noexcept nogil:
    free(sids.slots)
    sids.slots = NULL
    sids.size = sids.count = 0
