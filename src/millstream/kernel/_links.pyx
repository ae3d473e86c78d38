# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Links: connections to other servers. What they want stands in the trie beside what clients want.

A link is a connection whose ``link`` says what is at its other end. Without links, no message comes
this way: a match that holds no wish of a link is delivered as if there were none.

Routes say RS+, RS-, RMSG and HMSG, with an account; leafnodes say LS+, LS-, LMSG and HMSG. On a
route, LS+, LS- and LMSG name the leaf cluster that they come from.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memchr, memcmp

from millstream.kernel._buffer cimport append
from millstream.kernel._conn cimport HUB, ROUTE, SPOKE, Conn, Pub
from millstream.kernel._connections cimport Peer, drop_wishes
from millstream.kernel._delivery cimport Delivery, check_patterns
from millstream.kernel._interest cimport Interest, Match, Members, Sub, sub_weight
from millstream.kernel._operations cimport (
    BAD_ARGUMENTS, BAD_OPERATION, TOO_LARGE, TOO_LONG, Operations, body_is_sound, plain_tail,
)
from millstream.kernel._scan cimport Word, is_blank, read_size, same_verb, split_words

cdef enum:
    WORDS = 512               # in a message's line: more queue groups than that are refused
    LINES = 16                # a link's line may be so many times as long as a client's
    WISH = 1
    WISH_FOR_LEAF = 2
    UNWISH = 3
    UNWISH_FOR_LEAF = 4


