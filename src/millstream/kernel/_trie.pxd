"""A trie of subject tokens: branches found by hash, with ``*`` and ``>`` beside them; inline.

A node begins with a Branch, goes on with what its owner keeps there, and ends with its token. All
functions take the size of such a node without the token.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from millstream.kernel._memory cimport hash_bytes, must_alloc
from millstream.kernel._subject cimport is_token, token_end

cdef enum:
    FEWEST_BUCKETS = 4


cdef struct Branch:
    Branch *chain         # the next in this bucket of the parent's table
    Branch *parent        # NULL for the root
    Fork *fork            # NULL for a leaf, as most nodes are
    uint32_t hash
    uint32_t token_len


# What follows a node.
cdef struct Fork:
    Branch *star
    Branch *rest
    Branch **table
    uint32_t table_size
    uint32_t children     # in the table, without star and rest


ctypedef bint (*Judge)(Branch *node) noexcept nogil
ctypedef void (*Undo)(Branch *node) noexcept nogil


cdef inline uint32_t token_hash(const char *token, Py_ssize_t size, uint64_t seed) noexcept nogil:
    return <uint32_t>hash_bytes(token, size, seed)


cdef inline Branch *branch_new(
    Branch *parent, size_t node_size, const char *token, uint32_t size, uint32_t hashed
) noexcept nogil:
    cdef Branch *node = <Branch *>must_alloc(node_size + size)
    memset(node, 0, node_size)
    node.parent = parent
    node.hash = hashed
    node.token_len = size
    if size:
        memcpy(<char *>node + node_size, token, size)
    return node


cdef inline Fork *fork_made(Branch *node) noexcept nogil:
    if node.fork == NULL:
        node.fork = <Fork *>must_alloc(sizeof(Fork))
        memset(node.fork, 0, sizeof(Fork))
    return node.fork


cdef inline Branch *child_named(
    const Branch *node, size_t node_size, const char *token, uint32_t size, uint32_t hashed
) noexcept nogil:
    cdef Branch *child
    if node.fork == NULL or node.fork.table_size == 0:
        return NULL
    child = node.fork.table[hashed & (node.fork.table_size - 1)]
    while child != NULL:
        if child.hash == hashed and child.token_len == size \
                and memcmp(<char *>child + node_size, token, size) == 0:
            return child
        child = child.chain
    return NULL


cdef inline void table_resize(Fork *fork, uint32_t size) noexcept nogil:
    cdef Branch **table = <Branch **>must_alloc(size * sizeof(Branch *))
    cdef Branch *child
    cdef Branch *follower
    cdef uint32_t i
    memset(table, 0, size * sizeof(Branch *))
    for i in range(fork.table_size):
        child = fork.table[i]
        while child != NULL:
            follower = child.chain
            child.chain = table[child.hash & (size - 1)]
            table[child.hash & (size - 1)] = child
            child = follower
    free(fork.table)
    fork.table = table
    fork.table_size = size


cdef inline Branch *child_made(
    Branch *node, size_t node_size, const char *token, uint32_t size, uint32_t hashed
) noexcept nogil:
    cdef Branch *child = child_named(node, node_size, token, size, hashed)
    cdef Fork *fork
    if child != NULL:
        return child
    fork = fork_made(node)
    if fork.children >= fork.table_size:
        table_resize(fork, 2 * fork.table_size if fork.table_size else FEWEST_BUCKETS)
    child = branch_new(node, node_size, token, size, hashed)
    child.chain = fork.table[hashed & (fork.table_size - 1)]
    fork.table[hashed & (fork.table_size - 1)] = child
    fork.children += 1
    return child


cdef inline Branch *beside(Branch **where, Branch *parent, size_t node_size) noexcept nogil:
    if where[0] == NULL:
        where[0] = branch_new(parent, node_size, NULL, 0, 0)
    return where[0]


# Return the node where a pattern ends, made if need be.
cdef inline Branch *node_made(
    Branch *root, size_t node_size, const char *pattern, Py_ssize_t size, uint64_t seed
) noexcept nogil:
    cdef const char *at = pattern
    cdef const char *end = pattern + size
    cdef const char *stop
    cdef Branch *node = root
    while True:
        stop = token_end(at, end)
        if is_token(at, stop, b"*"):
            node = beside(&fork_made(node).star, node, node_size)
        elif is_token(at, stop, b">"):
            node = beside(&fork_made(node).rest, node, node_size)
        else:
            node = child_made(
                node, node_size, at, <uint32_t>(stop - at), token_hash(at, stop - at, seed))
        if stop == end:
            return node
        at = stop + 1


# Return the node where a pattern ends, or NULL; with ``literal``, wildcards are plain tokens.
cdef inline Branch *node_at(
    Branch *root, size_t node_size, const char *at, Py_ssize_t size, uint64_t seed, bint literal
) noexcept nogil:
    cdef const char *end = at + size
    cdef const char *stop
    cdef Branch *node = root
    while True:
        stop = token_end(at, end)
        if node.fork == NULL:
            return NULL
        if not literal and is_token(at, stop, b"*"):
            node = node.fork.star
        elif not literal and is_token(at, stop, b">"):
            node = node.fork.rest
        else:
            node = child_named(
                node, node_size, at, <uint32_t>(stop - at), token_hash(at, stop - at, seed))
        if node == NULL or stop == end:
            return node
        at = stop + 1


# Take a node out of its parent's fork, and the fork away when it was the last in it.
cdef inline void unlink(Branch *node) noexcept nogil:
    cdef Branch *parent = node.parent
    cdef Fork *fork = parent.fork
    cdef Branch **link
    if fork.star == node:
        fork.star = NULL
    elif fork.rest == node:
        fork.rest = NULL
    else:
        link = &fork.table[node.hash & (fork.table_size - 1)]
        while link[0] != node:
            link = &link[0].chain
        link[0] = node.chain
        fork.children -= 1
        if fork.children == 0:
            free(fork.table)
            fork.table = NULL
            fork.table_size = 0
    if fork.children == 0 and fork.star == NULL and fork.rest == NULL:
        free(fork)
        parent.fork = NULL


# Free ``node`` and its ancestors as long as nothing hangs on them.
cdef inline void prune(Branch *node, Judge is_empty) noexcept nogil:
    cdef Branch *parent
    while node.parent != NULL and node.fork == NULL and is_empty(node):
        parent = node.parent
        unlink(node)
        free(node)
        node = parent


# Free a tree; ``undo`` frees what its owner keeps in a node.
cdef inline void tree_free(Branch *node, Undo undo) noexcept nogil:
    cdef Branch *child
    cdef Branch *follower
    cdef uint32_t i
    if node == NULL:
        return
    if node.fork != NULL:
        tree_free(node.fork.star, undo)
        tree_free(node.fork.rest, undo)
        for i in range(node.fork.table_size):
            child = node.fork.table[i]
            while child != NULL:
                follower = child.chain
                tree_free(child, undo)
                child = follower
        free(node.fork.table)
        free(node.fork)
    undo(node)
    free(node)
