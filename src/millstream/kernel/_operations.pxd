cimport cython
from libc.stdint cimport uint64_t

from millstream.kernel._conn cimport Conn, Pub
from millstream.kernel._connections cimport Connections
from millstream.kernel._delivery cimport Delivery
from millstream.kernel._interest cimport Interest
from millstream.kernel._outboxes cimport Outboxes
from millstream.kernel._phrases cimport Phrases
from millstream.kernel._scan cimport Word


cdef enum:
    MOST_COSTLY = 32          # messages to costly sinks in one connection's turn


@cython.final
@cython.no_gc_clear
cdef class Operations:
    cdef Delivery delivery
    cdef Connections connections
    cdef Outboxes outboxes
    cdef object handler
    cdef Phrases phrases
    cdef Py_ssize_t max_control_line
    cdef uint64_t slice_ns        # so long one connection may keep the handler busy in its turn
    cdef uint64_t slice_start     # when the handler was first called in it, or 0
    cdef uint64_t copied          # messages delivered when the clock was last looked at
    cdef bint enough              # its turn is up

    cdef void _called(self) noexcept

    # Whether the parser stopped because the connection's turn was up.
    cdef inline bint is_up(self) noexcept:
        return self.enough or self.delivery.costly >= MOST_COSTLY

    cdef bint _is_enough(self) noexcept

    cdef Py_ssize_t parse(self, Conn *conn, const char *data, Py_ssize_t size) noexcept
    cdef Py_ssize_t _operation(self, Conn *conn, const char *at, Py_ssize_t size) noexcept
    cdef Py_ssize_t _line(
        self, Conn *conn, const char *at, const char *lf, Py_ssize_t size,
    ) noexcept
    cdef Py_ssize_t _incomplete(self, Conn *conn, const char *at, Py_ssize_t size) noexcept
    cdef Py_ssize_t _refuse(self, Conn *conn, int code) noexcept
    cdef Py_ssize_t _refuse_body(self, Conn *conn, const Word *subject) noexcept
    cdef void _complain(self, Conn *conn) noexcept
    cdef Py_ssize_t _message(
        self, Conn *conn, const char *op, const char *args, const char *line_end,
        const char *body, const char *end, bint headed,
    ) noexcept
    cdef void _publish_from(self, Conn *conn, Pub *pub) noexcept
    cdef bint _is_traced(self, Conn *conn, Pub *pub) noexcept
    cdef bint _map(self, Conn *conn, Pub *pub) noexcept
    cdef void _memoize(self, Conn *conn, Interest interest, Pub *pub) noexcept
    cdef bint _is_allowed(self, Conn *conn, Interest interest, Pub *pub) noexcept
    cdef bint _reply_is_reserved(self, Conn *conn, Pub *pub) noexcept
    cdef void tell_replies(self) noexcept
    cdef void _no_responders(self, Conn *conn, Interest interest, Pub *pub) noexcept
    cdef void _control(self, Conn *conn, int verb, const char *args, const char *end) noexcept
    cdef void _ping(self, Conn *conn) noexcept
    cdef void _call_pong(self, Conn *conn) noexcept
    cdef void _call_connect(self, Conn *conn, const char *at, const char *end) noexcept
    cdef void _call_info(self, Conn *conn, const char *at, const char *end) noexcept
    cdef void _sub(self, Conn *conn, const char *at, const char *end) noexcept
    cdef void _unsub(self, Conn *conn, const char *at, const char *end) noexcept
