# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Unanswered deliveries as an array of slots, and the subjects that they are answered on."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.math cimport INFINITY
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove

from millstream.kernel._batch cimport Batch, Entry
from millstream.kernel._frames cimport Frames, Head


# As it is persisted, little-endian.
cdef packed struct Row:
    uint64_t seq
    uint64_t consumer_seq
    uint32_t deliveries


cdef struct Slot:
    uint64_t seq
    uint64_t consumer_seq
    double deadline
    uint32_t deliveries
    uint8_t live
    uint8_t changed          # differs from what was last taken down
    uint8_t known            # taken down as pending, however it was delivered again since


cdef class PendingAcks:
    """Deliveries by stream sequence, ascending, in ``head..tail``; answered ones leave holes.

    First deliveries ascend, so they are appended; the oldest is always at the head, which is
    where the ack floor ends.
    """

    cdef Slot *slots
    cdef Py_ssize_t head
    cdef Py_ssize_t tail
    cdef Py_ssize_t room
    cdef Py_ssize_t live
    cdef uint64_t *answered      # known to be pending by what was taken down, and answered since
    cdef Py_ssize_t answered_len
    cdef Py_ssize_t answered_room

    def __dealloc__(self):
        free(self.slots)
        free(self.answered)

    def __len__(self):
        return self.live

    def __contains__(self, uint64_t seq):
        return self._find(seq) >= 0

    cdef Py_ssize_t _place(self, uint64_t seq) noexcept nogil:
        """Return the first position whose sequence is ``seq`` or more."""
        cdef Py_ssize_t low = self.head, high = self.tail, middle
        cdef uint64_t ahead
        if low == high or seq <= self.slots[low].seq:
            return low
        # Sequences only grow, so an entry is never right of its place in a dense run.
        ahead = seq - self.slots[low].seq
        if ahead < <uint64_t>(high - low):
            high = low + <Py_ssize_t>ahead
            if self.slots[high].seq == seq:
                return high
        while low < high:
            middle = (low + high) >> 1
            if self.slots[middle].seq < seq:
                low = middle + 1
            else:
                high = middle
        return low

    cdef Py_ssize_t _find(self, uint64_t seq) noexcept nogil:
        cdef Py_ssize_t at = self._place(seq)
        if at < self.tail and self.slots[at].seq == seq and self.slots[at].live:
            return at
        return -1

    cdef int _reserve(self, Py_ssize_t extra) except -1:
        cdef Py_ssize_t at, to = 0, wanted
        cdef void *grown
        if self.tail + extra <= self.room:
            return 0
        for at in range(self.head, self.tail):  # holes first: one old delivery may keep thousands
            if self.slots[at].live:
                self.slots[to] = self.slots[at]
                to += 1
        self.head, self.tail = 0, to
        wanted = max(2 * (to + extra), 64)
        if wanted > self.room:
            grown = realloc(self.slots, wanted * sizeof(Slot))
            if grown == NULL:
                raise MemoryError
            self.slots = <Slot *>grown
            self.room = wanted
        return 0

    cdef int _answer(self, Py_ssize_t at) except -1:
        cdef void *grown
        if self.slots[at].known:
            if self.answered_len == self.answered_room:
                grown = realloc(self.answered, (2 * self.answered_room + 16) * sizeof(uint64_t))
                if grown == NULL:
                    raise MemoryError
                self.answered = <uint64_t *>grown
                self.answered_room = 2 * self.answered_room + 16
            self.answered[self.answered_len] = self.slots[at].seq
            self.answered_len += 1
        self.slots[at].live = False
        self.live -= 1
        while self.head < self.tail and not self.slots[self.head].live:
            self.head += 1
        if self.head == self.tail:
            self.head = self.tail = 0
        return 0

    def deliver(
        self, Frames frames not None, Py_ssize_t start, Py_ssize_t count,
        uint64_t first_consumer_seq, double deadline,
    ):
        """Note the first delivery of ``count`` frames, each with the next consumer sequence."""
        cdef Py_ssize_t i
        cdef Slot *slot
        cdef uint64_t seq
        if start < 0 or count < 0 or start + count > frames.length:
            raise IndexError("no such frames")
        self._reserve(count)
        for i in range(count):
            seq = frames.head(start + i).seq
            if self.tail > self.head and seq <= self.slots[self.tail - 1].seq:
                self.put(seq, first_consumer_seq + i, 1, deadline)
                continue
            slot = self.slots + self.tail
            slot.seq = seq
            slot.consumer_seq = first_consumer_seq + i
            slot.deadline = deadline
            slot.deliveries = 1
            slot.live = slot.changed = True
            slot.known = False
            self.tail += 1
            self.live += 1

    def put(
        self, uint64_t seq, uint64_t consumer_seq, uint32_t deliveries, double deadline,
        bint changed=True,
    ):
        """Set one delivery, known or not."""
        cdef Py_ssize_t at
        self._reserve(1)
        at = self._place(seq)
        if at == self.tail or self.slots[at].seq != seq:
            memmove(self.slots + at + 1, self.slots + at, (self.tail - at) * sizeof(Slot))
            self.tail += 1
            self.slots[at].live = False
        if not self.slots[at].live:
            self.live += 1
            self.slots[at].known = False
        self.slots[at].seq = seq
        self.slots[at].consumer_seq = consumer_seq
        self.slots[at].deliveries = deliveries
        self.slots[at].deadline = deadline
        self.slots[at].live = True
        self.slots[at].changed = changed
        self.slots[at].known |= not changed

    def get(self, uint64_t seq):
        """Return (consumer sequence, deliveries, deadline), None when it is not pending."""
        cdef Py_ssize_t at = self._find(seq)
        if at < 0:
            return None
        return self.slots[at].consumer_seq, self.slots[at].deliveries, self.slots[at].deadline

    def wait_until(self, uint64_t seq, double deadline):
        """Set a deadline; False when it is not pending."""
        cdef Py_ssize_t at = self._find(seq)
        if at < 0:
            return False
        self.slots[at].deadline = deadline
        return True

    def remove(self, uint64_t seq):
        """Forget one delivery; False when it is not pending."""
        cdef Py_ssize_t at = self._find(seq)
        if at < 0:
            return False
        self._answer(at)
        return True

    def clear(self):
        """Forget everything."""
        self.head = self.tail = self.live = self.answered_len = 0

    def up_to(self, uint64_t seq):
        """Return the pending sequences at or below ``seq``, ascending."""
        cdef Py_ssize_t at
        cdef list found = []
        for at in range(self.head, self.tail):
            if self.slots[at].seq > seq:
                break
            if self.slots[at].live:
                found.append(self.slots[at].seq)
        return found

    def oldest(self):
        """Return (stream sequence, consumer sequence) of the lowest pending one, zeros if none."""
        if self.head == self.tail:
            return 0, 0
        return self.slots[self.head].seq, self.slots[self.head].consumer_seq

    def expired(self, double now):
        """Return the sequences whose deadline has come, ascending."""
        cdef Py_ssize_t at
        cdef list found = []
        for at in range(self.head, self.tail):
            if self.slots[at].live and self.slots[at].deadline <= now:
                found.append(self.slots[at].seq)
        return found

    def next_deadline(self):
        """Return the earliest deadline, infinity when there is none."""
        cdef Py_ssize_t at
        cdef double least = INFINITY
        for at in range(self.head, self.tail):
            if self.slots[at].live and self.slots[at].deadline < least:
                least = self.slots[at].deadline
        return least

    def take_acks(self, Batch batch not None, Py_ssize_t prefix, list acked=None):
        """Answer the plain acks of a batch at once: no reply, first delivery, nothing but an ack.

        ``prefix`` is the length of ``$JS.ACK.<stream>.<consumer>.``. Returns (how many were
        answered, positions of the messages that need a look); ``acked`` collects sequences.
        """
        cdef Py_ssize_t i, at, done = 0
        cdef const Entry *entry
        cdef uint64_t seq
        cdef list others = []
        if prefix < 0:
            raise IndexError("a prefix has a length")
        for i in range(batch.length):
            entry = batch.entry(i)
            if entry.reply_len or not _is_plain(entry):
                others.append(i)
                continue
            seq = _stream_seq(<const char *>entry + sizeof(Entry), entry.subject_len, prefix)
            at = self._find(seq) if seq else -1
            if at < 0 or self.slots[at].deliveries != 1 or self.slots[at].deadline == INFINITY:
                others.append(i)
                continue
            self._answer(at)
            done += 1
            if acked is not None:
                acked.append(seq)
        return done, others

    def take_changes(self, uint64_t floor):
        """Return (rows that are new, sequences above ``floor`` answered) since the last call."""
        cdef Py_ssize_t at, kept = 0
        cdef bytes rows = self._rows(True)
        cdef bytes gone
        for at in range(self.answered_len):
            if self.answered[at] > floor:
                self.answered[kept] = self.answered[at]
                kept += 1
        gone = PyBytes_FromStringAndSize(<const char *>self.answered, kept * sizeof(uint64_t)) \
            if kept else b""
        self.answered_len = 0
        return rows, gone

    def rows(self):
        """Return everything, 20 bytes a delivery."""
        return self._rows(False)

    cdef bytes _rows(self, bint changed):
        cdef Py_ssize_t at, count = 0
        cdef bytes packed
        cdef Row *to
        for at in range(self.head, self.tail):
            count += self.slots[at].live and (self.slots[at].changed or not changed)
        packed = PyBytes_FromStringAndSize(NULL, count * sizeof(Row))
        to = <Row *>PyBytes_AS_STRING(packed)
        for at in range(self.head, self.tail):
            if self.slots[at].live and (self.slots[at].changed or not changed):
                to.seq = self.slots[at].seq
                to.consumer_seq = self.slots[at].consumer_seq
                to.deliveries = self.slots[at].deliveries
                to += 1
                if changed:
                    self.slots[at].changed = False
                    self.slots[at].known = True
        return packed


