from millstream.kernel._buffer cimport Buffer
from millstream.kernel._conn cimport Conn

cdef enum:
    SPARES = 64


cdef class Outboxes:
    cdef readonly int fd
    cdef int wake_fd
    cdef int timer_fd         # runs out when publishers have waited long enough
    cdef char *spares[SPARES]
    cdef int spare_count
    cdef Conn **lenders       # connections whose outboxes have loans
    cdef Py_ssize_t lender_count
    cdef Py_ssize_t lender_room
    cdef Conn **dirty
    cdef Py_ssize_t dirty_count
    cdef Py_ssize_t dirty_room

    cdef _listen(self, int fd, void *tag)
    cdef void _close_own(self) noexcept
    cdef void _mark(self, Conn *conn) noexcept
    cdef void _watch(self, Conn *conn) noexcept
    cdef void _send(self, Conn *conn) noexcept
    cdef void _repay(self, Conn *conn, Py_ssize_t sent) noexcept
    cdef void _settle(self) noexcept
    cdef void _lend(self, Conn *conn, const char *at, Py_ssize_t size) noexcept
    cdef char *_space(self, Conn *conn, Py_ssize_t size) noexcept
    cdef void _give_back(self, Buffer *out) noexcept
    cdef void _start_timer(self) noexcept


cdef int checked(int answer) except -1
