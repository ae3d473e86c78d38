# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Publishing: messages that the server itself sends, single, as acks, or straight from records."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from millstream.kernel._batch cimport Batch, Entry
from millstream.kernel._conn cimport Conn, Pub, queued
from millstream.kernel._frames cimport Frames, Head, frame_subject, frame_tail
from millstream.kernel._interest cimport Interest, Match, Sub
from millstream.kernel._memory cimport must_alloc
from millstream.kernel._operations cimport Operations
from millstream.kernel._scan cimport TIME_ROOM, write_decimal, write_time

cdef uint64_t ENDLESS = 1 << 40  # messages to a subscription that has no maximum

cdef enum:
    FRAME_BODY = 52
    TOLD_ROOM = 17 + 20 + 19 + TIME_ROOM + 4  # sequence and time of a record, as headers


cdef class Publishing(Operations):
    """Routes by interest like any publish; nothing is sent before the next flush."""

    def __cinit__(self, object handler, *, object decorate=None, **others):
        self.decorate = decorate

    def publish(
        self, Interest interest not None, bytes subject not None, bytes reply not None,
        bytes headers not None, bytes payload not None, bytes shown not None=b"",
        uint32_t origin=0,
    ):
        """Route a message by ``subject`` and return how many received it; flush sends it.

        Receivers see ``shown`` as its subject when given.
        """
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
        return self._deliver(match, &pub)

    def publish_acks(
        self, Interest interest not None, Batch batch not None, Py_ssize_t start,
        Py_ssize_t count, uint64_t first_seq, bytes prefix not None, bytes suffix not None,
    ):
        """Answer entries ``start`` to ``start + count`` that have a reply subject.

        The payload is ``prefix``, the decimal of ``first_seq`` plus the entry's place, ``suffix``.
        """
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
            delivered += self._deliver(
                interest.match_once(pub.subject, pub.subject_len), &pub)
        free(payload)
        return delivered

    def publish_frames(
        self, Interest interest not None, list routes not None, object frames not None,
        Py_ssize_t start, list replies not None,
    ):
        """Send as many records as there are routes, each to its own, in order.

        Record ``i`` goes under its own subject with ``replies[i]``.
        """
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

    def publish_record(
        self, Interest interest not None, bytes reply not None, Frames frames not None,
        Py_ssize_t i, bytes about not None,
    ):
        """Send record ``i`` to ``reply``; behind its own headers are those that tell what it is.

        They are ``about``, which ends where the record's subject goes, its sequence and its time.
        """
        cdef const Head *head = frames._at(i)
        cdef const char *stored = frame_tail(head)
        cdef Py_ssize_t stored_len = head.headers_len
        cdef bytes decorated, body
        cdef char *to
        cdef Pub pub
        if self.decorate is not None and head.tag_len + head.node_len + head.meta_len:
            decorated = self._decorated(
                <FrameHead *>head, frame_subject(head) + head.subject_len)
            stored = PyBytes_AS_STRING(decorated)
            stored_len = PyBytes_GET_SIZE(decorated)
        if stored_len < 2:
            stored = b"NATS/1.0\r\n\r\n"
            stored_len = 12
        body = PyBytes_FromStringAndSize(
            NULL, stored_len + PyBytes_GET_SIZE(about) + head.subject_len + TOLD_ROOM
            + <Py_ssize_t>head.payload_len)
        to = put(PyBytes_AS_STRING(body), stored, stored_len - 2)  # without the empty line
        to = put(to, PyBytes_AS_STRING(about), PyBytes_GET_SIZE(about))
        to = put(to, frame_subject(head), head.subject_len)
        to = put(to, b"\r\nNats-Sequence: ", 17)
        to += write_decimal(to, head.seq)
        to = put(to, b"\r\nNats-Time-Stamp: ", 19)
        to += write_time(to, head.ts_ns)
        to = put(to, b"\r\n\r\n", 4)
        memset(&pub, 0, sizeof(Pub))
        pub.subject = PyBytes_AS_STRING(reply)
        pub.subject_len = PyBytes_GET_SIZE(reply)
        pub.body = PyBytes_AS_STRING(body)
        pub.headers_len = to - pub.body
        pub.payload_len = head.payload_len
        put(to, frame_tail(head) + head.headers_len, head.payload_len)
        return self._deliver(interest.match_once(pub.subject, pub.subject_len), &pub)

    cdef bint _publish_frame(
        self, Match *match, Interest interest, bytes route, const char *buffer, Py_ssize_t size,
        Py_ssize_t offset, bytes reply, Py_ssize_t *delivered,
    ) except -1:
        """Deliver a frame; True when Python code was called meanwhile, which may end ``match``."""
        cdef FrameHead head
        cdef const char *at
        cdef Pub pub
        cdef bytes body
        cdef Py_ssize_t extras
        if offset < 0 or offset + <Py_ssize_t>sizeof(FrameHead) > size:
            raise IndexError("a frame outside the buffer")
        memcpy(&head, buffer + offset, sizeof(FrameHead))
        extras = head.tag_len + head.node_len + head.meta_len
        if offset + FRAME_BODY + head.subject_len + extras + head.headers_len \
                + <Py_ssize_t>head.payload_len > size:
            raise IndexError("a frame outside the buffer")
        at = buffer + offset + FRAME_BODY
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
            body = self._decorated(&head, at + head.subject_len)
            pub.headers_len = len(body)
            body += pub.body[head.headers_len:head.headers_len + <Py_ssize_t>head.payload_len]
            pub.body = PyBytes_AS_STRING(body)
            match = interest.match_once(PyBytes_AS_STRING(route), PyBytes_GET_SIZE(route))
        delivered[0] += self._deliver(match, &pub)
        return extras and self.decorate is not None

    cdef bytes _decorated(self, FrameHead *head, const char *at):
        """Return the header block with the record's tag, node and meta in it."""
        cdef bytes tag = at[:head.tag_len]
        at += head.tag_len
        cdef bytes node = at[:head.node_len]
        at += head.node_len
        cdef bytes meta = at[:head.meta_len]
        at += head.meta_len
        return self.decorate(at[:head.headers_len], tag, node, meta)

    def room(self, Interest interest not None, bytes subject not None):
        """Return how many bytes the fullest outbox that ``subject`` leads to still takes."""
        cdef Match *match = interest.match_once(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        cdef Py_ssize_t least = self.max_pending
        cdef uint32_t i, k
        for i in range(match.plain_count):
            least = min(least, room_of(match.plain[i]))
        for i in range(match.group_count):
            for k in range(match.groups[i].count):
                least = min(least, room_of(match.groups[i].subs[k]))
        return max(least, 0)

    def heard_for(self, Interest interest not None, bytes subject not None):
        """Return how many messages on ``subject`` are heard before all who listen have enough."""
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


cdef inline char *put(char *to, const char *what, Py_ssize_t size) noexcept nogil:
    memcpy(to, what, size)
    return to + size


cdef uint64_t wanted_by(Sub *sub) noexcept:
    return sub.limit - sub.delivered if sub.limit else ENDLESS


cdef Py_ssize_t room_of(Sub *sub) noexcept:
    cdef Conn *conn = <Conn *>sub.client
    return conn.max_pending - queued(conn) if conn != NULL else 1 << 40
