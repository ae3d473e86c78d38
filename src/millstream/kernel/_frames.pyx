# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# distutils: extra_compile_args = -O3 -fno-semantic-interposition
"""Frames: records as bytes, in the WAL, in segments and on their way to readers.

    frame   0 u32 magic        4 u32 frame_len (whole frame)   8 u8 kind   9 u8 flags (1 = MORE)
           10 u16 subject_len 12 u32 payload_len  16 u16 headers_len  18 u16 meta_len  20 u16 tag_len
           22 u8 node_len     23 u8 0             24 u64 stream_id    32 u64 seq       40 u64 ts_ns
           48 u32 header check (low half of XXH3-64 of bytes 0..48)
           52 subject | tag | node | meta | headers | payload
        end-9 u64 XXH3-64 of bytes 0..end-9     end-1 u8 delete flag, outside the checksum

Nothing here believes a length before the header check has passed, nor reads outside its buffer.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcpy

from millstream.kernel._batch cimport Batch, Entry
from millstream.kernel._index cimport SLOT_DELETED, SegmentIndex, Slot
from millstream.kernel._xxh3 cimport xxh3

cdef enum:
    C_HEADER = 52
    C_TRAILER = 9
    C_MAGIC = 0x31736DF7     # f7 "ms1": f7 never occurs in UTF-8
    C_RECORD = 1
    C_MORE = 1
    C_DELETED = 0xD5

HEADER = C_HEADER
TRAILER = C_TRAILER
MAGIC = C_MAGIC
RECORD = C_RECORD
MORE = C_MORE
DELETED = C_DELETED

# Why index_frames stopped.
cdef enum:
    C_END = 0         # at ``stop``
    C_TORN = 1        # a whole header, but the frame goes on past ``stop``
    C_DAMAGED = 2     # no frame here, or its checksum is wrong
    C_FOREIGN = 3     # a good frame that is not a record of this stream
    C_DISORDER = 4    # a good record whose sequence does not ascend or does not fit the index

END = C_END
TORN = C_TORN
DAMAGED = C_DAMAGED
FOREIGN = C_FOREIGN
DISORDER = C_DISORDER

# What _judge finds.
cdef enum:
    WHOLE = 0
    CUT = 1          # the header holds, the frame goes on past the end
    BAD_BODY = 2     # the header holds, the checksum does not
    BAD_HEADER = 3


cdef inline uint64_t _length(const Head *head) noexcept nogil:
    return (
        C_HEADER + C_TRAILER + <uint64_t>head.subject_len + head.payload_len + head.headers_len
        + head.meta_len + head.tag_len + head.node_len
    )


cdef inline bint _header_holds(const char *at, Head *head) noexcept nogil:
    """Copy the header at ``at`` out and check it; the caller made sure of 52 bytes."""
    memcpy(head, at, C_HEADER)
    if head.magic != C_MAGIC or head.check != <uint32_t>xxh3(at, 48):
        return False
    return head.frame_len == _length(head)


cdef inline bint _deleted(const char *at, uint32_t frame_len) noexcept nogil:
    return <uint8_t>at[frame_len - 1] == C_DELETED


cdef inline bint _sum_holds(const char *at, uint32_t frame_len) noexcept nogil:
    cdef uint64_t stored
    memcpy(&stored, at + frame_len - C_TRAILER, 8)
    return stored == xxh3(at, frame_len - C_TRAILER)


cdef int _judge(const char *data, Py_ssize_t at, Py_ssize_t stop, Head *head) noexcept nogil:
    """Say what is at ``at``; a deleted frame may have been erased, so only its header counts."""
    if stop - at < C_HEADER or not _header_holds(data + at, head):
        return BAD_HEADER
    if <Py_ssize_t>head.frame_len > stop - at:
        return CUT
    if not _deleted(data + at, head.frame_len) and not _sum_holds(data + at, head.frame_len):
        return BAD_BODY
    return WHOLE


cdef uint32_t _mend(const char *at, Head *head) noexcept nogil:
    """Return the frame's length if one flipped bit explains why its header does not hold, else 0.

    A search would start inside the frame, where a payload may carry frames of its own.
    """
    cdef char[C_HEADER] tried
    cdef int bit
    memcpy(tried, at, C_HEADER)
    for bit in range(8 * C_HEADER):
        tried[bit >> 3] ^= <char>(1 << (bit & 7))
        if _header_holds(tried, head):
            return head.frame_len
        tried[bit >> 3] ^= <char>(1 << (bit & 7))
    return 0


cdef Py_ssize_t _past_damage(
    const char *data, Py_ssize_t at, Py_ssize_t stop, int state, Head *head
) noexcept nogil:
    """Return where to go on after what ``_judge`` found bad at ``at``."""
    if state == BAD_HEADER:
        if stop - at < C_HEADER or not _mend(data + at, head):
            return _next_good(data, at + 1, stop, head)
    if <Py_ssize_t>head.frame_len > stop - at:
        return stop
    return at + head.frame_len


cdef Py_ssize_t _next_good(const char *data, Py_ssize_t at, Py_ssize_t stop, Head *head) noexcept nogil:
    """Find the next whole frame at or after ``at``, ``stop`` if none.

    Bytes after damage may be a payload that someone shaped like a header, so that only a frame
    that is good to its end is taken.
    """
    cdef const char *found
    while stop - at >= C_HEADER + C_TRAILER:
        found = <const char *>memchr(data + at, C_MAGIC & 0xFF, stop - at - (C_HEADER + C_TRAILER) + 1)
        if found == NULL:
            return stop
        at = found - data
        if _judge(data, at, stop, head) == WHOLE:
            return at
        at += 1
    return stop


cdef class _View:
    """A buffer held for the time of one call."""

    cdef Py_buffer view
    cdef bint held
    cdef const char *data
    cdef Py_ssize_t size

    def __cinit__(self, buffer):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        self.data = <const char *>self.view.buf
        self.size = self.view.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef class Frames:
    """Records in a buffer: what the log hands to readers, as (buffer, offsets, count).

    Holds the buffer, so an mmap cannot be closed while a reader has it. ``offsets`` is a list or
    what ``SegmentIndex.offsets_from`` packed. Raises ValueError when a frame does not lie inside
    the buffer or its lengths do not add up; checksums are looked at by ``verified``.
    """

    def __cinit__(self, buffer, offsets):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        self.data = <const char *>self.view.buf
        self.extent = self.view.len
        self._take(offsets)

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)
        free(self.starts)

    cdef int _take(self, object offsets) except -1:
        cdef bytes packed
        cdef Py_ssize_t i, count
        cdef const Head *head
        if isinstance(offsets, bytes):
            packed = offsets
            count = PyBytes_GET_SIZE(packed) >> 2
        else:
            packed = None
            count = len(offsets)
        self.starts = <uint32_t *>malloc(4 * count + 1)
        if self.starts == NULL:
            raise MemoryError
        if packed is not None:
            memcpy(self.starts, PyBytes_AS_STRING(packed), 4 * count)
        else:
            for i in range(count):
                self.starts[i] = offsets[i]
        for i in range(count):
            if self.extent - <Py_ssize_t>self.starts[i] < C_HEADER + C_TRAILER:
                raise ValueError(f"frame {i} lies outside the buffer")
            head = <const Head *>(self.data + self.starts[i])
            if head.magic != C_MAGIC or head.frame_len != _length(head) \
                    or <Py_ssize_t>head.frame_len > self.extent - <Py_ssize_t>self.starts[i]:
                raise ValueError(f"there is no frame at {self.starts[i]}")
        self.length = count
        return 0

    cdef const Head *_at(self, Py_ssize_t i) except NULL:
        if i < 0 or i >= self.length:
            raise IndexError(i)
        return self.head(i)

    @property
    def buffer(self):
        """The bytes that the frames lie in."""
        return memoryview(<object>self.view.obj)

    @property
    def offsets(self):
        """Where each frame starts in the buffer."""
        return [self.starts[i] for i in range(self.length)]

    def __len__(self):
        return self.length

    @property
    def first_seq(self):
        """Sequence of the first record, 0 when empty."""
        return self.head(0).seq if self.length else 0

    @property
    def last_seq(self):
        """Sequence of the last record, 0 when empty."""
        return self.head(self.length - 1).seq if self.length else 0

    @property
    def size(self):
        """Bytes of all frames."""
        cdef Py_ssize_t i
        cdef uint64_t size = 0
        for i in range(self.length):
            size += self.head(i).frame_len
        return size

    def seq(self, Py_ssize_t i):
        """Return the sequence of record ``i``."""
        return self._at(i).seq

    def deleted(self, Py_ssize_t i):
        """Return whether frame ``i`` carries the delete flag."""
        cdef const Head *head = self._at(i)
        return _deleted(<const char *>head, head.frame_len)

    def has_headers(self, Py_ssize_t i):
        """Return whether record ``i`` has a header block."""
        return self._at(i).headers_len > 0

    def record(self, Py_ssize_t i):
        """Return record ``i`` in the order of ``message.Record``'s fields."""
        cdef const Head *head = self._at(i)
        cdef const char *at = frame_subject(head)
        cdef bytes subject, tag, node, meta, headers
        subject = at[:head.subject_len]
        at += head.subject_len
        tag = at[:head.tag_len]
        at += head.tag_len
        node = at[:head.node_len]
        at += head.node_len
        meta = at[:head.meta_len]
        at += head.meta_len
        headers = at[:head.headers_len]
        at += head.headers_len
        return head.seq, head.ts_ns, subject, at[:head.payload_len], headers, tag, node, meta

    def __iter__(self):
        for i in range(self.length):
            yield self.record(i)

    def raw(self, Py_ssize_t start=0, Py_ssize_t stop=-1):
        """Return the bytes of frames ``start..stop`` (-1: to the end), one after the other."""
        cdef Py_ssize_t i
        cdef Py_ssize_t size = 0
        cdef bytes joined
        cdef char *to
        if stop < 0 or stop > self.length:
            stop = self.length
        start = max(start, 0)
        for i in range(start, stop):
            size += self.head(i).frame_len
        joined = PyBytes_FromStringAndSize(NULL, size)
        to = PyBytes_AS_STRING(joined)
        for i in range(start, stop):
            memcpy(to, self.data + self.starts[i], self.head(i).frame_len)
            to += self.head(i).frame_len
        return joined

    def verified(self):
        """Check every header and checksum; returns the first bad position, -1 when all hold.

        A delete flag excuses nothing here: it may be the damage, and these are served as live.
        """
        cdef Py_ssize_t i, bad = -1
        cdef Head head
        with nogil:
            for i in range(self.length):
                if _judge(self.data, self.starts[i], self.extent, &head) != WHOLE \
                        or (_deleted(self.data + self.starts[i], head.frame_len)
                            and not _sum_holds(self.data + self.starts[i], head.frame_len)):
                    bad = i
                    break
        return bad


