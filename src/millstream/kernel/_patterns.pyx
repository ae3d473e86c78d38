# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Patterns: a set of subject patterns as a trie, which knows what collides with what.

A walk counts the nodes that it looks at and gives up above a number of them. Wildcards on both
sides can make it look at every node for every pattern, and nobody is to wait for that.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from millstream.kernel._memory cimport hash_bytes, must_alloc
from millstream.kernel._subject cimport is_token, pattern_is_legal, token_end

cdef uint32_t FEWEST_BUCKETS = 4

cdef enum:
    DEEPEST = 8192  # tokens: a walk takes a frame of the stack for each

LONGEST = DEEPEST * 2 - 1  # bytes of a pattern, which then has no more tokens than that


cdef struct Node:
    Node *chain           # the next in this bucket of the parent's table
    Node *parent          # NULL for the root
    Node *star
    Node *rest
    Node **table
    uint32_t table_size
    uint32_t children     # in the table, without star and rest
    uint64_t hash
    char *token
    uint32_t token_len
    uint32_t count        # of owners whose pattern ends here
    uint64_t owners       # their sum: the owner where there is one


class TooManySteps(Exception):
    """A walk looked at as many nodes as it was allowed to."""


cdef Node *node_new(Node *parent) noexcept nogil:
    cdef Node *node = <Node *>must_alloc(sizeof(Node))
    memset(node, 0, sizeof(Node))
    node.parent = parent
    return node


cdef inline Node *child_named(
    Node *node, const char *token, uint32_t size, uint64_t hashed
) noexcept nogil:
    cdef Node *child
    if node.table_size == 0:
        return NULL
    child = node.table[hashed & (node.table_size - 1)]
    while child != NULL:
        if child.hash == hashed and child.token_len == size \
                and memcmp(child.token, token, size) == 0:
            return child
        child = child.chain
    return NULL


cdef void table_resize(Node *node, uint32_t size) noexcept nogil:
    cdef Node **table = <Node **>must_alloc(size * sizeof(Node *))
    cdef Node *child
    cdef Node *follower
    cdef uint32_t i
    memset(table, 0, size * sizeof(Node *))
    for i in range(node.table_size):
        child = node.table[i]
        while child != NULL:
            follower = child.chain
            child.chain = table[child.hash & (size - 1)]
            table[child.hash & (size - 1)] = child
            child = follower
    free(node.table)
    node.table = table
    node.table_size = size


cdef Node *child_made(Node *node, const char *token, uint32_t size, uint64_t hashed) noexcept nogil:
    cdef Node *child = child_named(node, token, size, hashed)
    if child != NULL:
        return child
    if node.children >= node.table_size:
        table_resize(node, 2 * node.table_size if node.table_size else FEWEST_BUCKETS)
    child = node_new(node)
    child.token = <char *>must_alloc(size)
    memcpy(child.token, token, size)
    child.token_len = size
    child.hash = hashed
    child.chain = node.table[hashed & (node.table_size - 1)]
    node.table[hashed & (node.table_size - 1)] = child
    node.children += 1
    return child


cdef void table_unlink(Node *parent, Node *child) noexcept nogil:
    cdef Node **link = &parent.table[child.hash & (parent.table_size - 1)]
    while link[0] != child:
        link = &link[0].chain
    link[0] = child.chain
    parent.children -= 1
    if parent.children == 0:
        free(parent.table)
        parent.table = NULL
        parent.table_size = 0


cdef void prune(Node *node) noexcept nogil:
    """Free ``node`` and its ancestors as long as no pattern needs them."""
    cdef Node *parent
    while node.parent != NULL and node.count == 0 and node.children == 0 \
            and node.star == NULL and node.rest == NULL:
        parent = node.parent
        if parent.star == node:
            parent.star = NULL
        elif parent.rest == node:
            parent.rest = NULL
        else:
            table_unlink(parent, node)
        free(node.token)
        free(node)
        node = parent


