cimport cython
from libc.stdint cimport uint32_t

from millstream.kernel._conn cimport Conn
from millstream.kernel._connections cimport Connections
from millstream.kernel._delivery cimport Delivery
from millstream.kernel._interest cimport SinkSlot
from millstream.kernel._links cimport LinkOperations
from millstream.kernel._operations cimport Operations
from millstream.kernel._outboxes cimport Outboxes
from millstream.kernel._system cimport epoll_event


@cython.final
@cython.no_gc_clear
cdef class Turns:
    cdef Operations operations
    cdef LinkOperations links
    cdef Delivery delivery
    cdef Connections connections
    cdef Outboxes outboxes
    cdef char *chunk
    cdef Py_ssize_t long_read    # what one read brings at most
    cdef bint was_small          # the last turn read a little: somebody may wait for an answer
    cdef list deferred           # calls for when the sinks of this round are served
    cdef list posted             # calls from other threads
    cdef bint serving
    cdef list unfinished         # peers that wait for their next turn, in order
    cdef int slices              # of this turn that were used up
    cdef int looks_in_vain
    cdef int turns_to_skip

    cdef void poll(self) noexcept
    cdef feed(self, uint32_t cid, bytes data)
    cdef go_on(self, uint32_t cid)
    cdef serve(self, SinkSlot slot)
    cdef bytes take(self, uint32_t cid, Py_ssize_t most)
    cdef void flush(self) noexcept
    cdef bint defer(self, object call) except -1
    cdef bint post(self, object call) except -1
    cdef close(self)
    cdef void _turn(self, epoll_event *events, int count) noexcept
    cdef bint _expects_more(self) noexcept
    cdef int _await_more(self, epoll_event *events) noexcept
    cdef Py_ssize_t _event(self, Conn *conn, uint32_t what) noexcept
    cdef Py_ssize_t _read(self, Conn *conn) noexcept
    cdef void _ended(self, Conn *conn, ssize_t got) noexcept
    cdef void _take_in(self, Conn *conn, const char *data, Py_ssize_t size) noexcept
    cdef Py_ssize_t _parse(self, Conn *conn, const char *data, Py_ssize_t size) noexcept
    cdef void _rest(self, Conn *conn, bint resting) noexcept
    cdef Py_ssize_t _go_on(self, Conn *conn) noexcept
    cdef Py_ssize_t _serve_unfinished(self, list waiting) noexcept
    cdef void _end_of_chunk(self) noexcept
    cdef void _tell_watchers(self) noexcept
    cdef void _serve_sinks(self) noexcept
    cdef void _call_posted(self) noexcept
    cdef void _call_deferred(self) noexcept
    cdef void _call_all(self, list calls) noexcept
    cdef void _flush_outboxes(self) noexcept
