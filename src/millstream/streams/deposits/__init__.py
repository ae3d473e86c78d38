"""Exactly-once batches: staged in files that nobody reads, then committed under a number.

Comes in: parts of a batch, then its commit. Goes out: one append with a note in the same commit.
Imports ``streams.catalog`` and ``streams.stream``.
"""