cdef inline Py_ssize_t _entry_frame_len(const Entry *entry) noexcept nogil:
    return (
        C_HEADER + C_TRAILER + <Py_ssize_t>entry.subject_len + entry.tag_len + entry.node_len
        + entry.meta_len + entry.headers_len + entry.payload_len
    )


cdef inline void _seal(char *frame, Head *head) noexcept nogil:
    """Write header, checksum and live flag around a body that is already in place."""
    cdef uint64_t total
    memcpy(frame, head, 48)
    head.check = <uint32_t>xxh3(frame, 48)
    memcpy(frame + 48, &head.check, 4)
    total = xxh3(frame, head.frame_len - C_TRAILER)
    memcpy(frame + head.frame_len - C_TRAILER, &total, 8)
    frame[head.frame_len - 1] = 0


cdef int _encode(
    Batch batch, Py_ssize_t start, Py_ssize_t count, Head *head, char *to, SegmentIndex index,
    uint64_t offset, bint whole, const uint64_t *places,
) except -1:
    """Write the frames and their index entries; ``places`` are (seq, time) pairs, NULL if dense."""
    cdef Py_ssize_t i
    cdef const Entry *entry
    cdef const char *body
    cdef char *at
    cdef Slot slot
    slot.subject = 0
    slot.ts_ns = head.ts_ns
    slot.flags = 0
    for i in range(start, start + count):
        entry = batch.entry(i)
        if places != NULL:
            head.seq = places[0]
            head.ts_ns = slot.ts_ns = places[1]
            places += 2
        head.frame_len = <uint32_t>_entry_frame_len(entry)
        head.flags = C_MORE if whole and i < start + count - 1 else 0
        head.subject_len = entry.subject_len
        head.payload_len = entry.payload_len
        head.headers_len = <uint16_t>entry.headers_len
        head.meta_len = <uint16_t>entry.meta_len
        head.tag_len = entry.tag_len
        head.node_len = <uint8_t>entry.node_len
        body = <const char *>entry + sizeof(Entry)
        at = to + C_HEADER
        memcpy(at, body, entry.subject_len)
        at += entry.subject_len
        body += entry.subject_len + entry.reply_len
        memcpy(at, body, head.frame_len - C_HEADER - C_TRAILER - entry.subject_len)
        _seal(to, head)
        if index is not None:
            slot.offset = <uint32_t>offset
            slot.delta = <uint32_t>(head.seq - index.base_seq)
            slot.payload_len = head.payload_len
            slot.headers_len = head.headers_len
            slot.meta_len = head.meta_len
            slot.tag_len = head.tag_len
            slot.node_len = head.node_len
            index.append_raw(&slot, to + C_HEADER, entry.subject_len)
        offset += head.frame_len
        to += head.frame_len
        head.seq += 1
    return 0


