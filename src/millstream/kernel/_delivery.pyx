# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Delivery: from a match to outboxes and batches, one message at a time."""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from millstream.kernel._batch cimport Batch
from millstream.kernel._buffer cimport pending
from millstream.kernel._conn cimport CLIENT, HUB, LOANS, ROUTE, SPOKE, Conn, Pub, queued
from millstream.kernel._connections cimport Connections, Peer
from millstream.kernel._interest cimport (
    Match, Members, SinkSlot, Sub, is_denied, sub_cluster, sub_pattern, sub_queue, sub_sid,
    sub_weight,
)
from millstream.kernel._memory cimport must_grow
from millstream.kernel._scan cimport write_decimal
from millstream.kernel._sids cimport sids_add, sids_find, sids_remove
from millstream.kernel._subject cimport pattern_is_legal

cdef enum:
    # why a client did not get a message: _hub.NO_ECHO and so on
    NO_ECHO = 1
    HIDDEN = 2
    ENOUGH = 3
    GONE = 4
    PACKET = 65483            # what one packet holds on the loopback; a second one costs as much
    LOAN_MIN = 4096           # from here on a payload is sent from where it was read


cdef class Relay:
    """The links that the message under way goes to.

    Each gets it once, with the names of the queue groups that it was chosen for. Nobody waits for a
    link: one that does not read is given up like a slow client.
    """

    def __cinit__(self, Connections connections not None):
        self.outboxes = connections.outboxes
        self.clusters = {}
        self.names = []

    def __dealloc__(self):
        free(self.targets)
        free(self.picks)

    cdef uint32_t cluster_number(self, bytes name):
        """Return what a leaf cluster is known by in here."""
        number = self.clusters.get(name)
        if number is None:
            self.names.append(name)
            number = self.clusters[name] = len(self.names)
        return number

    cdef void begin(self) noexcept:
        """Forget the links of the message before."""
        self.stamp += 1
        self.target_count = self.pick_count = 0

    cdef void aim(self, Sub *sub, Members *group) noexcept:
        """Note that the message goes to the link of ``sub``, for a queue group if one is given."""
        cdef Conn *conn = <Conn *>sub.target
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

    cdef int send(self, Pub *pub, uint32_t cluster) noexcept:
        """Write the message to each link; return how many that were."""
        cdef Py_ssize_t k
        for k in range(self.target_count):
            self._write(&self.targets[k], pub, cluster)
        return <int>self.target_count

    cdef Py_ssize_t _names_len(self, Conn *conn) noexcept:
        """Return how much room the names of a link's groups take, each with a blank."""
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t i
        for i in range(self.pick_count):
            if self.picks[i].conn == conn:
                size += self.picks[i].group.name_len + 1
        return size

    cdef void _write(self, Target *target, Pub *pub, uint32_t cluster) noexcept:
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
            origin = self.names[cluster - 1]
            room += PyBytes_GET_SIZE(origin) + 1
        if not lent and pending(&conn.out) + room > PACKET:
            self._relieve(conn)
        start = self.outboxes.space(conn, room)
        to = self._write_head(start, target, pub, with_headers, origin, names > 0)
        if lent:
            conn.out.tail += to - start
            self.outboxes.lend(conn, pub.tail, pub.tail_len)
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
        self.outboxes.mark(conn)
        if queued(conn) > conn.nearly_full or conn.loan_count == LOANS:
            self._relieve(conn)

    cdef char *_write_head(
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
            to = put(to, sub_sid(sub), sub.sid_len)       # the account between blanks
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

    cdef void _relieve(self, Conn *conn) noexcept:
        """Much waits: send at once; a link above its limit is given up."""
        if not conn.blocked:
            self.outboxes.send(conn)
        if queued(conn) > conn.max_pending:
            conn.slow = True


cdef class Delivery:
    """Subscriptions, and what happens to a message that matches some."""

    def __cinit__(self, Connections connections not None):
        self.connections = connections
        self.outboxes = connections.outboxes
        self.relay = Relay(connections)
        self.dirty_sinks = []
        self.replies = []
        self.dice = int.from_bytes(os.urandom(8), "little") | 1

    def __dealloc__(self):
        free(self.spent)

    cdef bint subscribe(
        self, uint32_t cid, bytes subject, bytes queue, bytes sid, tuple deny,
    ) except -1:
        cdef Peer peer = self.connections.peer(cid)
        cdef Sub *sub
        if sids_find(&peer.subs, PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid)) != NULL:
            return True
        check_patterns(deny)
        sub = peer.interest.insert(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject),
            PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue),
            PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid), deny)
        if sub == NULL:
            return False
        sub.target = <void *>peer.conn
        sids_add(&peer.subs, sub)
        peer.interest.tell()
        return True

    cdef bint unsubscribe(self, uint32_t cid, bytes sid, uint64_t max_msgs) except -1:
        cdef Peer peer = self.connections.peer(cid)
        cdef Sub *sub = sids_find(&peer.subs, PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid))
        if sub == NULL:
            return False
        if max_msgs > sub.delivered:
            sub.limit = max_msgs
            return True
        sids_remove(&peer.subs, sub)
        peer.interest.remove(sub)
        peer.interest.tell()
        return True

    cdef void drop_spent(self) noexcept:
        """Remove subscriptions that reached their maximum in the delivery just made."""
        cdef Sub *sub
        cdef Peer peer
        cdef Py_ssize_t i
        for i in range(self.spent_count):
            sub = self.spent[i]
            peer = <Peer>(<Conn *>sub.target).peer
            sids_remove(&peer.subs, sub)
            peer.interest.remove(sub)
        self.spent_count = 0

    cdef int deliver(self, Match *match, Pub *pub) noexcept:
        """Copy a message to everyone in ``match``; no Python code runs in here, so it stays valid."""
        cdef int delivered = 0
        cdef uint32_t i, k, start
        cdef Members *group
        if match.linked:
            return self.deliver_linked(match, pub)
        for i in range(match.plain_count):
            delivered += self._give(match.plain[i], pub)
        for i in range(match.group_count):
            group = &match.groups[i]
            start = 0
            if group.count > 1:
                start = <uint32_t>(self.random() % group.count)
            for k in range(group.count):
                if self._give(group.subs[(start + k) % group.count], pub):
                    delivered += 1
                    break
        if self.spent_count:
            self.drop_spent()
        return delivered

    cdef int deliver_linked(self, Match *match, Pub *pub) noexcept:
        """Deliver where a message comes from a link or goes to some."""
        cdef int source = pub.origin.link if pub.origin != NULL else CLIENT
        cdef uint32_t cluster = pub.cluster if source else 0
        cdef int delivered = 0
        cdef uint32_t i
        cdef Sub *sub
        self.relay.begin()
        for i in range(match.plain_count):
            sub = match.plain[i]
            if not sub.link:
                delivered += self._give(sub, pub)
            elif may_pass(sub, pub, source, cluster):
                self.relay.aim(sub, NULL)
        for i in range(match.group_count):
            if source == CLIENT or is_named(&match.groups[i], pub):
                delivered += self._give_group(&match.groups[i], pub, source, cluster)
        delivered += self.relay.send(pub, cluster)
        if self.spent_count:
            self.drop_spent()
        return delivered

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
            elif is_hidden(sub, pub):
                continue
            elif sub.link == ROUTE:
                if source == ROUTE or source == SPOKE:
                    continue
                if sub_cluster(sub) == 0:
                    fallback = sub
                    break
                if fallback == NULL and sub_cluster(sub) != cluster:
                    fallback = sub
            elif fallback == NULL and <Conn *>sub.target != pub.origin \
                    and not (cluster and (<Conn *>sub.target).cluster == cluster):
                fallback = sub
        if fallback != NULL and not (<Conn *>fallback.target).slow:
            self.relay.aim(fallback, group)
        return 0

    cdef uint32_t _weighted_start(self, Members *group) noexcept:
        """Pick a member at random, one of a link as often as it weighs."""
        cdef uint64_t total = 0
        cdef uint64_t at
        cdef uint32_t k
        if group.count == 1:
            return 0
        for k in range(group.count):
            total += sub_weight(group.subs[k])
        at = self.random() % total
        for k in range(group.count):
            total = sub_weight(group.subs[k])
            if at < total:
                return k
            at -= total
        return 0

    cdef uint64_t random(self) noexcept:
        self.dice ^= self.dice << 13
        self.dice ^= self.dice >> 7
        self.dice ^= self.dice << 17
        return self.dice

    cdef int _give(self, Sub *sub, Pub *pub) noexcept:
        cdef Conn *conn
        if sub.is_sink:
            return self._give_sink(<SinkSlot>sub.target, pub)
        conn = <Conn *>sub.target
        if conn.slow or conn.broken or (conn == pub.origin and not conn.echo):
            return 0
        if sub.limit and sub.delivered >= sub.limit:
            return 0
        if pub.disguised and sub.denied_count and is_denied(sub, pub.subject, pub.subject_len):
            return 0
        self.write_message(conn, sub, pub)
        sub.delivered += 1
        if sub.delivered == sub.limit:
            self._spend(sub)
        return 1

    cdef bint give_seen(self, Sub *sub, Pub *pub, bint really, list met) except -1:
        """Give a message to a client and note that in ``met``, or why not; sinks are noted only."""
        cdef Conn *conn
        cdef int why = 0
        if sub.is_sink:
            met.append((<SinkSlot>sub.target, (<SinkSlot>sub.target).sink))
            return True
        conn = <Conn *>sub.target
        if sub.link:
            why = GONE if sub.queue_len else self._give_link(sub, pub, really)
        elif conn == pub.origin and not conn.echo:
            why = NO_ECHO
        elif sub.limit and sub.delivered >= sub.limit:
            why = ENOUGH
        elif sub.denied_count and is_denied(sub, pub.subject, pub.subject_len):
            why = HIDDEN
        elif really and not self._give(sub, pub):
            why = GONE
        met.append((
            conn.cid, sub_pattern(sub)[:sub.pattern_len], sub_queue(sub)[:sub.queue_len], why))
        return why == 0

    cdef int _give_link(self, Sub *sub, Pub *pub, bint really) noexcept:
        """Send a message that is traced to one link; return why not, 0 when it went."""
        self.relay.begin()
        self.relay.aim(sub, NULL)
        if really:
            self.relay.send(pub, 0)
        return 0 if self.relay.target_count else GONE

    cdef void _spend(self, Sub *sub) noexcept:
        if self.spent_count == self.spent_room:
            self.spent_room = 2 * self.spent_room + 8
            self.spent = <Sub **>must_grow(self.spent, self.spent_room * sizeof(Sub *))
        self.spent[self.spent_count] = sub
        self.spent_count += 1

    cdef int _give_sink(self, SinkSlot slot, Pub *pub) noexcept:
        if slot.batch is None:
            slot.batch = Batch.__new__(Batch)
            slot.batch.expected = self.chunk_bytes
        try:
            if slot.routed and pub.disguised:
                slot.batch.add_raw(
                    pub.route, pub.route_len, pub.reply, pub.reply_len, pub.body,
                    pub.headers_len, pub.payload_len, pub.origin_cid,
                    pub.subject, pub.subject_len)
            else:
                slot.batch.add_raw(
                    pub.subject, pub.subject_len, pub.reply, pub.reply_len, pub.body,
                    pub.headers_len, pub.payload_len, pub.origin_cid, NULL, 0)
        except (MemoryError, OverflowError):
            return 0
        self.costly += slot.costly
        if not slot.dirty:
            slot.dirty = True
            self.dirty_sinks.append(slot)
        if slot.paused and pub.origin != NULL and pub.origin.stalled_on == NULL:
            self.connections.stall(pub.origin, <void *>slot, False)
        return 1

    cdef void write_message(self, Conn *conn, Sub *sub, Pub *pub) noexcept:
        """Append ``MSG subject sid [reply] size`` and the body (HMSG with headers) to the outbox."""
        cdef bint with_headers = pub.headers_len != 0 and conn.headers
        cdef bint as_read = pub.tail != NULL and (with_headers or pub.headers_len == 0)
        cdef bint lent = as_read and pub.lasting and pub.tail_len >= LOAN_MIN \
            and conn.fd >= 0 and not conn.blocked
        cdef Py_ssize_t size = pub.headers_len + pub.payload_len
        cdef Py_ssize_t room = 64 + pub.subject_len + sub.sid_len + pub.reply_len \
            + (0 if lent else size)
        cdef char *start
        cdef char *to
        if not lent and pending(&conn.out) + room > PACKET:
            self._relieve(conn, pub.origin)  # inside a chunk: what was copied is still cached
        start = self.outboxes.space(conn, room)
        to = write_head(start, sub, pub, with_headers)
        if lent:
            conn.out.tail += to - start
            self.outboxes.lend(conn, pub.tail, pub.tail_len)
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
        self.outboxes.mark(conn)
        if conn.tracked and pub.reply_len:
            self.replies.append(conn.cid)
            self.replies.append(pub.reply[:pub.reply_len])
        if queued(conn) > conn.nearly_full or conn.loan_count == LOANS:
            self._relieve(conn, pub.origin)

    cdef void _relieve(self, Conn *conn, Conn *publisher) noexcept:
        """Much waits: send at once; a client that is nearly full holds its publisher back for a

        moment, and one above the limit is given up.
        """
        if not conn.blocked:
            self.outboxes.send(conn)
        if queued(conn) > conn.max_pending:
            conn.slow = True
        elif queued(conn) > conn.nearly_full and not conn.hopeless and publisher != NULL \
                and publisher != conn and publisher.stalled_on == NULL and not publisher.link:
            self.connections.stall(publisher, <void *>conn, True)

    cdef dict counted(self):
        return {
            "connections": len(self.connections.peers),
            "total_connections": self.connections.next_cid,
            "in_msgs": self.in_msgs + self.relay.in_msgs,
            "in_bytes": self.in_bytes + self.relay.in_bytes,
            "out_msgs": self.out_msgs + self.relay.out_msgs,
            "out_bytes": self.out_bytes + self.relay.out_bytes,
            "slow_consumers": self.connections.slow_consumers,
            "stalled_clients": self.connections.stalls,
        }


