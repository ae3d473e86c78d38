"""The write-ahead log of a shard: group commit and the engine that makes entries durable.

Comes in: submissions (frames, and who wants to know). Goes out: each submission's ``committed``, in
order, once its promise is true. Imports ``store.disk`` alone.
"""
