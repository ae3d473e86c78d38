cimport cython
from libc.stdint cimport uint32_t, uint64_t

from millstream.kernel._conn cimport Conn, Pub
from millstream.kernel._connections cimport Connections
from millstream.kernel._interest cimport Match, SinkSlot, Sub
from millstream.kernel._outboxes cimport Outboxes


@cython.final
@cython.no_gc_clear
cdef class Delivery:
    cdef Connections connections
    cdef Outboxes outboxes
    cdef list dirty_sinks
    cdef list replies         # cid, reply, cid, reply…: delivered to tracked connections
    cdef Sub **spent          # subscriptions that reached their maximum
    cdef Py_ssize_t spent_count
    cdef Py_ssize_t spent_room
    cdef Py_ssize_t chunk_bytes  # what the messages of this read may come to in a batch
    cdef int costly           # messages of this connection's turn that went to costly sinks
    cdef uint64_t dice
    cdef uint64_t in_msgs
    cdef uint64_t in_bytes
    cdef uint64_t out_msgs
    cdef uint64_t out_bytes

    cdef bint subscribe(
        self, uint32_t cid, bytes subject, bytes queue, bytes sid, tuple deny,
    ) except -1
    cdef bint unsubscribe(self, uint32_t cid, bytes sid, uint64_t max_msgs) except -1
    cdef void drop_spent(self) noexcept
    cdef int deliver(self, Match *match, Pub *pub) noexcept
    cdef uint64_t random(self) noexcept
    cdef int _give(self, Sub *sub, Pub *pub) noexcept
    cdef bint give_seen(self, Sub *sub, Pub *pub, bint really, list met) except -1
    cdef void _spend(self, Sub *sub) noexcept
    cdef int _give_sink(self, SinkSlot slot, Pub *pub) noexcept
    cdef void write_message(self, Conn *conn, Sub *sub, Pub *pub) noexcept
    cdef void _relieve(self, Conn *conn, Conn *publisher) noexcept
    cdef dict counted(self)
