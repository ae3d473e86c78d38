cimport cython

from millstream.kernel._conn cimport Conn, Pub
from millstream.kernel._connections cimport Connections
from millstream.kernel._delivery cimport Delivery, Relay
from millstream.kernel._operations cimport Operations
from millstream.kernel._outboxes cimport Outboxes


@cython.final
@cython.no_gc_clear
cdef class LinkOperations:
    cdef Operations operations
    cdef Delivery delivery
    cdef Relay relay
    cdef Connections connections
    cdef Outboxes outboxes
    cdef object handler

    cdef Py_ssize_t parse(self, Conn *conn, const char *data, Py_ssize_t size) noexcept
    cdef Py_ssize_t _operation(self, Conn *conn, const char *at, Py_ssize_t size) noexcept
    cdef Py_ssize_t _line(
        self, Conn *conn, const char *at, const char *lf, Py_ssize_t size,
    ) noexcept
    cdef Py_ssize_t _message(
        self, Conn *conn, const char *op, const char *args, const char *line_end,
        const char *body, const char *end, bint headed, bint tells_origin,
    ) noexcept
    cdef bint _enter_space(self, Conn *conn, const char *account, Py_ssize_t size) noexcept
    cdef void _publish(self, Conn *conn, Pub *pub) noexcept
    cdef void _call_wish(self, Conn *conn, const char *at, const char *end, int verb) noexcept
    cdef void _call_err(self, Conn *conn, const char *at, const char *end) noexcept


@cython.final
@cython.no_gc_clear
cdef class Wishes:
    cdef Connections connections
    cdef Relay relay
