from libc.stdint cimport uint8_t, uint16_t, uint32_t

from millstream.kernel._interest cimport Interest, Match
from millstream.kernel._operations cimport Operations


# The part of a frame's head that a delivery needs; ARCHITECTURE.md draws the whole.
cdef packed struct FrameHead:
    uint32_t magic
    uint32_t frame_len
    uint8_t kind
    uint8_t flags
    uint16_t subject_len
    uint32_t payload_len
    uint16_t headers_len
    uint16_t meta_len
    uint16_t tag_len
    uint8_t node_len
    uint8_t zero


cdef class Publishing(Operations):
    cdef object decorate

    cdef bint _publish_frame(
        self, Match *match, Interest interest, bytes route, const char *buffer, Py_ssize_t size,
        Py_ssize_t offset, bytes reply, Py_ssize_t *delivered,
    ) except -1
    cdef bytes _decorated(self, FrameHead *head, const char *at)
