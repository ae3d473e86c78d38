# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Entries: the bytes that one commit writes, around frames that exist already.

    0 u32 magic   4 u32 length (whole entry)   8 u64 position   16 u64 epoch   24 u64 nonce
   32 u32 count of frames   36 u16 flags   38 u16 runs   40 u64 durable mark
   48 u64 XXH3-64 of the body   56 u64 XXH3-64 of bytes 0..56 and the run table
   64 runs, 24 bytes each: u64 stream id, u64 first seq, u32 count, u32 bytes
   .. body

What the fields mean is said where they are read (store/wal/entry.py).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from millstream.kernel._xxh3 cimport xxh3

cdef packed struct Head:
    uint32_t magic
    uint32_t length
    uint64_t position
    uint64_t epoch
    uint64_t nonce
    uint32_t count
    uint16_t flags
    uint16_t runs
    uint64_t durable
    uint64_t body_check
    uint64_t check

cdef packed struct RunSlot:
    uint64_t stream_id
    uint64_t first_seq
    uint32_t frames
    uint32_t size

cdef enum:
    C_MAGIC = 0x4C41574D     # "MWAL"
    HEAD_CHECKED = 56


def encode_head(
    uint64_t position, uint64_t epoch, uint64_t nonce, uint64_t durable, uint16_t flags,
    list runs not None, bytes body not None,
):
    """Return what one entry has before its body; ``runs`` are (stream id, first seq, count, bytes).

    The body is long and stays where it is: whoever writes the entry writes both.
    """
    cdef Head head
    cdef RunSlot slot
    cdef bytes before
    cdef char *start
    cdef char *to
    cdef Py_ssize_t table = sizeof(RunSlot) * len(runs)
    cdef Py_ssize_t size = <Py_ssize_t>sizeof(Head) + table + PyBytes_GET_SIZE(body)
    if len(runs) > 0xFFFF:
        raise OverflowError("an entry names at most 65535 runs")
    if size > 0xFFFFFFFF:
        raise OverflowError("an entry holds at most 4 GiB")
    head.magic, head.length, head.position = C_MAGIC, <uint32_t>size, position
    head.epoch, head.nonce, head.durable = epoch, nonce, durable
    head.flags, head.runs, head.count = flags, <uint16_t>len(runs), 0
    before = PyBytes_FromStringAndSize(NULL, sizeof(Head) + table)
    start = PyBytes_AS_STRING(before)
    to = start + sizeof(Head)
    for run in runs:
        slot.stream_id, slot.first_seq, slot.frames, slot.size = run
        head.count += slot.frames
        memcpy(to, &slot, sizeof(RunSlot))
        to += sizeof(RunSlot)
    head.body_check = xxh3(PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
    # The table is summed with the head as if nothing were between them.
    memcpy(start + sizeof(Head) - HEAD_CHECKED, &head, HEAD_CHECKED)
    head.check = xxh3(start + sizeof(Head) - HEAD_CHECKED, HEAD_CHECKED + table)
    memcpy(start, &head, sizeof(Head))
    return before