cdef check_patterns(tuple patterns):
    cdef bytes pattern
    for pattern in patterns:
        if pattern is None or not pattern_is_legal(
                PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern)):
            raise ValueError(f"not a subject: {pattern!r}")


cdef char *write_head(char *to, const Sub *sub, const Pub *pub, bint with_headers) noexcept nogil:
    """Write ``MSG subject sid [reply] `` and return where the sizes go."""
    if with_headers:
        to[0] = b"H"
        to += 1
    memcpy(to, b"MSG ", 4)
    to += 4
    memcpy(to, pub.subject, pub.subject_len)
    to += pub.subject_len
    memcpy(to, sub_sid(sub), sub.sid_len)
    to += sub.sid_len
    if pub.reply_len:
        memcpy(to, pub.reply, pub.reply_len)
        to += pub.reply_len
        to[0] = b" "
        to += 1
    return to


cdef bint may_pass(const Sub *sub, const Pub *pub, int source, uint32_t cluster) noexcept nogil:
    """Whether a message goes on to a link that wants it. Routes are one hop: the mesh is full."""
    cdef const Conn *conn = <const Conn *>sub.target
    if is_hidden(sub, pub):
        return False
    if sub.link == ROUTE:
        return source != ROUTE and source != SPOKE
    if conn == pub.origin or (cluster and conn.cluster == cluster):
        return False
    return source != ROUTE or sub.link == HUB \
        or (pub.subject_len > 4 and memcmp(pub.subject, b"_R_.", 4) == 0)


cdef bint is_hidden(const Sub *sub, const Pub *pub) noexcept nogil:
    """Whether a record is delivered whose own subject the link must not hear.

    Links keep buckets and APIs to each side; records of them may be asked for all the same.
    """
    return pub.disguised and sub.denied_count and pub.subject_len and pub.subject[0] != b"$" \
        and is_denied(sub, pub.subject, pub.subject_len)


cdef bint is_named(const Members *group, const Pub *pub) noexcept nogil:
    """Whether the other server chose us for this group."""
    cdef int i
    for i in range(pub.queue_count):
        if pub.queues[i].size == group.name_len \
                and memcmp(pub.queues[i].at, group.name, group.name_len) == 0:
            return True
    return False


cdef inline char *put(char *to, const char *at, Py_ssize_t size) noexcept nogil:
    memcpy(to, at, size)
    return to + size


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
