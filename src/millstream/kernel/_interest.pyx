# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Interest: one subject space as a trie of tokens, with a cache of match results."""

import logging
import os
from functools import partial

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, memcpy, memset

from millstream.kernel._batch cimport Batch
from millstream.kernel._memory cimport hash_bytes, must_alloc, must_grow
from millstream.kernel._buffer cimport put
from millstream.kernel._scan cimport Word
from millstream.kernel._subject cimport (
    has_empty_token, is_token, pattern_covers, pattern_is_legal, pattern_matches,
    patterns_collide, subject_is_legal, token_end,
)

from millstream.kernel._trie cimport (
    Branch, Fork, branch_new, child_named, node_at, node_made, prune, token_hash, tree_free,
)

log = logging.getLogger(__name__)

cdef enum:
    MANY = 16  # sinks that come or go together: more than that make the whole cache stale
    ADMIT_MASK = 7  # one in eight subjects that the cache lacks enters it


# ---- lists of subscriptions ------------------------------------------------------------------

cdef inline void members_add(Members *to, Sub *sub) noexcept nogil:
    if to.count == to.room:
        to.room = 2 * to.room + 2
        to.subs = <Sub **>must_grow(to.subs, to.room * sizeof(Sub *))
    to.subs[to.count] = sub
    to.count += 1


cdef inline Members *group_named(
    Members *groups, uint32_t count, const char *name, uint32_t size
) noexcept nogil:
    cdef uint32_t i
    for i in range(count):
        if groups[i].name_len == size and memcmp(groups[i].name, name, size) == 0:
            return &groups[i]
    return NULL


cdef Members *node_group(Node *node, const char *name, uint32_t size) noexcept nogil:
    """Return the node's group of that name, made if need be."""
    cdef Members *group = group_named(node.groups, node.group_count, name, size)
    if group != NULL:
        return group
    node.groups = <Members *>must_grow(node.groups, (node.group_count + 1) * sizeof(Members))
    group = &node.groups[node.group_count]
    node.group_count += 1
    memset(group, 0, sizeof(Members))
    group.name = <char *>must_alloc(size)
    memcpy(group.name, name, size)
    group.name_len = size
    return group


cdef void members_drop(Members *where, Sub *sub) noexcept nogil:
    where.count -= 1
    where.subs[sub.index] = where.subs[where.count]
    where.subs[sub.index].index = sub.index
    if where.count == 0:
        free(where.subs)
        where.subs = NULL
        where.room = 0


cdef inline Sub *plain_at(const Node *node, uint32_t i) noexcept nogil:
    return node.plain[i] if node.plain_room else <Sub *>node.plain


cdef void plain_add(Node *node, Sub *sub) noexcept nogil:
    """Most nodes have one subscription, which needs no list."""
    cdef Sub *only
    if node.plain_count == 0:
        node.plain = <Sub **>sub
    else:
        if node.plain_room == 0:
            only = <Sub *>node.plain
            node.plain_room = 4
            node.plain = <Sub **>must_alloc(node.plain_room * sizeof(Sub *))
            node.plain[0] = only
        elif node.plain_count == node.plain_room:
            node.plain_room *= 2
            node.plain = <Sub **>must_grow(node.plain, node.plain_room * sizeof(Sub *))
        node.plain[node.plain_count] = sub
    node.plain_count += 1


cdef void plain_drop(Node *node, Sub *sub) noexcept nogil:
    cdef Sub *only
    node.plain_count -= 1
    if node.plain_room:
        node.plain[sub.index] = node.plain[node.plain_count]
        node.plain[sub.index].index = sub.index
    if node.plain_room and node.plain_count < 2:
        only = node.plain[0]
        free(node.plain)
        node.plain = <Sub **>only
        node.plain_room = 0
    if node.plain_count == 0:
        node.plain = NULL


cdef void node_drop(Node *node, Sub *sub) noexcept nogil:
    """Take ``sub`` off its node's lists, and its group with it when it was the last."""
    cdef Members *group
    if sub.queue_len == 0:
        plain_drop(node, sub)
        return
    group = group_named(node.groups, node.group_count, sub_queue(sub), sub.queue_len)
    members_drop(group, sub)
    if group.count == 0:
        free(group.name)
        node.group_count -= 1
        group[0] = node.groups[node.group_count]
        if node.group_count == 0:
            free(node.groups)
            node.groups = NULL


# ---- nodes -----------------------------------------------------------------------------------

