from libc.stdint cimport uint16_t, uint32_t, uint64_t

from millstream.kernel._batch cimport Batch
from millstream.kernel._scan cimport Word
from millstream.kernel._trie cimport Branch


# One subscription. Behind it lie the words of what it does not get, then its sid, its queue, its
# pattern, and the text of those words.
cdef struct Sub:
    void *target          # the hub's Conn, or a SinkSlot that the Interest keeps alive
    Node *node
    uint64_t id
    uint64_t delivered
    uint64_t limit        # 0 = none; of a link its weight, and above it a leaf cluster's number
    uint32_t index        # place in the node's list
    uint32_t sid_len      # with the spaces around it
    uint32_t queue_len
    uint32_t pattern_len
    uint32_t denied_count
    uint16_t is_sink
    uint16_t link         # the kind of the link that wants it; 0 = a client or a sink


# How many members a link's subscription stands for.
cdef inline uint32_t sub_weight(const Sub *sub) noexcept nogil:
    return <uint32_t>sub.limit if sub.link else 1


# The leaf cluster that a route's subscription is for; 0 = none.
cdef inline uint32_t sub_cluster(const Sub *sub) noexcept nogil:
    return <uint32_t>(sub.limit >> 32)


# Patterns whose subjects this subscription does not get.
cdef inline Word *sub_denied(const Sub *sub) noexcept nogil:
    return <Word *>(<char *>sub + sizeof(Sub))


# b" 17 ", ready to follow the subject of a MSG.
cdef inline char *sub_sid(const Sub *sub) noexcept nogil:
    return <char *>sub + sizeof(Sub) + sub.denied_count * sizeof(Word)


cdef inline char *sub_queue(const Sub *sub) noexcept nogil:
    return sub_sid(sub) + sub.sid_len


cdef inline char *sub_pattern(const Sub *sub) noexcept nogil:
    return sub_queue(sub) + sub.queue_len


cdef struct Members:
    char *name
    uint32_t name_len
    Sub **subs
    uint32_t count
    uint32_t room


cdef struct Node:
    Branch branch
    Sub **plain           # with room for none, this is the one subscription itself
    uint32_t plain_count
    uint32_t plain_room
    Members *groups
    uint32_t group_count


# What one literal subject matches; ``stale`` once a subscription that concerns it came or went.
cdef struct Match:
    Match *chain
    bint stale
    bint linked           # some of it goes to other servers
    bint is_own           # the last token made a difference: a subject beside it may match others
    uint64_t hash
    char *subject
    uint32_t subject_len
    uint32_t place        # in the dense list that eviction picks from
    Sub **plain
    uint32_t plain_count
    uint32_t plain_room
    Members *groups       # the names are borrowed from the trie
    uint32_t group_count
    uint32_t group_room


cdef enum:
    PREFIX = 128          # of a subject that is kept, so that its neighbours need no match


cdef class SinkSlot:
    cdef object sink
    cdef Batch batch
    cdef bint dirty
    cdef bint paused
    cdef bint removed
    cdef bint costly          # each message costs about as much as a call of the handler
    cdef bint routed          # wants the subject that was matched, and the shown one as tag
    cdef Sub *sub


cdef class Interest:
    cdef Branch *root
    cdef uint64_t seed
    cdef uint64_t dice
    cdef uint64_t next_id
    cdef readonly uint64_t epoch      # moves with every subscription that comes or goes
    cdef uint64_t sweeps              # moves whenever a Match pointer may have gone bad
    cdef Match **buckets
    cdef Match **entries
    cdef uint32_t bucket_mask
    cdef uint32_t entry_count
    cdef uint32_t cache_limit
    cdef uint32_t sweep_to
    cdef Match scratch
    cdef uint64_t scratch_epoch       # when it was filled
    cdef Py_ssize_t shared_len        # of what a subject begins with that matches the same, or 0
    cdef char[PREFIX] shared          # that
    cdef uint64_t subscriptions
    cdef uint64_t inserts
    cdef uint64_t removes
    cdef uint64_t matches
    cdef uint64_t cache_hits
    cdef uint64_t links               # subscriptions of other servers
    cdef bint linking                 # the one that is being made is such a one
    cdef list observers               # told of each subscription that comes or goes here
    cdef bint many                    # sinks come or go: all that is cached is stale already
    cdef dict slots
    cdef list resume_hooks
    cdef dict watchers                # (subject, queue) → callbacks
    cdef list news                    # (callback, whether there is interest), not yet told

    cdef Sub *insert(
        self, const char *pattern, Py_ssize_t size, const char *queue, Py_ssize_t queue_len,
        const char *sid, Py_ssize_t sid_len, tuple denied,
    ) noexcept
    cdef void remove(self, Sub *sub) noexcept
    cdef Match *lookup(self, const char *subject, Py_ssize_t size) noexcept
    cdef Match *match_once(self, const char *subject, Py_ssize_t size) noexcept
    cdef void fill(self, Match *to, const char *subject, Py_ssize_t size) noexcept
    cdef void share(self, const char *subject, Py_ssize_t size) noexcept
    cdef void sweep(self) noexcept
    cdef Match *remember(self, const char *subject, Py_ssize_t size, uint64_t hashed) noexcept
    cdef Match *cached(self, const char *subject, Py_ssize_t size, uint64_t hashed) noexcept
    cdef void outdate(self, Sub *sub) noexcept
    cdef object placed(
        self, bytes pattern, object sink, bytes queue, bint routed, bint costly,
    )
    cdef SinkSlot displaced(self, uint64_t handle)
    cdef void begin_many(self, Py_ssize_t count) noexcept
    cdef void changed(self, Sub *sub, uint32_t count, bint interested) noexcept
    cdef void observed(self, Sub *sub, int step) noexcept
    cdef void tell(self) noexcept
    cdef uint64_t random(self) noexcept
    cdef Match *find(
        self, const char *subject, Py_ssize_t size, uint64_t admit_mask=*
    ) noexcept
    cdef bint lasts(self, const Match *match) noexcept


cdef bint is_denied(const Sub *sub, const char *subject, Py_ssize_t size) noexcept nogil
