# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Operations: what clients say. Messages are delivered here, all else goes to the handler."""

import logging

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, memset

from millstream.kernel._buffer cimport append, put
from millstream.kernel._conn cimport CLOSED_ON_ERROR, Conn, Pub
from millstream.kernel._connections cimport Peer
from millstream.kernel._delivery cimport Delivery
from millstream.kernel._interest cimport Interest, Match
from millstream.kernel._memory cimport must_alloc
from millstream.kernel._phrases cimport Phrases
from millstream.kernel._scan cimport (
    CONNECT, ERR, HPUB, INFO, LONE_VERBS, NO_VERB, PING, PONG, PUB, SUB, UNSUB, Word, read_size,
    read_verb, split_words, verb_may_come,
)
from millstream.kernel._subject cimport subject_is_legal
from millstream.kernel._system cimport monotonic_ns

log = logging.getLogger(__name__)

cdef enum:
    BRIEF = 1024              # an answer up to here needs no memory of its own
    LONGEST_PING = 64 * 1024
    ASK = 0                   # Conn.memo_allowed, as Handler.may_publish answers
    YES = 1
    COPY_SLICES = 5           # so many slices a turn lasts that copies messages only


cdef class Operations:
    """The client protocol, one read buffer at a time."""

    def __cinit__(self, Delivery delivery not None, Phrases phrases not None):
        self.delivery = delivery
        self.connections = delivery.connections
        self.outboxes = delivery.outboxes
        self.handler = delivery.connections.handler
        self.phrases = phrases

    cdef Py_ssize_t parse(self, Conn *conn, const char *data, Py_ssize_t size) noexcept:
        """Carry out complete operations, all or until the turn is up; return how many bytes."""
        cdef const char *at = data
        cdef const char *end = data + size
        cdef Py_ssize_t used
        conn.needs = 0
        conn.parsing = True
        self.begin()
        while at < end and not conn.closed and not conn.held and not self.is_enough():
            used = self._operation(conn, at, end - at)
            if used <= 0:
                break
            at += used
            conn.active = True
            conn.last_ns = self.connections.now_ns
        conn.parsing = False
        if self.outboxes.lender_count:
            self.outboxes.settle()
        return at - data

    cdef void begin(self) noexcept:
        """A connection's turn begins."""
        self.enough = False
        self.slice_start = 0
        self.copied = self.delivery.out_msgs
        self.delivery.costly = 0

    cdef void look_at_clock(self) noexcept:
        """Much was copied for this connection: look how long that took."""
        self.copied = self.delivery.out_msgs
        if self.slice_start == 0:
            self.slice_start = monotonic_ns()
        elif monotonic_ns() - self.slice_start >= COPY_SLICES * self.slice_ns:
            self.enough = True

    cdef void called(self) noexcept:
        """The handler was called: look how long it has been at work for this connection."""
        cdef uint64_t now = monotonic_ns()
        if self.slice_start == 0:
            self.slice_start = now
        if now - self.slice_start >= self.slice_ns:
            self.enough = True

    cdef Py_ssize_t _operation(self, Conn *conn, const char *at, Py_ssize_t size) noexcept:
        """Carry out one operation; 0 while it is incomplete, -1 when the connection is done for."""
        cdef Py_ssize_t reach = self.max_control_line + 2
        cdef const char *lf = <const char *>memchr(at, b"\n", size if size < reach else reach)
        if lf == NULL:
            return self._incomplete(conn, at, size)
        return self._line(conn, at, lf, size)

    cdef Py_ssize_t _line(
        self, Conn *conn, const char *at, const char *lf, Py_ssize_t size,
    ) noexcept:
        """Carry out the operation whose line ends at ``lf``."""
        cdef const char *args
        cdef const char *line_end
        cdef int verb = read_verb(at, lf - at, &args)
        if args == lf and verb > LONE_VERBS:
            # nats-server takes the first byte of an argument whatever it is, a line feed too
            lf = <const char *>memchr(args + 1, b"\n", at + size - args - 1)
            if lf == NULL:
                return self._incomplete(conn, at, size)
            args += 1
        line_end = lf - 1 if lf > at and (lf - 1)[0] == b"\r" else lf
        if verb > LONE_VERBS and line_end - args > self.max_control_line:
            return self.refuse(conn, TOO_LONG)
        if verb == PUB:
            return self._message(conn, at, args, line_end, lf + 1, at + size, False)
        if verb == HPUB:
            return self._message(conn, at, args, line_end, lf + 1, at + size, True)
        if verb == NO_VERB:
            return self.refuse(conn, BAD_OPERATION)
        if args < lf and memchr(args + 1, b"\r", lf - args - 1) != NULL:
            line_end = lf - 1  # a CR anywhere costs the last byte of the line, as in nats-server
        self._control(conn, verb, args, line_end)
        return lf + 1 - at

    cdef Py_ssize_t _incomplete(self, Conn *conn, const char *at, Py_ssize_t size) noexcept:
        """Wait for the end of a line as long as it may still become one."""
        cdef const char *args
        cdef const char *lf
        cdef int verb = read_verb(at, size, &args)
        cdef Py_ssize_t before = args - at
        cdef Py_ssize_t most = LONGEST_PING  # whatever follows PING or PONG is ignored
        cdef bint odd = verb > LONE_VERBS and before < size and args[0] == b"\n"
        if verb == NO_VERB and not verb_may_come(at, size):
            return self.refuse(conn, BAD_OPERATION)
        if size < self.max_control_line + 2:
            return 0
        if verb != PING and verb != PONG:  # only arguments count, and no end of blanks before them
            most = self.max_control_line + 2 + min(before, self.max_control_line)
        if odd:
            before += 1
        lf = NULL
        if before < min(size, most):
            lf = <const char *>memchr(at + before, b"\n", min(size, most) - before)
        if lf == NULL:
            return 0 if size < most else self.refuse(conn, TOO_LONG)
        return self._line(conn, at, args if odd else lf, size)

    cdef Py_ssize_t refuse(self, Conn *conn, int code) noexcept:
        try:
            self.handler.on_error(conn.cid, code)
        except Exception:
            log.exception("refusing input failed cid=%d", conn.cid)
        self.connections.close(conn, CLOSED_ON_ERROR)
        return -1

    cdef Py_ssize_t _refuse_body(self, Conn *conn, const Word *subject) noexcept:
        """The payload does not end where it should; complaints of its subject still come first."""
        if conn.pedantic and not subject_is_legal(subject.at, subject.size):
            self._complain(conn)
        return self.refuse(conn, BAD_OPERATION)

    cdef void _complain(self, Conn *conn) noexcept:
        say(conn, self.phrases.bad_subject)
        self.outboxes.mark(conn)

    cdef Py_ssize_t _message(
        self, Conn *conn, const char *op, const char *args, const char *line_end,
        const char *body, const char *end, bint headed,
    ) noexcept:
        """PUB or, ``headed``, HPUB."""
        cdef Word words[4]
        cdef Pub pub
        cdef int fewest = 3 if headed else 2
        cdef int count = split_words(args, line_end, words, fewest + 1, False)
        cdef Py_ssize_t size
        cdef Py_ssize_t headers = 0
        if headed and not conn.headers:
            return self.refuse(conn, NO_HEADERS)
        if count != fewest and count != fewest + 1:
            return self.refuse(conn, BAD_ARGUMENTS)
        size = read_size(words[count - 1].at, words[count - 1].size)
        if headed:
            headers = read_size(words[count - 2].at, words[count - 2].size)
        if headers < 0 or size < headers:
            return self.refuse(conn, BAD_ARGUMENTS)
        if size > conn.max_payload:
            conn.oversized = True
            conn.resets = body < end
            return self.refuse(conn, TOO_LARGE)
        if not body_is_sound(body, end, size):
            return self._refuse_body(conn, &words[0])
        if end - body < size + 2:
            conn.needs = (body - op) + size + 1  # that byte may already be wrong
            return 0
        pub.subject = words[0].at
        pub.subject_len = words[0].size
        pub.reply = words[1].at
        pub.reply_len = words[1].size if count > fewest else 0
        pub.body = body
        pub.headers_len = headers
        pub.payload_len = size - headers
        pub.tail = plain_tail(&words[count - (2 if headed else 1)], headed, line_end, body)
        pub.tail_len = body + size + 2 - pub.tail
        pub.lasting = True
        self._publish_from(conn, &pub)
        return body + size + 2 - op

    cdef void _publish_from(self, Conn *conn, Pub *pub) noexcept:
        cdef Interest interest = <Interest>conn.interest
        cdef Py_ssize_t size = pub.headers_len + pub.payload_len
        conn.in_msgs += 1
        conn.in_bytes += size
        self.delivery.in_msgs += 1
        self.delivery.in_bytes += size
        pub.origin = conn
        pub.origin_cid = conn.cid
        pub.disguised = False
        if pub.headers_len \
                and self.phrases.has_trace(pub.body, pub.headers_len, conn.parents) \
                and self._is_traced(conn, pub):
            return
        if conn.mapped and not self.map(conn, pub):
            return
        if conn.memo_match == NULL or conn.memo_match.stale \
                or conn.memo_sweeps != interest.sweeps \
                or conn.memo.tail != pub.subject_len \
                or memcmp(conn.memo.data, pub.subject, pub.subject_len) != 0:
            self.memoize(conn, interest, pub)
        if conn.pedantic and not conn.memo_legal:
            self._complain(conn)
        if (conn.guarded and not self.is_allowed(conn, interest, pub)) \
                or (pub.reply_len and self._reply_is_reserved(conn, pub)) \
                or (conn.choosy and pub.reply_len and not self._may_be_answered(conn, pub)) \
                or (conn.guarded and pub.headers_len and not self._may_schedule(conn, pub)):
            return
        if conn.verbose:
            append(&conn.out, b"+OK\r\n", 5)
            self.outboxes.mark(conn)
        if self.delivery.deliver(conn.memo_match, pub) == 0 and conn.no_responders and pub.reply_len:
            self._no_responders(conn, interest, pub)

    cdef bint _is_traced(self, Conn *conn, Pub *pub) noexcept:
        """Hand the handler a message that asks for a trace; True when it saw to all of it."""
        cdef const char *payload = pub.body + pub.headers_len
        cdef bint seen_to = True
        try:
            seen_to = self.handler.traced(
                conn.cid, pub.subject[:pub.subject_len], pub.reply[:pub.reply_len],
                pub.body[:pub.headers_len], payload[:pub.payload_len])
        except Exception:
            self.connections.failed(conn, "tracing a message failed cid=%d")
        self.called()
        return seen_to or conn.closed

    cdef bint map(self, Conn *conn, Pub *pub) noexcept:
        """Ask the handler where the message really goes; False when the connection did not live."""
        cdef Peer peer = <Peer>conn.peer
        try:
            peer.mapped_to = self.handler.map_subject(conn.cid, pub.subject[:pub.subject_len])
        except Exception:
            self.connections.failed(conn, "mapping a subject failed cid=%d")
            return False
        self.called()
        pub.subject = PyBytes_AS_STRING(peer.mapped_to)
        pub.subject_len = PyBytes_GET_SIZE(peer.mapped_to)
        return not conn.closed

    cdef void memoize(self, Conn *conn, Interest interest, Pub *pub) noexcept:
        """Remember what this subject matches; what was allowed stays so while it is the same."""
        if conn.memo_match == NULL or conn.memo.tail != pub.subject_len \
                or memcmp(conn.memo.data, pub.subject, pub.subject_len) != 0:
            conn.memo.head = conn.memo.tail = 0
            append(&conn.memo, pub.subject, pub.subject_len)
            conn.memo_legal = subject_is_legal(pub.subject, pub.subject_len)
            conn.memo_allowed = ASK
        find(conn, interest, pub)

    cdef bint is_allowed(self, Conn *conn, Interest interest, Pub *pub) noexcept:
        """Ask the handler, unless it said yes to this subject for good."""
        if conn.memo_allowed == YES:
            return True
        if self.delivery.replies:
            self.tell_replies()  # a reply may be what makes this publish legal
        try:
            conn.memo_allowed = self.handler.may_publish(conn.cid, pub.subject[:pub.subject_len])
        except Exception:
            self.connections.failed(conn, "checking a permission failed cid=%d")
        self.called()
        if conn.closed or not conn.memo_allowed:
            return False
        # The handler may have subscribed, configured or moved: look again.
        find(conn, <Interest>conn.interest, pub)
        return True

    cdef bint _reply_is_reserved(self, Conn *conn, Pub *pub) noexcept:
        """Refuse a client's message whose reply subject is one that only servers make up."""
        if not self.phrases.is_reserved(pub.reply, pub.reply_len):
            return False
        say(conn, self.phrases.reserved_reply)
        append(&conn.out, pub.reply, pub.reply_len)
        say(conn, self.phrases.reserved_reply_end)
        self.outboxes.mark(conn)
        return True

    cdef bint _may_be_answered(self, Conn *conn, Pub *pub) noexcept:
        """Ask the handler about a reply subject, unless it said yes to all that begin so."""
        cdef Py_ssize_t stem = pub.reply_len
        cdef int verdict = ASK
        while stem > 0 and pub.reply[stem - 1] != b".":
            stem -= 1
        if stem and conn.stem.tail == stem and memcmp(conn.stem.data, pub.reply, stem) == 0:
            return True
        try:
            verdict = self.handler.may_reply(conn.cid, pub.reply[:pub.reply_len])
        except Exception:
            self.connections.failed(conn, "checking a reply subject failed cid=%d")
        self.called()
        if conn.closed or not verdict:
            return False
        if verdict == YES:
            conn.stem.head = conn.stem.tail = 0
            append(&conn.stem, pub.reply, stem)
        find(conn, <Interest>conn.interest, pub)
        return True

    cdef bint _may_schedule(self, Conn *conn, Pub *pub) noexcept:
        """Ask the handler about a message that has another one published later."""
        cdef bint allowed = False
        if not self.phrases.has_schedule(pub.body, pub.headers_len):
            return True
        try:
            allowed = self.handler.may_schedule(conn.cid, pub.body[:pub.headers_len])
        except Exception:
            self.connections.failed(conn, "checking a schedule failed cid=%d")
        self.called()
        if conn.closed or not allowed:
            return False
        find(conn, <Interest>conn.interest, pub)
        return True

    cdef void tell_replies(self) noexcept:
        """Tell the handler which reply subjects reached tracked connections, in their order."""
        cdef list told = self.delivery.replies
        cdef Py_ssize_t i
        self.delivery.replies = []
        for i in range(0, len(told), 2):
            try:
                self.handler.on_delivered_reply(told[i], told[i + 1])
            except Exception:
                log.exception("noting a reply subject failed cid=%d", told[i])

    cdef void _no_responders(self, Conn *conn, Interest interest, Pub *pub) noexcept:
        """Tell a requester that nobody listens, on the inbox that it waits at."""
        cdef Match *match = interest.match_once(pub.reply, pub.reply_len)
        cdef char brief[BRIEF]
        cdef bytes before = self.phrases.nobody, after = self.phrases.nobody_end
        cdef Py_ssize_t size = PyBytes_GET_SIZE(before) + pub.subject_len + PyBytes_GET_SIZE(after)
        cdef char *block = brief
        cdef char *to
        cdef Pub answer
        cdef uint32_t i
        if size > BRIEF:
            block = <char *>must_alloc(size)
        to = put(block, PyBytes_AS_STRING(before), PyBytes_GET_SIZE(before))
        to = put(to, pub.subject, pub.subject_len)
        put(to, PyBytes_AS_STRING(after), PyBytes_GET_SIZE(after))
        memset(&answer, 0, sizeof(Pub))
        answer.subject = pub.reply
        answer.subject_len = pub.reply_len
        answer.body = block
        answer.headers_len = size
        for i in range(match.plain_count):
            if match.plain[i].target == <void *>conn:
                # not a message of the subscription: its maximum does not count this
                self.delivery.write_message(conn, match.plain[i], &answer)
                break
        if block != brief:
            free(block)

    cdef void _control(self, Conn *conn, int verb, const char *args, const char *end) noexcept:
        """Everything that is not a message; what needs judgement goes to the handler."""
        if verb == PING:
            self.ping(conn)
        elif verb == PONG:
            self.call_pong(conn)
        elif verb == SUB:
            self._sub(conn, args, end)
        elif verb == UNSUB:
            self._unsub(conn, args, end)
        elif verb == CONNECT:
            self.call_connect(conn, args, end)
        elif verb == INFO:
            self.call_info(conn, args, end)
        elif verb == ERR:
            self.refuse(conn, BAD_ARGUMENTS)
        if verb != PING:
            self.called()

    cdef void ping(self, Conn *conn) noexcept:
        if conn.pinged:
            append(&conn.out, b"PONG\r\n", 6)
            self.outboxes.mark(conn)
            return
        conn.pinged = True
        try:
            # the handler answers: a stranger gets an error alone, and no PONG before it
            self.handler.on_ping(conn.cid)
        except Exception:
            self.connections.failed(conn, "answering the first ping failed cid=%d")

    cdef void call_pong(self, Conn *conn) noexcept:
        try:
            self.handler.on_pong(conn.cid)
        except Exception:
            self.connections.failed(conn, "taking a pong failed cid=%d")

    cdef void call_connect(self, Conn *conn, const char *at, const char *end) noexcept:
        try:
            self.handler.on_connect(conn.cid, at[:end - at])
        except Exception:
            self.connections.failed(conn, "taking CONNECT failed cid=%d")

    cdef void call_info(self, Conn *conn, const char *at, const char *end) noexcept:
        try:
            self.handler.on_info(conn.cid, at[:end - at])
        except Exception:
            self.connections.failed(conn, "taking INFO failed cid=%d")

    cdef void _sub(self, Conn *conn, const char *at, const char *end) noexcept:
        cdef Word words[3]
        cdef int count = split_words(at, end, words, 3, True)
        cdef bytes queue = b""
        if count != 2 and count != 3:
            self.refuse(conn, BAD_ARGUMENTS)
            return
        if count == 3:
            queue = words[1].at[:words[1].size]
        try:
            self.handler.on_sub(
                conn.cid, words[0].at[:words[0].size], queue,
                words[count - 1].at[:words[count - 1].size])
        except Exception:
            self.connections.failed(conn, "taking SUB failed cid=%d")

    cdef void _unsub(self, Conn *conn, const char *at, const char *end) noexcept:
        cdef Word words[2]
        cdef int count = split_words(at, end, words, 2, True)
        cdef Py_ssize_t most = 0
        if count != 1 and count != 2:
            self.refuse(conn, BAD_ARGUMENTS)
            return
        if count == 2:
            most = read_size(words[1].at, words[1].size)
        try:
            self.handler.on_unsub(conn.cid, words[0].at[:words[0].size], most if most > 0 else 0)
        except Exception:
            self.connections.failed(conn, "taking UNSUB failed cid=%d")


