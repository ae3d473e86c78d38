# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Hub: every connection's bytes. Parse, match, copy, flush; no Python object per message.

Nothing in here blocks and nothing recurses: whatever Python code the hub calls (the handler, a
sink) may call back into the hub, which only marks connections and sinks dirty. They are served at
the end of the chunk, round after round, until none is left.
"""

import logging
import os
import time

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, memcpy, memmove, memset
from posix.unistd cimport close as close_fd

from millstream.kernel._batch cimport Batch, Entry
from millstream.kernel._buffer cimport Buffer, append, discard, drain, pending, reserve, to_front
from millstream.kernel._interest cimport Interest, Match, Members, Node, SinkSlot, Sub, is_denied
from millstream.kernel._memory cimport must_alloc, must_grow
from millstream.kernel._scan cimport (
    CONNECT, ERR, HPUB, INFO, LONE_VERBS, NO_VERB, PING, PONG, PUB, SUB, UNSUB, Word, read_size,
    read_verb, split_words, verb_may_come, write_decimal,
)
from millstream.kernel._subject cimport pattern_is_legal, subject_is_legal

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        void *ptr
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event *event)
    int epoll_wait(int epfd, epoll_event *events, int maxevents, int timeout)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD
    uint32_t EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void *to, size_t size, int flags)
    ssize_t send(int fd, const void *at, size_t size, int flags)
    int shutdown(int fd, int how)
    int MSG_DONTWAIT, MSG_NOSIGNAL, SHUT_WR
    ctypedef unsigned int socklen_t
    struct sockaddr:
        pass
    int getpeername(int fd, sockaddr *address, socklen_t *size)

cdef extern from "<netinet/in.h>" nogil:
    struct sockaddr_in6:
        uint16_t sin6_port        # an IPv4 address has its port in the same place
    uint16_t ntohs(uint16_t number)

cdef extern from "<sys/uio.h>" nogil:
    cdef struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "<sys/socket.h>" nogil:
    cdef struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t sendmsg(int fd, const msghdr *message, int flags)

cdef extern from "<time.h>" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int CLOCK_MONOTONIC

cdef extern from "<sys/timerfd.h>" nogil:
    cdef struct itimerspec:
        timespec it_interval
        timespec it_value
    int timerfd_create(int clock, int flags)
    int timerfd_settime(int fd, int flags, const itimerspec *value, itimerspec *old)
    int TFD_CLOEXEC, TFD_NONBLOCK

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int initial, int flags)
    int eventfd_read(int fd, uint64_t *value)
    int eventfd_write(int fd, uint64_t value)
    int EFD_CLOEXEC, EFD_NONBLOCK

log = logging.getLogger(__name__)

# Why input is refused (Handler.on_error); the connection is closed behind each of them.
UNKNOWN_OPERATION = 1
MALFORMED = 2
PAYLOAD_TOO_LARGE = 3
LINE_TOO_LONG = 4
HEADERS_NOT_SUPPORTED = 5

# Why a connection ended (Handler.on_closed); a door may use codes of its own from 100.
CLIENT_CLOSED = 1
WRITE_FAILED = 2
SLOW_CONSUMER = 3
PROTOCOL_ERROR = 4
SERVER_SHUTDOWN = 5
INTERNAL_ERROR = 6
WRITE_DEADLINE = 7

# What Handler.may_publish answers.
DENIED = 0
ALLOWED = 1        # and until the subject changes
ALLOWED_ONCE = 2   # ask again for the next message

cdef enum:
    BAD_OPERATION = 1
    BAD_ARGUMENTS = 2
    TOO_LARGE = 3
    TOO_LONG = 4
    NO_HEADERS = 5
    CLOSED_BY_CLIENT = 1
    CLOSED_ON_WRITE = 2
    CLOSED_AS_SLOW = 3
    CLOSED_ON_ERROR = 4
    CLOSED_BY_SHUTDOWN = 5
    CLOSED_ON_BUG = 6
    CLOSED_AT_DEADLINE = 7
    CONTROL_LINE = 4096
    READ_SIZE = 512 * 1024
    KEEP_SIZE = 64 * 1024     # a longer remainder is completed in the connection's own buffer
    CHUNK_SIZE = 4 << 20      # one poll reads about this much before it serves sinks and outboxes
    EVENTS = 256
    ROUNDS = 64               # then the rest waits for the next turn of the loop
    SMALL = 4096              # a drained outbox keeps at most this much
    STRETCH = 128 * 1024      # what a filling one borrows from the spares
    SPARES = 64
    FLUSH_AT = 64 * 1024      # inside a chunk, so that what is copied is sent while it is cached
    LOAN_MIN = 4096           # from here on a payload is sent from where it was read
    LOANS = 64
    STALL_NS = 2000000        # how long a publisher waits for a client that is nearly full
    ASK = 0                   # Conn.memo_allowed, as Handler.may_publish answers
    YES = 1


# A payload that is not copied: it follows ``after`` bytes of the outbox, and lies in the read
# buffer, where it stays only until the parser returns.
cdef struct Loan:
    Py_ssize_t after
    const char *at
    Py_ssize_t size


cdef struct Conn:
    uint32_t cid
    int fd                    # -1: somebody else moves the bytes (feed, take)
    void *peer                # borrowed Peer
    void *interest            # borrowed Interest, alive as long as the peer
    Buffer inbox              # the beginning of an operation whose end has not come
    Py_ssize_t needs          # bytes of inbox before parsing again makes sense
    Buffer out
    Loan *loans
    int loan_count
    Py_ssize_t lent           # bytes of all loans
    double stuck_since        # when output was first seen waiting; 0 = some was taken since
    Py_ssize_t max_payload
    Py_ssize_t max_pending
    Py_ssize_t nearly_full    # three quarters of it
    bint verbose
    bint pedantic
    bint echo
    bint headers
    bint no_responders
    bint guarded              # ask the handler before a publish (once per change of subject)
    bint tracked              # tell the handler the reply subjects of what is delivered
    bint parsing
    bint closed
    bint slow
    bint broken
    bint dirty
    bint blocked              # the socket is full, epoll tells when it is not
    bint pinged
    bint active
    bint leaving              # on_closing was told
    int port                  # the client's, 0 = unknown
    uint64_t start_ns         # the hub's time when it came
    uint64_t last_ns          # the hub's time when it last completed an operation
    void *stalled_on          # borrowed: the SinkSlot or Conn that this publisher waits for
    bint stalled_by_client
    Buffer memo               # the last subject published to
    Match *memo_match
    uint64_t memo_sweeps
    int memo_allowed
    bint memo_legal
    uint64_t in_msgs
    uint64_t in_bytes
    uint64_t out_msgs
    uint64_t out_bytes


# One message on its way. ``tail`` is its wire text from the size to the last CRLF, where the
# publisher sent it in the form that a delivery needs; else NULL.
cdef struct Pub:
    const char *subject
    const char *reply
    const char *body          # headers, then payload
    const char *tail
    Py_ssize_t subject_len
    Py_ssize_t reply_len
    Py_ssize_t headers_len
    Py_ssize_t payload_len
    Py_ssize_t tail_len
    Conn *origin
    uint32_t origin_cid
    bint lasting              # the tail stays where it is until the parser returns
    bint disguised            # receivers see another subject than the one that was matched


cdef int port_of(int fd) noexcept nogil:
    """Return the port at the other end of a socket, 0 where there is none to tell."""
    cdef sockaddr_in6 address
    cdef socklen_t size = sizeof(address)
    memset(&address, 0, sizeof(address))
    if fd < 0 or getpeername(fd, <sockaddr *>&address, &size) < 0:
        return 0
    return ntohs(address.sin6_port)


cdef bytes pattern_of(Node *node):
    """Return the pattern that leads to a node of the trie."""
    tokens = []
    while node.parent != NULL:
        if node == node.parent.star:
            tokens.append(b"*")
        elif node == node.parent.rest:
            tokens.append(b">")
        else:
            tokens.append(node.token[:node.token_len])
        node = node.parent
    return b".".join(reversed(tokens))


cdef class Peer:
    """What Python owns of a connection: the space it is in and its subscriptions by sid."""

    cdef Conn *conn
    cdef Interest interest
    cdef dict subs            # sid → address of the Sub


cdef class Hub:
    """Owns an epoll descriptor: when it is readable, call ``poll``."""

    cdef object handler
    cdef object decorate
    cdef public object on_closing
    cdef public uint64_t now_ns
    cdef readonly int fd
    cdef int wake_fd
    cdef int timer_fd         # runs out when publishers have waited long enough
    cdef char *spares[SPARES]
    cdef int spare_count
    cdef Conn **lenders       # connections whose outboxes have loans
    cdef Py_ssize_t lender_count
    cdef Py_ssize_t lender_room
    cdef readonly double write_deadline
    cdef double looked_at
    cdef dict peers
    cdef list dirty_sinks
    cdef list graveyard       # peers whose Conn may still be on the stack
    cdef Conn **dirty
    cdef Py_ssize_t dirty_count
    cdef Py_ssize_t dirty_room
    cdef Sub **spent
    cdef Py_ssize_t spent_count
    cdef Py_ssize_t spent_room
    cdef char *chunk
    cdef uint32_t next_cid
    cdef uint64_t dice
    cdef int busy
    cdef list stalled
    cdef list hooked
    cdef list replies         # cid, reply, cid, reply…: delivered to tracked connections
    cdef uint64_t in_msgs
    cdef uint64_t in_bytes
    cdef uint64_t out_msgs
    cdef uint64_t out_bytes
    cdef uint64_t slow_consumers
    cdef Py_ssize_t max_payload
    cdef Py_ssize_t max_pending

    def __cinit__(
        self, object handler not None, *, Py_ssize_t max_payload=1 << 20,
        Py_ssize_t max_pending=8 << 20, object decorate=None, double write_deadline=10.0,
    ):
        self.handler = handler
        self.decorate = decorate
        self.max_payload = max_payload
        self.max_pending = max_pending
        self.write_deadline = write_deadline
        self.peers = {}
        self.dirty_sinks = []
        self.graveyard = []
        self.stalled = []
        self.hooked = []
        self.replies = []
        self.chunk = <char *>must_alloc(KEEP_SIZE + READ_SIZE)
        self.dice = int.from_bytes(os.urandom(8), "little") | 1
        self.fd = self.wake_fd = self.timer_fd = -1
        self.fd = checked(epoll_create1(EPOLL_CLOEXEC))
        self.wake_fd = checked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))
        self.timer_fd = checked(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK))
        self._listen(self.wake_fd, NULL)
        self._listen(self.timer_fd, <void *>&self.timer_fd)

    cdef _listen(self, int fd, void *tag):
        cdef epoll_event event
        event.events = EPOLLIN
        event.data.ptr = tag
        checked(epoll_ctl(self.fd, EPOLL_CTL_ADD, fd, &event))

    def __dealloc__(self):
        self._close_own()
        while self.spare_count:
            self.spare_count -= 1
            free(self.spares[self.spare_count])
        free(self.lenders)
        free(self.dirty)
        free(self.spent)
        free(self.chunk)

    cdef void _close_own(self) noexcept:
        if self.fd >= 0:
            close_fd(self.fd)
        if self.wake_fd >= 0:
            close_fd(self.wake_fd)
        if self.timer_fd >= 0:
            close_fd(self.timer_fd)
        self.fd = self.wake_fd = self.timer_fd = -1

    def __del__(self):
        self.close()

    # ---- connections -------------------------------------------------------------------------

    def attach(self, int fd, Interest interest not None):
        """Take over a connected, non-blocking socket and return the connection's id."""
        cdef Conn *conn
        if fd < 0:
            raise ValueError("not a file descriptor")
        conn = self._open(fd, interest)
        cdef epoll_event event
        event.events = EPOLLIN
        event.data.ptr = conn
        if epoll_ctl(self.fd, EPOLL_CTL_ADD, fd, &event) < 0:
            failed = errno
            del self.peers[conn.cid]
            conn_free(conn)
            raise OSError(failed, os.strerror(failed))
        return conn.cid

    def attach_fed(self, Interest interest not None):
        """Open a connection whose bytes come by ``feed`` and go by ``take``."""
        return self._open(-1, interest).cid

    cdef Conn *_open(self, int fd, Interest interest) except NULL:
        cdef Conn *conn = <Conn *>must_alloc(sizeof(Conn))
        cdef Peer peer = Peer.__new__(Peer)
        memset(conn, 0, sizeof(Conn))
        self.next_cid += 1
        conn.cid = self.next_cid
        conn.fd = fd
        conn.port = port_of(fd)
        conn.start_ns = conn.last_ns = self.now_ns
        conn.peer = <void *>peer
        conn.interest = <void *>interest
        conn.verbose = conn.pedantic = conn.echo = True
        conn.max_payload = self.max_payload
        conn.max_pending = self.max_pending
        conn.nearly_full = self.max_pending - (self.max_pending >> 2)
        peer.conn = conn
        peer.interest = interest
        peer.subs = {}
        self.peers[conn.cid] = peer
        self._hook(interest)
        return conn

    cdef _hook(self, Interest interest):
        if not any(known is interest for known in self.hooked):
            self.hooked.append(interest)
            interest.resume_hooks.append(self._resume)

    def move(self, uint32_t cid, Interest interest not None):
        """Bind a connection that has no subscriptions to another subject space."""
        cdef Peer peer = self._peer(cid)
        if peer.subs:
            raise ValueError("a connection with subscriptions cannot move")
        peer.interest = interest
        peer.conn.interest = <void *>interest
        peer.conn.memo_match = NULL
        self._hook(interest)

    def configure(
        self, uint32_t cid, *, bint verbose, bint pedantic, bint echo, bint headers,
        bint no_responders, bint guarded=False, bint track_replies=False, max_payload=None,
    ):
        """Set what CONNECT negotiated and what the client's credentials allow."""
        cdef Conn *conn = self._conn(cid)
        if max_payload is not None:
            conn.max_payload = max_payload
        conn.verbose = verbose
        conn.pedantic = pedantic
        conn.echo = echo
        conn.headers = headers
        conn.no_responders = no_responders
        conn.guarded = guarded
        conn.tracked = track_replies
        conn.memo_match = NULL

    def write(self, uint32_t cid, bytes data not None):
        """Queue raw protocol bytes for a connection; a closed one swallows them."""
        cdef Peer peer = self.peers.get(cid)
        if peer is None:
            return
        append(&peer.conn.out, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        self._mark(peer.conn)

    def close_connection(self, uint32_t cid, int reason):
        """Send what is queued as far as the socket takes it, and close."""
        cdef Peer peer = self.peers.get(cid)
        if peer is None:
            return
        self.busy += 1
        try:
            self._close(peer.conn, reason)
            peer.interest.tell()
        finally:
            self.busy -= 1
        self._bury()

    def connections(self):
        """Return the ids of all open connections."""
        return list(self.peers)

    def take_activity(self, uint32_t cid):
        """Tell whether the connection completed an operation since the last call."""
        cdef Peer peer = self.peers.get(cid)
        if peer is None:
            return False
        was = peer.conn.active
        peer.conn.active = False
        return was

    def is_stalled(self, uint32_t cid):
        """Tell whether a fed connection must not be read from now."""
        return self._conn(cid).stalled_on != NULL

    def connection_stats(self, uint32_t cid):
        """Return a connection's counters and what waits in its outbox."""
        cdef Peer peer = self._peer(cid)
        return {
            "in_msgs": peer.conn.in_msgs,
            "in_bytes": peer.conn.in_bytes,
            "out_msgs": peer.conn.out_msgs,
            "out_bytes": peer.conn.out_bytes,
            "pending_bytes": queued(peer.conn),
            "outbox_room": peer.conn.out.room,
            "unfinished_bytes": pending(&peer.conn.inbox),
            "subscriptions": len(peer.subs),
            "start_ns": peer.conn.start_ns,
            "last_ns": peer.conn.last_ns,
            "port": peer.conn.port,
        }

    def subscriptions(self, uint32_t cid):
        """Return a connection's subscriptions: (subject, queue, sid, delivered, limit) each."""
        cdef Sub *sub
        found = []
        for sid, address in self._peer(cid).subs.items():
            sub = <Sub *><size_t>address
            found.append(
                (pattern_of(sub.node), sub.queue[:sub.queue_len], sid, sub.delivered, sub.limit))
        return found

    def stats(self):
        """Return totals over all connections, past ones included."""
        return {
            "connections": len(self.peers),
            "total_connections": self.next_cid,
            "in_msgs": self.in_msgs,
            "in_bytes": self.in_bytes,
            "out_msgs": self.out_msgs,
            "out_bytes": self.out_bytes,
            "slow_consumers": self.slow_consumers,
        }

    cdef Peer _peer(self, uint32_t cid):
        cdef Peer peer = self.peers.get(cid)
        if peer is None:
            raise KeyError(cid)
        return peer

    cdef Conn *_conn(self, uint32_t cid) except NULL:
        return self._peer(cid).conn

    cdef void _mark(self, Conn *conn) noexcept:
        if conn.dirty:
            return
        conn.dirty = True
        if self.dirty_count == self.dirty_room:
            self.dirty_room = 2 * self.dirty_room + 64
            self.dirty = <Conn **>must_grow(self.dirty, self.dirty_room * sizeof(Conn *))
        self.dirty[self.dirty_count] = conn
        self.dirty_count += 1

    cdef void _watch(self, Conn *conn) noexcept:
        """Tell epoll what the connection waits for now."""
        cdef epoll_event event
        if conn.fd < 0 or conn.closed:
            return
        event.events = (EPOLLIN if conn.stalled_on == NULL else 0) | (
            EPOLLOUT if conn.blocked else 0)
        event.data.ptr = conn
        epoll_ctl(self.fd, EPOLL_CTL_MOD, conn.fd, &event)

    cdef void _send(self, Conn *conn) noexcept:
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
            conn.stuck_since = 0
        conn.blocked = sent < size
        if conn.loan_count:
            self._repay(conn, sent)
        else:
            drain(&conn.out, sent)
        if conn.out.tail == 0:
            self._give_back(&conn.out)
        if conn.blocked != was_blocked:
            self._watch(conn)

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

    cdef void _settle(self) noexcept:
        """The read buffer is about to be used again: send or copy every loan."""
        cdef Py_ssize_t i
        for i in range(self.lender_count):
            if self.lenders[i].loan_count == 0:
                continue
            if not self.lenders[i].closed:
                self._send(self.lenders[i])
            if self.lenders[i].loan_count:
                self._repay(self.lenders[i], 0)
        self.lender_count = 0

    cdef void _lend(self, Conn *conn, const char *at, Py_ssize_t size) noexcept:
        if conn.loans == NULL:
            conn.loans = <Loan *>must_alloc(LOANS * sizeof(Loan))
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

    cdef char *_space(self, Conn *conn, Py_ssize_t size) noexcept:
        """Return where the outbox takes ``size`` bytes: small ones grow, full ones get a spare."""
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

    cdef void _give_back(self, Buffer *out) noexcept:
        """An empty outbox keeps little: ten thousand idle clients shall cost nothing."""
        if out.room == STRETCH and self.spare_count < SPARES:
            self.spares[self.spare_count] = out.data
            self.spare_count += 1
            out.data = NULL
            out.room = 0
        elif out.room > SMALL:
            discard(out)

    cdef void _close(self, Conn *conn, int reason) noexcept:
        """Close once: subscriptions go, queued output goes out if it fits, the handler hears of it."""
        cdef Peer peer = <Peer>conn.peer
        if conn.closed:
            return
        self._tell_closing(conn, reason)
        self._unsubscribe_all(peer)
        if conn.fd >= 0:
            self._send(conn)
        elif queued(conn):
            self._last_output(conn)
        if conn.closed:
            return
        conn.closed = True
        if conn.fd >= 0:
            self._hang_up(conn)
        self._release(<void *>conn)
        if conn.stalled_on != NULL:
            conn.stalled_on = NULL
            self.stalled = [other for other in self.stalled if other is not peer]
        self.peers.pop(conn.cid, None)
        self.graveyard.append(peer)
        if reason == CLOSED_AS_SLOW or reason == CLOSED_AT_DEADLINE:
            self.slow_consumers += 1
        try:
            self.handler.on_closed(conn.cid, reason)
        except Exception:
            log.exception("closing a connection failed cid=%d", conn.cid)

    cdef void _tell_closing(self, Conn *conn, int reason) noexcept:
        """Let an observer look at the connection while everything about it is still there."""
        if self.on_closing is None or conn.leaving:
            return
        conn.leaving = True
        try:
            self.on_closing(conn.cid, reason)
        except Exception:
            log.exception("recording a closed connection failed cid=%d", conn.cid)

    cdef void _last_output(self, Conn *conn) noexcept:
        try:
            self.handler.on_output(conn.cid)
        except Exception:
            log.exception("handing over the last output failed cid=%d", conn.cid)

    cdef void _hang_up(self, Conn *conn) noexcept:
        """Close the socket so that what was sent arrives: unread input would turn into a reset."""
        cdef char unread[16384]
        cdef int i
        shutdown(conn.fd, SHUT_WR)
        for i in range(256):
            if recv(conn.fd, unread, sizeof(unread), MSG_DONTWAIT) <= 0:
                break
        close_fd(conn.fd)

    cdef void _bury(self) noexcept:
        cdef Peer peer
        cdef Py_ssize_t i, kept = 0
        if self.busy or not self.graveyard:
            return
        for i in range(self.dirty_count):
            if not self.dirty[i].closed:
                self.dirty[kept] = self.dirty[i]
                kept += 1
        self.dirty_count = kept
        for peer in self.graveyard:
            conn_free(peer.conn)
            peer.conn = NULL
        self.graveyard.clear()

    # ---- subscriptions -----------------------------------------------------------------------

    def subscribe(
        self, uint32_t cid, bytes subject not None, bytes queue not None, bytes sid not None,
        tuple deny not None=(),
    ):
        """Subscribe; False when the subject is illegal. A sid already in use stays as it is.

        What is sent on a subject that a pattern in ``deny`` matches passes this subscription by.
        """
        cdef Peer peer = self._peer(cid)
        cdef Sub *sub
        if sid in peer.subs:
            return True
        check_patterns(deny)
        sub = peer.interest.insert(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject),
            PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue),
            PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid), deny)
        if sub == NULL:
            return False
        sub.client = <void *>peer.conn
        peer.subs[sid] = <size_t>sub
        peer.interest.tell()
        return True

    def unsubscribe(self, uint32_t cid, bytes sid not None, uint64_t max_msgs):
        """Unsubscribe now, or once ``max_msgs`` were delivered since SUB; False if unknown."""
        cdef Peer peer = self._peer(cid)
        cdef Sub *sub
        address = peer.subs.get(sid)
        if address is None:
            return False
        sub = <Sub *><size_t>address
        if max_msgs > sub.delivered:
            sub.limit = max_msgs
            return True
        del peer.subs[sid]
        peer.interest.remove(sub)
        peer.interest.tell()
        return True

    def unsubscribe_all(self, uint32_t cid):
        """Drop every subscription of a connection."""
        cdef Peer peer = self._peer(cid)
        self._unsubscribe_all(peer)
        peer.interest.tell()

    cdef void _unsubscribe_all(self, Peer peer) noexcept:
        for address in peer.subs.values():
            peer.interest.remove(<Sub *><size_t>address)
        peer.subs.clear()

    cdef void _drop_spent(self) noexcept:
        """Remove subscriptions that reached their maximum in the delivery just made."""
        cdef Sub *sub
        cdef Peer peer
        cdef Py_ssize_t i
        for i in range(self.spent_count):
            sub = self.spent[i]
            peer = <Peer>(<Conn *>sub.client).peer
            peer.subs.pop(sub.sid[1:sub.sid_len - 1], None)
            peer.interest.remove(sub)
        self.spent_count = 0

    # ---- delivering one message --------------------------------------------------------------

    cdef int _deliver(self, Match *match, Pub *pub) noexcept:
        """Copy a message to everyone in ``match``; no Python code runs in here, so it stays valid."""
        cdef int delivered = 0
        cdef uint32_t i, k, start
        cdef Members *group
        for i in range(match.plain_count):
            delivered += self._give(match.plain[i], pub)
        for i in range(match.group_count):
            group = &match.groups[i]
            start = 0
            if group.count > 1:
                start = <uint32_t>(self._random() % group.count)
            for k in range(group.count):
                if self._give(group.subs[(start + k) % group.count], pub):
                    delivered += 1
                    break
        if self.spent_count:
            self._drop_spent()
        return delivered

    cdef uint64_t _random(self) noexcept:
        self.dice ^= self.dice << 13
        self.dice ^= self.dice >> 7
        self.dice ^= self.dice << 17
        return self.dice

    cdef int _give(self, Sub *sub, Pub *pub) noexcept:
        cdef Conn *conn = <Conn *>sub.client
        if conn == NULL:
            return self._give_sink(<SinkSlot>sub.slot, pub)
        if conn.slow or conn.broken or (conn == pub.origin and not conn.echo):
            return 0
        if sub.limit and sub.delivered >= sub.limit:
            return 0
        if pub.disguised and sub.denied_count and is_denied(sub, pub.subject, pub.subject_len):
            return 0
        self._write_message(conn, sub, pub)
        sub.delivered += 1
        if sub.delivered == sub.limit:
            self._spend(sub)
        return 1

    cdef void _spend(self, Sub *sub) noexcept:
        if self.spent_count == self.spent_room:
            self.spent_room = 2 * self.spent_room + 8
            self.spent = <Sub **>must_grow(self.spent, self.spent_room * sizeof(Sub *))
        self.spent[self.spent_count] = sub
        self.spent_count += 1

    cdef int _give_sink(self, SinkSlot slot, Pub *pub) noexcept:
        if slot.batch is None:
            slot.batch = Batch.__new__(Batch)
        try:
            slot.batch.add_raw(
                pub.subject, pub.subject_len, pub.reply, pub.reply_len, pub.body,
                pub.headers_len, pub.payload_len, pub.origin_cid)
        except (MemoryError, OverflowError):
            return 0
        if not slot.dirty:
            slot.dirty = True
            self.dirty_sinks.append(slot)
        if slot.paused and pub.origin != NULL and pub.origin.stalled_on == NULL:
            self._stall(pub.origin, <void *>slot, False)
        return 1

    cdef void _write_message(self, Conn *conn, Sub *sub, Pub *pub) noexcept:
        """Append ``MSG subject sid [reply] size`` and the body (HMSG with headers) to the outbox."""
        cdef bint with_headers = pub.headers_len != 0 and conn.headers
        cdef bint as_read = pub.tail != NULL and (with_headers or pub.headers_len == 0)
        cdef bint lent = as_read and pub.lasting and pub.tail_len >= LOAN_MIN \
            and conn.fd >= 0 and not conn.blocked
        cdef Py_ssize_t size = pub.headers_len + pub.payload_len
        cdef char *start = self._space(
            conn, 64 + pub.subject_len + sub.sid_len + pub.reply_len + (0 if lent else size))
        cdef char *to = write_head(start, sub, pub, with_headers)
        if lent:
            conn.out.tail += to - start
            self._lend(conn, pub.tail, pub.tail_len)
        else:
            if as_read:
                memcpy(to, pub.tail, pub.tail_len)
                to += pub.tail_len
            else:
                to += write_tail(to, pub, with_headers)
            conn.out.tail += to - start
        conn.out_msgs += 1
        conn.out_bytes += size
        self.out_msgs += 1
        self.out_bytes += size
        self._mark(conn)
        if conn.tracked and pub.reply_len:
            self.replies.append(conn.cid)
            self.replies.append(pub.reply[:pub.reply_len])
        if pending(&conn.out) >= FLUSH_AT or queued(conn) > conn.nearly_full \
                or conn.loan_count == LOANS:
            self._relieve(conn, pub.origin)

    cdef void _relieve(self, Conn *conn, Conn *publisher) noexcept:
        """Much waits: send at once; a client that is nearly full holds its publisher back for a

        moment, and one above the limit is given up.
        """
        if not conn.blocked:
            self._send(conn)
        if queued(conn) > conn.max_pending:
            conn.slow = True
        elif queued(conn) > conn.nearly_full and publisher != NULL and publisher != conn \
                and publisher.stalled_on == NULL:
            self._stall(publisher, <void *>conn, True)

    # ---- publishers that wait ----------------------------------------------------------------

    cdef void _stall(self, Conn *conn, void *on, bint is_client) noexcept:
        """Stop reading from a publisher until what it waits for (a sink or a client) has room."""
        conn.stalled_on = on
        conn.stalled_by_client = is_client
        self.stalled.append(<Peer>conn.peer)
        self._watch(conn)
        if is_client:
            self._start_timer()

    cdef void _release(self, void *on) noexcept:
        cdef Peer peer
        cdef list freed
        if not self.stalled:
            return
        freed = [peer for peer in self.stalled if peer.conn.stalled_on == on]
        self.stalled = [peer for peer in self.stalled if peer.conn.stalled_on != on]
        self.busy += 1  # whoever is told of it may close connections
        for peer in freed:
            if peer.conn.closed:
                continue
            peer.conn.stalled_on = NULL
            self._watch(peer.conn)
            if peer.conn.fd < 0:
                self._tell_output(peer.conn)
        self.busy -= 1

    def _resume(self, SinkSlot slot):
        self._release(<void *>slot)

    cdef void _start_timer(self) noexcept:
        cdef itimerspec when
        memset(&when, 0, sizeof(itimerspec))
        when.it_value.tv_nsec = STALL_NS
        timerfd_settime(self.timer_fd, 0, &when, NULL)

    cdef void _end_stalls(self) noexcept:
        """Publishers have waited for slow clients long enough.

        Whoever still cannot take the messages then fills up and is closed, so one stuck client
        slows its publishers for a moment only.
        """
        cdef Peer peer
        for peer in list(self.stalled):
            if peer.conn.stalled_on != NULL and peer.conn.stalled_by_client:
                self._release(peer.conn.stalled_on)

    def tick(self, double now=-1.0):
        """Look after clients that do not read; called a few times a second."""
        self._end_stalls()
        if now < 0:
            now = time.monotonic()
        if now - self.looked_at >= 0.5 or now < self.looked_at:
            self.looked_at = now
            self._close_stuck(now)

    cdef void _close_stuck(self, double now) noexcept:
        """Close whoever took nothing of its output for the time of the write deadline."""
        cdef Peer peer
        cdef Conn *conn
        cdef list overdue = []
        for peer in self.peers.values():
            conn = peer.conn
            if queued(conn) == 0:
                conn.stuck_since = 0
            elif conn.stuck_since == 0:
                conn.stuck_since = now
            elif now - conn.stuck_since >= self.write_deadline:
                overdue.append(conn.cid)
        for cid in overdue:
            self.close_connection(cid, CLOSED_AT_DEADLINE)

    # ---- parsing -----------------------------------------------------------------------------

    cdef Py_ssize_t _parse(self, Conn *conn, const char *data, Py_ssize_t size) noexcept:
        """Carry out every complete operation and return how many bytes they were."""
        cdef const char *at = data
        cdef const char *end = data + size
        cdef Py_ssize_t used
        conn.needs = 0
        conn.parsing = True
        while at < end and not conn.closed:
            used = self._operation(conn, at, end - at)
            if used <= 0:
                break
            at += used
            conn.active = True
            conn.last_ns = self.now_ns
        conn.parsing = False
        if self.lender_count:
            self._settle()
        return at - data

    cdef Py_ssize_t _operation(self, Conn *conn, const char *at, Py_ssize_t size) noexcept:
        """Carry out one operation; 0 while it is incomplete, -1 when the connection is done for."""
        cdef Py_ssize_t reach = size if size < CONTROL_LINE + 2 else CONTROL_LINE + 2
        cdef const char *lf = <const char *>memchr(at, b"\n", reach)
        cdef const char *args
        cdef const char *line_end
        cdef int verb
        if lf == NULL:
            return self._incomplete(conn, at, size)
        verb = read_verb(at, lf - at, &args)
        if args == lf and verb > LONE_VERBS:
            # nats-server takes the first byte of an argument whatever it is, a line feed too
            lf = <const char *>memchr(args + 1, b"\n", at + reach - args - 1)
            if lf == NULL:
                return self._incomplete(conn, at, size)
            args += 1
        line_end = lf - 1 if lf > at and (lf - 1)[0] == b"\r" else lf
        if line_end - at > CONTROL_LINE:
            return self._refuse(conn, TOO_LONG)
        if verb == PUB:
            return self._pub(conn, at, args, line_end, lf + 1, at + size)
        if verb == HPUB:
            return self._hpub(conn, at, args, line_end, lf + 1, at + size)
        if verb == NO_VERB:
            return self._refuse(conn, BAD_OPERATION)
        if args < lf and memchr(args + 1, b"\r", lf - args - 1) != NULL:
            line_end = lf - 1  # a CR anywhere costs the last byte of the line, as in nats-server
        self._control(conn, verb, args, line_end)
        return lf + 1 - at

    cdef Py_ssize_t _incomplete(self, Conn *conn, const char *at, Py_ssize_t size) noexcept:
        """Wait for the end of a line as long as it may still become one."""
        cdef const char *lf
        cdef const char *ignored
        cdef int verb = read_verb(at, size, &ignored)
        if verb == NO_VERB and not verb_may_come(at, size):
            return self._refuse(conn, BAD_OPERATION)
        if size < CONTROL_LINE + 2:
            return 0
        if size > KEEP_SIZE or (verb != PING and verb != PONG):
            return self._refuse(conn, TOO_LONG)
        lf = <const char *>memchr(at, b"\n", size)  # whatever follows PING or PONG is ignored
        if lf == NULL:
            return 0
        self._control(conn, verb, at, at)
        return lf + 1 - at

    cdef Py_ssize_t _refuse(self, Conn *conn, int code) noexcept:
        try:
            self.handler.on_error(conn.cid, code)
        except Exception:
            log.exception("refusing input failed cid=%d", conn.cid)
        self._close(conn, CLOSED_ON_ERROR)
        return -1

    cdef Py_ssize_t _refuse_body(self, Conn *conn, const Word *subject) noexcept:
        """The payload does not end where it should; complaints of its subject still come first."""
        if conn.pedantic and not subject_is_legal(subject.at, subject.size):
            self._complain(conn)
        return self._refuse(conn, BAD_OPERATION)

    cdef void _complain(self, Conn *conn) noexcept:
        append(&conn.out, b"-ERR 'Invalid Publish Subject'\r\n", 32)
        self._mark(conn)

    cdef Py_ssize_t _pub(
        self, Conn *conn, const char *op, const char *args, const char *line_end,
        const char *body, const char *end,
    ) noexcept:
        cdef Word words[3]
        cdef Pub pub
        cdef int count = split_words(args, line_end, words, 3, False)
        cdef Py_ssize_t size
        if count != 2 and count != 3:
            return self._refuse(conn, BAD_ARGUMENTS)
        size = read_size(words[count - 1].at, words[count - 1].size)
        if size < 0:
            return self._refuse(conn, BAD_ARGUMENTS)
        if size > conn.max_payload:
            return self._refuse(conn, TOO_LARGE)
        if not body_is_sound(body, end, size):
            return self._refuse_body(conn, &words[0])
        if end - body < size + 2:
            conn.needs = (body - op) + size + 1  # that byte may already be wrong
            return 0
        pub.subject = words[0].at
        pub.subject_len = words[0].size
        pub.reply = words[1].at
        pub.reply_len = words[1].size if count == 3 else 0
        pub.body = body
        pub.headers_len = 0
        pub.payload_len = size
        pub.tail = words[count - 1].at
        pub.tail_len = body + size + 2 - pub.tail
        if words[count - 1].size + size + 4 != pub.tail_len or line_end[0] != b"\r":
            pub.tail = NULL
        pub.lasting = True
        self._publish_from(conn, &pub)
        return body + size + 2 - op

    cdef Py_ssize_t _hpub(
        self, Conn *conn, const char *op, const char *args, const char *line_end,
        const char *body, const char *end,
    ) noexcept:
        cdef Word words[4]
        cdef Pub pub
        cdef int count = split_words(args, line_end, words, 4, False)
        cdef Py_ssize_t headers, size
        if not conn.headers:
            return self._refuse(conn, NO_HEADERS)
        if count != 3 and count != 4:
            return self._refuse(conn, BAD_ARGUMENTS)
        headers = read_size(words[count - 2].at, words[count - 2].size)
        size = read_size(words[count - 1].at, words[count - 1].size)
        if headers < 0 or size < headers:
            return self._refuse(conn, BAD_ARGUMENTS)
        if size > conn.max_payload:
            return self._refuse(conn, TOO_LARGE)
        if not body_is_sound(body, end, size):
            return self._refuse_body(conn, &words[0])
        if end - body < size + 2:
            conn.needs = (body - op) + size + 1  # that byte may already be wrong
            return 0
        pub.subject = words[0].at
        pub.subject_len = words[0].size
        pub.reply = words[1].at
        pub.reply_len = words[1].size if count == 4 else 0
        pub.body = body
        pub.headers_len = headers
        pub.payload_len = size - headers
        pub.tail = words[count - 2].at
        pub.tail_len = body + size + 2 - pub.tail
        if words[count - 2].size + 1 + words[count - 1].size + size + 4 != pub.tail_len \
                or line_end[0] != b"\r" or headers == 0 \
                or pub.tail[words[count - 2].size] != b" ":
            pub.tail = NULL
        pub.lasting = True
        self._publish_from(conn, &pub)
        return body + size + 2 - op

    cdef void _publish_from(self, Conn *conn, Pub *pub) noexcept:
        cdef Interest interest = <Interest>conn.interest
        cdef Py_ssize_t size = pub.headers_len + pub.payload_len
        conn.in_msgs += 1
        conn.in_bytes += size
        self.in_msgs += 1
        self.in_bytes += size
        pub.origin = conn
        pub.origin_cid = conn.cid
        pub.disguised = False
        if conn.memo_match == NULL or conn.memo_match.stale \
                or conn.memo_sweeps != interest.sweeps \
                or conn.memo.tail != pub.subject_len \
                or memcmp(conn.memo.data, pub.subject, pub.subject_len) != 0:
            self._memoize(conn, interest, pub)
        if conn.pedantic and not conn.memo_legal:
            self._complain(conn)
        if (conn.guarded and not self._is_allowed(conn, interest, pub)) \
                or (pub.reply_len and self._reply_is_reserved(conn, pub)):
            return
        if conn.verbose:
            append(&conn.out, b"+OK\r\n", 5)
            self._mark(conn)
        if self._deliver(conn.memo_match, pub) == 0 and conn.no_responders and pub.reply_len:
            self._no_responders(conn, interest, pub)

    cdef void _memoize(self, Conn *conn, Interest interest, Pub *pub) noexcept:
        """Remember what this subject matches; what was allowed stays so while it is the same."""
        if conn.memo_match == NULL or conn.memo.tail != pub.subject_len \
                or memcmp(conn.memo.data, pub.subject, pub.subject_len) != 0:
            conn.memo.head = conn.memo.tail = 0
            append(&conn.memo, pub.subject, pub.subject_len)
            conn.memo_legal = subject_is_legal(pub.subject, pub.subject_len)
            conn.memo_allowed = ASK
        conn.memo_match = interest.lookup(pub.subject, pub.subject_len)
        conn.memo_sweeps = interest.sweeps

    cdef bint _is_allowed(self, Conn *conn, Interest interest, Pub *pub) noexcept:
        """Ask the handler, unless it said yes to this subject for good."""
        if conn.memo_allowed == YES:
            return True
        if self.replies:
            self._tell_replies()  # a reply may be what makes this publish legal
        try:
            conn.memo_allowed = self.handler.may_publish(conn.cid, pub.subject[:pub.subject_len])
        except Exception:
            self._failed(conn, "checking a permission failed cid=%d")
        if conn.closed or not conn.memo_allowed:
            return False
        # The handler may have subscribed, configured or moved: look again.
        conn.memo_match = (<Interest>conn.interest).lookup(pub.subject, pub.subject_len)
        conn.memo_sweeps = (<Interest>conn.interest).sweeps
        return True

    cdef bint _reply_is_reserved(self, Conn *conn, Pub *pub) noexcept:
        """Refuse a client's message whose reply subject is one that only servers make up."""
        if not starts_reserved(pub.reply, pub.reply_len):
            return False
        append(&conn.out, b"-ERR 'Permissions Violation for Publish with Reply of \"", 55)
        append(&conn.out, pub.reply, pub.reply_len)
        append(&conn.out, b"\"'\r\n", 4)
        self._mark(conn)
        return True

    cdef void _tell_replies(self) noexcept:
        """Tell the handler which reply subjects reached tracked connections, in their order."""
        cdef list told = self.replies
        cdef Py_ssize_t i
        self.replies = []
        for i in range(0, len(told), 2):
            try:
                self.handler.on_delivered_reply(told[i], told[i + 1])
            except Exception:
                log.exception("noting a reply subject failed cid=%d", told[i])

    cdef void _no_responders(self, Conn *conn, Interest interest, Pub *pub) noexcept:
        """Tell a requester that nobody listens, on the inbox that it waits at."""
        cdef Match *match = interest.match_once(pub.reply, pub.reply_len)
        cdef char block[CONTROL_LINE + 64]
        cdef Py_ssize_t size = 0
        cdef Pub answer
        cdef uint32_t i
        memcpy(block, b"NATS/1.0 503\r\nNats-Subject: ", 28)
        memcpy(block + 28, pub.subject, pub.subject_len)
        memcpy(block + 28 + pub.subject_len, b"\r\n\r\n", 4)
        size = 32 + pub.subject_len
        memset(&answer, 0, sizeof(Pub))
        answer.subject = pub.reply
        answer.subject_len = pub.reply_len
        answer.body = block
        answer.headers_len = size
        for i in range(match.plain_count):
            if match.plain[i].client == <void *>conn:
                # not a message of the subscription: its maximum does not count this
                self._write_message(conn, match.plain[i], &answer)
                return

    cdef void _control(self, Conn *conn, int verb, const char *args, const char *end) noexcept:
        """Everything that is not a message; what needs judgement goes to the handler."""
        if verb == PING:
            self._ping(conn)
        elif verb == PONG:
            self._call_pong(conn)
        elif verb == SUB:
            self._sub(conn, args, end)
        elif verb == UNSUB:
            self._unsub(conn, args, end)
        elif verb == CONNECT:
            self._call_connect(conn, args, end)
        elif verb == INFO:
            self._call_info(conn, args, end)
        elif verb == ERR:
            self._refuse(conn, BAD_ARGUMENTS)

    cdef void _ping(self, Conn *conn) noexcept:
        append(&conn.out, b"PONG\r\n", 6)
        self._mark(conn)
        if conn.pinged:
            return
        conn.pinged = True
        try:
            self.handler.on_ping(conn.cid)
        except Exception:
            self._failed(conn, "answering the first ping failed cid=%d")

    cdef void _call_pong(self, Conn *conn) noexcept:
        try:
            self.handler.on_pong(conn.cid)
        except Exception:
            self._failed(conn, "taking a pong failed cid=%d")

    cdef void _call_connect(self, Conn *conn, const char *at, const char *end) noexcept:
        try:
            self.handler.on_connect(conn.cid, at[:end - at])
        except Exception:
            self._failed(conn, "taking CONNECT failed cid=%d")

    cdef void _call_info(self, Conn *conn, const char *at, const char *end) noexcept:
        try:
            self.handler.on_info(conn.cid, at[:end - at])
        except Exception:
            self._failed(conn, "taking INFO failed cid=%d")

    cdef void _sub(self, Conn *conn, const char *at, const char *end) noexcept:
        cdef Word words[3]
        cdef int count = split_words(at, end, words, 3, True)
        cdef bytes queue = b""
        if count != 2 and count != 3:
            self._refuse(conn, BAD_ARGUMENTS)
            return
        if count == 3:
            queue = words[1].at[:words[1].size]
        try:
            self.handler.on_sub(
                conn.cid, words[0].at[:words[0].size], queue,
                words[count - 1].at[:words[count - 1].size])
        except Exception:
            self._failed(conn, "taking SUB failed cid=%d")

    cdef void _unsub(self, Conn *conn, const char *at, const char *end) noexcept:
        cdef Word words[2]
        cdef int count = split_words(at, end, words, 2, True)
        cdef Py_ssize_t most = 0
        if count != 1 and count != 2:
            self._refuse(conn, BAD_ARGUMENTS)
            return
        if count == 2:
            most = read_size(words[1].at, words[1].size)
        try:
            self.handler.on_unsub(conn.cid, words[0].at[:words[0].size], most if most > 0 else 0)
        except Exception:
            self._failed(conn, "taking UNSUB failed cid=%d")

    cdef void _failed(self, Conn *conn, str what) noexcept:
        """A fault of ours ends the one connection that met it, and is logged."""
        log.exception(what, conn.cid)
        self._close(conn, CLOSED_ON_BUG)

    # ---- moving bytes ------------------------------------------------------------------------

    def poll(self):
        """Read every readable connection once, deliver, flush; call it when ``fd`` is readable."""
        cdef epoll_event events[EVENTS]
        cdef int count, i
        cdef Py_ssize_t total = 0
        if self.busy:
            return
        count = epoll_wait(self.fd, events, EVENTS, 0)
        self.busy += 1
        for i in range(count):
            total += self._event(<Conn *>events[i].data.ptr, events[i].events)
            if total >= CHUNK_SIZE:
                break
        self.busy -= 1
        self._end_of_chunk()

    cdef Py_ssize_t _event(self, Conn *conn, uint32_t what) noexcept:
        cdef uint64_t ignored
        if conn == NULL:
            eventfd_read(self.wake_fd, &ignored)
            return 0
        if <void *>conn == <void *>&self.timer_fd:
            eventfd_read(self.timer_fd, &ignored)
            self._end_stalls()
            return 0
        if conn.closed:
            return 0
        if what & EPOLLOUT:
            self._send(conn)
            self._mark(conn)
            if queued(conn) < conn.max_pending >> 1:
                self._release(<void *>conn)
        if conn.stalled_on != NULL:
            if what & (EPOLLERR | EPOLLHUP):
                self._close(conn, CLOSED_BY_CLIENT)
            return 0
        if what & (EPOLLIN | EPOLLERR | EPOLLHUP):
            return self._read(conn)
        return 0

    cdef Py_ssize_t _read(self, Conn *conn) noexcept:
        """Receive once and parse. A short remainder is put in front of what arrives, so that

        operations lie in one piece; a long one (a large payload) is completed in place.
        """
        cdef Py_ssize_t kept = conn.inbox.tail
        cdef ssize_t got
        if kept > KEEP_SIZE:
            got = conn.needs + 1 - kept
            if got < 1 or got > READ_SIZE:
                got = READ_SIZE
            got = recv(conn.fd, reserve(&conn.inbox, got), got, MSG_DONTWAIT)
            if got <= 0:
                self._ended(conn, got)
                return 0
            conn.inbox.tail += got
            self._parse_inbox(conn)
            return got
        got = recv(conn.fd, self.chunk + kept, READ_SIZE, MSG_DONTWAIT)
        if got <= 0:
            self._ended(conn, got)
            return 0
        memcpy(self.chunk, conn.inbox.data, kept)
        conn.inbox.tail = 0
        self._take_in(conn, self.chunk, kept + got)
        return got

    cdef void _ended(self, Conn *conn, ssize_t got) noexcept:
        if got == 0 or (errno != EAGAIN and errno != EINTR):
            self._close(conn, CLOSED_BY_CLIENT)

    cdef void _take_in(self, Conn *conn, const char *data, Py_ssize_t size) noexcept:
        """Parse ``data`` and keep what is left over."""
        cdef Py_ssize_t used = 0
        if size >= conn.needs:
            used = self._parse(conn, data, size)
        if not conn.closed and used < size:
            append(&conn.inbox, data + used, size - used)
        elif conn.inbox.room > KEEP_SIZE:
            discard(&conn.inbox)

    cdef void _parse_inbox(self, Conn *conn) noexcept:
        cdef Py_ssize_t used
        if conn.inbox.tail < conn.needs:
            return
        used = self._parse(conn, conn.inbox.data, conn.inbox.tail)
        if conn.closed:
            return
        drain(&conn.inbox, used)
        if conn.inbox.tail == 0:
            if conn.inbox.room > KEEP_SIZE:
                discard(&conn.inbox)
        elif conn.inbox.head:
            to_front(&conn.inbox)

    def feed(self, uint32_t cid, bytes data not None):
        """Take bytes that arrived on a fed connection, deliver and flush."""
        cdef Peer peer = self.peers.get(cid)
        if peer is None:
            return
        if peer.conn.parsing:
            raise RuntimeError("feed inside a callback about the same connection")
        self.busy += 1
        if peer.conn.inbox.tail:
            append(&peer.conn.inbox, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            self._parse_inbox(peer.conn)
        else:
            self._take_in(peer.conn, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        self.busy -= 1
        if not self.busy:
            self._end_of_chunk()

    def take(self, uint32_t cid, Py_ssize_t most=0):
        """Return and forget what a fed connection has to send, at most ``most`` bytes if given."""
        cdef Peer peer = self._peer(cid)
        cdef Buffer *out = &peer.conn.out
        cdef Py_ssize_t size = pending(out)
        cdef bytes data
        if 0 < most < size:
            size = most
        data = PyBytes_FromStringAndSize(out.data + out.head, size)
        drain(out, size)
        if size:
            peer.conn.stuck_since = 0
        if out.tail == 0:
            self._give_back(out)
        self._release(<void *>peer.conn)
        return data

    def flush(self):
        """Deliver to dirty sinks and send dirty outboxes. Inside a callback the hub does it later."""
        if not self.busy:
            self._end_of_chunk()

    cdef void _end_of_chunk(self) noexcept:
        cdef int rounds = 0
        self.busy += 1
        while (self.dirty_sinks or self.dirty_count) and rounds < ROUNDS:
            if self.replies:
                self._tell_replies()
            if self.dirty_sinks:
                self._serve_sinks()
            else:
                self._flush_outboxes()
            rounds += 1
        if self.dirty_sinks or self.dirty_count:
            self._flush_outboxes()
            eventfd_write(self.wake_fd, 1)
        self._tell_watchers()
        self.busy -= 1
        self._bury()

    cdef void _tell_watchers(self) noexcept:
        """Subscriptions that reached their maximum and closed connections end interest too."""
        cdef Interest interest
        for interest in self.hooked:
            if interest.news:
                interest.tell()

    cdef void _serve_sinks(self) noexcept:
        cdef list ready = self.dirty_sinks
        cdef SinkSlot slot
        cdef Batch batch
        self.dirty_sinks = []
        for slot in ready:
            batch = slot.batch
            slot.batch = None
            slot.dirty = False
            if slot.removed or batch is None:
                continue
            try:
                slot.sink.deliver(batch)
            except Exception:
                log.exception("a sink failed sink=%r messages=%d", slot.sink, len(batch))

    cdef void _flush_outboxes(self) noexcept:
        """Send each dirty outbox once. Handlers told of a close may dirty more; those wait too."""
        cdef Py_ssize_t i
        cdef Py_ssize_t count = self.dirty_count
        cdef Conn *conn
        for i in range(count):
            conn = self.dirty[i]
            conn.dirty = False
            if conn.closed:
                continue
            if conn.slow:
                self._close(conn, CLOSED_AS_SLOW)
            elif conn.fd < 0:
                self._tell_output(conn)
            else:
                if not conn.blocked:
                    self._send(conn)
                if conn.broken:
                    self._close(conn, CLOSED_ON_WRITE)
            # Answers count like messages: whoever asks and never reads is closed too.
            if not conn.closed and pending(&conn.out) > conn.max_pending:
                self._close(conn, CLOSED_AS_SLOW)
        self.dirty_count -= count
        memmove(self.dirty, self.dirty + count, self.dirty_count * sizeof(Conn *))

    cdef void _tell_output(self, Conn *conn) noexcept:
        try:
            self.handler.on_output(conn.cid)
        except Exception:
            self._failed(conn, "handing over output failed cid=%d")

    def close(self):
        """Close every connection and the epoll descriptor."""
        cdef Peer peer
        cdef Interest interest
        self.busy += 1
        for peer in list(self.peers.values()):
            self._close(peer.conn, CLOSED_BY_SHUTDOWN)
        self.busy -= 1
        self._bury()
        for interest in self.hooked:
            interest.resume_hooks = [h for h in interest.resume_hooks if h != self._resume]
        self.hooked.clear()
        self.dirty_sinks.clear()
        self._close_own()

    # ---- publishing from Python --------------------------------------------------------------

    def publish(
        self, Interest interest not None, bytes subject not None, bytes reply not None,
        bytes headers not None, bytes payload not None, bytes shown not None=b"",
        uint32_t origin=0,
    ):
        """Route a message by ``subject`` and return how many received it; flush sends it.

        Receivers see ``shown`` as its subject when given.
        """
        cdef bytes body = headers + payload if headers else payload
        cdef Match *match = interest.match_once(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        cdef Pub pub
        memset(&pub, 0, sizeof(Pub))
        if shown:
            subject = shown
            pub.disguised = True
        pub.subject = PyBytes_AS_STRING(subject)
        pub.subject_len = PyBytes_GET_SIZE(subject)
        pub.reply = PyBytes_AS_STRING(reply)
        pub.reply_len = PyBytes_GET_SIZE(reply)
        pub.body = PyBytes_AS_STRING(body)
        pub.headers_len = PyBytes_GET_SIZE(headers)
        pub.payload_len = PyBytes_GET_SIZE(payload)
        pub.origin_cid = origin
        return self._deliver(match, &pub)

    def publish_acks(
        self, Interest interest not None, Batch batch not None, Py_ssize_t start,
        Py_ssize_t count, uint64_t first_seq, bytes prefix not None, bytes suffix not None,
    ):
        """Answer entries ``start`` to ``start + count`` that have a reply subject.

        The payload is ``prefix``, the decimal of ``first_seq`` plus the entry's place, ``suffix``.
        """
        cdef Py_ssize_t room = PyBytes_GET_SIZE(prefix) + 20 + PyBytes_GET_SIZE(suffix)
        cdef char *payload
        cdef const Entry *entry
        cdef Py_ssize_t i, delivered = 0
        cdef char *to
        cdef Pub pub
        if start < 0 or count < 0 or start + count > batch.length:
            raise IndexError("no such entries in the batch")
        memset(&pub, 0, sizeof(Pub))
        payload = <char *>must_alloc(room)
        memcpy(payload, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
        pub.body = payload
        for i in range(count):
            entry = batch.entry(start + i)
            if entry.reply_len == 0:
                continue
            to = payload + PyBytes_GET_SIZE(prefix)
            to += write_decimal(to, first_seq + <uint64_t>i)
            memcpy(to, PyBytes_AS_STRING(suffix), PyBytes_GET_SIZE(suffix))
            pub.payload_len = to + PyBytes_GET_SIZE(suffix) - payload
            pub.subject = <const char *>entry + sizeof(Entry) + entry.subject_len
            pub.subject_len = entry.reply_len
            delivered += self._deliver(
                interest.match_once(pub.subject, pub.subject_len), &pub)
        free(payload)
        return delivered

    def publish_frames(
        self, Interest interest not None, bytes route not None, object frames not None,
        Py_ssize_t start, Py_ssize_t count, list replies not None,
    ):
        """Send records to ``route``, each under its own subject and ``replies[i]``."""
        cdef Py_buffer view
        cdef list offsets = frames.offsets
        cdef Py_ssize_t i, delivered = 0
        if start < 0 or count < 0 or start + count > len(offsets) or len(replies) < count:
            raise IndexError("no such frames, or fewer replies than frames")
        PyObject_GetBuffer(frames.buffer, &view, PyBUF_SIMPLE)
        try:
            for i in range(count):
                delivered += self._publish_frame(
                    interest, route, <const char *>view.buf, view.len, offsets[start + i],
                    replies[i])
        finally:
            PyBuffer_Release(&view)
        return delivered

    cdef Py_ssize_t _publish_frame(
        self, Interest interest, bytes route, const char *buffer, Py_ssize_t size,
        Py_ssize_t offset, bytes reply,
    ) except -1:
        cdef FrameHead head
        cdef const char *at
        cdef Pub pub
        cdef bytes body
        cdef Py_ssize_t extras
        if offset < 0 or offset + <Py_ssize_t>sizeof(FrameHead) > size:
            raise IndexError("a frame outside the buffer")
        memcpy(&head, buffer + offset, sizeof(FrameHead))
        extras = head.tag_len + head.node_len + head.meta_len
        if offset + FRAME_BODY + head.subject_len + extras + head.headers_len \
                + <Py_ssize_t>head.payload_len > size:
            raise IndexError("a frame outside the buffer")
        at = buffer + offset + FRAME_BODY
        memset(&pub, 0, sizeof(Pub))
        pub.disguised = True
        pub.subject = at
        pub.subject_len = head.subject_len
        pub.reply = PyBytes_AS_STRING(reply)
        pub.reply_len = PyBytes_GET_SIZE(reply)
        pub.body = at + head.subject_len + extras
        pub.headers_len = head.headers_len
        pub.payload_len = head.payload_len
        if extras and self.decorate is not None:
            body = self._decorated(&head, at + head.subject_len)
            pub.headers_len = len(body)
            body += pub.body[head.headers_len:head.headers_len + <Py_ssize_t>head.payload_len]
            pub.body = PyBytes_AS_STRING(body)
        return self._deliver(
            interest.match_once(PyBytes_AS_STRING(route), PyBytes_GET_SIZE(route)), &pub)

    cdef bytes _decorated(self, FrameHead *head, const char *at):
        """Return the header block with the record's tag, node and meta in it."""
        cdef bytes tag = at[:head.tag_len]
        at += head.tag_len
        cdef bytes node = at[:head.node_len]
        at += head.node_len
        cdef bytes meta = at[:head.meta_len]
        at += head.meta_len
        return self.decorate(at[:head.headers_len], tag, node, meta)

    def room(self, Interest interest not None, bytes subject not None):
        """Return how many bytes the fullest outbox that ``subject`` leads to still takes."""
        cdef Match *match = interest.match_once(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        cdef Py_ssize_t least = self.max_pending
        cdef uint32_t i, k
        for i in range(match.plain_count):
            least = min(least, room_of(match.plain[i]))
        for i in range(match.group_count):
            for k in range(match.groups[i].count):
                least = min(least, room_of(match.groups[i].subs[k]))
        return max(least, 0)


cdef enum:
    FRAME_BODY = 52


# The part of a frame's head that a delivery needs; ARCHITECTURE.md draws the whole.
cdef packed struct FrameHead:
    uint32_t magic
    uint32_t frame_len
    uint8_t kind
    uint8_t flags
    uint16_t subject_len
    uint32_t payload_len
    uint16_t headers_len
    uint16_t meta_len
    uint16_t tag_len
    uint8_t node_len
    uint8_t zero


cdef Py_ssize_t room_of(Sub *sub) noexcept:
    cdef Conn *conn = <Conn *>sub.client
    return conn.max_pending - queued(conn) if conn != NULL else 1 << 40


cdef void conn_free(Conn *conn) noexcept:
    discard(&conn.inbox)
    discard(&conn.out)
    discard(&conn.memo)
    free(conn.loans)
    free(conn)


cdef int checked(int answer) except -1:
    if answer < 0:
        raise OSError(errno, os.strerror(errno))
    return answer


cdef inline Py_ssize_t queued(const Conn *conn) noexcept nogil:
    return conn.out.tail - conn.out.head + conn.lent


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


cdef char *write_head(char *to, const Sub *sub, const Pub *pub, bint with_headers) noexcept nogil:
    """Write ``MSG subject sid [reply] `` and return where the sizes go."""
    if with_headers:
        to[0] = b"H"
        to += 1
    memcpy(to, b"MSG ", 4)
    to += 4
    memcpy(to, pub.subject, pub.subject_len)
    to += pub.subject_len
    memcpy(to, sub.sid, sub.sid_len)
    to += sub.sid_len
    if pub.reply_len:
        memcpy(to, pub.reply, pub.reply_len)
        to += pub.reply_len
        to[0] = b" "
        to += 1
    return to


cdef Py_ssize_t write_tail(char *to, const Pub *pub, bint with_headers) noexcept nogil:
    """Write ``[headers size] size CRLF body CRLF``, without the headers for who cannot read them."""
    cdef char *at = to
    cdef Py_ssize_t skipped = 0 if with_headers else pub.headers_len
    cdef Py_ssize_t size = pub.headers_len + pub.payload_len - skipped
    if with_headers:
        at += write_decimal(at, pub.headers_len)
        at[0] = b" "
        at += 1
    at += write_decimal(at, size)
    at[0] = b"\r"
    at[1] = b"\n"
    memcpy(at + 2, pub.body + skipped, size)
    at += 2 + size
    at[0] = b"\r"
    at[1] = b"\n"
    return at + 2 - to


cdef inline bint body_is_sound(
    const char *body, const char *end, Py_ssize_t size
) noexcept nogil:
    """False once what is there cannot be ``size`` bytes and CRLF any more."""
    return (end - body <= size or body[size] == b"\r") \
        and (end - body <= size + 1 or body[size + 1] == b"\n")


cdef bint starts_reserved(const char *reply, Py_ssize_t size) noexcept nogil:
    """Names that servers make up for service imports, acks and gateways."""
    if reply[0] == b"_":
        return size > 3 and (memcmp(reply, b"_R_.", 4) == 0 or (
            size > 5 and memcmp(reply, b"_GR_.", 5) == 0))
    return reply[0] == b"$" and size > 8 and memcmp(reply, b"$JS.ACK.", 8) == 0


cdef check_patterns(tuple patterns):
    cdef bytes pattern
    for pattern in patterns:
        if pattern is None or not pattern_is_legal(
                PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern)):
            raise ValueError(f"not a subject: {pattern!r}")
