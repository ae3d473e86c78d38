# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Connections: opened, configured, held back, closed. Their bytes are the outboxes' matter."""

import logging
import os
import time

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport errno
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset
from posix.unistd cimport close as close_fd

from millstream.kernel._buffer cimport append, discard, pending
from millstream.kernel._conn cimport (
    CLOSED_AS_SLOW, CLOSED_AT_DEADLINE, CLOSED_ON_BUG, Conn, queued,
)
from millstream.kernel._interest cimport Interest, SinkSlot, Sub
from millstream.kernel._memory cimport must_alloc
from millstream.kernel._outboxes cimport Outboxes
from millstream.kernel._system cimport (
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLIN, MSG_DONTWAIT, SHUT_WR, epoll_ctl, epoll_event,
    getpeername, ntohs, recv, shutdown, sockaddr, sockaddr_in6, socklen_t,
)

log = logging.getLogger(__name__)

cdef enum:
    WAITS = 5                 # so that one read is followed by ten milliseconds of waiting at most


cdef class Peer:
    """What Python owns of a connection."""


cdef class Connections(Outboxes):
    """Every connection by its id. Whatever Python is called from here may close any of them."""

    def __cinit__(
        self, object handler not None, *, Py_ssize_t max_payload=1 << 20,
        Py_ssize_t max_pending=8 << 20, double write_deadline=10.0,
        Py_ssize_t max_control_line=4096, bint holds_publishers=True, object on_closing=None,
        **others,
    ):
        self.handler = handler
        self.on_closing = on_closing
        self.max_control_line = max_control_line
        self.holds_publishers = holds_publishers
        self.max_payload = max_payload
        self.max_pending = max_pending
        self.write_deadline = write_deadline
        self.peers = {}
        self.graveyard = []
        self.stalled = []
        self.hooked = []

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
        bint no_responders, bint guarded=False, bint track_replies=False, bint mapped=False,
        max_payload=None,
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
        conn.mapped = mapped
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
            "stalls": peer.conn.stalls,
            "pending_bytes": queued(peer.conn),
            "outbox_room": peer.conn.out.room,
            "unfinished_bytes": pending(&peer.conn.inbox),
            "subscriptions": len(peer.subs),
            "start_ns": peer.conn.start_ns,
            "last_ns": peer.conn.last_ns,
            "port": peer.conn.port,
        }

    def subscriptions(self, uint32_t cid, Py_ssize_t most=-1):
        """Return a connection's subscriptions: (subject, queue, sid, delivered, limit) each.

        Only the first ``most`` of them unless that is negative.
        """
        cdef Sub *sub
        found = []
        for sid, address in self._peer(cid).subs.items():
            if len(found) == most:
                break
            sub = <Sub *><size_t>address
            found.append(
                (sub.pattern[:sub.pattern_len], sub.queue[:sub.queue_len], sid, sub.delivered, sub.limit))
        return found

    cdef Peer _peer(self, uint32_t cid):
        cdef Peer peer = self.peers.get(cid)
        if peer is None:
            raise KeyError(cid)
        return peer

    cdef Conn *_conn(self, uint32_t cid) except NULL:
        return self._peer(cid).conn

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

    cdef void _unsubscribe_all(self, Peer peer) noexcept:
        for address in peer.subs.values():
            peer.interest.remove(<Sub *><size_t>address)
        peer.subs.clear()
        if peer.wishes:
            drop_wishes(peer, None)

    cdef void _last_output(self, Conn *conn) noexcept:
        try:
            self.handler.on_output(conn.cid)
        except Exception:
            log.exception("handing over the last output failed cid=%d", conn.cid)

    cdef void _tell_output(self, Conn *conn) noexcept:
        try:
            self.handler.on_output(conn.cid)
        except Exception:
            self._failed(conn, "handing over output failed cid=%d")

    cdef void _failed(self, Conn *conn, str what) noexcept:
        """A fault of ours ends the one connection that met it, and is logged."""
        log.exception(what, conn.cid)
        self._close(conn, CLOSED_ON_BUG)

    cdef void _hang_up(self, Conn *conn) noexcept:
        """Close the socket so that what was sent arrives: unread input would turn into a reset."""
        cdef char unread[16384]
        cdef int i
        shutdown(conn.fd, SHUT_WR)
        for i in range(256):
            if recv(conn.fd, unread, sizeof(unread), MSG_DONTWAIT) <= 0:
                break
        # A copy of the descriptor, as a fork makes it, would keep epoll telling of what is freed.
        epoll_ctl(self.fd, EPOLL_CTL_DEL, conn.fd, NULL)
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

    # ---- publishers that wait, clients that do not read ---------------------------------------

    cdef void _stall(self, Conn *conn, void *on, bint is_client) noexcept:
        """Stop reading from a publisher until what it waits for (a sink or a client) has room."""
        if is_client and not self.holds_publishers:
            return
        conn.stalled_on = on
        conn.stalled_by_client = is_client
        conn.waits = 0
        conn.stalls += 1
        self.stalls += 1
        self.stalled.append(<Peer>conn.peer)
        self._watch(conn)
        if is_client:
            conn.taken_before = (<Conn *>on).taken
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

    cdef void _end_stalls(self) noexcept:
        """Publishers have waited for slow clients once more.

        A client that takes something is waited for a little longer. One that takes nothing is
        not: it fills up and is closed, so a stuck client slows its publishers for a moment only.
        """
        cdef Peer peer
        for peer in list(self.stalled):
            if peer.conn.stalled_on == NULL or not peer.conn.stalled_by_client:
                continue
            if self._is_worth_waiting(peer.conn, <Conn *>peer.conn.stalled_on):
                self._start_timer()
            else:
                self._release(peer.conn.stalled_on)

    cdef bint _is_worth_waiting(self, Conn *publisher, Conn *client) noexcept:
        if client.taken == publisher.taken_before:
            client.hopeless = True
            return False
        publisher.taken_before = client.taken
        publisher.waits += 1
        return publisher.waits < WAITS

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


cdef void conn_free(Conn *conn) noexcept:
    discard(&conn.inbox)
    discard(&conn.out)
    discard(&conn.memo)
    free(conn.loans)
    free(conn)


cdef int port_of(int fd) noexcept nogil:
    """Return the port at the other end of a socket, 0 where there is none to tell."""
    cdef sockaddr_in6 address
    cdef socklen_t size = sizeof(address)
    memset(&address, 0, sizeof(address))
    if fd < 0 or getpeername(fd, <sockaddr *>&address, &size) < 0:
        return 0
    return ntohs(address.sin6_port)


cdef Py_ssize_t drop_wishes(Peer peer, bytes account) noexcept:
    """Forget what a link wants, in one account or in all; return how much that was."""
    cdef list keys = [key for key in peer.wishes if account is None or key[0] == account]
    cdef Interest interest
    for key in keys:
        interest = peer.spaces[key[0]]
        interest.remove(<Sub *><size_t>peer.wishes.pop(key))
    return len(keys)