cdef void tree_free(Node *node) noexcept nogil:
    cdef Node *child
    cdef Node *follower
    cdef uint32_t i
    if node == NULL:
        return
    tree_free(node.star)
    tree_free(node.rest)
    for i in range(node.table_size):
        child = node.table[i]
        while child != NULL:
            follower = child.chain
            tree_free(child)
            child = follower
    free(node.table)
    free(node.token)
    free(node)


cdef inline bint is_others(const Node *node, uint64_t owner) noexcept nogil:
    return node.count > 1 or (node.count == 1 and node.owners != owner)


cdef class Patterns:
    """Patterns by owner (a number). Not thread-safe: it belongs to the loop's thread."""

    cdef Node *root
    cdef uint64_t seed
    cdef readonly Py_ssize_t steps    # that walks may still take

    def __cinit__(self, Py_ssize_t steps):
        self.root = node_new(NULL)
        self.seed = int.from_bytes(os.urandom(8), "little")
        self.steps = steps

    def __dealloc__(self):
        tree_free(self.root)

    def allow(self, Py_ssize_t steps):
        """Let the walks from here on look at so many nodes."""
        self.steps = steps

    cdef Node *place(self, bytes pattern, bint made) except? NULL:
        """Return where a pattern ends, NULL when nothing is there and nothing is to be made."""
        cdef const char *at = PyBytes_AS_STRING(pattern)
        cdef const char *end = at + PyBytes_GET_SIZE(pattern)
        cdef const char *stop
        cdef Node *node = self.root
        cdef uint64_t hashed
        while True:
            stop = token_end(at, end)
            if is_token(at, stop, b"*"):
                if node.star == NULL and made:
                    node.star = node_new(node)
                node = node.star
            elif is_token(at, stop, b">"):
                if node.rest == NULL and made:
                    node.rest = node_new(node)
                node = node.rest
            else:
                hashed = hash_bytes(at, stop - at, self.seed)
                if made:
                    node = child_made(node, at, <uint32_t>(stop - at), hashed)
                else:
                    node = child_named(node, at, <uint32_t>(stop - at), hashed)
            if node == NULL or stop == end:
                return node
            at = stop + 1

    cpdef add(self, bytes pattern, uint64_t owner):
        """Add a pattern of an owner; ValueError when it is no legal subject, or too long."""
        cdef Node *node
        check(pattern)
        node = self.place(pattern, True)
        node.count += 1
        node.owners += owner

    def first(self, list patterns not None, bint covering):
        """Add patterns, each owned by its place, and return the first that one of them disturbs.

        That is the place of the first that is covered by another, or that collides with one; -1
        where none is. Raises ValueError and TooManySteps as the others do.
        """
        cdef bytes pattern
        cdef Py_ssize_t at
        for at in range(len(patterns)):
            pattern = patterns[at]
            self.add(pattern, at)
        for at in range(len(patterns)):
            pattern = patterns[at]
            if self.walked(pattern, at, covering):
                return at
        return -1

    def remove(self, bytes pattern not None, uint64_t owner):
        """Take a pattern away again that the owner has added."""
        cdef Node *node
        check(pattern)
        node = self.place(pattern, False)
        if node == NULL or node.count == 0:
            raise KeyError(pattern)
        node.count -= 1
        node.owners -= owner
        prune(node)

    def collides(self, bytes pattern not None, uint64_t besides):
        """Tell whether a literal subject could match both this and a pattern of another owner.

        Raises TooManySteps when the walks may not look any further.
        """
        return self.walked(pattern, besides, False)

    def is_covered(self, bytes pattern not None, uint64_t besides):
        """Tell whether a pattern of another owner matches every literal that this one matches.

        Raises TooManySteps when the walks may not look any further.
        """
        return self.walked(pattern, besides, True)

    cdef bint walked(self, bytes pattern, uint64_t besides, bint covering) except -1:
        cdef const char *at = PyBytes_AS_STRING(pattern)
        cdef const char *end = at + PyBytes_GET_SIZE(pattern)
        cdef bint found
        check(pattern)
        if covering:
            found = covering_from(self.root, at, end, self.seed, besides, &self.steps)
        else:
            found = colliding_from(self.root, at, end, self.seed, besides, &self.steps)
        if self.steps < 0 and not found:
            raise TooManySteps()
        return found


