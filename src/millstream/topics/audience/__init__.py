"""Everybody who waits for a topic: told once of each change, with bytes made once for all.

Comes in: commits of a stream. Goes out: pieces for each watcher that can take them.
"""