cdef bint is_empty(Branch *branch) noexcept nogil:
    cdef Node *node = <Node *>branch
    return node.plain_count == 0 and node.group_count == 0


cdef void undo(Branch *branch) noexcept nogil:
    """Free what hangs on a node."""
    cdef Node *node = <Node *>branch
    cdef uint32_t i
    for i in range(node.plain_count):
        free(plain_at(node, i))
    if node.plain_room:
        free(node.plain)
    for i in range(node.group_count):
        free(node.groups[i].name)
        members_free(&node.groups[i])
    free(node.groups)


cdef void members_free(Members *members) noexcept nogil:
    cdef uint32_t i
    for i in range(members.count):
        free(members.subs[i])
    free(members.subs)


cdef uint32_t group_count(Node *node, const char *queue, uint32_t size) noexcept nogil:
    cdef Members *group
    if size == 0:
        return node.plain_count
    group = group_named(node.groups, node.group_count, queue, size)
    return group.count if group != NULL else 0


cdef inline uint32_t node_count(Node *node, const Sub *sub) noexcept nogil:
    return group_count(node, sub_queue(sub), sub.queue_len)


# ---- subscriptions ---------------------------------------------------------------------------

cdef Sub *sub_new(
    const char *pattern, Py_ssize_t size, const char *queue, Py_ssize_t queue_len,
    const char *sid, Py_ssize_t sid_len, tuple denied,
) noexcept:
    """One block: the Sub, the words of ``denied``, then all the text they point to."""
    cdef Py_ssize_t words = len(denied) * sizeof(Word)
    cdef Py_ssize_t text = sid_len + 2 + queue_len + size
    cdef bytes item
    cdef char *to
    cdef Sub *sub
    cdef Word *word
    for item in denied:
        text += PyBytes_GET_SIZE(item)
    sub = <Sub *>must_alloc(sizeof(Sub) + words + text)
    memset(sub, 0, sizeof(Sub))
    sub.denied_count = <uint32_t>len(denied)
    sub.sid_len = <uint32_t>(sid_len + 2)
    sub.queue_len = <uint32_t>queue_len
    sub.pattern_len = <uint32_t>size
    to = put(sub_sid(sub), b" ", 1)
    to = put(to, sid, sid_len)
    to = put(to, b" ", 1)
    to = put(to, queue, queue_len)
    to = put(to, pattern, size)
    word = sub_denied(sub)
    for item in denied:
        word.at = to
        word.size = <uint32_t>PyBytes_GET_SIZE(item)
        to = put(to, PyBytes_AS_STRING(item), PyBytes_GET_SIZE(item))
        word += 1
    return sub


# ---- matching --------------------------------------------------------------------------------

cdef bint is_denied(const Sub *sub, const char *subject, Py_ssize_t size) noexcept nogil:
    cdef const Word *denied = sub_denied(sub)
    cdef uint32_t i
    for i in range(sub.denied_count):
        if pattern_matches(denied[i].at, denied[i].size, subject, size):
            return True
    return False


cdef void match_plain(Match *to, const Node *node) noexcept nogil:
    cdef uint32_t needed = to.plain_count + node.plain_count
    cdef Sub *sub
    cdef uint32_t i
    if needed > to.plain_room:
        to.plain_room = needed + needed // 2
        to.plain = <Sub **>must_grow(to.plain, to.plain_room * sizeof(Sub *))
    for i in range(node.plain_count):
        sub = plain_at(node, i)
        if sub.denied_count:
            to.is_own = True
            if is_denied(sub, to.subject, to.subject_len):
                continue
        to.plain[to.plain_count] = sub
        to.plain_count += 1


cdef Members *match_group_made(Match *to, Members *members) noexcept nogil:
    """Return the result's group of that name: one group across patterns."""
    cdef Members *group = group_named(to.groups, to.group_count, members.name, members.name_len)
    if group != NULL:
        return group
    if to.group_count == to.group_room:
        to.groups = <Members *>must_grow(to.groups, (2 * to.group_room + 1) * sizeof(Members))
        memset(&to.groups[to.group_room], 0, (to.group_room + 1) * sizeof(Members))
        to.group_room = 2 * to.group_room + 1
    group = &to.groups[to.group_count]
    to.group_count += 1
    group.count = 0
    group.name = members.name
    group.name_len = members.name_len
    return group


