"""The write-ahead log of a shard: group commit and the engine that makes entries durable.

Comes in: submissions (frames, and who wants to know). Goes out: each submission's ``committed``, in
order, once its promise is true. ``commit_queue`` decides, ``committer`` acts, ``entry_writer``
makes entries, ``commit`` says what an engine is, ``local_engine`` is the one over files. Imports
``store.disk`` alone.
"""
