"""Writes: rows become entries, entries a batch that the server stores once.

Comes in: Arrow batches. Goes out: staged and committed batches, or published messages.
"""