cdef void match_group(Match *to, Members *members) noexcept nogil:
    cdef uint32_t i
    for i in range(members.count):
        if members.subs[i].denied_count:
            to.is_own = True
            if is_denied(members.subs[i], to.subject, to.subject_len):
                continue
        members_add(match_group_made(to, members), members.subs[i])


cdef inline void match_node(Match *to, const Branch *branch) noexcept nogil:
    cdef const Node *node = <const Node *>branch
    cdef uint32_t i
    if node.plain_count:
        match_plain(to, node)
    for i in range(node.group_count):
        match_group(to, &node.groups[i])


cdef inline Branch *named(
    const Branch *node, const char *at, const char *stop, uint64_t seed
) noexcept nogil:
    return child_named(
        node, sizeof(Node), at, <uint32_t>(stop - at), token_hash(at, stop - at, seed))


cdef void match_from(
    const Branch *node, const char *at, const char *end, uint64_t seed, Match *to
) noexcept nogil:
    """Add everything below ``node`` that the tokens in ``at``..``end`` reach."""
    cdef const char *dot = <const char *>memchr(at, b".", end - at)
    cdef const char *stop = dot if dot != NULL else end
    cdef const Fork *fork = node.fork
    cdef Branch *child = NULL
    if fork == NULL:
        return
    if fork.rest != NULL:
        match_node(to, fork.rest)
    if fork.children:
        child = named(node, at, stop, seed)
    if dot == NULL:
        if fork.children:
            to.is_own = True
        if child != NULL:
            match_node(to, child)
        if fork.star != NULL:
            match_node(to, fork.star)
        return
    if child != NULL:
        match_from(child, dot + 1, end, seed, to)
    if fork.star != NULL:
        match_from(fork.star, dot + 1, end, seed, to)


cdef void match_below(Match *to, const Branch *node) noexcept nogil:
    """Add ``node`` and everything under it."""
    if node != NULL:
        match_node(to, node)
        match_under(to, node.fork)


cdef void match_under(Match *to, const Fork *fork) noexcept nogil:
    cdef Branch *child
    cdef uint32_t i
    if fork == NULL:
        return
    for i in range(fork.table_size):
        child = fork.table[i]
        while child != NULL:
            match_below(to, child)
            child = child.chain
    match_below(to, fork.star)
    match_below(to, fork.rest)


cdef void reverse_step(
    const Branch *node, const char *stop, const char *end, uint64_t seed, Match *to
) noexcept nogil:
    if node == NULL:
        return
    if stop == end:
        match_node(to, node)
    else:
        reverse_from(node, stop + 1, end, seed, to)


cdef void reverse_from(
    const Branch *node, const char *at, const char *end, uint64_t seed, Match *to
) noexcept nogil:
    """Add what collides with the pattern's tokens in ``at``..``end``, below ``node``."""
    cdef const char *stop = token_end(at, end)
    cdef const Fork *fork = node.fork
    cdef Branch *child
    cdef uint32_t i
    if fork == NULL:
        return
    if is_token(at, stop, b">"):
        match_under(to, fork)
        return
    if fork.rest != NULL:
        match_node(to, fork.rest)
    if is_token(at, stop, b"*"):
        for i in range(fork.table_size):
            child = fork.table[i]
            while child != NULL:
                reverse_step(child, stop, end, seed, to)
                child = child.chain
    elif fork.children:
        reverse_step(named(node, at, stop, seed), stop, end, seed, to)
    reverse_step(fork.star, stop, end, seed, to)


cdef bint has_links(const Match *match) noexcept nogil:
    cdef uint32_t i, k
    for i in range(match.plain_count):
        if match.plain[i].link:
            return True
    for i in range(match.group_count):
        for k in range(match.groups[i].count):
            if match.groups[i].subs[k].link:
                return True
    return False


cdef void match_free(Match *match) noexcept nogil:
    cdef uint32_t i
    for i in range(match.group_room):
        free(match.groups[i].subs)
    free(match.groups)
    free(match.plain)


cdef class SinkSlot:
    """One registered sink, and the batch that is growing for it."""


