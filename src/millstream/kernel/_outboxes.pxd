cimport cython

from millstream.kernel._buffer cimport Buffer
from millstream.kernel._conn cimport Conn

cdef enum:
    SPARES = 64


@cython.final
cdef class Outboxes:
    cdef int fd               # of epoll
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
    cdef void close_own(self) noexcept
    cdef void _note_dirty(self, Conn *conn) noexcept
    cdef void forget_closed(self) noexcept
    cdef void watch(self, Conn *conn) noexcept
    cdef void send(self, Conn *conn) noexcept
    cdef void _repay(self, Conn *conn, Py_ssize_t sent) noexcept
    cdef void settle(self) noexcept
    cdef void lend(self, Conn *conn, const char *at, Py_ssize_t size) noexcept
    cdef char *_more_space(self, Conn *conn, Py_ssize_t size) noexcept
    cdef void give_back(self, Buffer *out) noexcept
    cdef void start_timer(self) noexcept

    # Have the outbox sent at the end of the chunk.
    cdef inline void mark(self, Conn *conn) noexcept:
        if not conn.dirty:
            self._note_dirty(conn)

    # Return where the outbox takes ``size`` bytes; the caller then moves its tail.
    cdef inline char *space(self, Conn *conn, Py_ssize_t size) noexcept:
        if conn.out.tail + size <= conn.out.room:
            return conn.out.data + conn.out.tail
        return self._more_space(conn, size)


cdef int checked(int answer) except -1
