"""A log: records by sequence, in memory and in files, with what was deleted, lost or erased.

Comes in: batches to append, sequences to delete or erase. Goes out: ``Frames`` for readers, control
frames for the WAL through a ``LogHost``. ``file_log.py`` appends; its parts promise sequences, keep
marks, let segments grow, skip and remove. Imports ``store.wal``, ``store.segments`` and
``store.disk``.
"""