cdef bytes _encoded(
    Batch batch, Py_ssize_t start, Py_ssize_t count, uint64_t stream_id, uint64_t first_seq,
    uint64_t last_seq, uint64_t ts_ns, SegmentIndex index, uint64_t offset, bint whole,
    const uint64_t *places,
):
    """Return the frames and extend the index; refuses before it changes anything."""
    cdef Py_ssize_t i, before, size = 0
    cdef const Entry *entry
    cdef bytes frames
    cdef Head head
    if start < 0 or count < 0 or count > batch.length - start:
        raise IndexError(start)
    for i in range(start, start + count):
        entry = batch.entry(i)
        if entry.headers_len > 0xFFFF or entry.meta_len > 0xFFFF or entry.node_len > 0xFF:
            raise ValueError("headers and meta hold at most 65535 bytes, node at most 255")
        if _entry_frame_len(entry) > 0xFFFFFFFF:
            raise ValueError("a frame holds at most 4 GiB")
        size += _entry_frame_len(entry)
    if index is not None and count:
        if offset + size > 0xFFFFFFFF:
            raise OverflowError("a segment holds at most 4 GiB")
        if not index.fits(first_seq) or not index.fits(last_seq):
            raise ValueError(f"sequence {first_seq} does not follow in the index")
        index.reserve(count)
    head.magic = C_MAGIC
    head.kind = C_RECORD
    head.zero = 0
    head.stream_id = stream_id
    head.seq = first_seq
    head.ts_ns = ts_ns
    frames = PyBytes_FromStringAndSize(NULL, size)
    before = 0 if index is None else index.length
    try:
        _encode(batch, start, count, &head, PyBytes_AS_STRING(frames), index, offset, whole, places)
    except MemoryError:
        if index is not None:
            index._cut(before)
        raise
    return frames


