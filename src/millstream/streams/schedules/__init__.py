"""Schedules: when a record is published again, by time, interval or calendar. Pure.

Comes in: header values and ``now``. Goes out: the next time. Imports ``streams.config``.
"""