cdef class LinkOperations:
    """What other servers say, one read buffer at a time: messages are delivered here, all else goes

    to the handler.
    """

    def __cinit__(self, Operations operations not None):
        self.operations = operations
        self.delivery = operations.delivery
        self.relay = operations.delivery.relay
        self.connections = operations.connections
        self.outboxes = operations.outboxes
        self.handler = operations.handler

    cdef Py_ssize_t parse(self, Conn *conn, const char *data, Py_ssize_t size) noexcept:
        """Carry out complete operations, all or until the turn is up; return how many bytes."""
        cdef const char *at = data
        cdef const char *end = data + size
        cdef Py_ssize_t used
        conn.needs = 0
        conn.parsing = True
        self.operations.begin()
        while at < end and not conn.closed and not self.operations.is_enough():
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

    cdef Py_ssize_t _operation(self, Conn *conn, const char *at, Py_ssize_t size) noexcept:
        """Carry out one operation; 0 while it is incomplete, -1 when the link is done for."""
        cdef Py_ssize_t reach = LINES * self.operations.max_control_line + 2
        cdef const char *lf = <const char *>memchr(at, b"\n", size if size < reach else reach)
        if lf == NULL:
            return 0 if size < reach else self.operations.refuse(conn, TOO_LONG)
        return self._line(conn, at, lf, size)

    cdef Py_ssize_t _line(
        self, Conn *conn, const char *at, const char *lf, Py_ssize_t size,
    ) noexcept:
        cdef const char *end = lf - 1 if lf > at and (lf - 1)[0] == b"\r" else lf
        cdef Py_ssize_t length = end - at
        cdef int verb = 0
        if length > 5 and is_blank(at[4]) and same_verb(at + 1, b"msg", 3):
            if not conn.open:
                return self.operations.refuse(conn, BAD_OPERATION)
            if (at[0] | 0x20) == b"h":
                return self._message(conn, at, at + 5, end, lf + 1, at + size, True, False)
            if (at[0] | 0x20) == b"r" and conn.link == ROUTE:
                return self._message(conn, at, at + 5, end, lf + 1, at + size, False, False)
            if (at[0] | 0x20) == b"l":
                return self._message(
                    conn, at, at + 5, end, lf + 1, at + size, conn.link == ROUTE,
                    conn.link == ROUTE)
        elif length > 4 and is_blank(at[3]) and (at[1] | 0x20) == b"s" and (
                at[2] == b"+" or at[2] == b"-"):
            if (at[0] | 0x20) == (c'r' if conn.link == ROUTE else c'l'):
                verb = WISH if at[2] == b"+" else UNWISH
            elif (at[0] | 0x20) == b"l" and conn.link == ROUTE:
                verb = WISH_FOR_LEAF if at[2] == b"+" else UNWISH_FOR_LEAF
            if verb and conn.open:
                self._call_wish(conn, at + 4, end, verb)
                self.operations.called()
                return lf + 1 - at
        elif length >= 4 and same_verb(at, b"ping", 4):
            append(&conn.out, b"PONG\r\n", 6)
            self.outboxes.mark(conn)
            return lf + 1 - at
        elif length >= 4 and same_verb(at, b"pong", 4):
            self.operations.call_pong(conn)
            return lf + 1 - at
        elif length > 4 and same_verb(at, b"info", 4):
            self.operations.call_info(conn, at + 5, end)
            return lf + 1 - at
        elif length > 7 and same_verb(at, b"connect", 7):
            self.operations.call_connect(conn, at + 8, end)
            return lf + 1 - at
        elif length >= 4 and at[0] == b"-" and same_verb(at + 1, b"err", 3):
            self._call_err(conn, at + 4, end)
            return lf + 1 - at
        elif length >= 3 and at[0] == b"+" and same_verb(at + 1, b"ok", 2):
            return lf + 1 - at
        return self.operations.refuse(conn, BAD_OPERATION)

    cdef Py_ssize_t _message(
        self, Conn *conn, const char *op, const char *args, const char *line_end,
        const char *body, const char *end, bint headed, bint tells_origin,
    ) noexcept:
        """``[origin] [account] subject [reply | "+" reply queues | "|" queues] [headers] size``."""
        cdef Word words[WORDS]
        cdef Pub pub
        cdef int count = split_words(args, line_end, words, WORDS, False)
        cdef int at = <int>tells_origin
        cdef int sizes = count - (2 if headed else 1)
        cdef int subject = at + (1 if conn.link == ROUTE else 0)
        cdef Py_ssize_t size, headers = 0
        if count > WORDS or sizes <= subject:
            return self.operations.refuse(conn, BAD_ARGUMENTS)
        size = read_size(words[count - 1].at, words[count - 1].size)
        if headed:
            headers = read_size(words[sizes].at, words[sizes].size)
        if headers < 0 or size < headers:
            return self.operations.refuse(conn, BAD_ARGUMENTS)
        if size > conn.max_payload:
            return self.operations.refuse(conn, TOO_LARGE)
        if not body_is_sound(body, end, size):
            return self.operations.refuse(conn, BAD_OPERATION)
        if not read_targets(&pub, &words[subject + 1], sizes - subject - 1):
            return self.operations.refuse(conn, BAD_ARGUMENTS)
        if end - body < size + 2:
            conn.needs = (body - op) + size + 1
            return 0
        pub.subject = words[subject].at
        pub.subject_len = words[subject].size
        pub.body = body
        pub.headers_len = headers
        pub.payload_len = size - headers
        pub.tail = plain_tail(&words[sizes], headed, line_end, body)
        pub.tail_len = body + size + 2 - pub.tail
        pub.lasting = True
        pub.cluster = conn.cluster
        if tells_origin:
            pub.cluster = self.relay.cluster_number(words[0].at[:words[0].size])
        if conn.link == ROUTE and not self._enter_space(conn, words[at].at, words[at].size):
            return -1 if conn.closed else body + size + 2 - op
        self._publish(conn, &pub)
        return body + size + 2 - op

    cdef bint _enter_space(self, Conn *conn, const char *account, Py_ssize_t size) noexcept:
        """Have the route's messages concern an account; False when we do not know it."""
        cdef Peer peer = <Peer>conn.peer
        cdef Interest interest
        if peer.account is not None and PyBytes_GET_SIZE(peer.account) == size \
                and memcmp(PyBytes_AS_STRING(peer.account), account, size) == 0:
            return True
        name = account[:size]
        try:
            space = peer.spaces.get(name)
            if space is None:
                space = self.handler.space_of(conn.cid, name)
                if space is None:
                    return False
                peer.spaces[name] = space
        except Exception:
            self.connections.failed(conn, "looking up an account failed cid=%d")
            return False
        interest = space
        peer.account = name
        peer.interest = interest
        conn.interest = <void *>interest
        conn.memo_match = NULL
        self.connections.hook(interest)
        return True

    cdef void _publish(self, Conn *conn, Pub *pub) noexcept:
        cdef Interest interest = <Interest>conn.interest
        cdef Py_ssize_t size = pub.headers_len + pub.payload_len
        conn.in_msgs += 1
        conn.in_bytes += size
        self.relay.in_msgs += 1
        self.relay.in_bytes += size
        pub.origin = conn
        pub.origin_cid = 0 if conn.trusted else conn.cid
        pub.disguised = False
        if conn.mapped and not self.operations.map(conn, pub):
            return
        if conn.memo_match == NULL or conn.memo_match.stale \
                or conn.memo_sweeps != interest.sweeps \
                or conn.memo.tail != pub.subject_len \
                or memcmp(conn.memo.data, pub.subject, pub.subject_len) != 0:
            self.operations.memoize(conn, interest, pub)
        if conn.guarded and not self.operations.is_allowed(conn, interest, pub):
            return
        disguise(pub)
        self.delivery.deliver_linked(conn.memo_match, pub)

    cdef void _call_wish(self, Conn *conn, const char *at, const char *end, int verb) noexcept:
        """``[origin] [account] subject [queue weight]``, without the weight for an UNWISH."""
        cdef Word words[5]
        cdef int count = split_words(at, end, words, 5, True)
        cdef bint for_leaf = verb == WISH_FOR_LEAF or verb == UNWISH_FOR_LEAF
        cdef bint is_wish = verb == WISH or verb == WISH_FOR_LEAF
        cdef int place = <int>for_leaf
        cdef int subject = place + (1 if conn.link == ROUTE else 0)
        cdef int more = count - subject - 1
        cdef Py_ssize_t weight = 1
        cdef bytes queue = b""
        if count > 5 or more < 0 or more > 2 or (is_wish and more == 1):
            self.operations.refuse(conn, BAD_ARGUMENTS)
            return
        if more:
            queue = words[subject + 1].at[:words[subject + 1].size]
        if more == 2:
            weight = read_size(words[subject + 2].at, words[subject + 2].size)
        if weight < 1 or weight > 0x7FFFFFFF:
            self.operations.refuse(conn, BAD_ARGUMENTS)
            return
        try:
            self.handler.on_wish(
                conn.cid,
                words[place].at[:words[place].size] if conn.link == ROUTE else b"",
                words[subject].at[:words[subject].size],
                queue,
                weight if is_wish else 0,
                words[0].at[:words[0].size] if for_leaf else b"")
        except Exception:
            self.connections.failed(conn, "taking interest failed cid=%d")

    cdef void _call_err(self, Conn *conn, const char *at, const char *end) noexcept:
        try:
            self.handler.on_err(conn.cid, at[:end - at])
        except Exception:
            self.connections.failed(conn, "taking an error failed cid=%d")


