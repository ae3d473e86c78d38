# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Connections: opened, held back, closed. Their bytes are the outboxes' matter."""

import logging
import os
import time

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset
from posix.unistd cimport close as close_fd

from millstream.kernel._buffer cimport append, discard, pending
from millstream.kernel._conn cimport (
    CLOSED_AS_SLOW, CLOSED_AT_DEADLINE, CLOSED_ON_BUG, Conn, queued,
)
from millstream.kernel._interest cimport Interest, SinkSlot, Sub, sub_pattern, sub_queue, sub_sid
from millstream.kernel._memory cimport must_alloc
from millstream.kernel._outboxes cimport Outboxes, checked
from millstream.kernel._sids cimport sids_discard
from millstream.kernel._system cimport (
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLIN, MSG_DONTWAIT, SHUT_WR, SO_LINGER, SOL_SOCKET,
    epoll_ctl, epoll_event, getpeername, linger, ntohs, recv, setsockopt, shutdown, sockaddr,
    sockaddr_in6, socklen_t,
)

log = logging.getLogger(__name__)

cdef enum:
    WAITS = 5                 # so that one read is followed by ten milliseconds of waiting at most


cdef class Peer:
    """What Python owns of a connection."""

    def __dealloc__(self):
        sids_discard(&self.subs)


