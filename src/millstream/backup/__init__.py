"""Backups of a data directory: taken while it is in use, added to, and restored to a moment.

Comes in: a directory and a place for objects. Goes out: pieces named after their content, and a
list of them for each moment.
"""
