from libc.stdint cimport uint32_t, uint64_t

from millstream.kernel._conn cimport Conn
from millstream.kernel._interest cimport Interest
from millstream.kernel._outboxes cimport Outboxes


cdef class Peer:
    """What Python owns of a connection: the space it is in and its subscriptions by sid."""

    cdef Conn *conn
    cdef Interest interest
    cdef dict subs            # sid → address of the Sub
    cdef bytes mapped_to      # where the publish under way really goes
    cdef dict wishes          # of a link: (account, subject, queue) → address of the Sub
    cdef dict spaces          # of a link: account → Interest
    cdef bytes account        # of a link: the one of its last message
    cdef bytes cluster        # of a leaf: the name of its cluster


cdef class Connections(Outboxes):
    cdef object handler
    cdef public object on_closing
    cdef public uint64_t now_ns
    cdef dict peers
    cdef list graveyard       # peers whose Conn may still be on the stack
    cdef list stalled
    cdef list hooked
    cdef uint32_t next_cid
    cdef int busy
    cdef uint64_t slow_consumers
    cdef uint64_t stalls
    cdef public Py_ssize_t max_payload        # of connections to come
    cdef public Py_ssize_t max_pending        # of connections to come
    cdef public Py_ssize_t max_control_line
    cdef public double write_deadline
    cdef public bint holds_publishers         # back while a client that they publish to is nearly full
    cdef double looked_at

    cdef Conn *_open(self, int fd, Interest interest) except NULL
    cdef _hook(self, Interest interest)
    cdef Peer _peer(self, uint32_t cid)
    cdef Conn *_conn(self, uint32_t cid) except NULL
    cdef void _close(self, Conn *conn, int reason) noexcept
    cdef void _tell_closing(self, Conn *conn, int reason) noexcept
    cdef void _unsubscribe_all(self, Peer peer) noexcept
    cdef void _last_output(self, Conn *conn) noexcept
    cdef void _tell_output(self, Conn *conn) noexcept
    cdef void _failed(self, Conn *conn, str what) noexcept
    cdef void _hang_up(self, Conn *conn) noexcept
    cdef void _bury(self) noexcept
    cdef void _stall(self, Conn *conn, void *on, bint is_client) noexcept
    cdef void _release(self, void *on) noexcept
    cdef void _end_stalls(self) noexcept
    cdef bint _is_worth_waiting(self, Conn *publisher, Conn *client) noexcept
    cdef void _close_stuck(self, double now) noexcept


cdef Py_ssize_t drop_wishes(Peer peer, bytes account) noexcept