cdef class Connections:
    """Every connection by its id. Whatever Python is called from here may close any of them."""

    def __cinit__(self, Outboxes outboxes not None, object handler not None, object on_closing):
        self.outboxes = outboxes
        self.handler = handler
        self.on_closing = on_closing
        self.seed = int.from_bytes(os.urandom(8), "little")
        self.peers = {}
        self.graveyard = []
        self.stalled = []
        self.hooked = []

    cdef uint32_t attach(self, int fd, Interest interest) except 0:
        """Take over a connected, non-blocking socket and return the connection's id."""
        cdef Conn *conn
        cdef epoll_event event
        if fd < 0:
            raise ValueError("not a file descriptor")
        conn = self.open(fd, interest)
        event.events = EPOLLIN
        event.data.ptr = conn
        try:
            checked(epoll_ctl(self.outboxes.fd, EPOLL_CTL_ADD, fd, &event))
        except OSError:
            del self.peers[conn.cid]
            conn_free(conn)
            raise
        return conn.cid

    cdef Conn *open(self, int fd, Interest interest) except NULL:
        """Begin a connection; without a socket (-1) its bytes come by feed and go by take."""
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
        peer.subs.seed = self.seed
        self.peers[conn.cid] = peer
        self.hook(interest)
        return conn

    cdef hook(self, Interest interest):
        if not any(known is interest for known in self.hooked):
            self.hooked.append(interest)
            interest.resume_hooks.append(self._resume)

    cdef unhook(self):
        cdef Interest interest
        for interest in self.hooked:
            interest.resume_hooks = [h for h in interest.resume_hooks if h != self._resume]
        self.hooked.clear()

    cdef move(self, uint32_t cid, Interest interest):
        """Bind a connection that has no subscriptions to another subject space."""
        cdef Peer peer = self.peer(cid)
        if peer.subs.count:
            raise ValueError("a connection with subscriptions cannot move")
        peer.interest = interest
        peer.conn.interest = <void *>interest
        peer.conn.memo_match = NULL
        self.hook(interest)

    cdef write(self, uint32_t cid, bytes data):
        """Queue raw protocol bytes for a connection; a closed one swallows them."""
        cdef Peer peer = self.peers.get(cid)
        if peer is None:
            return
        append(&peer.conn.out, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        self.outboxes.mark(peer.conn)

    cdef close_named(self, uint32_t cid, int reason):
        cdef Peer peer = self.peers.get(cid)
        if peer is None:
            return
        self.busy += 1
        try:
            self.close(peer.conn, reason)
            peer.interest.tell()
        finally:
            self.busy -= 1
        self.bury()

    cdef bint take_activity(self, uint32_t cid) except -1:
        cdef Peer peer = self.peers.get(cid)
        if peer is None:
            return False
        was = peer.conn.active
        peer.conn.active = False
        return was

    cdef dict counted(self, uint32_t cid):
        cdef Peer peer = self.peer(cid)
        return {
            "in_msgs": peer.conn.in_msgs,
            "in_bytes": peer.conn.in_bytes,
            "out_msgs": peer.conn.out_msgs,
            "out_bytes": peer.conn.out_bytes,
            "stalls": peer.conn.stalls,
            "pending_bytes": queued(peer.conn),
            "outbox_room": peer.conn.out.room,
            "unfinished_bytes": pending(&peer.conn.inbox),
            "subscriptions": peer.subs.count,
            "start_ns": peer.conn.start_ns,
            "last_ns": peer.conn.last_ns,
            "port": peer.conn.port,
        }

    cdef list subscriptions(self, uint32_t cid, Py_ssize_t most):
        cdef Peer peer = self.peer(cid)
        cdef list found = []
        cdef Sub *sub
        cdef uint32_t i
        for i in range(peer.subs.size):
            if len(found) == most:
                break
            sub = peer.subs.slots[i]
            if sub != NULL:
                found.append((
                    sub_pattern(sub)[:sub.pattern_len], sub_queue(sub)[:sub.queue_len],
                    sub_sid(sub)[1:sub.sid_len - 1], sub.delivered, sub.limit))
        return found

    cdef Peer peer(self, uint32_t cid):
        cdef Peer peer = self.peers.get(cid)
        if peer is None:
            raise KeyError(cid)
        return peer

    cdef Conn *conn(self, uint32_t cid) except NULL:
        return self.peer(cid).conn

    cdef void close(self, Conn *conn, int reason) noexcept:
        """Close once: subscriptions go, queued output goes out if it fits, the handler hears of it."""
        cdef Peer peer = <Peer>conn.peer
        if conn.closed:
            return
        self._tell_closing(conn, reason)
        self.drop_subscriptions(peer)
        if conn.fd >= 0:
            self.outboxes.send(conn)
        elif queued(conn):
            self._last_output(conn)
        if conn.closed:
            return
        conn.closed = True
        if conn.fd >= 0:
            self._hang_up(conn)
        self.release(<void *>conn)
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

    cdef void close_all(self, int reason) noexcept:
        cdef Peer peer
        for peer in list(self.peers.values()):
            self.close(peer.conn, reason)

    cdef void _tell_closing(self, Conn *conn, int reason) noexcept:
        """Let an observer look at the connection while everything about it is still there."""
        if self.on_closing is None or conn.leaving:
            return
        conn.leaving = True
        try:
            self.on_closing(conn.cid, reason)
        except Exception:
            log.exception("recording a closed connection failed cid=%d", conn.cid)

    cdef void drop_subscriptions(self, Peer peer) noexcept:
        cdef uint32_t i
        for i in range(peer.subs.size):
            if peer.subs.slots[i] != NULL:
                peer.interest.remove(peer.subs.slots[i])
        sids_discard(&peer.subs)
        if peer.wishes:
            drop_wishes(peer, None)

    cdef void _last_output(self, Conn *conn) noexcept:
        try:
            self.handler.on_output(conn.cid)
        except Exception:
            log.exception("handing over the last output failed cid=%d", conn.cid)

    cdef void tell_output(self, Conn *conn) noexcept:
        try:
            self.handler.on_output(conn.cid)
        except Exception:
            self.failed(conn, "handing over output failed cid=%d")

    cdef void failed(self, Conn *conn, str what) noexcept:
        """A fault of ours ends the one connection that met it, and is logged."""
        log.exception(what, conn.cid)
        self.close(conn, CLOSED_ON_BUG)

    cdef void _hang_up(self, Conn *conn) noexcept:
        """Close the socket so that what was sent arrives: unread input would turn into a reset."""
        cdef char unread[16384]
        cdef linger at_once
        cdef int i
        if conn.oversized:  # whoever sends on behind the error learns it by a reset, as elsewhere
            at_once.l_onoff, at_once.l_linger = 1, 0
            if conn.resets:
                setsockopt(conn.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once))
        else:
            shutdown(conn.fd, SHUT_WR)
            for i in range(256):
                if recv(conn.fd, unread, sizeof(unread), MSG_DONTWAIT) <= 0:
                    break
        # A copy of the descriptor, as a fork makes it, would keep epoll telling of what is freed.
        epoll_ctl(self.outboxes.fd, EPOLL_CTL_DEL, conn.fd, NULL)
        close_fd(conn.fd)

    cdef void bury(self) noexcept:
        cdef Peer peer
        if self.busy or not self.graveyard:
            return
        self.outboxes.forget_closed()
        for peer in self.graveyard:
            conn_free(peer.conn)
            peer.conn = NULL
        self.graveyard.clear()

    # ---- publishers that wait, clients that do not read ---------------------------------------

    cdef void stall(self, Conn *conn, void *on, bint is_client) noexcept:
        """Stop reading from a publisher until what it waits for (a sink or a client) has room."""
        if is_client and not self.holds_publishers:
            return
        conn.stalled_on = on
        conn.stalled_by_client = is_client
        conn.waits = 0
        conn.stalls += 1
        self.stalls += 1
        self.stalled.append(<Peer>conn.peer)
        self.outboxes.watch(conn)
        if is_client:
            conn.taken_before = (<Conn *>on).taken
            self.outboxes.start_timer()

    cdef void release(self, void *on) noexcept:
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
            self.outboxes.watch(peer.conn)
            if peer.conn.fd < 0:
                self.tell_output(peer.conn)
        self.busy -= 1

    def _resume(self, SinkSlot slot):
        self.release(<void *>slot)

    cdef void end_stalls(self) noexcept:
        """Publishers have waited for slow clients once more.

        A client that takes something is waited for a little longer. One that takes nothing is
        not: it fills up and is closed, so a stuck client slows its publishers for a moment only.
        """
        cdef Peer peer
        for peer in list(self.stalled):
            if peer.conn.stalled_on == NULL or not peer.conn.stalled_by_client:
                continue
            if self._is_worth_waiting(peer.conn, <Conn *>peer.conn.stalled_on):
                self.outboxes.start_timer()
            else:
                self.release(peer.conn.stalled_on)

    cdef bint _is_worth_waiting(self, Conn *publisher, Conn *client) noexcept:
        if client.taken == publisher.taken_before:
            client.hopeless = True
            return False
        publisher.taken_before = client.taken
        publisher.waits += 1
        return publisher.waits < WAITS

    cdef tick(self, double now):
        self.end_stalls()
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
            self.close_named(cid, CLOSED_AT_DEADLINE)


cdef void conn_free(Conn *conn) noexcept:
    discard(&conn.inbox)
    discard(&conn.out)
    discard(&conn.memo)
    discard(&conn.stem)
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
