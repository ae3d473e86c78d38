"""Runs on their way into a stream's log: what publishers demand, and what they hear.

Comes in: messages that were admitted. Goes out: appends to the log, then PubAcks and republished
messages once the commit is known. Imports ``streams.reading`` and ``streams.config``.
"""
