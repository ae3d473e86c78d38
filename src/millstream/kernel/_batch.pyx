# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Batch: published messages on their way to one sink, as (buffer, offsets, count)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cdef Py_ssize_t MOST = 0xFFFFFFFF  # offsets are 32-bit


cdef class Batch:
    """Grows at the tail only; what is in it never moves once a sink has it."""

    def __dealloc__(self):
        free(self.data)
        free(self.starts)

    cdef int reserve(self, Py_ssize_t extra) except -1 nogil:
        cdef Py_ssize_t room = self.room
        cdef void *grown
        if self.used + extra > room:
            if self.used + extra > MOST:
                with gil:
                    raise OverflowError("a batch holds at most 4 GiB")
            room = 2 * room + 4096
            if room < self.used + extra:
                room = self.used + extra
            grown = realloc(self.data, room)
            if grown == NULL:
                with gil:
                    raise MemoryError
            self.data = <char *>grown
            self.room = room
        if self.length == self.starts_room:
            room = 2 * self.starts_room + 32
            grown = realloc(self.starts, room * sizeof(uint32_t))
            if grown == NULL:
                with gil:
                    raise MemoryError
            self.starts = <uint32_t *>grown
            self.starts_room = room
        return 0

    cdef int add_raw(
        self, const char *subject, Py_ssize_t subject_len, const char *reply, Py_ssize_t reply_len,
        const char *tail, Py_ssize_t headers_len, Py_ssize_t payload_len, uint32_t origin,
    ) except -1 nogil:
        cdef Py_ssize_t size = sizeof(Entry) + subject_len + reply_len + headers_len + payload_len
        cdef Entry head
        cdef char *to
        self.reserve(size)
        head.size = <uint32_t>size
        head.headers_len = <uint32_t>headers_len
        head.payload_len = <uint32_t>payload_len
        head.origin = origin
        head.subject_len = <unsigned short>subject_len
        head.reply_len = <unsigned short>reply_len
        head.tag_len = head.node_len = 0
        head.meta_len = head.flags = 0
        to = self.data + self.used
        memcpy(to, &head, sizeof(Entry))
        to += sizeof(Entry)
        memcpy(to, subject, subject_len)
        to += subject_len
        if reply_len:
            memcpy(to, reply, reply_len)
            to += reply_len
        memcpy(to, tail, headers_len + payload_len)
        self.starts[self.length] = <uint32_t>self.used
        self.length += 1
        self.used += size
        if headers_len:
            self.any_headers = True
        return 0

    def add(
        self, bytes subject not None, bytes reply not None, bytes headers not None,
        bytes payload not None, bytes tag not None=b"", bytes node not None=b"",
        bytes meta not None=b"", uint32_t origin=0,
    ):
        """Append one message; callers validate lengths, this only refuses what cannot be encoded."""
        cdef Py_ssize_t size
        cdef Entry head
        cdef char *to
        cdef bytes part
        if max(len(subject), len(reply), len(tag), len(node)) > 0xFFFF:
            raise ValueError("subject, reply, tag and node hold at most 65535 bytes")
        size = sizeof(Entry) + len(subject) + len(reply) + len(tag) + len(node) + len(meta) \
            + len(headers) + len(payload)
        self.reserve(size)
        head.size = <uint32_t>size
        head.headers_len = <uint32_t>len(headers)
        head.payload_len = <uint32_t>len(payload)
        head.origin = origin
        head.subject_len = <unsigned short>len(subject)
        head.reply_len = <unsigned short>len(reply)
        head.tag_len = <unsigned short>len(tag)
        head.node_len = <unsigned short>len(node)
        head.meta_len = <uint32_t>len(meta)
        head.flags = 0
        to = self.data + self.used
        memcpy(to, &head, sizeof(Entry))
        to += sizeof(Entry)
        for part in (subject, reply, tag, node, meta, headers, payload):
            memcpy(to, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))
            to += PyBytes_GET_SIZE(part)
        self.starts[self.length] = <uint32_t>self.used
        self.length += 1
        self.used += size
        if headers:
            self.any_headers = True

    def __len__(self):
        return self.length

    @property
    def size(self):
        """Bytes in the buffer, entry headers included."""
        return self.used

    @property
    def buffer(self):
        """A copy of the whole buffer, for tests and tools; the compiled path never takes one."""
        return PyBytes_FromStringAndSize(self.data, self.used)

    @property
    def offsets(self):
        """Where each entry starts in the buffer."""
        return [self.starts[i] for i in range(self.length)]

    def message(self, Py_ssize_t i):
        """Return entry ``i`` as (subject, reply, headers, payload, origin)."""
        cdef const Entry *head
        cdef const char *at
        cdef bytes subject, reply, headers, payload
        if i < 0 or i >= self.length:
            raise IndexError(i)
        head = self.entry(i)
        at = <const char *>head + sizeof(Entry)
        subject = at[:head.subject_len]
        at += head.subject_len
        reply = at[:head.reply_len]
        at += head.reply_len + head.tag_len + head.node_len + head.meta_len
        headers = at[:head.headers_len]
        at += head.headers_len
        payload = at[:head.payload_len]
        return subject, reply, headers, payload, head.origin

    def extras(self, Py_ssize_t i):
        """Return entry ``i``'s (tag, node, meta)."""
        cdef const Entry *head
        cdef const char *at
        cdef bytes tag, node
        if i < 0 or i >= self.length:
            raise IndexError(i)
        head = self.entry(i)
        at = <const char *>head + sizeof(Entry) + head.subject_len + head.reply_len
        tag = at[:head.tag_len]
        at += head.tag_len
        node = at[:head.node_len]
        at += head.node_len
        return tag, node, at[:head.meta_len]
