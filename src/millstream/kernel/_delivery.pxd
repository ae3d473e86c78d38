cimport cython
from libc.stdint cimport uint32_t, uint64_t

from millstream.kernel._conn cimport Conn, Pub
from millstream.kernel._connections cimport Connections
from millstream.kernel._interest cimport Match, Members, SinkSlot, Sub
from millstream.kernel._outboxes cimport Outboxes


# A link that the message under way goes to.
cdef struct Target:
    Conn *conn
    Sub *sub                  # one of its subscriptions that matched


# A queue group of the message under way, and the link that was chosen for it.
cdef struct Pick:
    Conn *conn
    Members *group


@cython.final
@cython.no_gc_clear
cdef class Relay:
    cdef Outboxes outboxes
    cdef dict clusters        # leaf clusters by name → number
    cdef list names           # by number - 1
    cdef uint64_t stamp       # of the message under way
    cdef Target *targets
    cdef Py_ssize_t target_count
    cdef Py_ssize_t target_room
    cdef Pick *picks
    cdef Py_ssize_t pick_count
    cdef Py_ssize_t pick_room
    cdef uint64_t in_msgs
    cdef uint64_t in_bytes
    cdef uint64_t out_msgs
    cdef uint64_t out_bytes

    cdef uint32_t cluster_number(self, bytes name)
    cdef void begin(self) noexcept
    cdef void aim(self, Sub *sub, Members *group) noexcept
    cdef int send(self, Pub *pub, uint32_t cluster) noexcept
    cdef Py_ssize_t _names_len(self, Conn *conn) noexcept
    cdef void _write(self, Target *target, Pub *pub, uint32_t cluster) noexcept
    cdef char *_write_head(
        self, char *to, Target *target, Pub *pub, bint with_headers, bytes origin, bint queued_up,
    ) noexcept
    cdef void _relieve(self, Conn *conn) noexcept


@cython.final
@cython.no_gc_clear
cdef class Delivery:
    cdef Connections connections
    cdef Outboxes outboxes
    cdef Relay relay
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
    cdef int deliver_linked(self, Match *match, Pub *pub) noexcept
    cdef int _give_group(self, Members *group, Pub *pub, int source, uint32_t cluster) noexcept
    cdef uint32_t _weighted_start(self, Members *group) noexcept
    cdef uint64_t random(self) noexcept
    cdef int _give(self, Sub *sub, Pub *pub) noexcept
    cdef bint give_seen(self, Sub *sub, Pub *pub, bint really, list met) except -1
    cdef int _give_link(self, Sub *sub, Pub *pub, bint really) noexcept
    cdef void _spend(self, Sub *sub) noexcept
    cdef int _give_sink(self, SinkSlot slot, Pub *pub) noexcept
    cdef void write_message(self, Conn *conn, Sub *sub, Pub *pub) noexcept
    cdef void _relieve(self, Conn *conn, Conn *publisher) noexcept
    cdef dict counted(self)


cdef check_patterns(tuple patterns)