def encode_batch(
    Batch batch not None, Py_ssize_t start, Py_ssize_t count, uint64_t stream_id,
    uint64_t first_seq, uint64_t ts_ns, SegmentIndex index, uint64_t offset, bint whole,
):
    """Return entries ``start..start+count`` as record frames with contiguous sequences.

    In the same pass ``index`` gets their entries, ``offset`` being the segment offset of the first
    frame. With ``whole`` all frames but the last carry MORE, so that recovery takes the batch whole
    or not at all; without it every record stands for itself. Refuses before it changes anything.
    """
    return _encoded(
        batch, start, count, stream_id, first_seq, first_seq + count - 1, ts_ns, index, offset,
        whole, NULL,
    )


def encode_exact(
    Batch batch not None, Py_ssize_t start, Py_ssize_t count, uint64_t stream_id, seqs, times_ns,
    uint64_t least_ns, SegmentIndex index, uint64_t offset,
):
    """Return entries as one whole batch with the sequences and times given.

    Sequences ascend. A time below the one before it, or below ``least_ns``, is raised to that.
    """
    cdef Py_ssize_t i
    cdef bytes frames
    cdef uint64_t *places
    if count < 1 or len(seqs) != count or len(times_ns) != count:
        raise ValueError("a sequence and a time for each of at least one record")
    places = <uint64_t *>malloc(2 * count * sizeof(uint64_t))
    if places == NULL:
        raise MemoryError
    try:
        for i in range(count):
            places[2 * i] = seqs[i]
            if i and places[2 * i] <= places[2 * i - 2]:
                raise ValueError(f"sequence {places[2 * i]} does not ascend")
            least_ns = max(least_ns, <uint64_t>times_ns[i])
            places[2 * i + 1] = least_ns
        frames = _encoded(
            batch, start, count, stream_id, places[0], places[2 * count - 2], 0, index, offset,
            True, places,
        )
    finally:
        free(places)
    return frames


