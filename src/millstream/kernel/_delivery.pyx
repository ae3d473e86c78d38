# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Delivery: from a match to outboxes and batches, one message at a time."""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from millstream.kernel._batch cimport Batch
from millstream.kernel._buffer cimport pending
from millstream.kernel._conn cimport LOANS, Conn, Pub, queued
from millstream.kernel._connections cimport Connections, Peer
from millstream.kernel._interest cimport Match, Members, SinkSlot, Sub, is_denied
from millstream.kernel._memory cimport must_grow
from millstream.kernel._scan cimport write_decimal
from millstream.kernel._subject cimport pattern_is_legal

cdef enum:
    PACKET = 65483            # what one packet holds on the loopback; a second one costs as much
    LOAN_MIN = 4096           # from here on a payload is sent from where it was read


cdef class Delivery(Connections):
    """Subscriptions, and what happens to a message that matches some."""

    def __cinit__(self):
        self.dirty_sinks = []
        self.replies = []
        self.dice = int.from_bytes(os.urandom(8), "little") | 1

    def __dealloc__(self):
        free(self.spent)

    def subscribe(
        self, uint32_t cid, bytes subject not None, bytes queue not None, bytes sid not None,
        tuple deny not None=(),
    ):
        """Subscribe; False when the subject is illegal. A sid already in use stays as it is.

        What is sent on a subject that a pattern in ``deny`` matches passes this subscription by.
        """
        cdef Peer peer = self._peer(cid)
        cdef Sub *sub
        if sid in peer.subs:
            return True
        check_patterns(deny)
        sub = peer.interest.insert(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject),
            PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue),
            PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid), deny)
        if sub == NULL:
            return False
        sub.client = <void *>peer.conn
        peer.subs[sid] = <size_t>sub
        peer.interest.tell()
        return True

    def unsubscribe(self, uint32_t cid, bytes sid not None, uint64_t max_msgs):
        """Unsubscribe now, or once ``max_msgs`` were delivered since SUB; False if unknown."""
        cdef Peer peer = self._peer(cid)
        cdef Sub *sub
        address = peer.subs.get(sid)
        if address is None:
            return False
        sub = <Sub *><size_t>address
        if max_msgs > sub.delivered:
            sub.limit = max_msgs
            return True
        del peer.subs[sid]
        peer.interest.remove(sub)
        peer.interest.tell()
        return True

    def unsubscribe_all(self, uint32_t cid):
        """Drop every subscription of a connection."""
        cdef Peer peer = self._peer(cid)
        self._unsubscribe_all(peer)
        peer.interest.tell()

    cdef void _drop_spent(self) noexcept:
        """Remove subscriptions that reached their maximum in the delivery just made."""
        cdef Sub *sub
        cdef Peer peer
        cdef Py_ssize_t i
        for i in range(self.spent_count):
            sub = self.spent[i]
            peer = <Peer>(<Conn *>sub.client).peer
            peer.subs.pop(sub.sid[1:sub.sid_len - 1], None)
            peer.interest.remove(sub)
        self.spent_count = 0

    cdef int _deliver(self, Match *match, Pub *pub) noexcept:
        """Copy a message to everyone in ``match``; no Python code runs in here, so it stays valid."""
        cdef int delivered = 0
        cdef uint32_t i, k, start
        cdef Members *group
        if match.linked:
            return self._deliver_linked(match, pub)
        for i in range(match.plain_count):
            delivered += self._give(match.plain[i], pub)
        for i in range(match.group_count):
            group = &match.groups[i]
            start = 0
            if group.count > 1:
                start = <uint32_t>(self._random() % group.count)
            for k in range(group.count):
                if self._give(group.subs[(start + k) % group.count], pub):
                    delivered += 1
                    break
        if self.spent_count:
            self._drop_spent()
        return delivered

    cdef int _deliver_linked(self, Match *match, Pub *pub) noexcept:
        return 0  # Linked has the real one

    cdef uint64_t _random(self) noexcept:
        self.dice ^= self.dice << 13
        self.dice ^= self.dice >> 7
        self.dice ^= self.dice << 17
        return self.dice

    cdef int _give(self, Sub *sub, Pub *pub) noexcept:
        cdef Conn *conn = <Conn *>sub.client
        if conn == NULL:
            return self._give_sink(<SinkSlot>sub.slot, pub)
        if conn.slow or conn.broken or (conn == pub.origin and not conn.echo):
            return 0
        if sub.limit and sub.delivered >= sub.limit:
            return 0
        if pub.disguised and sub.denied_count and is_denied(sub, pub.subject, pub.subject_len):
            return 0
        self._write_message(conn, sub, pub)
        sub.delivered += 1
        if sub.delivered == sub.limit:
            self._spend(sub)
        return 1

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
        if not slot.dirty:
            slot.dirty = True
            self.dirty_sinks.append(slot)
        if slot.paused and pub.origin != NULL and pub.origin.stalled_on == NULL:
            self._stall(pub.origin, <void *>slot, False)
        return 1

    cdef void _write_message(self, Conn *conn, Sub *sub, Pub *pub) noexcept:
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
        start = self._space(conn, room)
        to = write_head(start, sub, pub, with_headers)
        if lent:
            conn.out.tail += to - start
            self._lend(conn, pub.tail, pub.tail_len)
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
        self._mark(conn)
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
            self._send(conn)
        if queued(conn) > conn.max_pending:
            conn.slow = True
        elif queued(conn) > conn.nearly_full and not conn.hopeless and publisher != NULL \
                and publisher != conn and publisher.stalled_on == NULL and not publisher.link:
            self._stall(publisher, <void *>conn, True)

    def stats(self):
        """Return totals over all connections, past ones included."""
        return {
            "connections": len(self.peers),
            "total_connections": self.next_cid,
            "in_msgs": self.in_msgs,
            "in_bytes": self.in_bytes,
            "out_msgs": self.out_msgs,
            "out_bytes": self.out_bytes,
            "slow_consumers": self.slow_consumers,
            "stalled_clients": self.stalls,
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
    memcpy(to, sub.sid, sub.sid_len)
    to += sub.sid_len
    if pub.reply_len:
        memcpy(to, pub.reply, pub.reply_len)
        to += pub.reply_len
        to[0] = b" "
        to += 1
    return to


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
