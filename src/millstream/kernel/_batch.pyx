# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Batch: published messages on their way to one sink, as (buffer, offsets, count)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

cdef Py_ssize_t MOST = 0xFFFFFFFF  # offsets are 32-bit


cdef const char *_fault(const Entry *head, Py_ssize_t room, Py_ssize_t most) noexcept nogil:
    """Return what is wrong with an entry of which ``room`` bytes are there, NULL for nothing."""
    cdef Py_ssize_t size = <Py_ssize_t>sizeof(Entry) + head.subject_len + head.reply_len
    size += <Py_ssize_t>head.tag_len + head.node_len
    size += <Py_ssize_t>head.meta_len + head.headers_len + head.payload_len
    if size != head.size:
        return "its lengths do not add up"
    if size > room:
        return "it is cut short"
    if head.subject_len == 0:
        return "it has no subject"
    if head.reply_len or head.origin or head.flags or head.meta_len:
        return "reply, origin, flags and meta must be empty"
    if head.headers_len > 0xFFFF or head.node_len > 0xFF:
        return "headers hold at most 65535 bytes, node at most 255"
    if <Py_ssize_t>head.headers_len + head.payload_len > most:
        return "headers and payload are too large"
    return NULL


cdef bint _has_block(const Entry *head, const char *at, const char *start, Py_ssize_t size) noexcept nogil:
    """Whether an entry's headers begin with ``start`` and end with an empty line."""
    at += sizeof(Entry) + head.subject_len + head.tag_len + head.node_len
    return head.headers_len >= size + 2 and memcmp(at, start, size) == 0 \
        and memcmp(at + head.headers_len - 4, b"\r\n\r\n", 4) == 0


cdef inline bint _is_oversized(const Entry *head) noexcept nogil:
    """Whether a frame's lengths cannot say this entry's."""
    return head.headers_len > 0xFFFF or head.meta_len > 0xFFFF or head.node_len > 0xFF


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
            room = max(2 * room, self.expected) if room else 4096
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
        const char *tag, Py_ssize_t tag_len,
    ) except -1 nogil:
        cdef Py_ssize_t size = sizeof(Entry) + subject_len + reply_len + tag_len + headers_len \
            + payload_len
        cdef Entry head
        cdef char *to
        if subject_len > 0xFFFF or reply_len > 0xFFFF or tag_len > 0xFFFF:
            with gil:
                raise OverflowError("subject and reply hold at most 65535 bytes")
        self.reserve(size)
        head.size = <uint32_t>size
        head.headers_len = <uint32_t>headers_len
        head.payload_len = <uint32_t>payload_len
        head.origin = origin
        head.subject_len = <unsigned short>subject_len
        head.reply_len = <unsigned short>reply_len
        head.tag_len = <unsigned short>tag_len
        head.node_len = 0
        head.meta_len = head.flags = 0
        to = self.data + self.used
        memcpy(to, &head, sizeof(Entry))
        to += sizeof(Entry)
        memcpy(to, subject, subject_len)
        to += subject_len
        if reply_len:
            memcpy(to, reply, reply_len)
            to += reply_len
        if tag_len:
            memcpy(to, tag, tag_len)
            to += tag_len
        memcpy(to, tail, headers_len + payload_len)
        self.starts[self.length] = <uint32_t>self.used
        self.length += 1
        self.used += size
        if headers_len:
            self.any_headers = True
            if headers_len > 0xFFFF:
                self.any_oversized = True
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
        if _is_oversized(&head):
            self.any_oversized = True

    def add_entries(self, bytes data not None, Py_ssize_t most, bytes start not None):
        """Append entries that somebody else laid out; ``most`` bounds headers and payload of one.

        ``start`` is the line that a block of headers begins with.
        Refuses before it changes anything: what does not add up, and what only a server may say.
        """
        cdef const char *base = PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t at = 0, count = 0
        cdef Entry head
        cdef const char *first = PyBytes_AS_STRING(start)
        cdef Py_ssize_t first_len = PyBytes_GET_SIZE(start)
        cdef bint headers = False
        cdef const char *wrong = NULL
        if not start.endswith(b"\r\n"):
            raise ValueError("the first line of headers ends with CRLF")
        with nogil:
            while at < size:
                if size - at < <Py_ssize_t>sizeof(Entry):
                    wrong = "an entry is cut short"
                    break
                memcpy(&head, base + at, sizeof(Entry))
                wrong = _fault(&head, size - at, most)
                if wrong == NULL and head.headers_len:
                    if not _has_block(&head, base + at, first, first_len):
                        wrong = "its headers lack their first line or the empty line at their end"
                if wrong != NULL:
                    break
                headers = headers or head.headers_len > 0
                at += head.size
                count += 1
        if wrong != NULL:
            raise ValueError(f"entry {count}: {wrong.decode()}")
        self.reserve(size)
        _reserve_starts(self, count)
        memcpy(self.data + self.used, base, size)
        at = 0
        while at < size:
            self.starts[self.length] = <uint32_t>(self.used + at)
            self.length += 1
            memcpy(&head, base + at, sizeof(Entry))
            at += head.size
        self.used += size
        self.any_headers = self.any_headers or headers

    def subject(self, Py_ssize_t i):
        """Return the subject of entry ``i``."""
        cdef const Entry *head
        if i < 0 or i >= self.length:
            raise IndexError(i)
        head = self.entry(i)
        return (<const char *>(head + 1))[:head.subject_len]

    def subjects(self, Py_ssize_t start=0, Py_ssize_t count=-1):
        """Return the distinct subjects of ``count`` entries from ``start`` on, or of all."""
        cdef set found = set()
        cdef const Entry *head
        cdef const Entry *before = NULL
        cdef Py_ssize_t i
        if count < 0:
            count = self.length - start
        if start < 0 or start + count > self.length:
            raise IndexError("no such entries in the batch")
        for i in range(start, start + count):
            head = self.entry(i)
            if (
                before == NULL or before.subject_len != head.subject_len
                or memcmp(before + 1, head + 1, head.subject_len)
            ):
                found.add((<const char *>(head + 1))[:head.subject_len])
            before = head
        return found

    def is_oversized(self, Py_ssize_t start, Py_ssize_t count):
        """Return whether one of ``count`` entries from ``start`` on is more than a frame holds."""
        cdef Py_ssize_t i
        if start < 0 or count < 0 or start + count > self.length:
            raise IndexError("no such entries in the batch")
        if self.any_oversized:
            for i in range(start, start + count):
                if _is_oversized(self.entry(i)):
                    return True
        return False

    def replies_end_with(self, bytes suffix not None):
        """Return whether the reply of any message ends so."""
        cdef const char *wanted = PyBytes_AS_STRING(suffix)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(suffix)
        cdef const Entry *head
        cdef const char *end
        cdef Py_ssize_t i
        for i in range(self.length):
            head = self.entry(i)
            if head.reply_len < size:
                continue
            end = <const char *>(head + 1) + head.subject_len + head.reply_len
            if not memcmp(end - size, wanted, size):
                return True
        return False

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


cdef int _reserve_starts(Batch batch, Py_ssize_t count) except -1:
    cdef void *grown
    if batch.length + count > batch.starts_room:
        grown = realloc(batch.starts, (batch.length + count) * sizeof(uint32_t))
        if grown == NULL:
            raise MemoryError
        batch.starts = <uint32_t *>grown
        batch.starts_room = batch.length + count
    return 0
