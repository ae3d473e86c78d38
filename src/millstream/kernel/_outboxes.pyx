# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Outboxes: what waits to be sent, and the epoll descriptor that says when it can be."""

import os

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset
from posix.unistd cimport close as close_fd

from millstream.kernel._buffer cimport Buffer, append, discard, drain, pending, reserve
from millstream.kernel._conn cimport LOANS, Conn, Loan, note_taken, queued
from millstream.kernel._memory cimport must_alloc, must_grow
from millstream.kernel._system cimport (
    AF_INET, AF_INET6, CLOCK_MONOTONIC, EFD_CLOEXEC, EFD_NONBLOCK, EPOLL_CLOEXEC, EPOLL_CTL_ADD,
    EPOLL_CTL_MOD, EPOLLIN, EPOLLOUT, IPPROTO_TCP, MSG_DONTWAIT, MSG_NOSIGNAL, TCP_CONGESTION,
    TFD_CLOEXEC, TFD_NONBLOCK, epoll_create1, epoll_ctl, epoll_event, eventfd, getpeername,
    getsockname, iovec, itimerspec, msghdr, send, sendmsg, setsockopt, sockaddr, sockaddr_in,
    sockaddr_in6, sockaddr_storage, socklen_t, timerfd_create, timerfd_settime,
)

cdef enum:
    SMALL = 4096              # a drained outbox keeps at most this much
    STRETCH = 128 * 1024      # what a filling one borrows from the spares
    STALL_NS = 2000000        # how long a publisher waits for a client that is nearly full


cdef class Outboxes:
    """Bytes out. A payload may be lent: sent from where it was read, copied only if it must wait."""

    def __cinit__(self):
        self.fd = self.wake_fd = self.timer_fd = -1
        self.fd = checked(epoll_create1(EPOLL_CLOEXEC))
        self.wake_fd = checked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))
        self.timer_fd = checked(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK))
        self._listen(self.wake_fd, NULL)
        self._listen(self.timer_fd, <void *>&self.timer_fd)

    def __dealloc__(self):
        self.close_own()
        while self.spare_count:
            self.spare_count -= 1
            free(self.spares[self.spare_count])
        free(self.lenders)
        free(self.dirty)

    cdef _listen(self, int fd, void *tag):
        cdef epoll_event event
        event.events = EPOLLIN
        event.data.ptr = tag
        checked(epoll_ctl(self.fd, EPOLL_CTL_ADD, fd, &event))

    cdef void close_own(self) noexcept:
        if self.fd >= 0:
            close_fd(self.fd)
        if self.wake_fd >= 0:
            close_fd(self.wake_fd)
        if self.timer_fd >= 0:
            close_fd(self.timer_fd)
        self.fd = self.wake_fd = self.timer_fd = -1

    cdef void _note_dirty(self, Conn *conn) noexcept:
        conn.dirty = True
        if self.dirty_count == self.dirty_room:
            self.dirty_room = 2 * self.dirty_room + 64
            self.dirty = <Conn **>must_grow(self.dirty, self.dirty_room * sizeof(Conn *))
        self.dirty[self.dirty_count] = conn
        self.dirty_count += 1

    cdef void forget_closed(self) noexcept:
        """Closed connections are about to be freed: nothing of theirs is sent any more."""
        cdef Py_ssize_t i, kept = 0
        for i in range(self.dirty_count):
            if not self.dirty[i].closed:
                self.dirty[kept] = self.dirty[i]
                kept += 1
        self.dirty_count = kept

    cdef void watch(self, Conn *conn) noexcept:
        """Tell epoll what the connection waits for now."""
        cdef epoll_event event
        if conn.fd < 0 or conn.closed:
            return
        event.events = EPOLLOUT if conn.blocked else 0
        if conn.stalled_on == NULL and not conn.held and not conn.resting:
            event.events |= EPOLLIN
        event.data.ptr = conn
        epoll_ctl(self.fd, EPOLL_CTL_MOD, conn.fd, &event)

    cdef void send(self, Conn *conn) noexcept:
        """Give the socket as much as it takes; the rest waits for epoll."""
        cdef ssize_t sent
        cdef Py_ssize_t size = queued(conn)
        cdef bint was_blocked = conn.blocked
        if conn.fd < 0 or conn.closed or conn.broken or size == 0:
            return
        sent = send_loans(conn) if conn.loan_count else send(
            conn.fd, conn.out.data + conn.out.head, size, MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent < 0:
            conn.broken = errno != EAGAIN and errno != EINTR
            sent = 0
        if sent:
            note_taken(conn, sent)
        conn.blocked = sent < size
        if conn.loan_count:
            self._repay(conn, sent)
        else:
            drain(&conn.out, sent)
        if conn.out.tail == 0:
            self.give_back(&conn.out)
        if conn.blocked != was_blocked:
            self.watch(conn)

    cdef void _repay(self, Conn *conn, Py_ssize_t sent) noexcept:
        """After a send: copy what of the loans did not go out, as their bytes will not stay."""
        cdef Buffer rest
        if sent == queued(conn):
            conn.out.head = conn.out.tail = 0
        else:
            memset(&rest, 0, sizeof(Buffer))
            reserve(&rest, queued(conn) - sent)
            copy_unsent(conn, sent, &rest)
            discard(&conn.out)
            conn.out = rest
        conn.loan_count = 0
        conn.lent = 0

    cdef void settle(self) noexcept:
        """The read buffer is about to be used again: send or copy every loan."""
        cdef Py_ssize_t i
        for i in range(self.lender_count):
            if self.lenders[i].loan_count == 0:
                continue
            if not self.lenders[i].closed:
                self.send(self.lenders[i])
            if self.lenders[i].loan_count:
                self._repay(self.lenders[i], 0)
        self.lender_count = 0

    cdef void lend(self, Conn *conn, const char *at, Py_ssize_t size) noexcept:
        if conn.loans == NULL:
            conn.loans = <Loan *>must_alloc(LOANS * sizeof(Loan))
            if is_on_this_machine(conn.fd):  # asked once: large payloads have begun
                stop_pacing(conn.fd)
        if conn.loan_count == 0:
            if self.lender_count == self.lender_room:
                self.lender_room = 2 * self.lender_room + 16
                self.lenders = <Conn **>must_grow(
                    self.lenders, self.lender_room * sizeof(Conn *))
            self.lenders[self.lender_count] = conn
            self.lender_count += 1
        conn.loans[conn.loan_count].after = pending(&conn.out)
        conn.loans[conn.loan_count].at = at
        conn.loans[conn.loan_count].size = size
        conn.loan_count += 1
        conn.lent += size

    cdef char *_more_space(self, Conn *conn, Py_ssize_t size) noexcept:
        """Make room for ``size`` bytes: a small outbox grows, a full one gets a spare."""
        cdef Buffer *out = &conn.out
        cdef Py_ssize_t used = pending(out)
        cdef char *spare
        if out.tail + size > out.room and out.room < STRETCH and used + size > SMALL \
                and used + size <= STRETCH:
            if self.spare_count:
                self.spare_count -= 1
                spare = self.spares[self.spare_count]
            else:
                spare = <char *>must_alloc(STRETCH)
            if used:
                memcpy(spare, out.data + out.head, used)
            free(out.data)
            out.data = spare
            out.room = STRETCH
            out.head = 0
            out.tail = used
        return reserve(out, size)

    cdef void give_back(self, Buffer *out) noexcept:
        """An empty outbox keeps little: ten thousand idle clients shall cost nothing."""
        if out.room == STRETCH and self.spare_count < SPARES:
            self.spares[self.spare_count] = out.data
            self.spare_count += 1
            out.data = NULL
            out.room = 0
        elif out.room > SMALL:
            discard(out)

    cdef void start_timer(self) noexcept:
        cdef itimerspec when
        memset(&when, 0, sizeof(itimerspec))
        when.it_value.tv_nsec = STALL_NS
        timerfd_settime(self.timer_fd, 0, &when, NULL)


cdef int checked(int answer) except -1:
    if answer < 0:
        raise OSError(errno, os.strerror(errno))
    return answer


cdef bint is_on_this_machine(int fd) noexcept nogil:
    """Whether a TCP connection leads back to where it came from: both ends have one address."""
    cdef sockaddr_storage ours, theirs
    cdef socklen_t our_size = sizeof(sockaddr_storage)
    cdef socklen_t their_size = sizeof(sockaddr_storage)
    if getsockname(fd, <sockaddr *>&ours, &our_size) < 0 \
            or getpeername(fd, <sockaddr *>&theirs, &their_size) < 0 \
            or ours.ss_family != theirs.ss_family:
        return False
    if ours.ss_family == AF_INET:
        return (<sockaddr_in *>&ours).sin_addr.s_addr == (<sockaddr_in *>&theirs).sin_addr.s_addr
    return ours.ss_family == AF_INET6 and memcmp(
        &(<sockaddr_in6 *>&ours).sin6_addr, &(<sockaddr_in6 *>&theirs).sin6_addr, 16) == 0


cdef void stop_pacing(int fd) noexcept nogil:
    """Take a congestion control that sends at once; where that is refused, nothing changes.

    BBR, the default of many machines, spreads packets over time by timers. Between two processes
    of one machine there is no network to spare, and a fifth of the time of a large message goes
    into the timers. Whoever gets only small ones loses nothing by what the machine chose.
    """
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, b"reno", 4)