cdef const char *plain_tail(
    const Word *sizes, bint headed, const char *line_end, const char *body
) noexcept nogil:
    """Return where the sizes begin if all from there on can follow a MSG as it is, else NULL."""
    cdef const char *end = sizes[0].at + sizes[0].size
    if headed:
        if sizes[1].at != end + 1 or end[0] != b" " \
                or (sizes[0].size == 1 and sizes[0].at[0] == b"0"):
            return NULL
        end = sizes[1].at + sizes[1].size
    return sizes[0].at if end == line_end and line_end[0] == b"\r" and body == end + 2 else NULL


cdef bint body_is_sound(
    const char *body, const char *end, Py_ssize_t size
) noexcept nogil:
    """False once what is there cannot be ``size`` bytes and CRLF any more."""
    return (end - body <= size or body[size] == b"\r") \
        and (end - body <= size + 1 or body[size + 1] == b"\n")


cdef void find(Conn *conn, Interest interest, const Pub *pub) noexcept:
    """Let the connection know what the subject matches, for this message or also for the next."""
    conn.memo_match = interest.find(pub.subject, pub.subject_len)
    conn.memo_sweeps = interest.sweeps - (not interest.lasts(conn.memo_match))


cdef inline void say(Conn *conn, bytes phrase) noexcept:
    append(&conn.out, PyBytes_AS_STRING(phrase), PyBytes_GET_SIZE(phrase))
