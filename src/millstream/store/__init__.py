"""Records on disk: knows sequences and bytes, not policies.

``store.py`` is the face of all logs of a directory. The WAL goes first: a ``disk`` log's segment
is sealed only once a sync of the WAL has covered it, and a snapshot lets older WAL files go.
Comes in: batches and control frames. Goes out: ``Frames``, and word of each commit. The folders
import down: ``upkeep``, ``store.py``, ``recovery``, ``cold``, ``log``, then ``wal`` and
``segments``, ``disk``.
"""
