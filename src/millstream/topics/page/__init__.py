"""One read of a topic as JSON: records, tombstones, state. Diff, tail and watch all use it.

Comes in: a stream and a position. Goes out: compact JSON. Pure but for the read.
"""
