# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Linked: other servers. What they want is in the trie beside what clients want; a message goes to

each of them once, with the names of the queue groups that it was chosen for.

A link is a connection whose ``link`` says what is at its other end. Its interest is registered by
``wish`` (account, subject, queue, weight). Without links, no message comes through here: a match
that holds no wish of a link is delivered by ``Delivery`` alone.
"""

import logging

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, memcpy

from millstream.kernel._buffer cimport pending
from millstream.kernel._conn cimport CLIENT, HUB, LOANS, ROUTE, SPOKE, Conn, Pub, queued
from millstream.kernel._connections cimport Peer, drop_wishes
from millstream.kernel._delivery cimport check_patterns, write_tail
from millstream.kernel._interest cimport Interest, Match, Members, Sub
from millstream.kernel._memory cimport must_grow
from millstream.kernel._operations cimport (
    BAD_ARGUMENTS, BAD_OPERATION, TOO_LARGE, TOO_LONG, body_is_sound, plain_tail,
)
from millstream.kernel._scan cimport Word, is_blank, read_size, same_verb, split_words

log = logging.getLogger(__name__)

cdef enum:
    WORDS = 512               # in a message's line: more queue groups than that are refused
    LINES = 16                # a link's line may be so many times as long as a client's
    PACKET = 65483
    LOAN_MIN = 4096
    WISH = 1
    WISH_FOR_LEAF = 2
    UNWISH = 3
    UNWISH_FOR_LEAF = 4


cdef class Linked(Publishing):
    """Links: connections to other servers, what they want, and what they send."""

    def __cinit__(self, object handler, **others):
        self.clusters = {}
        self.cluster_names = []

    def __dealloc__(self):
        free(self.targets)
        free(self.picks)

    # ---- what Python tells of links ------------------------------------------------------------

    def link(self, uint32_t cid, int kind, Py_ssize_t max_pending, bytes cluster not None=b""):
        """Make a connection a link: 1 to our hub, 2 to a leaf, 3 to a member of our cluster.

        Until it is opened it may say who it is, and nothing else.
        """
        cdef Peer peer = self._peer(cid)
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
        cdef Peer peer = self._peer(cid)
        peer.cluster = cluster
        peer.conn.cluster = self._cluster_number(cluster) if cluster else 0

    def open_link(
        self, uint32_t cid, *, bint headers, bint guarded=False, bint mapped=False,
        bint trusted=True, bint tells_origin=False, Interest interest=None, max_payload=None,
    ):
        """Take messages and interest from here on; a leaf's are about ``interest`` alone."""
        cdef Peer peer = self._peer(cid)
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
            self.move(cid, interest)
            peer.spaces[b""] = interest

    def wish(
        self, uint32_t cid, bytes account not None, Interest interest not None,
        bytes subject not None, bytes queue not None=b"", uint32_t weight=1,
        tuple deny not None=(), bytes cluster not None=b"",
    ):
        """Register what a link wants, or the new weight of it; False when the subject is illegal.

        ``account`` is how the link names it in its messages: b"" where it knows only one.
        """
        cdef Peer peer = self._peer(cid)
        cdef Sub *sub
        if weight < 1:
            raise ValueError("a weight is at least 1")
        key = (account, subject, queue)
        address = peer.wishes.get(key)
        if address is not None:
            sub = <Sub *><size_t>address
            sub.weight = weight
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
        sub.client = <void *>peer.conn
        sub.link = peer.conn.link
        sub.weight = weight
        sub.cluster = self._cluster_number(cluster) if cluster else 0
        peer.wishes[key] = <size_t>sub
        self._hook(interest)
        interest.tell()
        return True

    def unwish(self, uint32_t cid, bytes account not None, bytes subject not None, bytes queue not None=b""):
        """Forget one wish of a link; False when there is no such one."""
        cdef Peer peer = self._peer(cid)
        cdef Interest interest
        address = peer.wishes.pop((account, subject, queue), None)
        if address is None:
            return False
        interest = peer.spaces[account]
        interest.remove(<Sub *><size_t>address)
        interest.tell()
        return True

    def drop_wishes(self, uint32_t cid, bytes account=None):
        """Forget what a link wants, in one account or in all; return how much that was."""
        cdef Peer peer = self._peer(cid)
        if peer.wishes is None:
            return 0
        return drop_wishes(peer, account)

    def wishes(self, uint32_t cid):
        """Return what a link wants: (account, subject, queue, weight, delivered) each."""
        cdef Sub *sub
        found = []
        for (account, subject, queue), address in (self._peer(cid).wishes or {}).items():
            sub = <Sub *><size_t>address
            found.append((account, subject, queue, sub.weight, sub.delivered))
        return found

    def wish_count(self, uint32_t cid):
        """Return how much a link wants."""
        cdef Peer peer = self._peer(cid)
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
                plain[(<Conn *>match.plain[i].client).cid] = True
        for i in range(match.group_count):
            group = &match.groups[i]
            members = []
            for k in range(group.count):
                if group.subs[k].link:
                    members += [(<Conn *>group.subs[k].client).cid] * group.subs[k].weight
            if members:
                groups[group.name[:group.name_len]] = members
        return list(plain), groups

    def has_remote_interest(self, Interest interest not None, bytes subject not None):
        """Tell whether any link wants a message on ``subject``."""
        cdef Match *match = interest.match_once(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        return match.linked

    def link_stats(self):
        """Return what links have moved, past ones included."""
        return {
            "in_msgs": self.link_in_msgs,
            "in_bytes": self.link_in_bytes,
            "out_msgs": self.link_out_msgs,
            "out_bytes": self.link_out_bytes,
        }

    cdef uint32_t _cluster_number(self, bytes name):
        number = self.clusters.get(name)
        if number is None:
            self.cluster_names.append(name)
            number = self.clusters[name] = len(self.cluster_names)
        return number

    # ---- what links say ------------------------------------------------------------------------

    cdef Py_ssize_t _link_operation(self, Conn *conn, const char *at, Py_ssize_t size) noexcept:
        """Carry out one operation; 0 while it is incomplete, -1 when the link is done for."""
        cdef Py_ssize_t reach = LINES * self.max_control_line + 2
        cdef const char *lf = <const char *>memchr(at, b"\n", size if size < reach else reach)
        if lf == NULL:
            return 0 if size < reach else self._refuse(conn, TOO_LONG)
        return self._link_line(conn, at, lf, size)

    cdef Py_ssize_t _link_line(
        self, Conn *conn, const char *at, const char *lf, Py_ssize_t size,
    ) noexcept:
        cdef const char *end = lf - 1 if lf > at and (lf - 1)[0] == b"\r" else lf
        cdef Py_ssize_t length = end - at
        cdef int verb = 0
        if length > 5 and is_blank(at[4]) and same_verb(at + 1, b"msg", 3):
            if not conn.open:
                return self._refuse(conn, BAD_OPERATION)
            if (at[0] | 0x20) == b"h":
                return self._link_message(conn, at, at + 5, end, lf + 1, at + size, True, False)
            if (at[0] | 0x20) == b"r" and conn.link == ROUTE:
                return self._link_message(conn, at, at + 5, end, lf + 1, at + size, False, False)
            if (at[0] | 0x20) == b"l":
                return self._link_message(
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
                return lf + 1 - at
        elif length >= 4 and same_verb(at, b"ping", 4):
            self._ping(conn)
            return lf + 1 - at
        elif length >= 4 and same_verb(at, b"pong", 4):
            self._call_pong(conn)
            return lf + 1 - at
        elif length > 4 and same_verb(at, b"info", 4):
            self._call_info(conn, at + 5, end)
            return lf + 1 - at
        elif length > 7 and same_verb(at, b"connect", 7):
            self._call_connect(conn, at + 8, end)
            return lf + 1 - at
        elif length >= 4 and at[0] == b"-" and same_verb(at + 1, b"err", 3):
            self._call_err(conn, at + 4, end)
            return lf + 1 - at
        elif length >= 3 and at[0] == b"+" and same_verb(at + 1, b"ok", 2):
            return lf + 1 - at
        return self._refuse(conn, BAD_OPERATION)

    cdef Py_ssize_t _link_message(
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
            return self._refuse(conn, BAD_ARGUMENTS)
        size = read_size(words[count - 1].at, words[count - 1].size)
        if headed:
            headers = read_size(words[sizes].at, words[sizes].size)
        if headers < 0 or size < headers:
            return self._refuse(conn, BAD_ARGUMENTS)
        if size > conn.max_payload:
            return self._refuse(conn, TOO_LARGE)
        if not body_is_sound(body, end, size):
            return self._refuse(conn, BAD_OPERATION)
        if not read_targets(&pub, &words[subject + 1], sizes - subject - 1):
            return self._refuse(conn, BAD_ARGUMENTS)
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
            pub.cluster = self._cluster_number(words[0].at[:words[0].size])
        if conn.link == ROUTE and not self._enter_space(conn, words[at].at, words[at].size):
            return -1 if conn.closed else body + size + 2 - op
        self._publish_linked(conn, &pub)
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
            self._failed(conn, "looking up an account failed cid=%d")
            return False
        interest = space
        peer.account = name
        peer.interest = interest
        conn.interest = <void *>interest
        conn.memo_match = NULL
        self._hook(interest)
        return True

    cdef void _publish_linked(self, Conn *conn, Pub *pub) noexcept:
        cdef Interest interest = <Interest>conn.interest
        cdef Py_ssize_t size = pub.headers_len + pub.payload_len
        conn.in_msgs += 1
        conn.in_bytes += size
        self.in_msgs += 1
        self.in_bytes += size
        self.link_in_msgs += 1
        self.link_in_bytes += size
        pub.origin = conn
        pub.origin_cid = 0 if conn.trusted else conn.cid
        pub.disguised = False
        if conn.mapped and not self._map(conn, pub):
            return
        if conn.memo_match == NULL or conn.memo_match.stale \
                or conn.memo_sweeps != interest.sweeps \
                or conn.memo.tail != pub.subject_len \
                or memcmp(conn.memo.data, pub.subject, pub.subject_len) != 0:
            self._memoize(conn, interest, pub)
        if conn.guarded and not self._is_allowed(conn, interest, pub):
            return
        disguise(pub)
        self._deliver_linked(conn.memo_match, pub)

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
            self._refuse(conn, BAD_ARGUMENTS)
            return
        if more:
            queue = words[subject + 1].at[:words[subject + 1].size]
        if more == 2:
            weight = read_size(words[subject + 2].at, words[subject + 2].size)
        if weight < 1 or weight > 0x7FFFFFFF:
            self._refuse(conn, BAD_ARGUMENTS)
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
            self._failed(conn, "taking interest failed cid=%d")

    cdef void _call_err(self, Conn *conn, const char *at, const char *end) noexcept:
        try:
            self.handler.on_err(conn.cid, at[:end - at])
        except Exception:
            self._failed(conn, "taking an error failed cid=%d")

    # ---- to links ------------------------------------------------------------------------------

    cdef int _deliver_linked(self, Match *match, Pub *pub) noexcept:
        """Deliver as ``_deliver`` does, where a message comes from a link or goes to some."""
        cdef int source = pub.origin.link if pub.origin != NULL else CLIENT
        cdef uint32_t cluster = pub.cluster if source else 0
        cdef int delivered = 0
        cdef uint32_t i
        cdef Py_ssize_t k
        cdef Sub *sub
        self.stamp += 1
        self.target_count = self.pick_count = 0
        for i in range(match.plain_count):
            sub = match.plain[i]
            if not sub.link:
                delivered += self._give(sub, pub)
            elif may_pass(sub, pub, source, cluster):
                self._aim(sub, NULL)
        for i in range(match.group_count):
            if source == CLIENT or is_named(&match.groups[i], pub):
                delivered += self._give_group(&match.groups[i], pub, source, cluster)
        for k in range(self.target_count):
            self._write_linked(&self.targets[k], pub, cluster)
        if self.spent_count:
            self._drop_spent()
        return delivered + <int>self.target_count

    cdef int _give_group(self, Members *group, Pub *pub, int source, uint32_t cluster) noexcept:
        """Choose one member as nats-server does.

        Members on routes count like local ones, by their weight; leafs, and members on routes for
        a message that came by one, come after all others.
        """
        cdef uint32_t start = self._weighted_start(group)
        cdef uint32_t k
        cdef Sub *sub
        cdef Sub *fallback = NULL
        for k in range(group.count):
            sub = group.subs[(start + k) % group.count]
            if not sub.link:
                if self._give(sub, pub):
                    return 1
            elif sub.link == ROUTE:
                if source == ROUTE or source == SPOKE:
                    continue
                if sub.cluster == 0:
                    fallback = sub
                    break
                if fallback == NULL and sub.cluster != cluster:
                    fallback = sub
            elif fallback == NULL and <Conn *>sub.client != pub.origin \
                    and not (cluster and (<Conn *>sub.client).cluster == cluster):
                fallback = sub
        if fallback != NULL and not (<Conn *>fallback.client).slow:
            self._aim(fallback, group)
        return 0

    cdef uint32_t _weighted_start(self, Members *group) noexcept:
        """Pick a member at random, one of a link as often as it weighs."""
        cdef uint64_t total = 0
        cdef uint64_t at
        cdef uint32_t k
        if group.count == 1:
            return 0
        for k in range(group.count):
            total += group.subs[k].weight if group.subs[k].link else 1
        at = self._random() % total
        for k in range(group.count):
            total = group.subs[k].weight if group.subs[k].link else 1
            if at < total:
                return k
            at -= total
        return 0

    cdef void _aim(self, Sub *sub, Members *group) noexcept:
        """Note that the message goes to the link of ``sub``, for a queue group if one is given."""
        cdef Conn *conn = <Conn *>sub.client
        if conn.slow or conn.broken or conn.closed:
            return
        if conn.stamp != self.stamp:
            conn.stamp = self.stamp
            if self.target_count == self.target_room:
                self.target_room = 2 * self.target_room + 8
                self.targets = <Target *>must_grow(
                    self.targets, self.target_room * sizeof(Target))
            self.targets[self.target_count].conn = conn
            self.targets[self.target_count].sub = sub
            self.target_count += 1
        sub.delivered += 1
        if group == NULL:
            return
        if self.pick_count == self.pick_room:
            self.pick_room = 2 * self.pick_room + 8
            self.picks = <Pick *>must_grow(self.picks, self.pick_room * sizeof(Pick))
        self.picks[self.pick_count].conn = conn
        self.picks[self.pick_count].group = group
        self.pick_count += 1

    cdef Py_ssize_t _names_len(self, Conn *conn) noexcept:
        """Return how much room the names of a link's groups take, each with a blank."""
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t i
        for i in range(self.pick_count):
            if self.picks[i].conn == conn:
                size += self.picks[i].group.name_len + 1
        return size

    cdef void _write_linked(self, Target *target, Pub *pub, uint32_t cluster) noexcept:
        """Append RMSG, LMSG or HMSG and the body to a link's outbox. Nobody waits for a link."""
        cdef Conn *conn = target.conn
        cdef bint tells = cluster != 0 and conn.link == ROUTE and conn.tells_origin
        cdef bint with_headers = pub.headers_len != 0 and conn.headers
        cdef bint as_read = pub.tail != NULL and (with_headers or pub.headers_len == 0) \
            and not (tells and pub.headers_len == 0)
        cdef bint lent = as_read and pub.lasting and pub.tail_len >= LOAN_MIN \
            and conn.fd >= 0 and not conn.blocked
        cdef Py_ssize_t size = pub.headers_len + pub.payload_len
        cdef Py_ssize_t names = self._names_len(conn) if self.pick_count else 0
        cdef Py_ssize_t room = 80 + pub.subject_len + pub.route_len * pub.disguised \
            + target.sub.sid_len + pub.reply_len + names + (0 if lent else size)
        cdef bytes origin = None
        cdef char *start
        cdef char *to
        if tells:
            origin = self.cluster_names[cluster - 1]
            room += PyBytes_GET_SIZE(origin) + 1
        if not lent and pending(&conn.out) + room > PACKET:
            self._relieve(conn, NULL)
        start = self._space(conn, room)
        to = self._write_link_head(start, target, pub, with_headers, origin, names > 0)
        if lent:
            conn.out.tail += to - start
            self._lend(conn, pub.tail, pub.tail_len)
        else:
            if as_read:
                memcpy(to, pub.tail, pub.tail_len)
                to += pub.tail_len
            else:
                if tells and not with_headers:
                    to[0] = b"0"
                    to[1] = b" "
                    to += 2
                to += write_tail(to, pub, with_headers)
            conn.out.tail += to - start
        conn.out_msgs += 1
        conn.out_bytes += size
        self.out_msgs += 1
        self.out_bytes += size
        self.link_out_msgs += 1
        self.link_out_bytes += size
        self._mark(conn)
        if queued(conn) > conn.nearly_full or conn.loan_count == LOANS:
            self._relieve(conn, NULL)

    cdef char *_write_link_head(
        self, char *to, Target *target, Pub *pub, bint with_headers, bytes origin, bint queued_up,
    ) noexcept:
        """Write all up to where the sizes go."""
        cdef Sub *sub = target.sub
        cdef Py_ssize_t i
        cdef bint is_route = target.conn.link == ROUTE
        if origin is not None:
            memcpy(to, b"LMSG ", 5)
            to = put(to + 5, PyBytes_AS_STRING(origin), PyBytes_GET_SIZE(origin))
        else:
            to[0] = c'H' if with_headers else c'R' if is_route else c'L'
            memcpy(to + 1, b"MSG", 3)
            to += 4
        if is_route:
            to = put(to, sub.sid, sub.sid_len)       # the account between blanks
        else:
            to = put(to, b" ", 1)
        if pub.disguised:
            to = put(to, pub.route, pub.route_len)
        else:
            to = put(to, pub.subject, pub.subject_len)
        to = put(to, b" ", 1)
        if queued_up:
            to[0] = c'+' if pub.reply_len else c'|'
            to = put(to + 1, b" ", 1)
        if pub.reply_len:
            to = put(to, pub.reply, pub.reply_len)
            if pub.disguised:
                to = put(to, b"@", 1)
                to = put(to, pub.subject, pub.subject_len)
            to = put(to, b" ", 1)
        if queued_up:
            for i in range(self.pick_count):
                if self.picks[i].conn == target.conn:
                    to = put(to, self.picks[i].group.name, self.picks[i].group.name_len)
                    to = put(to, b" ", 1)
        return to


cdef inline char *put(char *to, const char *at, Py_ssize_t size) noexcept nogil:
    memcpy(to, at, size)
    return to + size


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


cdef bint may_pass(const Sub *sub, const Pub *pub, int source, uint32_t cluster) noexcept nogil:
    """Whether a message goes on to a link that wants it. Routes are one hop: the mesh is full."""
    cdef const Conn *conn = <const Conn *>sub.client
    if sub.link == ROUTE:
        return source != ROUTE and source != SPOKE
    if conn == pub.origin or (cluster and conn.cluster == cluster):
        return False
    return source != ROUTE or sub.link == HUB \
        or (pub.subject_len > 4 and memcmp(pub.subject, b"_R_.", 4) == 0)


cdef bint is_named(const Members *group, const Pub *pub) noexcept nogil:
    """Whether the other server chose us for this group."""
    cdef int i
    for i in range(pub.queue_count):
        if pub.queues[i].size == group.name_len \
                and memcmp(pub.queues[i].at, group.name, group.name_len) == 0:
            return True
    return False
