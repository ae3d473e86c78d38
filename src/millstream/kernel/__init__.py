"""Compiled loops over bytes and integers; no domain words.

The hub is one class in six modules, each adding one idea to the one before it: outboxes,
connections, delivery, operations, publishing, the turn of the loop. ``_batch`` and ``_frames``
are the two layouts in which messages and records travel; ``_interest`` matches subjects;
``_index`` finds records; ``_acks`` keeps what waits for an ack. Comes in: sockets, and sinks for
subjects. Goes out: batches for sinks, bytes for clients. Imports nothing of ours above it.
"""
