# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Hub: every connection's bytes. Parse, match, copy, flush; no Python object per message.

Nothing in here blocks and nothing recurses: whatever Python code the hub calls (the handler, a
sink) may call back into the hub, which only marks connections and sinks dirty. They are served at
the end of the chunk, round after round, until none is left.

Each module adds one idea to the one before it: outboxes, connections, delivery, operations,
publishing, and here the turn of the loop.
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
from millstream.kernel._linked cimport Linked
from millstream.kernel._memory cimport must_alloc

from millstream.kernel._system cimport (
    EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, MSG_DONTWAIT, epoll_event, epoll_wait, eventfd_read,
    eventfd_write, monotonic_ns, recv, sched_yield,
)

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
    MOST_SKIPS_LOG2 = 7       # after looks in vain, at least one small turn in 128 is followed by one


cdef class Hub(Linked):
    """Owns an epoll descriptor: when it is readable, call ``poll``."""

    cdef char *chunk
    cdef Py_ssize_t long_read    # what one read brings at most
    cdef bint was_small          # the last turn read a little: somebody may wait for an answer
    cdef list deferred           # calls for when the sinks of this round are served
    cdef list posted             # calls from other threads
    cdef bint serving
    cdef int looks_in_vain
    cdef int turns_to_skip

    def __cinit__(
        self, object handler not None, *, Py_ssize_t max_payload=1 << 20,
        Py_ssize_t max_pending=8 << 20, object decorate=None, double write_deadline=10.0,
        Py_ssize_t max_control_line=4096, bint holds_publishers=True, object on_closing=None,
    ):
        # A client that is nearly full holds its publisher back, but takes what was read already: so
        # much must fit into the quarter that it has left.
        self.long_read = LONG_READ if max_pending >= 4 * LONG_READ else READ_SIZE
        self.chunk = <char *>must_alloc(KEEP_SIZE + self.long_read)
        self.deferred = []
        self.posted = []

    def __dealloc__(self):
        free(self.chunk)

    def __del__(self):
        self.close()

    def poll(self):
        """Read every readable connection once, deliver, flush; call it when ``fd`` is readable.

        After a small exchange the answer to it is often a few microseconds away, which is less
        than going to sleep and being woken costs: the hub looks for it a moment longer.
        """
        cdef epoll_event events[EVENTS]
        cdef uint64_t until
        cdef int count
        if self.busy:
            return
        self._turn(events, epoll_wait(self.fd, events, EVENTS, 0))
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
        cdef bint answers = len(self.posted) > 0  # to which somebody may answer in turn
        self.was_small = True
        self.busy += 1
        for i in range(count):
            total += self._event(<Conn *>events[i].data.ptr, events[i].events)
            if total >= CHUNK_SIZE:
                break
        self._call_posted()
        self.busy -= 1
        self._end_of_chunk()
        if (total == 0 and not answers) or total > SMALL_SIZE:
            self.was_small = False

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
        cdef int fd = self.fd
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
            self._close(conn, CLOSED_BY_CLIENT)

    cdef void _take_in(self, Conn *conn, const char *data, Py_ssize_t size) noexcept:
        """Parse ``data`` and keep what is left over."""
        cdef Py_ssize_t used = 0
        if size >= conn.needs:
            self.chunk_bytes = size + (size >> 1)  # an entry's head is longer than a PUB line
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
            note_taken(peer.conn, size)
        if out.tail == 0:
            self._give_back(out)
        if pending(out) < peer.conn.max_pending >> 1:
            self._release(<void *>peer.conn)
        return data

    def flush(self):
        """Deliver to dirty sinks and send dirty outboxes. Inside a callback the hub does it later."""
        if not self.busy:
            self._end_of_chunk()

    cdef void _end_of_chunk(self) noexcept:
        cdef int rounds = 0
        self.busy += 1
        while (self.dirty_sinks or self.dirty_count or self.deferred) and rounds < ROUNDS:
            if self.replies:
                self._tell_replies()
            if self.dirty_sinks:
                self._serve_sinks()
                self._call_deferred()
            elif self.dirty_count:
                self._flush_outboxes()
            else:
                self._call_deferred()
            rounds += 1
        if self.dirty_sinks or self.dirty_count or self.deferred:
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

    def defer(self, object call not None):
        """Have ``call()`` made once the sinks of this round are served; False outside of one.

        What such a call defers is made once the answers of this round are on their way.
        """
        if not self.serving:
            return False
        self.deferred.append(call)
        return True

    def post(self, object call not None):
        """Have ``call()`` made in the next turn, from any thread; False when the hub is closed.

        It comes before the sinks of that turn are served, and may defer as they do.
        """
        if self.fd < 0:
            return False
        self.posted.append(call)
        eventfd_write(self.wake_fd, 1)
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
            if not conn.closed and queued(conn) > conn.max_pending:
                self._close(conn, CLOSED_AS_SLOW)
        self.dirty_count -= count
        memmove(self.dirty, self.dirty + count, self.dirty_count * sizeof(Conn *))

    def close(self):
        """Close every connection and the epoll descriptor."""
        cdef Peer peer
        cdef Interest interest
        self.busy += 1
        self._call_posted()
        for peer in list(self.peers.values()):
            self._close(peer.conn, CLOSED_BY_SHUTDOWN)
        self.busy -= 1
        self._bury()
        for interest in self.hooked:
            interest.resume_hooks = [h for h in interest.resume_hooks if h != self._resume]
        self.hooked.clear()
        self.dirty_sinks.clear()
        self._close_own()
