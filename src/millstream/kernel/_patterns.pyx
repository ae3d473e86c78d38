# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Patterns: a set of subject patterns as a trie, which knows what collides with what.

A walk counts the nodes that it looks at and gives up above a number of them. Wildcards on both
sides can make it look at every node for every pattern, and nobody is to wait for that.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t

from millstream.kernel._subject cimport is_token, pattern_is_legal, token_end
from millstream.kernel._trie cimport (
    Branch, Fork, branch_new, child_named, node_at, node_made, prune, token_hash, tree_free,
)

cdef enum:
    DEEPEST = 8192  # tokens: a walk takes a frame of the stack for each

LONGEST = DEEPEST * 2 - 1  # bytes of a pattern, which then has no more tokens than that


cdef struct Node:
    Branch branch
    uint64_t owners       # their sum: the owner where there is one
    uint32_t count        # of owners whose pattern ends here


class TooManySteps(Exception):
    """A walk looked at as many nodes as it was allowed to."""


cdef bint is_empty(Branch *node) noexcept nogil:
    return (<Node *>node).count == 0


cdef void undo(Branch *node) noexcept nogil:
    pass


cdef inline bint is_others(const Branch *branch, uint64_t owner) noexcept nogil:
    cdef const Node *node = <const Node *>branch
    return node.count > 1 or (node.count == 1 and node.owners != owner)


cdef class Patterns:
    """Patterns by owner (a number). Not thread-safe: it belongs to the loop's thread."""

    cdef Branch *root
    cdef uint64_t seed
    cdef readonly Py_ssize_t steps    # that walks may still take

    def __cinit__(self, Py_ssize_t steps):
        self.root = branch_new(NULL, sizeof(Node), NULL, 0, 0)
        self.seed = int.from_bytes(os.urandom(8), "little")
        self.steps = steps

    def __dealloc__(self):
        tree_free(self.root, undo)

    def allow(self, Py_ssize_t steps):
        """Let the walks from here on look at so many nodes."""
        self.steps = steps

    cpdef add(self, bytes pattern, uint64_t owner):
        """Add a pattern of an owner; ValueError when it is no legal subject, or too long."""
        cdef Node *node
        check(pattern)
        node = <Node *>node_made(
            self.root, sizeof(Node), PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern),
            self.seed)
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
        node = <Node *>node_at(
            self.root, sizeof(Node), PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern),
            self.seed, False)
        if node == NULL or node.count == 0:
            raise KeyError(pattern)
        node.count -= 1
        node.owners -= owner
        prune(<Branch *>node, is_empty)

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


cdef bint any_below(Branch *node, uint64_t besides, Py_ssize_t *steps) noexcept nogil:
    """Whether ``node`` or anything under it belongs to another owner."""
    cdef Branch *child
    cdef uint32_t i
    if node == NULL:
        return False
    steps[0] -= 1
    if steps[0] < 0:
        return False
    if is_others(node, besides):
        return True
    if node.fork == NULL:
        return False
    if any_below(node.fork.star, besides, steps) or any_below(node.fork.rest, besides, steps):
        return True
    for i in range(node.fork.table_size):
        child = node.fork.table[i]
        while child != NULL:
            if any_below(child, besides, steps):
                return True
            child = child.chain
    return False


cdef bint colliding_step(
    Branch *node, const char *stop, const char *end, uint64_t seed, uint64_t besides,
    Py_ssize_t *steps,
) noexcept nogil:
    if node == NULL:
        return False
    if stop == end:
        return is_others(node, besides)
    return colliding_from(node, stop + 1, end, seed, besides, steps)


cdef bint colliding_from(
    Branch *node, const char *at, const char *end, uint64_t seed, uint64_t besides,
    Py_ssize_t *steps,
) noexcept nogil:
    """Whether the tokens in ``at``..``end`` collide with something below ``node``."""
    cdef const char *stop = token_end(at, end)
    cdef Fork *fork = node.fork
    cdef Branch *child
    cdef uint32_t i
    steps[0] -= 1
    if steps[0] < 0 or fork == NULL:
        return False
    if fork.rest != NULL and is_others(fork.rest, besides):
        return True
    if is_token(at, stop, b">") or is_token(at, stop, b"*"):
        for i in range(fork.table_size):
            child = fork.table[i]
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
            return any_below(fork.star, besides, steps)
    elif fork.children and colliding_step(
            named(node, at, stop, seed), stop, end, seed, besides, steps):
        return True
    return colliding_step(fork.star, stop, end, seed, besides, steps)


cdef inline Branch *named(
    Branch *node, const char *at, const char *stop, uint64_t seed
) noexcept nogil:
    return child_named(
        node, sizeof(Node), at, <uint32_t>(stop - at), token_hash(at, stop - at, seed))


cdef bint covering_step(
    Branch *node, const char *stop, const char *end, uint64_t seed, uint64_t besides,
    Py_ssize_t *steps,
) noexcept nogil:
    if node == NULL:
        return False
    if stop == end:
        return is_others(node, besides)
    return covering_from(node, stop + 1, end, seed, besides, steps)


cdef bint covering_from(
    Branch *node, const char *at, const char *end, uint64_t seed, uint64_t besides,
    Py_ssize_t *steps,
) noexcept nogil:
    """Whether something below ``node`` covers the tokens in ``at``..``end``."""
    cdef const char *stop = token_end(at, end)
    cdef Fork *fork = node.fork
    steps[0] -= 1
    if steps[0] < 0 or fork == NULL:
        return False
    if fork.rest != NULL and is_others(fork.rest, besides):
        return True
    if is_token(at, stop, b">"):
        return False
    if covering_step(fork.star, stop, end, seed, besides, steps):
        return True
    if is_token(at, stop, b"*") or fork.children == 0:
        return False
    return covering_step(named(node, at, stop, seed), stop, end, seed, besides, steps)
