# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Turns: what happens when the epoll descriptor is readable. Read, parse, serve sinks, flush.

Nothing in here blocks and nothing recurses: whatever Python code is called (the handler, a sink)
may call back into the hub, which only marks connections and sinks dirty. They are served at the
end of the chunk, round after round, until none is left.
"""

import logging

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memmove

from millstream.kernel._batch cimport Batch
from millstream.kernel._buffer cimport Buffer, append, discard, drain, pending, reserve, to_front
from millstream.kernel._conn cimport (
    CLOSED_AS_SLOW, CLOSED_BY_CLIENT, CLOSED_BY_SHUTDOWN, CLOSED_ON_WRITE, Conn, note_taken,
    queued,
)
from millstream.kernel._connections cimport Peer
from millstream.kernel._interest cimport Interest, SinkSlot
from millstream.kernel._links cimport LinkOperations
from millstream.kernel._memory cimport must_alloc
from millstream.kernel._operations cimport Operations
from millstream.kernel._system cimport (
    EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, MSG_DONTWAIT, epoll_event, epoll_wait, eventfd_read,
    eventfd_write, monotonic_ns, recv, sched_yield,
)

log = logging.getLogger(__name__)

cdef enum:
    READ_SIZE = 512 * 1024
    LARGE_SIZE = 4096         # whoever is in the middle of so large an operation sends large ones
    LONG_READ = 1 << 20       # and is read in longer pieces: each client gets fewer, longer sends
    KEEP_SIZE = 64 * 1024     # a longer remainder is completed in the connection's own buffer
    CHUNK_SIZE = 4 << 20      # one poll reads about this much before it serves sinks and outboxes
    EVENTS = 256
    ROUNDS = 64               # then the rest waits for the next turn of the loop
    SMALL_SIZE = 16 * 1024    # a turn that read more than this is not somebody waiting for an answer
    LOOK_NS = 100_000         # so long the hub looks for more after a small turn
    TURN_NS = 250_000         # then whatever else the loop serves has its turn
    MOST_SLICES = 2           # used up in one turn: then the loop serves whatever else waits
    MOST_SKIPS_LOG2 = 7       # after looks in vain, at least one small turn in 128 is followed by one


cdef class Turns:
    """One turn reads each readable connection once, then everybody gets what is theirs."""

    def __cinit__(self, Operations operations not None):
        self.operations = operations
        self.links = LinkOperations(operations)
        self.delivery = operations.delivery
        self.connections = operations.connections
        self.outboxes = operations.outboxes
        # A client that is nearly full holds its publisher back, but takes what was read already: so
        # much must fit into the quarter that it has left.
        self.long_read = LONG_READ if self.connections.max_pending >= 4 * LONG_READ else READ_SIZE
        self.chunk = <char *>must_alloc(KEEP_SIZE + self.long_read)
        self.deferred = []
        self.posted = []
        self.unfinished = []

    def __dealloc__(self):
        free(self.chunk)

    cdef void poll(self) noexcept:
        """Take a turn, and perhaps some more.

        After a small exchange the answer to it is often a few microseconds away, which is less
        than going to sleep and being woken costs: the hub looks for it a moment longer.
        """
        cdef epoll_event events[EVENTS]
        cdef uint64_t until
        cdef int count
        if self.connections.busy:
            return
        self._turn(events, epoll_wait(self.outboxes.fd, events, EVENTS, 0))
        if not self._expects_more():
            return
        until = monotonic_ns() + TURN_NS
        while self.was_small and monotonic_ns() < until:
            count = self._await_more(events)
            if count <= 0:
                return
            self._turn(events, count)

    cdef void _turn(self, epoll_event *events, int count) noexcept:
        cdef int i
        cdef Py_ssize_t total = 0
        cdef list waiting
        cdef bint answers = len(self.posted) > 0  # to which somebody may answer in turn
        self.was_small = True
        self.slices = 0
        self.connections.busy += 1
        waiting = self.unfinished
        if waiting:
            self.unfinished = []
        for i in range(count):
            total += self._event(<Conn *>events[i].data.ptr, events[i].events)
            if total >= CHUNK_SIZE or self.slices >= MOST_SLICES:
                break
        if waiting:
            total += self._serve_unfinished(waiting)
        self._call_posted()
        self.connections.busy -= 1
        self._end_of_chunk()
        if (total == 0 and not answers) or total > SMALL_SIZE or self.unfinished:
            self.was_small = False
        if self.unfinished:
            eventfd_write(self.outboxes.wake_fd, 1)

    cdef bint _expects_more(self) noexcept:
        """Whether a look is due: after looks in vain, ever fewer turns are followed by one."""
        if not self.was_small:
            return False
        if self.turns_to_skip:
            self.turns_to_skip -= 1
            return False
        return True

    cdef int _await_more(self, epoll_event *events) noexcept:
        """Return how many events came within a moment; other threads and processes may run."""
        cdef int fd = self.outboxes.fd
        cdef int count = 0
        cdef uint64_t until = monotonic_ns() + LOOK_NS
        with nogil:
            while count == 0 and monotonic_ns() < until:
                sched_yield()
                count = epoll_wait(fd, events, EVENTS, 0)
        if count > 0:
            self.looks_in_vain = 0
        else:
            if self.looks_in_vain < MOST_SKIPS_LOG2:
                self.looks_in_vain += 1
            self.turns_to_skip = 1 << self.looks_in_vain
        return count

    cdef Py_ssize_t _event(self, Conn *conn, uint32_t what) noexcept:
        cdef uint64_t ignored
        if conn == NULL:
            eventfd_read(self.outboxes.wake_fd, &ignored)
            return 0
        if <void *>conn == <void *>&self.outboxes.timer_fd:
            eventfd_read(self.outboxes.timer_fd, &ignored)
            self.connections.end_stalls()
            return 0
        if conn.closed:
            return 0
        if what & EPOLLOUT:
            self.outboxes.send(conn)
            self.outboxes.mark(conn)
            if queued(conn) < conn.max_pending >> 1:
                self.connections.release(<void *>conn)
        if conn.resting:
            return 0
        if conn.stalled_on != NULL or conn.held:
            if what & (EPOLLERR | EPOLLHUP):
                self.connections.close(conn, CLOSED_BY_CLIENT)
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
            if conn.inbox.tail >= conn.needs:
                self._go_on(conn)
            return got
        got = self.long_read if conn.needs > LARGE_SIZE else READ_SIZE
        got = recv(conn.fd, self.chunk + kept, got, MSG_DONTWAIT)
        if got <= 0:
            self._ended(conn, got)
            return 0
        memcpy(self.chunk, conn.inbox.data, kept)
        conn.inbox.tail = 0
        self._take_in(conn, self.chunk, kept + got)
        return got

    cdef void _ended(self, Conn *conn, ssize_t got) noexcept:
        if got == 0 or (errno != EAGAIN and errno != EINTR):
            self.connections.close(conn, CLOSED_BY_CLIENT)

    cdef void _take_in(self, Conn *conn, const char *data, Py_ssize_t size) noexcept:
        """Parse ``data`` and keep what is left over."""
        cdef Py_ssize_t used = 0
        if size >= conn.needs:
            self.delivery.chunk_bytes = size + (size >> 1)  # an entry's head is longer than a PUB line
            used = self._parse(conn, data, size)
            if not conn.closed and self.operations.is_up():
                self._rest(conn, used < size)
        if not conn.closed and used < size:
            append(&conn.inbox, data + used, size - used)
        elif conn.inbox.room > KEEP_SIZE:
            discard(&conn.inbox)

    cdef Py_ssize_t _parse(self, Conn *conn, const char *data, Py_ssize_t size) noexcept:
        if conn.link:
            return self.links.parse(conn, data, size)
        return self.operations.parse(conn, data, size)

    cdef Py_ssize_t _go_on(self, Conn *conn) noexcept:
        """Parse what the inbox holds and return how much of it was used."""
        cdef bint was_resting = conn.resting
        cdef Py_ssize_t used = self._parse(
            conn, conn.inbox.data + conn.inbox.head, pending(&conn.inbox))
        if conn.closed:
            return used
        drain(&conn.inbox, used)
        self._rest(conn, self.operations.is_up() and conn.inbox.tail > 0)
        if conn.inbox.tail == 0:
            if conn.inbox.room > KEEP_SIZE:
                discard(&conn.inbox)
        elif not conn.resting:
            to_front(&conn.inbox)
        if was_resting and not conn.resting and conn.fd < 0:
            self.connections.tell_output(conn)  # it may be read from again
        return used

    cdef void _rest(self, Conn *conn, bint resting) noexcept:
        """After parsing: with operations left over, the connection goes on in the next turn."""
        self.slices += self.operations.is_up()
        if resting:
            self.unfinished.append(<Peer>conn.peer)
        if conn.resting != resting:
            conn.resting = resting
            self.outboxes.watch(conn)

    cdef Py_ssize_t _serve_unfinished(self, list waiting) noexcept:
        """Go on with connections whose turn was up, those that wait longest first; one at least."""
        cdef Peer peer
        cdef Py_ssize_t total = 0, served = 0
        cdef list rest = []
        for peer in waiting:
            if peer.conn == NULL or peer.conn.closed:
                continue
            if served and self.slices >= MOST_SLICES:
                rest.append(peer)
            else:
                total += self._go_on(peer.conn)
                served += 1
        self.unfinished = rest + self.unfinished
        return total

    cdef feed(self, uint32_t cid, bytes data):
        cdef Peer peer = self.connections.peers.get(cid)
        if peer is None:
            return
        if peer.conn.parsing:
            raise RuntimeError("feed inside a callback about the same connection")
        self.connections.busy += 1
        if peer.conn.inbox.tail:
            append(&peer.conn.inbox, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            if not peer.conn.resting and peer.conn.inbox.tail >= peer.conn.needs:
                self._go_on(peer.conn)
        else:
            self._take_in(peer.conn, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        self.connections.busy -= 1
        if self.unfinished:
            eventfd_write(self.outboxes.wake_fd, 1)
        if not self.connections.busy:
            self._end_of_chunk()

    cdef go_on(self, uint32_t cid):
        cdef Peer peer = self.connections.peers.get(cid)
        if peer is None or not peer.conn.held:
            return
        peer.conn.held = False
        self.outboxes.watch(peer.conn)
        if peer.conn.parsing:
            return  # whoever parses goes on by itself
        self.connections.busy += 1
        if peer.conn.inbox.tail and not peer.conn.resting:
            self._go_on(peer.conn)
        if peer.conn.fd < 0 and not peer.conn.closed:
            self.connections.tell_output(peer.conn)
        self.connections.busy -= 1
        if self.unfinished:
            eventfd_write(self.outboxes.wake_fd, 1)
        self.flush()

    cdef serve(self, SinkSlot slot):
        cdef Batch batch = slot.batch
        slot.batch = None
        if batch is not None and not slot.removed:
            slot.sink.deliver(batch)

    cdef bytes take(self, uint32_t cid, Py_ssize_t most):
        cdef Peer peer = self.connections.peer(cid)
        cdef Buffer *out = &peer.conn.out
        cdef Py_ssize_t size = pending(out)
        cdef bytes data
        if 0 < most < size:
            size = most
        data = PyBytes_FromStringAndSize(out.data + out.head, size)
        drain(out, size)
        if size:
            note_taken(peer.conn, size)
        if out.tail == 0:
            self.outboxes.give_back(out)
        if pending(out) < peer.conn.max_pending >> 1:
            self.connections.release(<void *>peer.conn)
        return data

    cdef void flush(self) noexcept:
        if not self.connections.busy:
            self._end_of_chunk()

    cdef void _end_of_chunk(self) noexcept:
        cdef int rounds = 0
        self.connections.busy += 1
        while (self.delivery.dirty_sinks or self.outboxes.dirty_count or self.deferred) and rounds < ROUNDS:
            if self.delivery.replies:
                self.operations.tell_replies()
            if self.delivery.dirty_sinks:
                self._serve_sinks()
                self._call_deferred()
            elif self.outboxes.dirty_count:
                self._flush_outboxes()
            else:
                self._call_deferred()
            rounds += 1
        if self.delivery.dirty_sinks or self.outboxes.dirty_count or self.deferred:
            self._flush_outboxes()
            eventfd_write(self.outboxes.wake_fd, 1)
        self._tell_watchers()
        self.connections.busy -= 1
        self.connections.bury()

    cdef void _tell_watchers(self) noexcept:
        """Subscriptions that reached their maximum and closed connections end interest too."""
        cdef Interest interest
        for interest in self.connections.hooked:
            if interest.news:
                interest.tell()

    cdef void _serve_sinks(self) noexcept:
        cdef list ready = self.delivery.dirty_sinks
        cdef SinkSlot slot
        cdef Batch batch
        self.delivery.dirty_sinks = []
        self.serving = True
        for slot in ready:
            batch = slot.batch
            slot.batch = None
            slot.dirty = False
            if slot.removed or batch is None:
                continue
            try:
                slot.sink.deliver(batch)
            except BaseException:  # a cancellation too: those behind it must have their turn
                log.exception("a sink failed sink=%r messages=%d", slot.sink, len(batch))
        self.serving = False

    cdef bint defer(self, object call) except -1:
        if not self.serving:
            return False
        self.deferred.append(call)
        return True

    cdef bint post(self, object call) except -1:
        if self.outboxes.fd < 0:
            return False
        self.posted.append(call)
        eventfd_write(self.outboxes.wake_fd, 1)
        return True

    cdef void _call_posted(self) noexcept:
        cdef list calls = self.posted
        if calls:
            self.posted = []
            self._call_all(calls)

    cdef void _call_deferred(self) noexcept:
        cdef list calls = self.deferred
        if calls:
            self.deferred = []
            self._call_all(calls)

    cdef void _call_all(self, list calls) noexcept:
        self.serving = True
        for call in calls:
            try:
                call()
            except BaseException:  # as above
                log.exception("a deferred call failed call=%r", call)
        self.serving = False

    cdef void _flush_outboxes(self) noexcept:
        """Send each dirty outbox once. Handlers told of a close may dirty more; those wait too."""
        cdef Py_ssize_t i
        cdef Py_ssize_t count = self.outboxes.dirty_count
        cdef Conn *conn
        for i in range(count):
            conn = self.outboxes.dirty[i]
            conn.dirty = False
            if conn.closed:
                continue
            if conn.slow:
                self.connections.close(conn, CLOSED_AS_SLOW)
            elif conn.fd < 0:
                self.connections.tell_output(conn)
            else:
                if not conn.blocked:
                    self.outboxes.send(conn)
                if conn.broken:
                    self.connections.close(conn, CLOSED_ON_WRITE)
            # Answers count like messages: whoever asks and never reads is closed too.
            if not conn.closed and queued(conn) > conn.max_pending:
                self.connections.close(conn, CLOSED_AS_SLOW)
        self.outboxes.dirty_count -= count
        memmove(self.outboxes.dirty, self.outboxes.dirty + count, self.outboxes.dirty_count * sizeof(Conn *))

    cdef close(self):
        self.connections.busy += 1
        self._call_posted()
        self.connections.close_all(CLOSED_BY_SHUTDOWN)
        self.connections.busy -= 1
        self.connections.bury()
        self.unfinished.clear()
        self.connections.unhook()
        self.delivery.dirty_sinks.clear()
        self.outboxes.close_own()
