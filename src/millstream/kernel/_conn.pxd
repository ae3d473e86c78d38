"""Conn: one connection as the compiled loops see it; Pub: one message on its way."""

from libc.stdint cimport uint32_t, uint64_t

from millstream.kernel._buffer cimport Buffer
from millstream.kernel._interest cimport Match
from millstream.kernel._scan cimport Word

cdef enum:
    # why a connection ended: _hub.CLIENT_CLOSED and so on
    CLOSED_BY_CLIENT = 1
    CLOSED_ON_WRITE = 2
    CLOSED_AS_SLOW = 3
    CLOSED_ON_ERROR = 4
    CLOSED_BY_SHUTDOWN = 5
    CLOSED_ON_BUG = 6
    CLOSED_AT_DEADLINE = 7
    LOANS = 64
    # what is at the other end of a connection
    CLIENT = 0
    SPOKE = 1                 # a leafnode's hub: we are the spoke
    HUB = 2                   # a leafnode: we are its hub
    ROUTE = 3                 # a member of our own cluster


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
    bint choosy               # ask it about reply subjects too
    bint tracked              # tell the handler the reply subjects of what is delivered
    bint mapped               # ask the handler where a publish really goes
    bint parents              # ask the handler about messages that carry the second trace header
    bint parsing
    bint held                 # what the client says next waits until somebody has answered
    bint closed
    bint slow
    bint broken
    bint dirty
    bint blocked              # the socket is full, epoll tells when it is not
    bint pinged
    bint active
    bint leaving              # on_closing was told
    bint oversized            # published more than it may: what it still sends is not read
    bint resets               # and some of that is read already, so that only a reset tells it
    bint resting              # its turn was up: the inbox holds operations for the next one
    int port                  # the client's, 0 = unknown
    uint64_t start_ns         # the hub's time when it came
    uint64_t last_ns          # the hub's time when it last completed an operation
    void *stalled_on          # borrowed: the SinkSlot or Conn that this publisher waits for
    bint stalled_by_client
    int waits                 # how often this stall was prolonged
    uint64_t stalls           # how often this publisher had to wait
    uint64_t taken_before     # what the client waited for had taken when that was last looked at
    uint64_t taken            # bytes of output that left the outbox
    bint hopeless             # took nothing while a publisher waited: nobody waits for it again
    Buffer memo               # the last subject published to
    Match *memo_match
    uint64_t memo_sweeps
    int memo_allowed
    bint memo_legal
    Buffer stem               # of reply subjects that are allowed whatever their last token is
    uint64_t in_msgs
    uint64_t in_bytes
    uint64_t out_msgs
    uint64_t out_bytes
    int link                  # CLIENT, or what kind of server is at the other end
    bint open                 # a link that may send messages and interest
    bint trusted              # a link whose messages count as the server's own
    bint tells_origin         # a route that wants to know from which leaf cluster a message came
    uint32_t cluster          # a leaf's cluster by number; 0 = none, or it is not a leaf
    uint64_t stamp            # the last message that was meant for this link


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
    bint disguised            # receivers see another subject than the one that was matched,
    const char *route         # which is this one then
    Py_ssize_t route_len
    # only of messages that came by a link:
    const Word *queues        # the groups that the other server chose us for
    int queue_count
    uint32_t cluster          # the leaf cluster that it comes from, 0 = none


cdef inline Py_ssize_t queued(const Conn *conn) noexcept nogil:
    return conn.out.tail - conn.out.head + conn.lent


cdef inline void note_taken(Conn *conn, Py_ssize_t size) noexcept nogil:
    conn.taken += size
    conn.stuck_since = 0
    conn.hopeless = False
