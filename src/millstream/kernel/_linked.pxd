from libc.stdint cimport uint32_t, uint64_t

from millstream.kernel._conn cimport Conn, Pub
from millstream.kernel._interest cimport Interest, Match, Members, Sub
from millstream.kernel._publishing cimport Publishing


# A link that the message under way goes to.
cdef struct Target:
    Conn *conn
    Sub *sub                  # one of its subscriptions that matched


# A queue group of the message under way, and the link that was chosen for it.
cdef struct Pick:
    Conn *conn
    Members *group


cdef class Linked(Publishing):
    cdef dict clusters        # leaf clusters by name → number
    cdef list cluster_names   # by number - 1
    cdef uint64_t stamp       # of the message under way
    cdef Target *targets
    cdef Py_ssize_t target_count
    cdef Py_ssize_t target_room
    cdef Pick *picks
    cdef Py_ssize_t pick_count
    cdef Py_ssize_t pick_room
    cdef uint64_t link_in_msgs
    cdef uint64_t link_in_bytes
    cdef uint64_t link_out_msgs
    cdef uint64_t link_out_bytes

    cdef uint32_t _cluster_number(self, bytes name)
    cdef Py_ssize_t _link_line(
        self, Conn *conn, const char *at, const char *lf, Py_ssize_t size,
    ) noexcept
    cdef Py_ssize_t _link_message(
        self, Conn *conn, const char *op, const char *args, const char *line_end,
        const char *body, const char *end, bint headed, bint tells_origin,
    ) noexcept
    cdef bint _enter_space(self, Conn *conn, const char *account, Py_ssize_t size) noexcept
    cdef void _publish_linked(self, Conn *conn, Pub *pub) noexcept
    cdef void _call_wish(self, Conn *conn, const char *at, const char *end, int verb) noexcept
    cdef void _call_err(self, Conn *conn, const char *at, const char *end) noexcept
    cdef uint32_t _weighted_start(self, Members *group) noexcept
    cdef int _give_group(self, Members *group, Pub *pub, int source, uint32_t cluster) noexcept
    cdef void _aim(self, Sub *sub, Members *group) noexcept
    cdef Py_ssize_t _names_len(self, Conn *conn) noexcept
    cdef void _write_linked(self, Target *target, Pub *pub, uint32_t cluster) noexcept
    cdef char *_write_link_head(
        self, char *to, Target *target, Pub *pub, bint with_headers, bytes origin, bint queued_up,
    ) noexcept