cdef class Wishes:
    """Remote interest, kept by link, account, subject and queue, each with a weight."""

    def __cinit__(self, Delivery delivery not None):
        self.connections = delivery.connections
        self.relay = delivery.relay

    def link(self, uint32_t cid, int kind, Py_ssize_t max_pending, bytes cluster not None=b""):
        """Make a connection a link: 1 to our hub, 2 to a leaf, 3 to a member of our cluster.

        Until it is opened it may say who it is, and nothing else.
        """
        cdef Peer peer = self.connections.peer(cid)
        cdef Conn *conn = peer.conn
        if kind not in (SPOKE, HUB, ROUTE):
            raise ValueError("a link is a hub, a leaf or a route")
        conn.link = kind
        conn.echo = conn.verbose = conn.pedantic = False
        conn.max_pending = max_pending
        conn.nearly_full = max_pending - (max_pending >> 2)
        peer.wishes = {}
        peer.spaces = {}
        self.name_cluster(cid, cluster)

    def name_cluster(self, uint32_t cid, bytes cluster not None):
        """Note which leaf cluster is at the other end, b"" for none."""
        cdef Peer peer = self.connections.peer(cid)
        peer.conn.cluster = self.relay.cluster_number(cluster) if cluster else 0

    def open_link(
        self, uint32_t cid, *, bint headers, bint guarded=False, bint mapped=False,
        bint trusted=True, bint tells_origin=False, Interest interest=None, max_payload=None,
    ):
        """Take messages and interest from here on; a leaf's are about ``interest`` alone."""
        cdef Peer peer = self.connections.peer(cid)
        cdef Conn *conn = peer.conn
        conn.headers = headers
        conn.guarded = guarded
        conn.mapped = mapped
        conn.trusted = trusted
        conn.tells_origin = tells_origin
        conn.open = True
        conn.memo_match = NULL
        if max_payload is not None:
            conn.max_payload = max_payload
        if interest is not None:
            self.connections.move(cid, interest)
            peer.spaces[b""] = interest

    def wish(
        self, uint32_t cid, bytes account not None, Interest interest not None,
        bytes subject not None, bytes queue not None=b"", uint32_t weight=1,
        tuple deny not None=(), bytes cluster not None=b"",
    ):
        """Register what a link wants, or the new weight of it; False when the subject is illegal.

        ``account`` is how the link names it in its messages: b"" where it knows only one.
        """
        cdef Peer peer = self.connections.peer(cid)
        cdef Sub *sub
        if weight < 1:
            raise ValueError("a weight is at least 1")
        key = (account, subject, queue)
        address = peer.wishes.get(key)
        if address is not None:
            sub = <Sub *><size_t>address
            sub.limit = (sub.limit >> 32) << 32 | weight
            interest.outdate(sub)
            return True
        check_patterns(deny)
        known = peer.spaces.setdefault(account, interest)
        if known is not interest:
            raise ValueError("an account has one subject space")
        interest.linking = True
        sub = interest.insert(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject),
            PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue),
            PyBytes_AS_STRING(account), PyBytes_GET_SIZE(account), deny)
        interest.linking = False
        if sub == NULL:
            return False
        sub.target = <void *>peer.conn
        sub.link = peer.conn.link
        sub.limit = weight
        if cluster:
            sub.limit |= <uint64_t>self.relay.cluster_number(cluster) << 32
        peer.wishes[key] = <size_t>sub
        self.connections.hook(interest)
        interest.tell()
        return True

    def unwish(self, uint32_t cid, bytes account not None, bytes subject not None, bytes queue not None=b""):
        """Forget one wish of a link; False when there is no such one."""
        cdef Peer peer = self.connections.peer(cid)
        cdef Interest interest
        address = peer.wishes.pop((account, subject, queue), None)
        if address is None:
            return False
        interest = peer.spaces[account]
        interest.remove(<Sub *><size_t>address)
        interest.tell()
        return True

    def drop_all(self, uint32_t cid, bytes account=None):
        """Forget what a link wants, in one account or in all; return how much that was."""
        cdef Peer peer = self.connections.peer(cid)
        if peer.wishes is None:
            return 0
        return drop_wishes(peer, account)

    def of(self, uint32_t cid):
        """Return what a link wants: (account, subject, queue, weight, delivered) each."""
        cdef Sub *sub
        found = []
        for (account, subject, queue), address in (self.connections.peer(cid).wishes or {}).items():
            sub = <Sub *><size_t>address
            found.append((account, subject, queue, sub_weight(sub), sub.delivered))
        return found

    def count(self, uint32_t cid):
        """Return how much a link wants."""
        cdef Peer peer = self.connections.peer(cid)
        return len(peer.wishes) if peer.wishes is not None else 0

    def match_remote(self, Interest interest not None, bytes subject not None):
        """Return (links with plain interest, queue → links, each as often as it weighs), by cid."""
        cdef Match *match = interest.match_once(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        cdef uint32_t i, k
        cdef Members *group
        cdef dict plain = {}
        cdef dict groups = {}
        for i in range(match.plain_count):
            if match.plain[i].link:
                plain[(<Conn *>match.plain[i].target).cid] = True
        for i in range(match.group_count):
            group = &match.groups[i]
            members = []
            for k in range(group.count):
                if group.subs[k].link:
                    members += [(<Conn *>group.subs[k].target).cid] * sub_weight(group.subs[k])
            if members:
                groups[group.name[:group.name_len]] = members
        return list(plain), groups

    def has_remote_interest(self, Interest interest not None, bytes subject not None):
        """Tell whether any link wants a message on ``subject``."""
        cdef Match *match = interest.match_once(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        return match.linked

    def stats(self):
        """Return what links have moved, past ones included."""
        return {
            "in_msgs": self.relay.in_msgs,
            "in_bytes": self.relay.in_bytes,
            "out_msgs": self.relay.out_msgs,
            "out_bytes": self.relay.out_bytes,
        }


cdef bint read_targets(Pub *pub, const Word *words, int count) noexcept nogil:
    """Read reply and queue groups; False when they are none."""
    pub.reply = NULL
    pub.reply_len = 0
    pub.queues = words
    pub.queue_count = 0
    if count == 0:
        return True
    if words[0].size == 1 and words[0].at[0] == b"|" and count > 1:
        pub.queues = words + 1
        pub.queue_count = count - 1
        return True
    if words[0].size == 1 and words[0].at[0] == b"+" and count > 2:
        pub.queues = words + 2
        pub.queue_count = count - 2
        words += 1
    elif count != 1:
        return False
    pub.reply = words[0].at
    pub.reply_len = words[0].size
    return True


cdef void disguise(Pub *pub) noexcept nogil:
    """A record's delivery shows another subject: it stands behind the reply, after an @."""
    cdef const char *at
    if pub.reply_len < 10 or memcmp(pub.reply, b"$JS.ACK.", 8) != 0:
        return
    at = <const char *>memchr(pub.reply, b"@", pub.reply_len)
    if at == NULL or at == pub.reply + pub.reply_len - 1:
        return
    pub.route = pub.subject
    pub.route_len = pub.subject_len
    pub.disguised = True
    pub.subject = at + 1
    pub.subject_len = pub.reply + pub.reply_len - at - 1
    pub.reply_len = at - pub.reply