cdef class Interest:
    """Patterns to subscriptions. Not thread-safe: it belongs to the loop's thread."""

    def __cinit__(self, uint32_t cache=1024, uint32_t sweep=256):
        cdef uint32_t size = 16
        if cache == 0 or sweep >= cache:
            raise ValueError("the cache must hold more entries than a sweep leaves")
        while size < 2 * cache:
            size *= 2
        self.root = branch_new(NULL, sizeof(Node), NULL, 0, 0)
        self.seed = int.from_bytes(os.urandom(8), "little")
        self.dice = int.from_bytes(os.urandom(8), "little") | 1
        self.next_id = 1
        self.buckets = <Match **>must_alloc(size * sizeof(Match *))
        memset(self.buckets, 0, size * sizeof(Match *))
        self.bucket_mask = size - 1
        self.entries = <Match **>must_alloc((cache + 1) * sizeof(Match *))
        self.cache_limit = cache
        self.sweep_to = sweep
        self.slots = {}
        self.resume_hooks = []
        self.watchers = {}
        self.news = []
        self.observers = []

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.entry_count):
            match_free(self.entries[i])
            free(self.entries[i])
        match_free(&self.scratch)
        free(self.entries)
        free(self.buckets)
        tree_free(self.root, undo)

    cdef uint64_t random(self) noexcept:
        self.dice ^= self.dice << 13
        self.dice ^= self.dice >> 7
        self.dice ^= self.dice << 17
        return self.dice

    cdef Sub *insert(
        self, const char *pattern, Py_ssize_t size, const char *queue, Py_ssize_t queue_len,
        const char *sid, Py_ssize_t sid_len, tuple denied,
    ) noexcept:
        """Register a subscription; NULL when the pattern is no legal subject."""
        cdef Members *group
        cdef Node *node
        cdef Sub *sub
        if not pattern_is_legal(pattern, size):
            return NULL
        node = <Node *>node_made(self.root, sizeof(Node), pattern, size, self.seed)
        sub = sub_new(pattern, size, queue, queue_len, sid, sid_len, denied)
        sub.node = node
        sub.id = self.next_id
        self.next_id += 1
        if queue_len:
            group = node_group(node, queue, <uint32_t>queue_len)
            sub.index = group.count
            members_add(group, sub)
        else:
            sub.index = node.plain_count
            plain_add(node, sub)
        self.subscriptions += 1
        self.inserts += 1
        self.outdate(sub)
        if self.watchers:
            self.changed(sub, sub.index, True)
        if self.linking:
            self.links += 1
        elif self.observers:
            self.observed(sub, 1)
        return sub

    cdef void remove(self, Sub *sub) noexcept:
        """Forget and free ``sub``; cached results that name it are stale from here on."""
        self.outdate(sub)
        node_drop(sub.node, sub)
        if self.watchers:
            self.changed(sub, node_count(sub.node, sub), False)
        if sub.link:
            self.links -= 1
        elif self.observers:
            self.observed(sub, -1)
        prune(<Branch *>sub.node, is_empty)
        free(sub)
        self.subscriptions -= 1
        self.removes += 1

    cdef void outdate(self, Sub *sub) noexcept:
        """Make stale what the cache knows of subjects that ``sub`` matches, and nothing else."""
        cdef const char *pattern = sub_pattern(sub)
        cdef Match *match
        cdef uint32_t i
        self.epoch += 1
        if self.many:
            return
        if subject_is_legal(pattern, sub.pattern_len):
            match = self.cached(
                pattern, sub.pattern_len, hash_bytes(pattern, sub.pattern_len, self.seed))
            if match != NULL:
                match.stale = True
            return
        for i in range(self.entry_count):
            match = self.entries[i]
            if not match.stale and pattern_matches(
                    pattern, sub.pattern_len, match.subject, match.subject_len):
                match.stale = True

    cdef void changed(self, Sub *sub, uint32_t count, bint interested) noexcept:
        """The first subscription to a watched subject came, or the last one went."""
        if count == 0:
            key = (sub_pattern(sub)[:sub.pattern_len], sub_queue(sub)[:sub.queue_len])
            for callback in self.watchers.get(key, ()):
                self.news.append((callback, interested))

    cdef void observed(self, Sub *sub, int step) noexcept:
        change = (sub_pattern(sub)[:sub.pattern_len], sub_queue(sub)[:sub.queue_len], step)
        for callback in self.observers:
            self.news.append((callback, change))

    cdef void tell(self) noexcept:
        """Tell watchers; called where no match result is in use, as they may do anything."""
        cdef list news
        while self.news:
            news = self.news
            self.news = []
            for callback, interested in news:
                try:
                    callback(interested)
                except Exception:
                    log.exception("a watcher of interest failed")

    cdef void fill(self, Match *to, const char *subject, Py_ssize_t size) noexcept:
        to.subject = <char *>subject
        to.subject_len = <uint32_t>size
        to.plain_count = 0
        to.group_count = 0
        to.stale = False
        to.is_own = False
        if has_empty_token(subject, size):
            to.is_own = True
        else:
            match_from(self.root, subject, subject + size, self.seed, to)
        to.linked = self.links > 0 and has_links(to)

    cdef Match *match_once(self, const char *subject, Py_ssize_t size) noexcept:
        """Match without touching the cache; valid until the next match_once.

        Of many inboxes and acknowledgements in a row only the last token differs, which mostly is a
        wildcard's: what the one before has matched, they match.
        """
        cdef Py_ssize_t same = self.shared_len
        if same and size > same and self.scratch_epoch == self.epoch \
                and memcmp(subject, self.shared, same) == 0 \
                and memchr(subject + same, b".", size - same) == NULL:
            self.scratch.subject = <char *>subject
            self.scratch.subject_len = <uint32_t>size
            return &self.scratch
        self.fill(&self.scratch, subject, size)
        self.share(subject, size)
        return &self.scratch

    cdef void share(self, const char *subject, Py_ssize_t size) noexcept:
        """Note for which subjects besides this one the scratch result holds."""
        cdef Py_ssize_t same = size
        while same and subject[same - 1] != b".":
            same -= 1
        self.shared_len = 0 if self.scratch.is_own or same > PREFIX else same
        self.scratch_epoch = self.epoch
        memcpy(self.shared, subject, self.shared_len)

    cdef Match *cached(self, const char *subject, Py_ssize_t size, uint64_t hashed) noexcept:
        cdef Match *match = self.buckets[hashed & self.bucket_mask]
        while match != NULL:
            if match.hash == hashed and match.subject_len == size \
                    and memcmp(match.subject, subject, size) == 0:
                return match
            match = match.chain
        return NULL

    cdef Match *lookup(self, const char *subject, Py_ssize_t size) noexcept:
        """Match by way of the cache; valid while ``sweeps`` stays and it is not stale."""
        return self.find(subject, size, 0)

    cdef Match *find(
        self, const char *subject, Py_ssize_t size, uint64_t admit_mask=ADMIT_MASK
    ) noexcept:
        """Match as ``lookup`` does, but remember only one in a few: valid as ``lasts`` says.

        Inboxes and acknowledgements come once each. What comes often is remembered before long.
        """
        cdef uint64_t hashed = hash_bytes(subject, size, self.seed)
        cdef Match *match = self.cached(subject, size, hashed)
        self.matches += 1
        if match != NULL and not match.stale:
            self.cache_hits += 1
            return match
        if match == NULL:
            if self.random() & admit_mask:
                return self.match_once(subject, size)
            match = self.remember(subject, size, hashed)
        self.fill(match, match.subject, size)
        return match

    cdef bint lasts(self, const Match *match) noexcept:
        """Whether a match that was found stays valid while ``sweeps`` does and it is not stale."""
        return match != &self.scratch

    cdef Match *remember(self, const char *subject, Py_ssize_t size, uint64_t hashed) noexcept:
        """Make an entry of the cache, still to be filled; its subject lies behind it."""
        cdef Match *match
        if self.entry_count == self.cache_limit:
            self.sweep()
        match = <Match *>must_alloc(sizeof(Match) + size)
        memset(match, 0, sizeof(Match))
        match.subject = <char *>match + sizeof(Match)
        memcpy(match.subject, subject, size)
        match.subject_len = <uint32_t>size
        match.hash = hashed
        match.chain = self.buckets[hashed & self.bucket_mask]
        self.buckets[hashed & self.bucket_mask] = match
        self.entries[self.entry_count] = match
        self.entry_count += 1
        return match

    cdef void sweep(self) noexcept:
        """Evict at random down to the sweep size: no bookkeeping per hit, and no worst case."""
        cdef Match *victim
        cdef Match **link
        cdef uint64_t i
        while self.entry_count > self.sweep_to:
            i = self.random() % self.entry_count
            victim = self.entries[i]
            self.entry_count -= 1
            self.entries[i] = self.entries[self.entry_count]
            link = &self.buckets[victim.hash & self.bucket_mask]
            while link[0] != victim:
                link = &link[0].chain
            link[0] = victim.chain
            match_free(victim)
            free(victim)
        self.sweeps += 1

    def add_sink(
        self, bytes pattern not None, object sink not None, bytes queue not None=b"",
        bint routed=False, bint costly=False,
    ):
        """Register ``sink`` for ``pattern``; ValueError when that is no legal subject.

        A message may show another subject than the one that it is routed by, as deliveries of
        records do. A sink sees the shown one; a ``routed`` one, which passes messages on, sees
        the other, and finds the shown one as tag. Of messages for a ``costly`` one, a connection
        brings a few in one turn, as others wait for its end.
        """
        handle = self.placed(pattern, sink, queue, routed, costly)
        self.tell()
        return handle

    cdef object placed(
        self, bytes pattern, object sink, bytes queue, bint routed, bint costly,
    ):
        cdef Sub *sub
        cdef SinkSlot slot
        sub = self.insert(
            PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern),
            PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue), b"", 0, ())
        if sub == NULL:
            raise ValueError(f"not a subject: {pattern!r}")
        slot = SinkSlot.__new__(SinkSlot)
        slot.sink = sink
        slot.routed = routed
        slot.costly = costly
        slot.sub = sub
        sub.target = <void *>slot
        sub.is_sink = True
        self.slots[sub.id] = slot
        return sub.id

    def add_sinks(self, list patterns not None, object sink not None):
        """Register ``sink`` for each pattern, as ``add_sink`` does; returns the handles.

        Each wildcard looks at the whole cache: for many, the cache is made stale once instead.
        """
        cdef bytes pattern
        self.begin_many(len(patterns))
        try:
            handles = [self.placed(pattern, sink, b"", False, False) for pattern in patterns]
        finally:
            self.many = False
        self.tell()
        return handles

    def remove_sink(self, uint64_t handle):
        """Forget a sink; what was captured for it and not yet delivered is dropped."""
        cdef SinkSlot slot = self.displaced(handle)
        if slot is None:
            return False
        self._resumed(slot)
        self.tell()
        return True

    def remove_sinks(self, list handles not None):
        """Forget sinks, as ``remove_sink`` does."""
        self.begin_many(len(handles))
        gone = [self.displaced(handle) for handle in handles]
        self.many = False
        for slot in gone:
            if slot is not None:
                self._resumed(slot)
        self.tell()

    cdef SinkSlot displaced(self, uint64_t handle):
        cdef SinkSlot slot = self.slots.pop(handle, None)
        if slot is not None:
            slot.removed = True
            self.remove(slot.sub)
            slot.sub = NULL
            slot.batch = None
        return slot

    cdef void begin_many(self, Py_ssize_t count) noexcept:
        """Make the cache stale for those that come or go; nobody may match before they have."""
        cdef uint32_t i
        if count > MANY:
            self.many = True
            for i in range(self.entry_count):
                self.entries[i].stale = True

    def pause_sink(self, uint64_t handle, bint paused):
        """Stop (or go on) reading from connections that publish into this sink."""
        cdef SinkSlot slot = self.slots.get(handle)
        if slot is None:
            raise KeyError(handle)
        slot.paused = paused
        if not paused:
            self._resumed(slot)

    def _resumed(self, SinkSlot slot):
        for hook in self.resume_hooks:
            hook(slot)

    def watch(self, bytes subject not None, bytes queue not None, object callback not None):
        """Call ``callback(True)`` when the first, ``callback(False)`` when the last goes.

        Only subscriptions to this very subject (in this queue group, b"" = in none) count, not
        wildcards. Called at once when there is interest now. Returns the undo.
        """
        cdef Node *node
        if not subject_is_legal(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject)):
            raise ValueError(f"not a literal subject: {subject!r}")
        key = (subject, queue)
        self.watchers.setdefault(key, []).append(callback)
        node = <Node *>node_at(
            self.root, sizeof(Node), PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject),
            self.seed, True)
        if node != NULL and group_count(
                node, PyBytes_AS_STRING(queue), <uint32_t>PyBytes_GET_SIZE(queue)):
            callback(True)

        def undo():
            callbacks = self.watchers.get(key, [])
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks:
                self.watchers.pop(key, None)

        return undo

    def observe(self, object callback not None):
        """Call ``callback((subject, queue, step))`` for each subscription that comes (1) or goes (-1).

        What other servers want does not count. Those that are here now are told first. Returns
        the undo.
        """
        for subject, queue, _ in self.reverse_match(b">"):
            callback((subject, queue, 1))
        self.observers.append(callback)
        return partial(self.observers.remove, callback)

    def reverse_match(self, bytes pattern not None):
        """Return (subject, queue, handle) of all that a subscription to ``pattern`` collides with."""
        cdef Match found
        cdef uint32_t i, k
        cdef list subs = []
        memset(&found, 0, sizeof(Match))
        if not pattern_is_legal(PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern)):
            raise ValueError(f"not a subject: {pattern!r}")
        found.subject_len = 0
        reverse_from(
            self.root, PyBytes_AS_STRING(pattern),
            PyBytes_AS_STRING(pattern) + PyBytes_GET_SIZE(pattern), self.seed, &found)
        for i in range(found.plain_count):
            subs.append(described(found.plain[i]))
        for i in range(found.group_count):
            for k in range(found.groups[i].count):
                subs.append(described(found.groups[i].subs[k]))
        match_free(&found)
        return subs

    def has_interest(self, bytes subject not None):
        """Tell whether a publish to ``subject`` would reach anybody."""
        cdef Match *match = self.match_once(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        return match.plain_count > 0 or match.group_count > 0

    def count_interest(self, bytes subject not None):
        """Return (plain subscriptions, queue group members) that ``subject`` matches."""
        cdef Match *match = self.match_once(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        cdef uint64_t queued = 0
        cdef uint32_t i
        for i in range(match.group_count):
            queued += match.groups[i].count
        return match.plain_count, queued

    def match(self, bytes subject not None):
        """Return (plain handles, {queue: handles}) by way of the cache, as a publish would."""
        cdef Match *match = self.lookup(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        cdef dict groups = {}
        cdef uint32_t i, k
        for i in range(match.group_count):
            groups[match.groups[i].name[:match.groups[i].name_len]] = [
                match.groups[i].subs[k].id for k in range(match.groups[i].count)]
        return [match.plain[i].id for i in range(match.plain_count)], groups

    def nodes(self):
        """Count the trie's nodes, root included: what pruning must bring back to one."""
        return tree_count(self.root)

    def stats(self):
        """Return counters since the start, the present sizes, and the fan-out of what is cached."""
        cdef uint64_t widest = 0, total = 0, known = 0, width
        cdef uint32_t i, k
        for i in range(self.entry_count):
            if self.entries[i].stale:
                continue
            width = self.entries[i].plain_count
            for k in range(self.entries[i].group_count):
                width += self.entries[i].groups[k].count
            widest = max(widest, width)
            total += width
            known += 1
        return {
            "num_subscriptions": self.subscriptions,
            "num_cache": self.entry_count,
            "num_inserts": self.inserts,
            "num_removes": self.removes,
            "num_matches": self.matches,
            "cache_hits": self.cache_hits,
            "cache_hit_rate": self.cache_hits / self.matches if self.matches else 0.0,
            "max_fanout": widest,
            "avg_fanout": total / known if known else 0.0,
        }


def matches(bytes pattern not None, bytes subject not None):
    """Tell whether a legal pattern matches a subject; wildcards in the subject are plain tokens."""
    return pattern_matches(
        PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern),
        PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))


def collide(bytes a not None, bytes b not None):
    """Tell whether one literal subject could match both legal patterns."""
    return patterns_collide(
        PyBytes_AS_STRING(a), PyBytes_GET_SIZE(a), PyBytes_AS_STRING(b), PyBytes_GET_SIZE(b))


def covers(bytes wide not None, bytes narrow not None):
    """Tell whether ``wide`` matches every literal that ``narrow`` matches; both legal."""
    return pattern_covers(
        PyBytes_AS_STRING(wide), PyBytes_GET_SIZE(wide),
        PyBytes_AS_STRING(narrow), PyBytes_GET_SIZE(narrow))


cdef tuple described(const Sub *sub):
    return sub_pattern(sub)[:sub.pattern_len], sub_queue(sub)[:sub.queue_len], sub.id


cdef Py_ssize_t tree_count(const Branch *node) noexcept nogil:
    cdef Py_ssize_t total = 1
    cdef Branch *child
    cdef uint32_t i
    if node == NULL:
        return 0
    if node.fork == NULL:
        return 1
    for i in range(node.fork.table_size):
        child = node.fork.table[i]
        while child != NULL:
            total += tree_count(child)
            child = child.chain
    return total + tree_count(node.fork.star) + tree_count(node.fork.rest)
