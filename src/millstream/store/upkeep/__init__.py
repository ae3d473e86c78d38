"""Work on a directory at rest: inspect (fsck), scrub, repair and dump.

Comes in: the path of a directory that no server uses. Goes out: reports; repair also writes. Each
works as a start over the directory does. Imports everything below ``store.store``.
"""
