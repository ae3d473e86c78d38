from millstream.kernel._conn cimport Conn, Pub
from millstream.kernel._delivery cimport Delivery
from millstream.kernel._interest cimport Interest
from millstream.kernel._scan cimport Word


cdef class Operations(Delivery):
    cdef Py_ssize_t _parse(self, Conn *conn, const char *data, Py_ssize_t size) noexcept
    cdef Py_ssize_t _operation(self, Conn *conn, const char *at, Py_ssize_t size) noexcept
    cdef Py_ssize_t _link_operation(self, Conn *conn, const char *at, Py_ssize_t size) noexcept
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
    cdef bint _map(self, Conn *conn, Pub *pub) noexcept
    cdef void _memoize(self, Conn *conn, Interest interest, Pub *pub) noexcept
    cdef bint _is_allowed(self, Conn *conn, Interest interest, Pub *pub) noexcept
    cdef bint _reply_is_reserved(self, Conn *conn, Pub *pub) noexcept
    cdef void _tell_replies(self) noexcept
    cdef void _no_responders(self, Conn *conn, Interest interest, Pub *pub) noexcept
    cdef void _control(self, Conn *conn, int verb, const char *args, const char *end) noexcept
    cdef void _ping(self, Conn *conn) noexcept
    cdef void _call_pong(self, Conn *conn) noexcept
    cdef void _call_connect(self, Conn *conn, const char *at, const char *end) noexcept
    cdef void _call_info(self, Conn *conn, const char *at, const char *end) noexcept
    cdef void _sub(self, Conn *conn, const char *at, const char *end) noexcept
    cdef void _unsub(self, Conn *conn, const char *at, const char *end) noexcept


cdef enum:
    # why input is refused: _hub.UNKNOWN_OPERATION and so on
    BAD_OPERATION = 1
    BAD_ARGUMENTS = 2
    TOO_LARGE = 3
    TOO_LONG = 4
    NO_HEADERS = 5

cdef const char *plain_tail(
    const Word *sizes, bint headed, const char *line_end, const char *body
) noexcept nogil
cdef bint body_is_sound(const char *body, const char *end, Py_ssize_t size) noexcept nogil