def encode_control(
    uint8_t kind, uint64_t stream_id, uint64_t seq, uint64_t ts_ns, bytes body not None,
    bint more=False,
):
    """Return one control frame with ``body`` as its payload; with ``more`` its batch goes on."""
    cdef Head head
    cdef bytes frame
    cdef Py_ssize_t size = C_HEADER + C_TRAILER + PyBytes_GET_SIZE(body)
    if size > 0xFFFFFFFF:
        raise ValueError("a frame holds at most 4 GiB")
    head.magic = C_MAGIC
    head.frame_len = <uint32_t>size
    head.kind = kind
    head.flags = C_MORE if more else 0
    head.subject_len = head.headers_len = head.meta_len = head.tag_len = 0
    head.payload_len = <uint32_t>PyBytes_GET_SIZE(body)
    head.node_len = head.zero = 0
    head.stream_id = stream_id
    head.seq = seq
    head.ts_ns = ts_ns
    frame = PyBytes_FromStringAndSize(NULL, size)
    memcpy(PyBytes_AS_STRING(frame) + C_HEADER, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
    _seal(PyBytes_AS_STRING(frame), &head)
    return frame


def check(buffer, Py_ssize_t offset):
    """Return the length of the frame at ``offset`` when it is whole and undamaged, else 0.

    A deleted frame may have been erased: for it the header check is enough.
    """
    cdef _View view = _View(buffer)
    cdef Head head
    if offset < 0 or offset > view.size or _judge(view.data, offset, view.size, &head) != WHOLE:
        return 0
    return head.frame_len


def check_header(buffer, Py_ssize_t offset):
    """Return the length that the header at ``offset`` gives when the header holds, else 0.

    The frame may go on past the end of the buffer.
    """
    cdef _View view = _View(buffer)
    cdef Head head
    if offset < 0 or view.size - offset < C_HEADER or not _header_holds(view.data + offset, &head):
        return 0
    return head.frame_len


def body(buffer, Py_ssize_t offset):
    """Return the payload of the frame at ``offset``; raises ValueError when it is not good."""
    cdef _View view = _View(buffer)
    cdef Head head
    if offset < 0 or offset > view.size or _judge(view.data, offset, view.size, &head) != WHOLE:
        raise ValueError(f"there is no good frame at {offset}")
    return (view.data + offset + head.frame_len - C_TRAILER - head.payload_len)[:head.payload_len]


def cut(buffer, Py_ssize_t most):
    """Return (start, end, frames) of pieces of at most ``most`` bytes, cut at frame borders.

    A larger frame is a piece of its own. The frames are believed: they come from ``encode_batch``.
    """
    cdef _View view = _View(buffer)
    cdef list pieces = []
    cdef Py_ssize_t start = 0, at = 0, count = 0
    cdef uint32_t size
    while at < view.size:
        if view.size - at < 8:
            raise ValueError(f"there is no frame at {at}")
        memcpy(&size, view.data + at + 4, 4)
        if size < C_HEADER + C_TRAILER or size > <uint64_t>(view.size - at):
            raise ValueError(f"there is no frame at {at}")
        if count and at + size - start > most:
            pieces.append((start, at, count))
            start, count = at, 0
        at += size
        count += 1
    if count:
        pieces.append((start, at, count))
    return pieces


def scan(buffer, Py_ssize_t start=0, Py_ssize_t stop=-1):
    """Return (frames, damaged ranges) of ``start..stop``, in order.

    A frame is (kind, flags, stream_id, seq, ts_ns, offset, frame_len, deleted). Where the header
    holds, or would with one bit flipped, its length leads past the damage; where it does not, the
    next good frame is searched.
    """
    cdef _View view = _View(buffer)
    cdef list frames = [], damaged = []
    cdef Py_ssize_t at, good
    cdef Head head
    cdef int state
    if stop < 0 or stop > view.size:
        stop = view.size
    at = max(start, 0)
    while at < stop:
        state = _judge(view.data, at, stop, &head)
        if state == WHOLE:
            frames.append((
                head.kind, head.flags, head.stream_id, head.seq, head.ts_ns, at, head.frame_len,
                _deleted(view.data + at, head.frame_len),
            ))
            at += head.frame_len
            continue
        good = _past_damage(view.data, at, stop, state, &head)
        if damaged and damaged[len(damaged) - 1][1] == at:
            damaged[len(damaged) - 1] = (damaged[len(damaged) - 1][0], good)
        else:
            damaged.append((at, good))
        at = good
    return frames, damaged


def index_frames(
    buffer, Py_ssize_t start, Py_ssize_t stop, uint64_t stream_id, SegmentIndex index not None,
    long long shift=0,
):
    """Check and index the records from ``start`` on; returns (count, position, why it stopped there).

    Stops before the first frame that is no good record of this stream in ascending order. Entry
    offsets are positions in the buffer plus ``shift``.
    """
    cdef _View view = _View(buffer)
    cdef Py_ssize_t at = max(start, 0), count = 0
    cdef Head head
    cdef Slot slot
    cdef int state, why = C_END
    if stop < 0 or stop > view.size:
        stop = view.size
    slot.subject = 0
    while at < stop:
        state = _judge(view.data, at, stop, &head)
        if state != WHOLE:
            why = C_TORN if state == CUT else C_DAMAGED
            break
        if head.kind != C_RECORD or head.stream_id != stream_id:
            why = C_FOREIGN
            break
        if not index.fits(head.seq) or at + shift < 0 or at + shift > 0xFFFFFFFF:
            why = C_DISORDER
            break
        slot.offset = <uint32_t>(at + shift)
        slot.delta = <uint32_t>(head.seq - index.base_seq)
        slot.ts_ns = head.ts_ns
        slot.payload_len = head.payload_len
        slot.headers_len = head.headers_len
        slot.meta_len = head.meta_len
        slot.tag_len = head.tag_len
        slot.node_len = head.node_len
        slot.flags = SLOT_DELETED if _deleted(view.data + at, head.frame_len) else 0
        index.append_raw(&slot, view.data + at + C_HEADER, head.subject_len)
        at += head.frame_len
        count += 1
    return count, at, why
