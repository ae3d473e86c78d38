cimport cython
from libc.stdint cimport uint32_t, uint64_t

from millstream.kernel._batch cimport Batch
from millstream.kernel._delivery cimport Delivery
from millstream.kernel._frames cimport Frames, Head
from millstream.kernel._interest cimport Interest, Match
from millstream.kernel._phrases cimport Phrases


@cython.final
@cython.no_gc_clear
cdef class Publishing:
    cdef Delivery delivery
    cdef Phrases phrases
    cdef object decorate

    cdef Py_ssize_t publish(
        self, Interest interest, bytes subject, bytes reply, bytes headers, bytes payload,
        bytes shown, uint32_t origin,
    ) except -1
    cdef list witness(
        self, Interest interest, bytes subject, bytes reply, bytes headers, bytes payload,
        uint32_t origin, bint really,
    )
    cdef Py_ssize_t publish_acks(
        self, Interest interest, Batch batch, Py_ssize_t start, Py_ssize_t count,
        uint64_t first_seq, bytes prefix, bytes suffix,
    ) except -1
    cdef Py_ssize_t publish_frames(
        self, Interest interest, list routes, object frames, Py_ssize_t start, list replies,
    ) except -1
    cdef Py_ssize_t publish_record(
        self, Interest interest, bytes reply, Frames frames, Py_ssize_t i, bytes about,
    ) except -1
    cdef bint _publish_frame(
        self, Match *match, Interest interest, bytes route, const char *buffer, Py_ssize_t size,
        Py_ssize_t offset, bytes reply, Py_ssize_t *delivered,
    ) except -1
    cdef bytes _decorated(self, const Head *head, const char *at)
    cdef Py_ssize_t room(self, Interest interest, bytes subject) except -1
    cdef uint64_t heard_for(self, Interest interest, bytes subject) noexcept