cdef ssize_t send_loans(Conn *conn) noexcept nogil:
    """Send the outbox with each loan in its place."""
    cdef iovec pieces[2 * LOANS + 1]
    cdef msghdr message
    cdef const char *own = conn.out.data + conn.out.head
    cdef Py_ssize_t done = 0
    cdef int count = 0
    cdef int i
    for i in range(conn.loan_count):
        if conn.loans[i].after > done:
            pieces[count].iov_base = <void *>(own + done)
            pieces[count].iov_len = conn.loans[i].after - done
            done = conn.loans[i].after
            count += 1
        pieces[count].iov_base = <void *>conn.loans[i].at
        pieces[count].iov_len = conn.loans[i].size
        count += 1
    if pending(&conn.out) > done:
        pieces[count].iov_base = <void *>(own + done)
        pieces[count].iov_len = pending(&conn.out) - done
        count += 1
    memset(&message, 0, sizeof(msghdr))
    message.msg_iov = pieces
    message.msg_iovlen = count
    return sendmsg(conn.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)


cdef void append_from(
    Buffer *to, const char *at, Py_ssize_t size, Py_ssize_t *skip
) noexcept nogil:
    """Append without the first ``skip`` bytes, and take what was skipped off it."""
    cdef Py_ssize_t skipped = size if skip[0] > size else skip[0]
    skip[0] -= skipped
    append(to, at + skipped, size - skipped)


cdef void copy_unsent(const Conn *conn, Py_ssize_t sent, Buffer *to) noexcept nogil:
    """Write the outbox and its loans, in order and without the first ``sent`` bytes."""
    cdef const char *own = conn.out.data + conn.out.head
    cdef Py_ssize_t done = 0
    cdef int i
    for i in range(conn.loan_count):
        append_from(to, own + done, conn.loans[i].after - done, &sent)
        done = conn.loans[i].after
        append_from(to, conn.loans[i].at, conn.loans[i].size, &sent)
    append_from(to, own + done, pending(&conn.out) - done, &sent)