cdef int check(bytes pattern) except -1:
    if not pattern_is_legal(PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern)):
        raise ValueError(f"not a subject: {pattern!r}")
    if PyBytes_GET_SIZE(pattern) > 2 * DEEPEST - 1:
        raise ValueError(f"a subject of {len(pattern)} bytes is too long")
    return 0


cdef bint any_below(Node *node, uint64_t besides, Py_ssize_t *steps) noexcept nogil:
    """Whether ``node`` or anything under it belongs to another owner."""
    cdef Node *child
    cdef uint32_t i
    if node == NULL:
        return False
    steps[0] -= 1
    if steps[0] < 0:
        return False
    if is_others(node, besides) or any_below(node.star, besides, steps) \
            or any_below(node.rest, besides, steps):
        return True
    for i in range(node.table_size):
        child = node.table[i]
        while child != NULL:
            if any_below(child, besides, steps):
                return True
            child = child.chain
    return False


cdef bint colliding_step(
    Node *node, const char *stop, const char *end, uint64_t seed, uint64_t besides,
    Py_ssize_t *steps,
) noexcept nogil:
    if node == NULL:
        return False
    if stop == end:
        return is_others(node, besides)
    return colliding_from(node, stop + 1, end, seed, besides, steps)


cdef bint colliding_from(
    Node *node, const char *at, const char *end, uint64_t seed, uint64_t besides,
    Py_ssize_t *steps,
) noexcept nogil:
    """Whether the tokens in ``at``..``end`` collide with something below ``node``."""
    cdef const char *stop = token_end(at, end)
    cdef Node *child
    cdef uint32_t i
    steps[0] -= 1
    if steps[0] < 0:
        return False
    if node.rest != NULL and is_others(node.rest, besides):
        return True
    if is_token(at, stop, b">") or is_token(at, stop, b"*"):
        for i in range(node.table_size):
            child = node.table[i]
            while child != NULL:
                steps[0] -= 1
                if at[0] == b">":
                    if any_below(child, besides, steps):
                        return True
                elif colliding_step(child, stop, end, seed, besides, steps):
                    return True
                if steps[0] < 0:
                    return False
                child = child.chain
        if at[0] == b">":
            return any_below(node.star, besides, steps)
    elif node.children:
        child = child_named(node, at, <uint32_t>(stop - at), hash_bytes(at, stop - at, seed))
        if colliding_step(child, stop, end, seed, besides, steps):
            return True
    return colliding_step(node.star, stop, end, seed, besides, steps)


cdef bint covering_step(
    Node *node, const char *stop, const char *end, uint64_t seed, uint64_t besides,
    Py_ssize_t *steps,
) noexcept nogil:
    if node == NULL:
        return False
    if stop == end:
        return is_others(node, besides)
    return covering_from(node, stop + 1, end, seed, besides, steps)


cdef bint covering_from(
    Node *node, const char *at, const char *end, uint64_t seed, uint64_t besides,
    Py_ssize_t *steps,
) noexcept nogil:
    """Whether something below ``node`` covers the tokens in ``at``..``end``."""
    cdef const char *stop = token_end(at, end)
    cdef Node *child
    steps[0] -= 1
    if steps[0] < 0:
        return False
    if node.rest != NULL and is_others(node.rest, besides):
        return True
    if is_token(at, stop, b">"):
        return False
    if covering_step(node.star, stop, end, seed, besides, steps):
        return True
    if is_token(at, stop, b"*") or node.children == 0:
        return False
    child = child_named(node, at, <uint32_t>(stop - at), hash_bytes(at, stop - at, seed))
    return covering_step(child, stop, end, seed, besides, steps)
