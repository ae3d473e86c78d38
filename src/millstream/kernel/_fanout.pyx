# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Fanout: the same bytes to many sockets, by one call of the system for a hundred of them.

A send by itself enters the system and leaves it again, and on the way out gives the processor to
whoever it has woken: who reads many sockets on the same machine is then woken for each of them.
Handed over together (``io_submit``), all sends are done before anybody else has a turn.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from millstream.kernel._system cimport MSG_DONTWAIT, MSG_NOSIGNAL, send

cdef extern from "<linux/aio_abi.h>" nogil:
    ctypedef unsigned long aio_context_t
    cdef struct iocb:
        uint64_t aio_data
        uint16_t aio_lio_opcode
        uint32_t aio_fildes
        uint64_t aio_buf
        uint64_t aio_nbytes
    cdef struct io_event:
        uint64_t data
        int64_t res
    int IOCB_CMD_PWRITE

cdef extern from "<sys/syscall.h>" nogil:
    long SYS_io_setup, SYS_io_submit, SYS_io_getevents, SYS_io_destroy

cdef extern from "<unistd.h>" nogil:
    long syscall(long number, ...)

cdef enum:
    AT_ONCE = 128      # sends; so many take the system less than a millisecond


cdef class Fanout:
    """Sends on sockets that never block; one by one where the system takes nothing together."""

    cdef aio_context_t context
    cdef bint busy     # another thread waits for what it has handed over

    def __cinit__(self, bint together=True):
        if together and syscall(SYS_io_setup, <unsigned int>AT_ONCE, &self.context) < 0:
            self.context = 0      # not every sandbox lets it, and there may be too many already

    def __dealloc__(self):
        if self.context:
            syscall(SYS_io_destroy, self.context)

    @property
    def together(self):
        """Return whether the system takes many at once."""
        return self.context != 0

    def send(self, list fds not None, bytes data not None):
        """Send ``data`` on each; returns (place in ``fds``, bytes taken) of who took less.

        A socket that is broken or closed takes nothing.
        """
        cdef const char *at = PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data), first
        cdef int some[AT_ONCE]
        cdef int64_t taken[AT_ONCE]
        cdef int i, count
        cdef aio_context_t context
        cdef list fewer = []
        for first in range(0, len(fds), AT_ONCE):
            count = <int>min(len(fds) - first, AT_ONCE)
            for i in range(count):
                some[i] = fds[first + i]
            context = 0 if self.busy else self.context
            self.busy = self.busy or context != 0
            with nogil:
                _send_some(context, some, count, at, size, taken)
            if context:
                self.busy = False
            for i in range(count):
                taken[i] = max(taken[i], 0)
                if taken[i] < size:
                    fewer.append((first + i, taken[i]))
        return fewer


cdef void _send_some(
    aio_context_t context, int *fds, int count, const char *at, Py_ssize_t size, int64_t *taken
) noexcept nogil:
    """Note what each of the sockets took, below zero where something is wrong with it."""
    cdef int i = 0
    if context:
        # It ends at the first that is no open file; who comes behind is sent to one by one.
        i = _send_together(context, fds, count, at, size, taken)
    while i < count:
        taken[i] = send(fds[i], at, size, MSG_DONTWAIT | MSG_NOSIGNAL)
        i += 1


cdef int _send_together(
    aio_context_t context, int *fds, int count, const char *at, Py_ssize_t size, int64_t *taken
) noexcept nogil:
    """Return how many, from the first on, were sent to."""
    cdef iocb orders[AT_ONCE]
    cdef iocb *places[AT_ONCE]
    cdef io_event told[AT_ONCE]
    cdef long sent, heard = 0, more
    cdef int i
    memset(orders, 0, count * sizeof(iocb))
    for i in range(count):
        orders[i].aio_lio_opcode = IOCB_CMD_PWRITE
        orders[i].aio_data = i
        orders[i].aio_fildes = fds[i]
        orders[i].aio_buf = <uint64_t>at
        orders[i].aio_nbytes = size
        places[i] = &orders[i]
    sent = syscall(SYS_io_submit, context, <long>count, places)
    while heard < sent:       # a socket that does not block has answered by now
        more = syscall(SYS_io_getevents, context, <long>1, sent - heard, told, <void *>NULL)
        if more < 0 and errno != EINTR:
            break
        for i in range(<int>max(more, 0)):
            taken[told[i].data] = told[i].res
        heard += max(more, 0)
    return <int>max(sent, 0)