cdef bint _is_plain(const Entry *entry) noexcept nogil:
    cdef const char *payload
    if entry.payload_len == 0:
        return True
    payload = <const char *>entry + entry.size - entry.payload_len
    if entry.payload_len == 4:
        return memcmp(payload, "+ACK", 4) == 0
    return entry.payload_len == 3 and memcmp(payload, "+OK", 3) == 0


cdef uint64_t _stream_seq(const char *subject, Py_ssize_t size, Py_ssize_t at) noexcept nogil:
    """Return the second of exactly five numbers behind ``at``, 0 when there is something else."""
    cdef uint64_t number = 0, seq = 0
    cdef int numbers = 0
    cdef Py_ssize_t digits = 0
    while at <= size:
        if at == size or subject[at] == c".":
            if not digits:
                return 0
            numbers += 1
            if numbers == 2:
                seq = number
            number = digits = 0
        elif c"0" <= subject[at] <= c"9" and digits < 20:
            number = 10 * number + <uint64_t>(subject[at] - c"0")
            digits += 1
        else:
            return 0
        at += 1
    return seq if numbers == 5 else 0


cdef Py_ssize_t _write_number(char *to, uint64_t number) noexcept nogil:
    cdef char digits[20]
    cdef Py_ssize_t count = 0, i
    while True:
        digits[count] = <char>(c"0" + number % 10)
        number //= 10
        count += 1
        if not number:
            break
    for i in range(count):
        to[i] = digits[count - 1 - i]
    return count


