from libc.stdint cimport uint64_t

from millstream.kernel._conn cimport Conn, Pub
from millstream.kernel._connections cimport Connections
from millstream.kernel._interest cimport Match, SinkSlot, Sub


cdef class Delivery(Connections):
    cdef list dirty_sinks
    cdef list replies         # cid, reply, cid, reply…: delivered to tracked connections
    cdef Sub **spent          # subscriptions that reached their maximum
    cdef Py_ssize_t spent_count
    cdef Py_ssize_t spent_room
    cdef Py_ssize_t chunk_bytes  # what the messages of this read may come to in a batch
    cdef uint64_t dice
    cdef uint64_t in_msgs
    cdef uint64_t in_bytes
    cdef uint64_t out_msgs
    cdef uint64_t out_bytes

    cdef void _drop_spent(self) noexcept
    cdef int _deliver(self, Match *match, Pub *pub) noexcept
    cdef int _deliver_linked(self, Match *match, Pub *pub) noexcept
    cdef uint64_t _random(self) noexcept
    cdef int _give(self, Sub *sub, Pub *pub) noexcept
    cdef void _spend(self, Sub *sub) noexcept
    cdef int _give_sink(self, SinkSlot slot, Pub *pub) noexcept
    cdef void _write_message(self, Conn *conn, Sub *sub, Pub *pub) noexcept
    cdef void _relieve(self, Conn *conn, Conn *publisher) noexcept


cdef Py_ssize_t write_tail(char *to, const Pub *pub, bint with_headers) noexcept nogil
cdef check_patterns(tuple patterns)
