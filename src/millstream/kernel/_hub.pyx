# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Hub: every connection's bytes, and the one object that Python sees of it.

The hub makes its parts and holds them. Each knows those before it: outboxes (what waits to be
sent), connections (who is there), delivery (from a match to outboxes and batches), operations
(what clients say), publishing (what the server says), turns (when it all happens).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t

cimport cython

from millstream.kernel._batch cimport Batch
from millstream.kernel._conn cimport Conn
from millstream.kernel._connections cimport Connections, Peer
from millstream.kernel._delivery cimport Delivery
from millstream.kernel._frames cimport Frames
from millstream.kernel._interest cimport Interest, SinkSlot
from millstream.kernel._operations cimport Operations
from millstream.kernel._outboxes cimport Outboxes
from millstream.kernel._phrases cimport Phrases
from millstream.kernel._publishing cimport Publishing
from millstream.kernel._turns cimport Turns
from millstream.kernel._links cimport Wishes

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

# Why a client did not get a message that Hub.witness tells of.
NO_ECHO = 1        # it published it
HIDDEN = 2         # it must not see the subject
ENOUGH = 3         # the subscription has reached its maximum
GONE = 4           # the connection is about to end


@cython.final
@cython.no_gc_clear
cdef class Hub:
    """Owns an epoll descriptor: when it is readable, call ``poll``."""

    cdef Outboxes outboxes
    cdef Connections conns
    cdef Delivery delivery
    cdef Operations operations
    cdef Publishing publishing
    cdef Wishes links
    cdef Turns turns

    def __cinit__(
        self, object handler not None, Phrases phrases not None, *,
        Py_ssize_t max_payload=1 << 20, Py_ssize_t max_pending=8 << 20, object decorate=None,
        double write_deadline=10.0, Py_ssize_t max_control_line=4096, bint holds_publishers=True,
        object on_closing=None, uint64_t slice_ns=1_000_000,
    ):
        self.outboxes = Outboxes()
        self.conns = Connections(self.outboxes, handler, on_closing)
        self.conns.max_payload = max_payload
        self.conns.max_pending = max_pending
        self.conns.write_deadline = write_deadline
        self.conns.holds_publishers = holds_publishers
        self.delivery = Delivery(self.conns)
        self.operations = Operations(self.delivery, phrases)
        self.operations.max_control_line = max_control_line
        self.operations.slice_ns = slice_ns
        self.publishing = Publishing(self.delivery, phrases, decorate)
        self.links = Wishes(self.delivery)
        self.turns = Turns(self.operations)

    def __del__(self):
        self.turns.close()

    @property
    def fd(self):
        """The epoll descriptor, -1 once the hub is closed."""
        return self.outboxes.fd

    @property
    def now_ns(self):
        """What activity is stamped with; whoever wants to know keeps it current."""
        return self.conns.now_ns

    @now_ns.setter
    def now_ns(self, uint64_t value):
        self.conns.now_ns = value

    @property
    def max_payload(self):
        """Of connections to come; ``configure`` changes that of others."""
        return self.conns.max_payload

    @max_payload.setter
    def max_payload(self, Py_ssize_t value):
        self.conns.max_payload = value

    @property
    def max_control_line(self):
        """Of an operation's arguments."""
        return self.operations.max_control_line

    @max_control_line.setter
    def max_control_line(self, Py_ssize_t value):
        self.operations.max_control_line = value

    @property
    def write_deadline(self):
        """After so many seconds without taking anything a client is closed."""
        return self.conns.write_deadline

    @write_deadline.setter
    def write_deadline(self, double value):
        self.conns.write_deadline = value

    @property
    def holds_publishers(self):
        """Whether publishers wait a moment for a client whose outbox is nearly full."""
        return self.conns.holds_publishers

    @holds_publishers.setter
    def holds_publishers(self, bint value):
        self.conns.holds_publishers = value

    # ---- connections --------------------------------------------------------------------------

    def attach(self, int fd, Interest interest not None):
        """Take over a connected, non-blocking socket and return the connection's id."""
        return self.conns.attach(fd, interest)

    def attach_fed(self, Interest interest not None):
        """Open a connection whose bytes come by ``feed`` and go by ``take``."""
        return self.conns.open(-1, interest).cid

    def move(self, uint32_t cid, Interest interest not None):
        """Bind a connection that has no subscriptions to another subject space."""
        self.conns.move(cid, interest)

    def configure(
        self, uint32_t cid, *, bint verbose, bint pedantic, bint echo, bint headers,
        bint no_responders, bint guarded=False, bint choosy=False, bint track_replies=False, bint mapped=False,
        bint parents=False, max_payload=None,
    ):
        """Set what CONNECT negotiated and what the client's credentials allow."""
        cdef Conn *conn = self.conns.conn(cid)
        if max_payload is not None:
            conn.max_payload = max_payload
        conn.verbose = verbose
        conn.pedantic = pedantic
        conn.echo = echo
        conn.headers = headers
        conn.no_responders = no_responders
        conn.guarded = guarded
        conn.choosy = choosy
        conn.stem.head = conn.stem.tail = 0
        conn.tracked = track_replies
        conn.mapped = mapped
        conn.parents = parents
        conn.memo_match = NULL

    def write(self, uint32_t cid, bytes data not None):
        """Queue raw protocol bytes for a connection; a closed one swallows them."""
        self.conns.write(cid, data)

    def close_connection(self, uint32_t cid, int reason):
        """Send what is queued as far as the socket takes it, and close."""
        self.conns.close_named(cid, reason)

    def tick(self, double now=-1.0):
        """Look after clients that do not read; called a few times a second."""
        self.conns.tick(now)

    def feed(self, uint32_t cid, bytes data not None):
        """Take bytes that arrived on a fed connection, deliver and flush."""
        self.turns.feed(cid, data)

    def take(self, uint32_t cid, Py_ssize_t most=0):
        """Return and forget what a fed connection has to send, at most ``most`` bytes if given."""
        return self.turns.take(cid, most)

    def is_stalled(self, uint32_t cid):
        """Tell whether a fed connection must not be read from now."""
        cdef Conn *conn = self.conns.conn(cid)
        return conn.stalled_on != NULL or conn.held or conn.resting

    def hold(self, uint32_t cid):
        """Leave whatever a connection says next unread, until ``go_on``."""
        cdef Conn *conn = self.conns.conn(cid)
        conn.held = True
        self.outboxes.watch(conn)

    def go_on(self, uint32_t cid):
        """Read a connection that was held; what it said meanwhile is carried out first."""
        self.turns.go_on(cid)

    def take_activity(self, uint32_t cid):
        """Tell whether the connection completed an operation since the last call."""
        return self.conns.take_activity(cid)

    def connections(self):
        """Return the ids of all open connections."""
        return list(self.conns.peers)

    def connection_stats(self, uint32_t cid):
        """Return a connection's counters and what waits in its outbox."""
        return self.conns.counted(cid)

    def stats(self):
        """Return totals over all connections, past ones included."""
        return self.delivery.counted()

    # ---- subscriptions ------------------------------------------------------------------------

    def subscribe(
        self, uint32_t cid, bytes subject not None, bytes queue not None, bytes sid not None,
        tuple deny not None=(),
    ):
        """Subscribe; False when the subject is illegal. A sid already in use stays as it is.

        What is sent on a subject that a pattern in ``deny`` matches passes this subscription by.
        """
        return self.delivery.subscribe(cid, subject, queue, sid, deny)

    def unsubscribe(self, uint32_t cid, bytes sid not None, uint64_t max_msgs):
        """Unsubscribe now, or once ``max_msgs`` were delivered since SUB; False if unknown."""
        return self.delivery.unsubscribe(cid, sid, max_msgs)

    def unsubscribe_all(self, uint32_t cid):
        """Drop every subscription of a connection."""
        cdef Peer peer = self.conns.peer(cid)
        self.conns.drop_subscriptions(peer)
        peer.interest.tell()

    def subscriptions(self, uint32_t cid, Py_ssize_t most=-1):
        """Return a connection's subscriptions: (subject, queue, sid, delivered, limit) each.

        Only the first ``most`` of them unless that is negative.
        """
        return self.conns.subscriptions(cid, most)

    @property
    def wishes(self):
        """What other servers want: the links among the connections."""
        return self.links

    # ---- what the server says -----------------------------------------------------------------

    def publish(
        self, Interest interest not None, bytes subject not None, bytes reply not None,
        bytes headers not None, bytes payload not None, bytes shown not None=b"",
        uint32_t origin=0,
    ):
        """Route a message by ``subject`` and return how many received it; flush sends it.

        Receivers see ``shown`` as its subject when given.
        """
        return self.publishing.publish(interest, subject, reply, headers, payload, shown, origin)

    def witness(
        self, Interest interest not None, bytes subject not None, bytes reply not None,
        bytes headers not None, bytes payload not None, uint32_t origin, bint really,
    ):
        """Route a message as ``publish`` does, and tell who is meant; only clients get it.

        Returns (cid, pattern, queue, why not) of clients and (slot, sink) of sinks, which
        ``serve`` is for. ``why not`` is 0 for those who got it; unless ``really``, nobody does.
        """
        return self.publishing.witness(interest, subject, reply, headers, payload, origin, really)

    def serve(self, SinkSlot slot not None):
        """Give a sink at once what waits for it, so that something else can follow."""
        self.turns.serve(slot)

    def publish_acks(
        self, Interest interest not None, Batch batch not None, Py_ssize_t start,
        Py_ssize_t count, uint64_t first_seq, bytes prefix not None, bytes suffix not None,
    ):
        """Answer entries ``start`` to ``start + count`` that have a reply subject.

        The payload is ``prefix``, the decimal of ``first_seq`` plus the entry's place, ``suffix``.
        """
        return self.publishing.publish_acks(
            interest, batch, start, count, first_seq, prefix, suffix)

    def publish_frames(
        self, Interest interest not None, list routes not None, object frames not None,
        Py_ssize_t start, list replies not None,
    ):
        """Send as many records as there are routes, each to its own, in order.

        Record ``i`` goes under its own subject with ``replies[i]``.
        """
        return self.publishing.publish_frames(interest, routes, frames, start, replies)

    def publish_record(
        self, Interest interest not None, bytes reply not None, Frames frames not None,
        Py_ssize_t i, bytes about not None,
    ):
        """Send record ``i`` to ``reply``; behind its own headers are those that tell what it is.

        They are ``about``, which ends where the record's subject goes, its sequence and its time.
        """
        return self.publishing.publish_record(interest, reply, frames, i, about)

    def room(self, Interest interest not None, bytes subject not None):
        """Return how many bytes the fullest outbox that ``subject`` leads to still takes."""
        return self.publishing.room(interest, subject)

    def heard_for(self, Interest interest not None, bytes subject not None):
        """Return how many messages on ``subject`` are heard before all who listen have enough."""
        return self.publishing.heard_for(interest, subject)

    # ---- turns --------------------------------------------------------------------------------

    def poll(self):
        """Read every readable connection once, deliver, flush; call it when ``fd`` is readable."""
        self.turns.poll()

    def flush(self):
        """Deliver to dirty sinks and send dirty outboxes. Inside a callback the hub does it later."""
        self.turns.flush()

    def defer(self, object call not None):
        """Have ``call()`` made once the sinks of this round are served; False outside of one.

        What such a call defers is made once the answers of this round are on their way.
        """
        return self.turns.defer(call)

    def post(self, object call not None):
        """Have ``call()`` made in the next turn, from any thread; False when the hub is closed.

        It comes before the sinks of that turn are served, and may defer as they do.
        """
        return self.turns.post(call)

    def close(self):
        """Close every connection and the epoll descriptor."""
        self.turns.close()
