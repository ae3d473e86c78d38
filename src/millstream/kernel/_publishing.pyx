# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Publishing: messages that the server itself sends, single, as acks, or straight from records."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from millstream.kernel._batch cimport Batch, Entry
from millstream.kernel._buffer cimport put
from millstream.kernel._conn cimport Conn, Pub, queued
from millstream.kernel._delivery cimport Delivery
from millstream.kernel._frames cimport Frames, Head, frame_subject, frame_tail
from millstream.kernel._connections cimport Peer
from millstream.kernel._interest cimport Interest, Match, Members, Sub
from millstream.kernel._memory cimport must_alloc
from millstream.kernel._phrases cimport Phrases
from millstream.kernel._scan cimport TIME_ROOM, write_decimal, write_time

cdef uint64_t ENDLESS = 1 << 40  # messages to a subscription that has no maximum

cdef enum:
    TOLD_ROOM = 20 + TIME_ROOM + 4  # sequence and time of a record, and the end of its headers


cdef class Publishing:
    """Routes by interest like any publish; nothing is sent before the next flush."""

    def __cinit__(self, Delivery delivery not None, Phrases phrases not None, object decorate):
        self.delivery = delivery
        self.phrases = phrases
        self.decorate = decorate

    cdef Py_ssize_t publish(
        self, Interest interest, bytes subject, bytes reply, bytes headers, bytes payload,
        bytes shown, uint32_t origin,
    ) except -1:
        cdef bytes body = headers + payload if headers else payload
        cdef Match *match = interest.match_once(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        cdef Pub pub
        memset(&pub, 0, sizeof(Pub))
        if shown:
            pub.route = PyBytes_AS_STRING(subject)
            pub.route_len = PyBytes_GET_SIZE(subject)
            pub.disguised = True
        else:
            shown = subject
        pub.subject = PyBytes_AS_STRING(shown)
        pub.subject_len = PyBytes_GET_SIZE(shown)
        pub.reply = PyBytes_AS_STRING(reply)
        pub.reply_len = PyBytes_GET_SIZE(reply)
        pub.body = PyBytes_AS_STRING(body)
        pub.headers_len = PyBytes_GET_SIZE(headers)
        pub.payload_len = PyBytes_GET_SIZE(payload)
        pub.origin_cid = origin
        return self.delivery.deliver(match, &pub)

    cdef list witness(
        self, Interest interest, bytes subject, bytes reply, bytes headers, bytes payload,
        uint32_t origin, bint really,
    ):
        cdef bytes body = headers + payload if headers else payload
        cdef Match *match = interest.match_once(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        cdef Peer peer = self.delivery.connections.peers.get(origin)
        cdef list met = []
        cdef uint32_t i, k, start
        cdef Members *group
        cdef Pub pub
        memset(&pub, 0, sizeof(Pub))
        pub.subject = PyBytes_AS_STRING(subject)
        pub.subject_len = PyBytes_GET_SIZE(subject)
        pub.reply = PyBytes_AS_STRING(reply)
        pub.reply_len = PyBytes_GET_SIZE(reply)
        pub.body = PyBytes_AS_STRING(body)
        pub.headers_len = PyBytes_GET_SIZE(headers)
        pub.payload_len = PyBytes_GET_SIZE(payload)
        pub.origin_cid = origin
        pub.origin = peer.conn if peer is not None else NULL
        for i in range(match.plain_count):
            self.delivery.give_seen(match.plain[i], &pub, really, met)
        for i in range(match.group_count):
            group = &match.groups[i]
            start = <uint32_t>(self.delivery.random() % group.count)
            for k in range(group.count):
                if self.delivery.give_seen(
                        group.subs[(start + k) % group.count], &pub, really, met):
                    break
        self.delivery.drop_spent()
        return met

    cdef Py_ssize_t publish_acks(
        self, Interest interest, Batch batch, Py_ssize_t start, Py_ssize_t count,
        uint64_t first_seq, bytes prefix, bytes suffix,
    ) except -1:
        cdef Py_ssize_t room = PyBytes_GET_SIZE(prefix) + 20 + PyBytes_GET_SIZE(suffix)
        cdef char *payload
        cdef const Entry *entry
        cdef Py_ssize_t i, delivered = 0
        cdef char *to
        cdef Pub pub
        if start < 0 or count < 0 or start + count > batch.length:
            raise IndexError("no such entries in the batch")
        memset(&pub, 0, sizeof(Pub))
        payload = <char *>must_alloc(room)
        memcpy(payload, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
        pub.body = payload
        for i in range(count):
            entry = batch.entry(start + i)
            if entry.reply_len == 0:
                continue
            to = payload + PyBytes_GET_SIZE(prefix)
            to += write_decimal(to, first_seq + <uint64_t>i)
            memcpy(to, PyBytes_AS_STRING(suffix), PyBytes_GET_SIZE(suffix))
            pub.payload_len = to + PyBytes_GET_SIZE(suffix) - payload
            pub.subject = <const char *>entry + sizeof(Entry) + entry.subject_len
            pub.subject_len = entry.reply_len
            delivered += self.delivery.deliver(
                interest.match_once(pub.subject, pub.subject_len), &pub)
        free(payload)
        return delivered

    cdef Py_ssize_t publish_frames(
        self, Interest interest, list routes, object frames, Py_ssize_t start, list replies,
    ) except -1:
        cdef Py_buffer view
        cdef list offsets = frames.offsets
        cdef Py_ssize_t i, count = len(routes), delivered = 0
        cdef bytes route = None
        cdef Match *match = NULL
        cdef uint64_t epoch = 0
        if start < 0 or start + count > len(offsets) or len(replies) < count:
            raise IndexError("no such frames, or fewer replies than frames")
        PyObject_GetBuffer(frames.buffer, &view, PyBUF_SIMPLE)
        try:
            for i in range(count):
                if match == NULL or routes[i] is not route or interest.epoch != epoch:
                    route, epoch = routes[i], interest.epoch
                    if route is None:
                        raise TypeError("a frame without a route")
                    match = interest.match_once(PyBytes_AS_STRING(route), PyBytes_GET_SIZE(route))
                if self._publish_frame(
                        match, interest, route, <const char *>view.buf, view.len,
                        offsets[start + i], replies[i], &delivered):
                    match = NULL
        finally:
            PyBuffer_Release(&view)
        return delivered

    cdef Py_ssize_t publish_record(
        self, Interest interest, bytes reply, Frames frames, Py_ssize_t i, bytes about,
    ) except -1:
        cdef const Head *head = frames._at(i)
        cdef const char *stored = frame_tail(head)
        cdef Py_ssize_t stored_len = head.headers_len
        cdef bytes sequence = self.phrases.sequence, time = self.phrases.time
        cdef bytes decorated, body
        cdef char *to
        cdef Pub pub
        if self.decorate is not None and head.tag_len + head.node_len + head.meta_len:
            decorated = self._decorated(head, frame_subject(head) + head.subject_len)
            stored = PyBytes_AS_STRING(decorated)
            stored_len = PyBytes_GET_SIZE(decorated)
        if stored_len < 2:
            stored = PyBytes_AS_STRING(self.phrases.no_headers)
            stored_len = PyBytes_GET_SIZE(self.phrases.no_headers)
        body = PyBytes_FromStringAndSize(
            NULL, stored_len + PyBytes_GET_SIZE(about) + head.subject_len
            + PyBytes_GET_SIZE(sequence) + PyBytes_GET_SIZE(time) + TOLD_ROOM
            + <Py_ssize_t>head.payload_len)
        to = put(PyBytes_AS_STRING(body), stored, stored_len - 2)  # without the empty line
        to = put(to, PyBytes_AS_STRING(about), PyBytes_GET_SIZE(about))
        to = put(to, frame_subject(head), head.subject_len)
        to = put(to, PyBytes_AS_STRING(sequence), PyBytes_GET_SIZE(sequence))
        to += write_decimal(to, head.seq)
        to = put(to, PyBytes_AS_STRING(time), PyBytes_GET_SIZE(time))
        to += write_time(to, head.ts_ns)
        to = put(to, b"\r\n\r\n", 4)
        memset(&pub, 0, sizeof(Pub))
        pub.subject = PyBytes_AS_STRING(reply)
        pub.subject_len = PyBytes_GET_SIZE(reply)
        pub.body = PyBytes_AS_STRING(body)
        pub.headers_len = to - pub.body
        pub.payload_len = head.payload_len
        put(to, frame_tail(head) + head.headers_len, head.payload_len)
        return self.delivery.deliver(interest.match_once(pub.subject, pub.subject_len), &pub)

    cdef bint _publish_frame(
        self, Match *match, Interest interest, bytes route, const char *buffer, Py_ssize_t size,
        Py_ssize_t offset, bytes reply, Py_ssize_t *delivered,
    ) except -1:
        """Deliver a frame; True when Python code was called meanwhile, which may end ``match``."""
        cdef const Head *head = <const Head *>(buffer + offset)
        cdef const char *at
        cdef Pub pub
        cdef bytes body
        cdef Py_ssize_t extras
        if offset < 0 or offset + <Py_ssize_t>sizeof(Head) > size:
            raise IndexError("a frame outside the buffer")
        extras = head.tag_len + head.node_len + head.meta_len
        if offset + <Py_ssize_t>sizeof(Head) + head.subject_len + extras + head.headers_len \
                + <Py_ssize_t>head.payload_len > size:
            raise IndexError("a frame outside the buffer")
        at = frame_subject(head)
        memset(&pub, 0, sizeof(Pub))
        pub.disguised = True
        pub.route = PyBytes_AS_STRING(route)
        pub.route_len = PyBytes_GET_SIZE(route)
        pub.subject = at
        pub.subject_len = head.subject_len
        pub.reply = PyBytes_AS_STRING(reply)
        pub.reply_len = PyBytes_GET_SIZE(reply)
        pub.body = at + head.subject_len + extras
        pub.headers_len = head.headers_len
        pub.payload_len = head.payload_len
        if extras and self.decorate is not None:
            body = self._decorated(head, at + head.subject_len)
            pub.headers_len = len(body)
            body += pub.body[head.headers_len:head.headers_len + <Py_ssize_t>head.payload_len]
            pub.body = PyBytes_AS_STRING(body)
            match = interest.match_once(PyBytes_AS_STRING(route), PyBytes_GET_SIZE(route))
        delivered[0] += self.delivery.deliver(match, &pub)
        return extras and self.decorate is not None

    cdef bytes _decorated(self, const Head *head, const char *at):
        """Return the header block with the record's tag, node and meta in it."""
        cdef bytes tag = at[:head.tag_len]
        at += head.tag_len
        cdef bytes node = at[:head.node_len]
        at += head.node_len
        cdef bytes meta = at[:head.meta_len]
        at += head.meta_len
        return self.decorate(at[:head.headers_len], tag, node, meta)

    cdef Py_ssize_t room(self, Interest interest, bytes subject) except -1:
        cdef Match *match = interest.match_once(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        cdef Py_ssize_t least = self.delivery.connections.max_pending
        cdef uint32_t i, k
        for i in range(match.plain_count):
            least = min(least, room_of(match.plain[i]))
        for i in range(match.group_count):
            for k in range(match.groups[i].count):
                least = min(least, room_of(match.groups[i].subs[k]))
        return max(least, 0)

    cdef uint64_t heard_for(self, Interest interest, bytes subject) noexcept:
        cdef Match *match = interest.match_once(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        cdef uint64_t most = 0, group
        cdef uint32_t i, k
        for i in range(match.plain_count):
            most = max(most, wanted_by(match.plain[i]))
        for i in range(match.group_count):
            group = 0
            for k in range(match.groups[i].count):
                group = min(group + wanted_by(match.groups[i].subs[k]), ENDLESS)
            most = max(most, group)
        return most


cdef uint64_t wanted_by(Sub *sub) noexcept:
    return sub.limit - sub.delivered if sub.limit and not sub.link else ENDLESS


cdef Py_ssize_t room_of(Sub *sub) noexcept:
    cdef Conn *conn = <Conn *>sub.target
    return 1 << 40 if sub.is_sink else conn.max_pending - queued(conn)
