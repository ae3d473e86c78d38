"""A start: logs rebuilt from snapshot, segments and WAL, and a report of what was found.

Comes in: a directory as a crash left it. Goes out: logs ready to serve and a ``Recovery`` that
names every gap. ``shard_wal.py`` finds the WAL files, ``replay.py`` applies them, ``rebuild.py``
has the logs meanwhile. Imports ``store.log`` and what is below it.
"""
