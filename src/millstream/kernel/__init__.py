"""Compiled loops over bytes and integers; no domain words.

``_hub`` is what Python sees of all connections. It makes its parts and holds them: outboxes,
connections, delivery, operations, publishing, turns, each knowing those before it. ``_phrases``
are the words that it says to clients, handed in. ``_batch`` and ``_frames`` are the two layouts in
which messages and records travel; ``_interest`` matches subjects and ``_patterns`` compares them,
both over ``_trie``; ``_index`` finds records; ``_acks`` keeps what waits for an ack. Comes in:
sockets, and sinks for subjects. Goes out: batches for sinks, bytes for clients. Imports nothing of
ours above it.
"""