def ack_replies(
    bytes prefix not None, Frames frames not None, Py_ssize_t start, Py_ssize_t count,
    uint64_t deliveries, uint64_t first_consumer_seq, uint64_t left,
):
    """Return (ack subjects of ``count`` frames, their size as clients count it).

    ``left`` is how many records are pending behind the first; each further one has one less.
    The size is that of subject, reply, headers and payload.
    """
    cdef Py_ssize_t i, used, fixed, size = 0
    cdef char text[512]
    cdef const Head *head
    cdef list replies = []
    if start < 0 or count < 0 or start + count > frames.length:
        raise IndexError("no such frames")
    used = PyBytes_GET_SIZE(prefix)
    if used > 384:
        return _long_replies(prefix, frames, start, count, deliveries, first_consumer_seq, left)
    memcpy(text, PyBytes_AS_STRING(prefix), used)
    fixed = used + _write_number(text + used, deliveries)
    text[fixed] = c"."
    fixed += 1
    for i in range(count):
        head = frames.head(start + i)
        used = fixed + _write_number(text + fixed, head.seq)
        text[used] = c"."
        used += 1 + _write_number(text + used + 1, first_consumer_seq + i)
        text[used] = c"."
        used += 1 + _write_number(text + used + 1, head.ts_ns)
        text[used] = c"."
        used += 1 + _write_number(text + used + 1, left - i if left > <uint64_t>i else 0)
        replies.append(PyBytes_FromStringAndSize(text, used))
        size += head.subject_len + head.headers_len + <Py_ssize_t>head.payload_len + used
    return replies, size


def ack_sizes(Frames frames not None, Py_ssize_t start, list replies not None):
    """Return the size of each frame from ``start`` on as clients count it, with its ack subject."""
    cdef Py_ssize_t i, count = len(replies)
    cdef const Head *head
    cdef list sizes = []
    if start < 0 or start + count > frames.length:
        raise IndexError("no such frames")
    for i in range(count):
        head = frames.head(start + i)
        sizes.append(
            head.subject_len + head.headers_len + <Py_ssize_t>head.payload_len + len(replies[i]))
    return sizes


def _long_replies(prefix, Frames frames, start, count, deliveries, first_consumer_seq, left):
    """The same for names so long that the subject needs memory of its own."""
    replies, size = [], 0
    for i in range(count):
        seq, ts_ns, subject, payload, headers, *_ = frames.record(start + i)
        numbers = (deliveries, seq, first_consumer_seq + i, ts_ns, max(left - i, 0))
        reply = prefix + b"%d.%d.%d.%d.%d" % numbers
        replies.append(reply)
        size += len(subject) + len(headers) + len(payload) + len(reply)
    return replies, size
