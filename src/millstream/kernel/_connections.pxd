cimport cython
from libc.stdint cimport uint32_t, uint64_t

from millstream.kernel._conn cimport Conn
from millstream.kernel._interest cimport Interest
from millstream.kernel._outboxes cimport Outboxes
from millstream.kernel._sids cimport Sids


@cython.final
cdef class Peer:
    """What Python owns of a connection: the space it is in and its subscriptions by sid."""

    cdef Conn *conn
    cdef Interest interest
    cdef Sids subs
    cdef bytes mapped_to      # where the publish under way really goes
    cdef dict wishes          # of a link: (account, subject, queue) → address of the Sub
    cdef dict spaces          # of a link: account → Interest
    cdef bytes account        # of a link: the one of its last message


@cython.final
@cython.no_gc_clear
cdef class Connections:
    cdef Outboxes outboxes
    cdef object handler
    cdef object on_closing
    cdef uint64_t now_ns
    cdef uint64_t seed                 # of the tables of subscriptions
    cdef dict peers
    cdef list graveyard       # peers whose Conn may still be on the stack
    cdef list stalled
    cdef list hooked
    cdef uint32_t next_cid
    cdef int busy
    cdef uint64_t slow_consumers
    cdef uint64_t stalls
    cdef Py_ssize_t max_payload        # of connections to come
    cdef Py_ssize_t max_pending        # of connections to come
    cdef double write_deadline
    cdef bint holds_publishers         # back while a client that they publish to is nearly full
    cdef double looked_at

    cdef uint32_t attach(self, int fd, Interest interest) except 0
    cdef Conn *open(self, int fd, Interest interest) except NULL
    cdef hook(self, Interest interest)
    cdef unhook(self)
    cdef move(self, uint32_t cid, Interest interest)
    cdef write(self, uint32_t cid, bytes data)
    cdef close_named(self, uint32_t cid, int reason)
    cdef bint take_activity(self, uint32_t cid) except -1
    cdef dict counted(self, uint32_t cid)
    cdef list subscriptions(self, uint32_t cid, Py_ssize_t most)
    cdef Peer peer(self, uint32_t cid)
    cdef Conn *conn(self, uint32_t cid) except NULL
    cdef void close(self, Conn *conn, int reason) noexcept
    cdef void close_all(self, int reason) noexcept
    cdef void _tell_closing(self, Conn *conn, int reason) noexcept
    cdef void drop_subscriptions(self, Peer peer) noexcept
    cdef void _last_output(self, Conn *conn) noexcept
    cdef void tell_output(self, Conn *conn) noexcept
    cdef void failed(self, Conn *conn, str what) noexcept
    cdef void _hang_up(self, Conn *conn) noexcept
    cdef void bury(self) noexcept
    cdef void stall(self, Conn *conn, void *on, bint is_client) noexcept
    cdef void release(self, void *on) noexcept
    cdef void end_stalls(self) noexcept
    cdef bint _is_worth_waiting(self, Conn *publisher, Conn *client) noexcept
    cdef tick(self, double now)
    cdef void _close_stuck(self, double now) noexcept


cdef Py_ssize_t drop_wishes(Peer peer, bytes account) noexcept
