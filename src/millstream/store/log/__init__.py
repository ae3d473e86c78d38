"""A log: records by sequence, in memory and in files, with what was deleted, lost or erased.

Comes in: batches to append, sequences to delete or erase. Goes out: ``Frames`` for readers, control
frames for the WAL through a ``Host``. Imports ``store.wal``, ``store.segments`` and ``store.disk``.
"""
