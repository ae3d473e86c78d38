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
    LOOK_AFTER = 4096         # messages copied: then the clock is looked at
    MOST_COSTLY = 32          # messages to costly sinks in one connection's turn
    # why input is refused: _hub.UNKNOWN_OPERATION and so on
    BAD_OPERATION = 1
    BAD_ARGUMENTS = 2
    TOO_LARGE = 3
    TOO_LONG = 4
    NO_HEADERS = 5


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

    cdef void called(self) noexcept

    # Whether the parser stopped because the connection's turn was up.
    cdef inline bint is_up(self) noexcept:
        return self.enough or self.delivery.costly >= MOST_COSTLY

    # Whether this connection's turn is up, because it called, brought or copied much.
    cdef inline bint is_enough(self) noexcept:
        if self.delivery.out_msgs - self.copied > LOOK_AFTER:
            self.look_at_clock()
        return self.is_up()

    cdef void begin(self) noexcept
    cdef void look_at_clock(self) noexcept

    cdef Py_ssize_t parse(self, Conn *conn, const char *data, Py_ssize_t size) noexcept
    cdef Py_ssize_t _operation(self, Conn *conn, const char *at, Py_ssize_t size) noexcept
    cdef Py_ssize_t _line(
        self, Conn *conn, const char *at, const char *lf, Py_ssize_t size,
    ) noexcept
    cdef Py_ssize_t _incomplete(self, Conn *conn, const char *at, Py_ssize_t size) noexcept
    cdef Py_ssize_t refuse(self, Conn *conn, int code) noexcept
    cdef Py_ssize_t _refuse_body(self, Conn *conn, const Word *subject) noexcept
    cdef void _complain(self, Conn *conn) noexcept
    cdef Py_ssize_t _message(
        self, Conn *conn, const char *op, const char *args, const char *line_end,
        const char *body, const char *end, bint headed,
    ) noexcept
    cdef void _publish_from(self, Conn *conn, Pub *pub) noexcept
    cdef bint _is_traced(self, Conn *conn, Pub *pub) noexcept
    cdef bint map(self, Conn *conn, Pub *pub) noexcept
    cdef void memoize(self, Conn *conn, Interest interest, Pub *pub) noexcept
    cdef bint is_allowed(self, Conn *conn, Interest interest, Pub *pub) noexcept
    cdef bint _reply_is_reserved(self, Conn *conn, Pub *pub) noexcept
    cdef bint _may_be_answered(self, Conn *conn, Pub *pub) noexcept
    cdef bint _may_schedule(self, Conn *conn, Pub *pub) noexcept
    cdef void tell_replies(self) noexcept
    cdef void _no_responders(self, Conn *conn, Interest interest, Pub *pub) noexcept
    cdef void _control(self, Conn *conn, int verb, const char *args, const char *end) noexcept
    cdef void ping(self, Conn *conn) noexcept
    cdef void call_pong(self, Conn *conn) noexcept
    cdef void call_connect(self, Conn *conn, const char *at, const char *end) noexcept
    cdef void call_info(self, Conn *conn, const char *at, const char *end) noexcept
    cdef void _sub(self, Conn *conn, const char *at, const char *end) noexcept
    cdef void _unsub(self, Conn *conn, const char *at, const char *end) noexcept


cdef const char *plain_tail(
    const Word *sizes, bint headed, const char *line_end, const char *body
) noexcept nogil
cdef bint body_is_sound(const char *body, const char *end, Py_ssize_t size) noexcept nogil
